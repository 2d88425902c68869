// SPDX-License-Identifier: Apache-2.0
//! Faults of IMAS, its files or its environment. The message must be clear and have a hint, and the program
//! must start.

mod catalogue;
mod disks;
mod installation;
mod pages;
mod store;
mod unfit;
mod words;

use std::path::PathBuf;
use std::process::Output;

use crate::support::{World, assert_printed, build, describe, stderr};

/// The program started as if IMAS did not exist, and a message gave the reason.
pub(crate) fn assert_started_untouched(output: &Output, says: &str) {
    assert_printed(output, 0, "libc\n");
    let text = stderr(output);
    assert!(
        text.lines().any(|line| line.starts_with("imas: ") && line.contains(says)),
        "{}",
        describe(output)
    );
}

/// A program that prints which allocator serves it.
pub(crate) fn who(world: &World) -> PathBuf {
    build::program("who", &world.work())
}
