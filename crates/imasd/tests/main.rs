// SPDX-License-Identifier: Apache-2.0
//! Tests of the whole daemon. One program, because each test program is linked with all libraries.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]
#![allow(clippy::print_stderr, reason = "what cannot run here is named")]

mod fleet;
mod lives;
mod operator;
mod outside;
mod robust;
mod services;
mod support;
mod the_loop;

/// A file of this folder that is no module here would not be run. `hostile.rs` is a program of its own: its storms of
/// processes are seen by the daemons of other tests.
#[test]
fn every_file_is_a_module() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    imas_testing::every_file_is_a_module(folder, include_str!("main.rs"), &["hostile"]);
}
