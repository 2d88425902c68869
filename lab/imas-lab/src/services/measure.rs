// SPDX-License-Identifier: Apache-2.0
//! Measures services under candidates, round by round over all services, into the journal.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use imas_cli::message::{self, Hinted};
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::median;
use imas_engine::context::Context;
use imas_linux::environment::Variables;
use imas_linux::host::{Host, now_unix_s};
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, NextStep, Observer, Rules, Runner, SessionEnd};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::service::{SYSTEM_RUNS, Service, ServiceExecutor};
use imas_runs::subject::{Subject, Timeout};

use super::journal::{self, Header};
use super::offered::OfferedCandidates;
use super::plan;
use super::recipes::{self, RecipeArgs};
use super::rounds::{MOST_FAILURES, Rounds, RoundsWanted, SharedRuns};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    recipes: RecipeArgs,
    /// The journal
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Go on with a journal that is there, with whole rounds: a round that was cut short is begun anew
    #[arg(long)]
    resume: bool,
    /// Whole rounds of each service
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Most runs under system in each round, with whose mean all others are compared: the square root of their number
    #[arg(long, value_name = "N", default_value_t = SYSTEM_RUNS, value_parser = clap::value_parser!(u32).range(1..=10))]
    system_runs: u32,
    /// Candidates beside system. Settings of a language runtime are for the services that have it; `settings`: all of
    /// them. `glibc:arena1+trims`: the server is trimmed from outside while it runs under it [default: the default set
    /// of services, and what is tested by default of settings]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    with: Vec<String>,
    /// Cycles of load in place of those of the files
    #[arg(long, value_name = "N")]
    cycles: Option<u32>,
    /// Seconds of the pause in place of those of the files
    #[arg(long, value_name = "SECONDS")]
    idle: Option<f64>,
    /// After the pause five minutes as on a day: busy, quiet, a burst, quiet; a file may have a day of its own
    #[arg(long)]
    day: bool,
    /// Runs of each service under system in which every malloc call is counted: how much of its memory is live
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10))]
    counted: u32,
    /// Seed of the order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Install the Debian packages that are missing
    #[arg(long)]
    install: bool,
    /// Begin no round of a service that would not end within this number of minutes, by what its runs took so far
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    /// Candidates that two rounds or more show to be no pick stay in the later rounds
    #[arg(long)]
    keep_all: bool,
    /// Print how long the rounds take that are missing, and make none
    #[arg(long)]
    dry_run: bool,
    /// A journal that says how long runs take, for services without any in --out
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    times: Option<PathBuf>,
}

/// Makes the runs that are missing.
pub(super) fn measure(args: &RunArgs, context: &Context) -> Result<ExitCode> {
    let mut services = services(args, context)?;
    if args.dry_run {
        let earlier = journal::read_if_there(&args.out)?;
        let offered = OfferedCandidates::of(&mut services, &args.with, None, context)?;
        let rounds = rounds(args, &services, &offered, &Rc::new(RefCell::new(earlier)))?;
        return plan::print(&rounds.plan());
    }
    let (mut journal, earlier) = journal::open(&args.out, args.resume)?;
    let interruption = Interruption::watch()?;
    let offered = OfferedCandidates::of(&mut services, &args.with, Some(&interruption), context)?;
    if let Some(signal) = interruption.signal() {
        // It ended a set-up. To go on without that service would look like success.
        return Err(InterruptedBy(signal).into());
    }
    if services.is_empty() {
        return Err(Hinted::error(
            "none of these services can be run here",
            "'imas-lab services list' shows the packages that they lack",
        ));
    }
    journal::append(&mut journal, &header(args, &services, &offered))?;
    let order = names(&services);
    let rates = rates(&order, &earlier);
    let subject = |service: &Service| {
        // A server that hangs ends its run by the time limits of its own lines.
        let mut subject = Subject::new(&service.name, Timeout::After(Duration::MAX));
        subject.resume(earlier.iter().filter(|run| run.kind == RunKind::Measured));
        subject
    };
    let subjects = services.iter().map(subject).collect();
    let elimination = Elimination::MeasuredFailures(MOST_FAILURES);
    let rules = Rules { elimination, warmup_must_succeed: false };
    let mut runner = Runner::new(offered.names(), subjects, rules, &interruption);
    let mut executor = Servers {
        context,
        services: &services,
        offered: &offered,
        interruption: &interruption,
        set_up: None,
        rates,
    };
    let runs = Rc::new(RefCell::new(earlier));
    let mut rounds = rounds(args, &services, &offered, &runs)?;
    let mut log = Log { journal, runs };
    match runner.run(&mut rounds, &mut executor, &mut log)? {
        SessionEnd::Finished | SessionEnd::Stopped => {
            if rounds.plan().iter().any(|one| one.rounds > 0) {
                message::say("imas: the time is over; every finished round is kept, --resume goes on");
            }
            Ok(ExitCode::SUCCESS)
        }
        SessionEnd::Interrupted(signal) => {
            message::say(&format!("imas: {}", InterruptedBy(signal)));
            Ok(ExitCode::from(InterruptedBy(signal).exit_status()))
        }
    }
}

