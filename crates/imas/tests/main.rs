// SPDX-License-Identifier: Apache-2.0
//! Tests of the whole command. One program, because each test program is linked with all libraries.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]
#![allow(clippy::print_stdout, reason = "what cannot run here is named")]

mod bad_input;
mod bench;
mod bench_habits;
mod bench_server;
mod children;
mod crash;
mod default_set;
mod first_hour;
mod lasting_settings;
mod one_answer;
mod process_memory;
mod programs;
mod runtime_looks;
mod runtimes;
mod services;
mod settled;
mod starts;
mod support;
mod the_loop;
mod trim;

/// A file of this folder that is no module here would not be run.
#[test]
fn every_file_is_a_module() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests");
    imas_testing::every_file_is_a_module(folder, include_str!("main.rs"), &[]);
}
