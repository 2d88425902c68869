// SPDX-License-Identifier: Apache-2.0
//! The `main` of a program with a command line.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::message;

use crate::{probe, store_damage};

/// Exit status of the program: reads its words, does what they ask, and reports what went wrong. Nothing may
/// come before: a probe must not depend on arguments, files or the store.
pub fn main_of<C>(
    read: impl FnOnce() -> Result<C, clap::Error>,
    run: impl FnOnce(C) -> Result<ExitCode>,
) -> ExitCode {
    if let Some(answer) = probe::answer() {
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
            message::error(&store_damage::advised(error));
            ExitCode::from(2)
        }
    }
}
