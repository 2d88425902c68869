// SPDX-License-Identifier: Apache-2.0
//! `imas-lab services`: servers of Debian with real loads, measured under every candidate, into one journal.
//!
//! Round by round over all services, so that a journal that is ended early has every service as often as
//! every other. A line is written as soon as its run is made; `--resume` makes only what is missing.

mod journal;
mod measure;
mod recipes;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use imas_engine::context::Context;
use imas_engine::flags::Places;
use measure::RunArgs;
use recipes::RecipeArgs;
use show::ShowArgs;

#[derive(Debug, Args)]
pub(crate) struct ServicesArgs {
    #[command(subcommand)]
    action: ServicesAction,
}

#[derive(Debug, Subcommand)]
enum ServicesAction {
    /// The services, and whether their packages are installed
    List(RecipeArgs),
    /// Measure them, round by round; every run is a line of the journal
    Run(RunArgs),
    /// What a journal says
    Show(ShowArgs),
}

pub(crate) fn run(args: &ServicesArgs, places: &Places) -> Result<ExitCode> {
    match &args.action {
        ServicesAction::List(args) => recipes::list(args, &Context::new(places)?),
        ServicesAction::Run(args) => measure::measure(args, &Context::new(places)?),
        ServicesAction::Show(args) => show::show(args),
    }
}
