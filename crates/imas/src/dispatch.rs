// SPDX-License-Identifier: Apache-2.0
//! From a command to the module that does it.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::CommandFactory;
use imas_engine::manual;

use crate::cli::{Cli, Command};
use crate::context::Context;
use crate::{advise, apply, bench, doctor, env, explain, list, report, show, start, status, system, wishes};

/// Does what was asked.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Run(args) => start::run(&args, places),
        Command::Bench(args) => bench::run(&args, &Context::new(places)?),
        Command::List(args) => list::run(&args, &Context::new(places)?),
        Command::Show(args) => show::run(&args, &Context::new(places)?),
        Command::Explain(args) => explain::run(&args, &Context::new(places)?),
        Command::Pin(args) => wishes::pin(&args, &Context::new(places)?),
        Command::Unpin(args) => wishes::unpin(&args, &Context::new(places)?),
        Command::Exclude(args) => wishes::exclude(&args.action, &Context::new(places)?),
        Command::Forget(args) => wishes::forget(&args, &Context::new(places)?),
        Command::Lift(args) => wishes::lift(&args, &Context::new(&places.of_the_system())?),
        Command::Status(args) => {
            status::run(&args, &Context::beside(&places.of_the_system(), &args.run_dir)?)
        }
        Command::Advise(args) => advise::run(args, &Context::new(places)?),
        Command::Apply(args) => apply::apply(&args, &Context::new(places)?),
        Command::Unapply(args) => apply::unapply(&args),
        Command::Env(args) => env::run(&args, &Context::new(places)?),
        Command::Doctor(args) if args.noise => crate::noise::run(&args.command, args.pairs, args.json.json),
        Command::Doctor(args) => doctor::run(args.json, &cli.places),
        Command::Suite(_) => moved("suite"),
        Command::System(args) => system::run(&args, places),
        Command::Report(args) => report::run(&args, places),
        Command::Study(_) => moved("study"),
        Command::Simulate(_) => moved("simulate"),
        Command::Completions { shell } => completions(shell),
        Command::Manpages { folder } => manpages(&folder),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    manual::completions(Cli::command(), shell)?;
    Ok(ExitCode::SUCCESS)
}

fn manpages(folder: &std::path::Path) -> Result<ExitCode> {
    manual::manpages(Cli::command(), folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Says where a verb went: there is nothing of it here.
fn moved(verb: &str) -> Result<ExitCode> {
    bail!("{verb} moved to imas-lab: run 'imas-lab {verb} ...'")
}
