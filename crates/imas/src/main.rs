// SPDX-License-Identifier: Apache-2.0
//! `imas`: finds the memory allocator that suits a program, and starts the program on it.
//!
//! A table of contents: arguments, then one module per command. All knowledge lies in the libraries; here it is only put together.

mod advise;
mod again;
mod apply;
mod bench;
mod choice;
mod cli;
mod commands;
mod config;
mod context;
mod doctor;
mod drop_in;
mod env;
mod explain;
mod export;
mod harvest;
mod list;
mod message;
mod mobile;
mod noise;
mod output;
mod profile;
mod report;
mod service_args;
mod show;
mod sighting;
mod simulate;
mod start;
mod status;
mod study;
mod study_args;
mod suite;
mod system;
mod under_way;
mod unit;
mod wishes;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(answer) = probe_answer() {
        return answer;
    }
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return usage_error(&usage),
    };
    let for_run = matches!(cli.command, cli::Command::Run(_));
    match commands::dispatch(cli) {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&error);
            // `run` speaks with the program's own codes; 125 is the one that means "imas itself failed".
            ExitCode::from(if for_run { 125 } else { 2 })
        }
    }
}

/// Help and version are data; anything else is a usage error, 125 for `run` so that no code of the program is imitated.
fn usage_error(usage: &clap::Error) -> ExitCode {
    let for_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    let _ = usage.print(); // nothing is left to be told if this fails
    match usage.use_stderr() {
        false => ExitCode::SUCCESS,
        true if for_run => ExitCode::from(125),
        true => ExitCode::from(2),
    }
}

/// The probe's other side, before anything else: it must not depend on arguments, files or the store.
fn probe_answer() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != imas_linux::process::PROBE_ARGUMENT {
        return None;
    }
    let mapped = words.next().is_some_and(|library| imas_linux::process::probe_answer(library.as_ref()));
    Some(if mapped { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
