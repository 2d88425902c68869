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
mod dispatch;
mod doctor;
mod drop_in;
mod env;
mod explain;
mod export;
mod harvest;
mod list;
mod noise;
mod profile;
mod report;
mod service_args;
mod show;
mod sighting;
mod start;
mod status;
mod system;
mod under_way;
mod unit;
mod when;
mod wishes;

use std::process::ExitCode;

use imas_engine::{context, probe};
use imas_report::{message, output};

fn main() -> ExitCode {
    if let Some(answer) = probe::answer() {
        return answer;
    }
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return usage_error(&usage),
    };
    let for_run = matches!(cli.command, cli::Command::Run(_));
    match dispatch::dispatch(cli) {
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
