// SPDX-License-Identifier: Apache-2.0
//! `imas`: finds the memory allocator that suits a program, and starts the program on it.
//!
//! A table of contents: arguments, then one module per command. All knowledge lies in the libraries; here it
//! is only put together.

mod apply;
pub(crate) mod command_line;
pub(crate) mod dispatch;
mod look;
mod measure;
mod start;
pub(crate) mod stored;
mod system;

use std::process::ExitCode;

use imas_cli::message;
use imas_engine::entry;
use rustix::process::{Resource, getrlimit};

/// The stack of the first thread has as much as `ulimit -s` says. Below this, imas runs on a stack of its own: to read
/// its command line alone takes more than 128 KiB.
const LEAST_STACK: u64 = 1 << 20;
const OWN_STACK: usize = 8 << 20;

fn main() -> ExitCode {
    let is_small = getrlimit(Resource::Stack).current.is_some_and(|bytes| bytes < LEAST_STACK);
    let thread =
        is_small.then(|| std::thread::Builder::new().stack_size(OWN_STACK).spawn(imas).ok()).flatten();
    match thread {
        // It has said why, if it panicked.
        Some(thread) => thread.join().unwrap_or_else(|_| ExitCode::from(101)),
        None => imas(),
    }
}

fn imas() -> ExitCode {
    if let Some(answer) = entry::probe_answer() {
        return answer;
    }
    if let Some((args, places)) = command_line::plain_run() {
        return status_of(start::run(&args, &places), true);
    }
    // The shell asks what may follow: in its environment is COMPLETE.
    dispatch::complete_elsewhere();
    clap_complete::CompleteEnv::with_factory(command_line::cli::Cli::definition).complete();
    let cli = match command_line::cli::Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return usage_error(&usage),
    };
    let for_run = matches!(cli.command, command_line::cli::Command::Run(_));
    status_of(dispatch::dispatch(cli), for_run)
}

fn status_of(done: anyhow::Result<ExitCode>, for_run: bool) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&imas_engine::entry::advised(error));
            // `run` speaks with the program's own codes; 125 is the one that means "imas itself failed".
            ExitCode::from(if for_run { 125 } else { 2 })
        }
    }
}

/// Help and version are data; anything else is a usage error, 125 for `run` so that no code of the program is
/// imitated.
fn usage_error(usage: &clap::Error) -> ExitCode {
    let for_run = std::env::args_os().nth(1).is_some_and(|word| word == "run");
    let _ = usage.print(); // if this fails, the error cannot be reported either
    match usage.use_stderr() {
        false => ExitCode::SUCCESS,
        true if for_run => ExitCode::from(125),
        true => ExitCode::from(2),
    }
}
