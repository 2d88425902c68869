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
use imas_engine::{manual, probe};
use imas_report::message;
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
            message::error(&error);
            if let Some(interrupted) = error.downcast_ref::<InterruptedBy>() {
                return ExitCode::from(interrupted.exit_status());
            }
            ExitCode::from(2)
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
