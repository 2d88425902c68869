// SPDX-License-Identifier: Apache-2.0
//! Programs that know nothing of IMAS are trimmed in each kind of wait, many times, and notice nothing.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stdout, reason = "figures of the tests")]

mod program;
mod storms;
mod waits;

use std::process::Command;

use imas_testing::skipped;
use imas_trim::LeftAlone;

use crate::program::{Program, compiled};

#[test]
fn a_process_gives_back() {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(Command::new(compiled(folder.path(), "waits")).arg("read"));
    let done = match program.trim() {
        Err(LeftAlone::NotAllowed) => return skipped("processes cannot be traced here"),
        done => done.unwrap(),
    };
    let (before, after) = done.resident.unwrap();
    assert!(before - after > 15 << 20 && done.arenas == 1, "{done:?}");
    program.end();
}

#[test]
fn a_process_whose_code_is_another_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Program::start(Command::new(compiled(folder.path(), "waits")).arg("read"));
    program.site.malloc_trim.1 = [0; 16];
    let refused = program.trim().unwrap_err();
    if refused == LeftAlone::NotAllowed {
        return skipped("processes cannot be traced here");
    }
    assert_eq!(refused, LeftAlone::OtherProgram);
    program.end();
}
