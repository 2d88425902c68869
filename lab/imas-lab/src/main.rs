// SPDX-License-Identifier: Apache-2.0
//! `imas-lab`: the laboratory. Measures real programs under every candidate, runs the published experiments
//! again, and replays runs through policies.
//!
//! A table of contents: arguments, then one module per command. All knowledge lies in the libraries.

mod cli;
mod fleet;
mod mobile;
mod replay;
mod services;
mod simulate;
mod study;
mod study_args;
mod suite;
mod trace;
mod with_list;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use cli::{Cli, Command};
use imas_cli::{manual, message};
use imas_engine::context::Context;
use imas_engine::entry;
use imas_runs::interruption::InterruptedBy;

fn main() -> ExitCode {
    entry::main_of(Cli::read, |cli| dispatch(cli).or_else(interrupted))
}

/// Exit status of a program that the signal ended.
fn interrupted(error: anyhow::Error) -> Result<ExitCode> {
    let Some(by) = error.downcast_ref::<InterruptedBy>() else { return Err(error) };
    message::error(&error);
    Ok(ExitCode::from(by.exit_status()))
}

/// Does what was asked.
fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Suite(args) => return suite::run(&args.action, places),
        Command::Services(args) => return services::run(&args, places),
        Command::Study(args) => return study::run(&args, places),
        Command::Simulate(args) => return simulate::run(&args, places),
        Command::Record(args) => return trace::record::run(&args, &Context::new(places)?),
        Command::Replay(args) => return trace::replay::run(&args, &Context::new(places)?),
        Command::Completions { shell } => manual::completions(Cli::command(), shell)?,
        Command::Manpages { folder } => manual::manpages(Cli::command(), &folder)?,
    }
    Ok(ExitCode::SUCCESS)
}
