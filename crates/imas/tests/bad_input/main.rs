// SPDX-License-Identifier: Apache-2.0
//! Whatever is wrong with IMAS, its files or its surroundings: a clear message with a way out, and the program starts.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod catalogue;
mod disks;
mod installation;
mod pages;
mod store;
#[path = "../support/mod.rs"]
mod support;
mod unfit;
mod words;

use std::path::PathBuf;
use std::process::Output;

use support::{World, build, said, stderr, stdout};

/// The program started as if IMAS did not exist, and something was said about why.
pub(crate) fn assert_started_untouched(output: &Output, says: &str) {
    assert_eq!((output.status.code(), stdout(output).as_str()), (Some(0), "libc\n"), "{}", said(output));
    let text = stderr(output);
    assert!(text.lines().any(|line| line.starts_with("imas: ") && line.contains(says)), "{}", said(output));
}

/// A program that tells what serves it.
pub(crate) fn who(world: &World) -> PathBuf {
    build::program("who", &world.work())
}
