// SPDX-License-Identifier: Apache-2.0
//! `imas`: finds the memory allocator that suits a program, and starts the program on it.
//!
//! A table of contents: arguments, then one module per command. All knowledge lies in the libraries; here it
//! is only put together.

mod active;
mod advise;
mod again;
mod applied;
mod apply;
mod arena_advice;
mod bench;
mod bench_args;
mod bundle;
mod choice;
mod cli;
mod complete;
mod dispatch;
mod doctor;
mod drop_in;
mod env;
mod examples;
mod explain;
mod export;
mod external;
mod harvest;
mod last_look;
mod learn;
mod learn_args;
mod lines_args;
mod list;
mod man;
mod noise;
mod overrides;
mod plain_run;
mod process_memory;
mod profile;
mod program_names;
mod record;
mod replay;
mod report;
mod server_args;
mod service_args;
mod settled;
mod show;
mod start;
mod status;
mod system;
mod ticker;
mod trace_args;
mod unit;
mod watch;
mod wrapper;

use std::process::ExitCode;

use imas_cli::{message, output};
use imas_engine::{context, probe};

fn main() -> ExitCode {
    if let Some(answer) = probe::answer() {
        return answer;
    }
    if let Some((args, places)) = plain_run::read() {
        return status_of(start::run(&args, &places), true);
    }
    // The shell asks what may follow: in its environment is COMPLETE.
    clap_complete::CompleteEnv::with_factory(cli::Cli::definition).complete();
    let cli = match cli::Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return usage_error(&usage),
    };
    let for_run = matches!(cli.command, cli::Command::Run(_));
    status_of(dispatch::dispatch(cli), for_run)
}

fn status_of(done: anyhow::Result<ExitCode>, for_run: bool) -> ExitCode {
    match done {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&imas_engine::store_damage::advised(error));
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
