// SPDX-License-Identifier: Apache-2.0
//! From a command to the module that does it.

use std::process::ExitCode;

use anyhow::Result;
use imas_cli::manual;

use crate::apply::{bundle, env, overrides, trim, watch};
use crate::command_line::cli::{Cli, Command};
use crate::command_line::external;
use crate::look::{advise, doctor, explain, list, report, show, status};
use crate::measure::bench;
use crate::{apply, start, system};
use imas_engine::context::Context;

/// Does what was asked.
pub(crate) fn dispatch(cli: Cli) -> Result<ExitCode> {
    let places = &cli.places;
    match cli.command {
        Command::Run(args) => start::run(&args, places),
        Command::Bench(args) => bench::run(&args, &Context::new(places)?),
        Command::List(args) => list::run(&args, &Context::new(places)?),
        Command::Show(args) => show::run(&args, places, &Context::new(places)?),
        Command::Explain(args) => explain::run(&args, &Context::new(places)?),
        Command::Pin(args) => overrides::pin(&args, &Context::new(places)?),
        Command::Unpin(args) => overrides::unpin(&args, &Context::new(places)?),
        Command::Exclude(args) => overrides::exclude(&args.action, &Context::new(places)?),
        Command::Forget(args) => overrides::forget(&args, &Context::new(places)?),
        Command::Harvest(args) => crate::stored::harvest::run(args, &Context::new(places)?),
        Command::Unblock(args) => overrides::unblock(&args, &Context::new(&places.of_the_system())?),
        Command::Status(args) => {
            status::run(&args, &Context::beside(&places.of_the_system(), &args.run_dir)?)
        }
        Command::Advise(args) => advise::run(args, &Context::new(places)?),
        Command::Apply(args) => apply::apply(&args, &Context::new(places)?),
        Command::Unapply(args) => apply::unapply::unapply(&args),
        Command::Trim(args) => trim::run(&args, &Context::new(places)?),
        Command::WatchUnit { unit } => watch::run(&crate::apply::unit::full_name(&unit)?),
        Command::Env(args) => env::run(&args, places, &Context::new(places)?),
        Command::Bundle(args) => bundle::run(&args, &Context::new(places)?),
        Command::Doctor(args) if args.noise => {
            crate::measure::noise::run(&args.command, args.pairs, args.json.json)
        }
        Command::Doctor(args) => doctor::run(args.json, &cli.places),
        Command::System(args) => system::run(&args, places),
        Command::Report(args) => report::run(&args, places),
        Command::Top(args) => match external::run("imas-top", places, &args.words)? {},
        Command::Fleet(args) => {
            match external::run("imas-fleet", &crate::command_line::cli::Places::default(), &args.words)? {}
        }
        Command::Serve(args) => match external::run("imas-serve", places, &args.words)? {},
        Command::Kube(args) => match external::run("imas-kube", places, &args.words)? {},
        Command::Completions { shell } => completions(shell),
        Command::Manpages { folder } => manpages(&folder),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<ExitCode> {
    manual::asking_completions("imas", shell)?;
    Ok(ExitCode::SUCCESS)
}

fn manpages(folder: &std::path::Path) -> Result<ExitCode> {
    manual::manpages(Cli::definition(), folder)?;
    crate::command_line::man::write(folder)?;
    Ok(ExitCode::SUCCESS)
}
