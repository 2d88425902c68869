// SPDX-License-Identifier: Apache-2.0
//! The beginning and the end of a program with a command line: a probe answers and ends, an error becomes a message with
//! a hint and an exit status.

use std::process::ExitCode;

use anyhow::{Error, Result};
use imas_cli::message::{self, Hinted};
use imas_linux::program::CommandError;
use imas_store::StoreError;

/// Exit status of the program: reads its words, does what they ask, and reports what went wrong. Nothing may
/// come before: a probe must not depend on arguments, files or the store.
pub fn main_of<C>(
    read: impl FnOnce() -> Result<C, clap::Error>,
    run: impl FnOnce(C) -> Result<ExitCode>,
) -> ExitCode {
    if let Some(answer) = probe_answer() {
        return answer;
    }
    let words = match read() {
        Ok(words) => words,
        Err(usage) => {
            let _ = usage.print(); // if this fails, the error cannot be reported either
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    match run(words) {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&advised(error));
            ExitCode::from(2)
        }
    }
}

// The other side of [`imas_linux::process::probe`], which starts this binary again under a library.

/// How this process ends if it was started as a probe, or as a helper that reads what the kernel shows of others'
/// processes ([`imas_linux::foreign_process`]). A binary that reads a [`crate::context::Context`] asks
/// this before anything else: a probe must not depend on arguments, files or the store.
#[must_use]
pub fn probe_answer() -> Option<ExitCode> {
    if imas_linux::foreign_file::help_if_asked() {
        return Some(ExitCode::SUCCESS);
    }
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != imas_linux::process::PROBE_ARGUMENT {
        return None;
    }
    let mapped = arguments.next().is_some_and(|library| imas_linux::process::probe_answer(library.as_ref()));
    Some(if mapped { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

// Hints for a store that is found to be damaged, or not to be written, while it is used.

/// The error with a hint what to do, where it says that a store is damaged or cannot be written. Any other error
/// stays as it is.
#[must_use]
pub fn advised(error: Error) -> Error {
    let way_out = error.chain().find_map(|cause| cause.downcast_ref::<StoreError>().and_then(hint));
    match way_out.filter(|_| message::hint(&error).is_none()) {
        Some(way_out) => Hinted::error(message::text(&error), way_out),
        None => error,
    }
}

fn hint(error: &StoreError) -> Option<&'static str> {
    let damaged = "the store is damaged: move its file away and a new one is begun; 'imas doctor' checks it";
    let read_only = "file and folder of the store must be yours to write; --store FILE names another store";
    error.is_damage().then_some(damaged).or_else(|| error.is_read_only().then_some(read_only))
}

// Commands that cannot be started at all: why, and the exit status.

/// Exit status for a file that is there but cannot be executed.
const NOT_EXECUTABLE: u8 = 126;
/// Exit status for a command that is not found.
const NOT_FOUND: u8 = 127;

/// Exit status of a command that cannot be started, as env(1) has it. Why is reported.
pub fn exit_status(error: CommandError) -> ExitCode {
    let code = if matches!(error, CommandError::NotFound(_)) { NOT_FOUND } else { NOT_EXECUTABLE };
    message::error(&error.into());
    ExitCode::from(code)
}
