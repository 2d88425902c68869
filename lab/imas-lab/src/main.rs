// SPDX-License-Identifier: Apache-2.0
//! `imas-lab`: the laboratory. Measures real programs under every candidate, runs the published experiments
//! again, and replays runs through policies.
//!
//! A table of contents: arguments, then one module per command. All knowledge lies in the libraries.

mod cli;
mod fleet;
mod hint;
mod mobile;
mod replay;
mod services;
mod simulate;
mod study;
mod study_args;
mod suite;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use cli::{Cli, Command};
use imas_cli::manual;
use imas_cli::message;
use imas_engine::probe;
use imas_runs::interruption::InterruptedBy;

fn main() -> ExitCode {
    if let Some(answer) = probe::answer() {
        return answer;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(usage) => return usage_error(&usage),
    };
    match dispatch(cli) {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let interrupted = error.downcast_ref::<InterruptedBy>().map(|by| by.exit_status());
            message::error(&imas_engine::store_damage::advised(error));
            ExitCode::from(interrupted.unwrap_or(2))
        }
    }
}

/// Does what was asked.
fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Suite(args) => return suite::run(&args.action, places),
        Command::Services(args) => return services::run(&args, places),
        Command::Study(args) => return study::run(&args, places),
        Command::Simulate(args) => return simulate::run(&args, places),
        Command::Completions { shell } => manual::completions(Cli::command(), shell)?,
        Command::Manpages { folder } => manual::manpages(Cli::command(), &folder)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Help and version are data; anything else is a usage error.
fn usage_error(usage: &clap::Error) -> ExitCode {
    let _ = usage.print(); // if this fails, the error cannot be reported either
    if usage.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS }
}