fn names(services: &[Service]) -> Vec<&str> {
    services.iter().map(|service| service.name.as_str()).collect()
}

/// The rounds that are missing.
fn rounds(
    args: &RunArgs,
    services: &[Service],
    offered: &OfferedCandidates,
    runs: &SharedRuns,
) -> Result<Rounds> {
    let wanted = wanted(args, services, offered);
    refuse_newcomers(&wanted, runs)?;

    let mut known: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let others = args.times.as_deref().map(journal::read).transpose()?.unwrap_or_default();
    for run in others.into_iter().filter(|run| run.ok) {
        known.entry(run.program).or_default().push(run.wall_s);
    }
    let known = known.into_iter().filter_map(|(service, all)| Some((service, median(&all)?))).collect();
    let until = args.budget.map(|minutes| now_unix_s() + minutes * 60.0);
    Ok(Rounds::new(wanted, runs, known, until))
}

fn wanted(args: &RunArgs, services: &[Service], offered: &OfferedCandidates) -> RoundsWanted {
    let candidates = offered.names();
    let mut lacking = BTreeSet::new();
    for service in services {
        let not_its = candidates.iter().filter(|name| offered.get(&service.name, name).is_none());
        lacking.extend(not_its.map(|name| (service.name.clone(), name.clone())));
    }
    RoundsWanted {
        services: services.iter().map(|service| service.name.clone()).collect(),
        candidates,
        lacking,
        rest_s: services.iter().map(|service| (service.name.clone(), rest_s(service))).collect(),
        rounds: args.rounds,
        system_runs: args.system_runs,
        counted: args.counted,
        keeps_all: args.keep_all,
        seed: args.seed,
    }
}

/// Seconds of pause and day in a run.
fn rest_s(service: &Service) -> f64 {
    service.idle + service.day.iter().map(|part| part.seconds).sum::<f64>()
}

fn refuse_newcomers(wanted: &RoundsWanted, runs: &SharedRuns) -> Result<()> {
    let new = Rounds::newcomers(wanted, runs);
    if new.is_empty() {
        return Ok(());
    }
    Err(Hinted::error(
        format!("the whole rounds of this journal have no run of {}", new.join(", ")),
        "a round needs all candidates side by side: measure the new ones into another file, with --with",
    ))
}

/// Services that can be run here, with the cycles and the idle time that the arguments ask for.
fn services(args: &RunArgs, context: &Context) -> Result<Vec<Service>> {
    let mut services = recipes::recipes(&args.recipes, context)?;
    if args.install {
        recipes::install(&services)?;
    }
    recipes::retain_installed(&mut services);
    for service in &mut services {
        service.cycles = args.cycles.unwrap_or(service.cycles);
        service.idle = args.idle.unwrap_or(service.idle);
        if args.day && service.day.is_empty() {
            service.day = Service::usual_day();
        }
    }
    Ok(services)
}

