// SPDX-License-Identifier: Apache-2.0
//! `imas-lab services`: servers of Debian with real loads, measured under every candidate, into one journal.
//!
//! Round by round over all services, so that a journal that is ended early has every service as often as
//! every other. A line is written as soon as its run is made; `--resume` makes the whole rounds that are missing.

mod journal;
mod judge;
mod measure;
mod noise;
mod offered;
mod plan;
mod possible;
mod predicted;
mod prices;
mod recipes;
mod replay;
mod rounds;
mod runtimes;
mod sets;
mod several;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use imas_engine::context::Context;
use imas_engine::flags::Places;
use imas_engine::folders::{check_place, xdg};
use judge::JudgeArgs;
use measure::RunArgs;
use noise::NoiseArgs;
use possible::PossibleArgs;
use predicted::PredictedArgs;
use prices::PricesArgs;
use recipes::RecipeArgs;
use replay::ReplayArgs;
use runtimes::RuntimesArgs;
use sets::SetsArgs;
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
    /// Record each service once under system and replay it under every candidate; every prediction is a line
    Replay(ReplayArgs),
    /// Predictions beside the memory of live runs
    Predicted(PredictedArgs),
    /// What a journal says
    Show(ShowArgs),
    /// What the picks gain and harm on rounds that did not choose them, and how often advise was right
    Judge(JudgeArgs),
    /// Gains of settings of language runtimes for the services that have one, on rounds that did not choose
    Runtimes(RuntimesArgs),
    /// What the memory of each service is, how much of it could be saved at most, and how much the pick saves
    Possible(PossibleArgs),
    /// How far runs of one and the same thing differ, and how often a bench errs by it
    Noise(NoiseArgs),
    /// What each candidate costs in CPU time, by kind of service, as crates/imas-engine/candidate-prices.json has it
    Prices(PricesArgs),
    /// What each set of candidates would gain, by the rule of the default set
    Sets(SetsArgs),
}

pub(crate) fn run(args: &ServicesArgs, places: &Places) -> Result<ExitCode> {
    if matches!(args.action, ServicesAction::Run(_) | ServicesAction::Replay(_)) {
        let cache = xdg("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("imas/services"));
        cache.iter().try_for_each(|folder| check_place(folder))?; // descriptions keep programs there, and run them
    }
    match &args.action {
        ServicesAction::List(args) => recipes::list(args, &Context::new(places)?),
        ServicesAction::Run(args) => measure::measure(args, &Context::new(places)?),
        ServicesAction::Replay(args) => replay::replay(args, &Context::new(places)?),
        ServicesAction::Predicted(args) => predicted::predicted(args),
        ServicesAction::Show(args) => show::show(args),
        ServicesAction::Judge(args) => judge::judge(args),
        ServicesAction::Runtimes(args) => runtimes::runtimes(args),
        ServicesAction::Possible(args) => possible::possible(args),
        ServicesAction::Noise(args) => noise::noise(args),
        ServicesAction::Prices(args) => prices::prices(args),
        ServicesAction::Sets(args) => sets::sets(args, &Context::new(places)?),
    }
}
