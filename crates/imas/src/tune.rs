// SPDX-License-Identifier: Apache-2.0
//! `imas tune`: searches the settings of allocators for a program by replays, and proves the best live.

mod contenders;
mod live;
mod named;
mod points;
mod shown;
mod work;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_replay::process::busiest;
use imas_replay::replayer::Replayer;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_trace::file::Trace;
use imas_tune::goal::{Goal, Limit, LimitedFigure};
use imas_tune::space::Space;

use crate::context::Context;
use crate::message::{self, Hinted};
use crate::tune_args::TuneArgs;
use contenders::Field;
use live::LiveResult;
use points::Points;
use work::WorkFolder;

const SPACE: &str = "tuning.toml";
/// Contenders with settings that are replayed again.
const TUNED: usize = 6;
/// Contenders of the catalogue that are.
const OF_CATALOGUE: usize = 3;
/// Contenders with settings that are measured live.
const LIVE: usize = 2;
/// A predicted gain in score below this is not worth live runs: half a per cent.
const LEAST_GAIN: f64 = 0.005;

/// All that came of it.
struct Tuned {
    goal: Goal,
    points: Points,
    /// The best after several replays, the best first.
    field: Field,
    /// Figures of live runs. None: there were none.
    live: Option<LiveResult>,
    /// Name and file of the candidate that was added to the catalogue.
    named: Option<named::NamedCandidate>,
}

pub(crate) fn run(args: &TuneArgs, context: &Context) -> Result<ExitCode> {
    let goal = goal(args)?;
    let space = space(context)?;
    let allocators = allocators(args, &space, context)?;
    let folder = WorkFolder::open(args.folder.as_deref())?;
    let trace = match &args.trace {
        Some(trace) => trace.clone(),
        None => folder.recorded(&args.command, args.input.as_deref(), context)?,
    };
    let searched = search(args, &trace, &folder, goal.clone(), &space, &allocators, context);
    let (points, field) = match searched {
        Ok(found) => found,
        Err(error) => {
            let Some(interrupted) = error.downcast_ref::<InterruptedBy>() else { return Err(error) };
            folder.say_how_to_go_on();
            return Ok(ExitCode::from(interrupted.exit_status()));
        }
    };
    let live = match field.worth_live_runs(&goal, LIVE, LEAST_GAIN) {
        Some(few) if args.trace.is_none() => Some(live::measure(args, &few, &goal, &folder, context)?),
        _ => None,
    };
    let proven = live.as_ref().and_then(|live| live.proven.as_deref()).filter(|_| !args.no_save);
    let named = proven.map(|name| named::add(name, args, context)).transpose()?;
    shown::show(args, &Tuned { goal, points, field, live, named })
}

/// Replays points and then contenders.
fn search(
    args: &TuneArgs,
    trace: &Path,
    folder: &WorkFolder,
    goal: Goal,
    space: &Space,
    allocators: &[String],
    context: &Context,
) -> Result<(Points, Field)> {
    let named = || trace.display().to_string();
    let mut trace =
        Trace::open(BufReader::new(File::open(trace).with_context(named)?)).with_context(named)?;
    let process = busiest(&trace.header.processes).filter(|process| process.counts.calls > 0);
    let process = process.cloned().ok_or_else(|| {
        Hinted::error(format!("{}: no calls to replay", named()), "record the program that does the work")
    })?;
    let mut journal = folder.points(&trace.header, process.counts.calls)?;
    let interruption = Interruption::watch()?;
    let replayer = Replayer::prepare(&mut trace, process.number, context)?.calibrated()?;
    let baseline = points::Baseline::replayed(&replayer, args.jobs(), &interruption)?;
    let points = points::search(args, &baseline, goal.clone(), space, allocators, &mut journal)?;
    let field = contenders::replayed(&points, &baseline, &goal)?;
    Ok((points, field))
}

impl TuneArgs {
    fn jobs(&self) -> usize {
        self.jobs.map_or_else(|| imas_linux::conditions::cpus() as usize, usize::from)
    }
}

fn goal(args: &TuneArgs) -> Result<Goal> {
    let limit = |rail: &imas_service::GuardRail| {
        let figure = LimitedFigure::named(&rail.figure).ok_or_else(|| {
            Hinted::error(
                format!("--at-most {rail}: there is no figure '{}'", rail.figure),
                "the figures are cpu, memory and peak",
            )
        })?;
        Ok(Limit { figure, most: 1.0 + rail.most })
    };
    let limits = args.at_most.iter().map(limit).collect::<Result<_>>()?;
    Ok(Goal { cpu_weight: args.objective.cpu_weight(), limits })
}

fn space(context: &Context) -> Result<Space> {
    let file = context.lib_dir.join(SPACE);
    let named = || file.display().to_string();
    let text = std::fs::read_to_string(&file).with_context(named)?;
    Space::read(&text, imas_linux::conditions::cpus()).with_context(named)
}

/// The allocators that are named, or all that have settings; without those that this machine cannot use.
fn allocators(args: &TuneArgs, space: &Space, context: &Context) -> Result<Vec<String>> {
    let known = space.allocators();
    if let Some(name) = args.allocators.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Hinted::error(
            format!("no settings of {name} are known"),
            format!("settings are known of {}", known.join(", ")),
        ));
    }
    let is_wanted = |name: &&str| args.allocators.is_empty() || args.allocators.iter().any(|one| one == name);
    let mut usable = vec![];
    for name in known.into_iter().filter(is_wanted) {
        match points::plain(name, context).map(|candidate| context.obstacle(&candidate, None)) {
            Ok(None) => usable.push(name.to_owned()),
            Ok(Some(why)) => message::warning(&format!("{name} is left out: {why}")),
            Err(_) => message::warning(&format!("{name} is left out: it is not in the catalogue")),
        }
    }
    if usable.is_empty() {
        return Err(Hinted::error(
            "no allocator with known settings can be used here",
            "'imas list' says why",
        ));
    }
    Ok(usable)
}