fn header(args: &RunArgs, services: &[Service], offered: &OfferedCandidates) -> Header {
    Header {
        imas: "services".to_owned(),
        schema: 2,
        at_s: now_unix_s(),
        host: Host::now(),
        seed: args.seed,
        candidates: offered
            .all
            .iter()
            .map(|one| (one.name.clone(), imas_engine::candidates::version(one)))
            .collect(),
        services: services.to_vec(),
    }
}

/// The laboratory's services.
struct Servers<'a> {
    context: &'a Context,
    services: &'a [Service],
    offered: &'a OfferedCandidates,
    interruption: &'a Interruption,
    /// The service and the round that come now: each service is set up for each of its rounds.
    set_up: Option<((usize, u32), ServiceExecutor)>,
    /// Rates of the open loops, by service: all runs of a journal have the same.
    rates: BTreeMap<usize, f64>,
}

/// The rates at which earlier sessions sent; `services` are their names.
fn rates(services: &[&str], earlier: &[RawRun]) -> BTreeMap<usize, f64> {
    let of = |(at, service): (usize, &&str)| {
        let mut own = earlier.iter().filter(|run| run.program == **service);
        Some((at, own.find_map(|run| run.of_server().asked_rate)?))
    };
    services.iter().enumerate().filter_map(of).collect()
}

impl Executor for Servers<'_> {
    fn execute(&mut self, step: &Step, _limits: &RunLimits) -> Result<Execution> {
        let now = (step.subject, round_of(step));
        let executor = match self.set_up.take().filter(|(of, _)| *of == now) {
            Some((_, executor)) => executor,
            None => {
                let service = self.services[step.subject].clone();
                ServiceExecutor::new(service, self.context.libraries.clone(), Variables::inherited())?
            }
        };
        let (_, executor) = self.set_up.insert((now, executor));
        let (service, name) = (&self.services[step.subject].name, &self.offered.all[step.candidate].name);
        let candidate =
            self.offered.get(service, name).context("a candidate that the service does not get")?;
        executor.set_rate(self.rates.get(&step.subject).copied());
        let run = match step.kind {
            RoundKind::Counted { .. } => executor.run_counted(candidate, self.interruption)?,
            _ => executor.run(candidate, now.1, self.interruption)?,
        };
        self.rates.extend(run.of_server().asked_rate.map(|rate| (step.subject, rate)));
        Ok(imas_runs::service::execution(run))
    }
}

/// Writes down and reports each run.
struct Log {
    journal: Journal,
    /// All runs: the next round depends on them.
    runs: SharedRuns,
}

impl Observer for Log {
    fn after(&mut self, _step: &Step, run: Execution) -> Result<NextStep> {
        let run = run.record;
        let end = run.message.clone().unwrap_or_else(|| format!("{:.0} s", run.wall_s));
        let end =
            std::iter::once(end).chain(run.of_server().notes.iter().cloned()).collect::<Vec<_>>().join("; ");
        message::say(&format!(
            "imas: round {}: {} under {}: {end}",
            run.round + 1,
            run.program,
            run.candidate
        ));
        journal::append(&mut self.journal, &run)?;
        self.runs.borrow_mut().push(run);
        Ok(NextStep::Make)
    }

    fn failed(&mut self, _step: &Step, error: anyhow::Error) -> Result<String> {
        Ok(format!("{error:#}"))
    }

    fn left_out(&mut self, subject: &Subject, why: &str) {
        message::say(&format!("imas: {}: not run: {why}", subject.name));
    }
}

fn round_of(step: &Step) -> u32 {
    step.kind.kept().map_or(0, |(_, round)| round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_an_open_loop_is_that_of_the_first_session() {
        use imas_core::server_run::ServerRun;
        let run = |program: &str, asked_rate| {
            let run = RawRun { program: program.into(), ..RawRun::default() };
            run.with_server(ServerRun { asked_rate, ..ServerRun::default() })
        };
        let earlier = [run("db", None), run("db", Some(70.0)), run("db", Some(90.0))];
        let line = serde_json::to_string(&earlier).unwrap();
        let read: Vec<RawRun> = serde_json::from_str(&line).unwrap();
        assert_eq!(rates(&["web", "db"], &read), BTreeMap::from([(1, 70.0)]));
    }
}
