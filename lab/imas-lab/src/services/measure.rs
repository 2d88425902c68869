// SPDX-License-Identifier: Apache-2.0
//! Measures services under candidates, round by round over all services, into the journal.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use imas_cli::message;
use imas_core::run::{RawRun, RunKind};
use imas_engine::compared::{DefaultComparison, usable};
use imas_engine::context::Context;
use imas_linux::catalogue::{CatalogueCandidate, SYSTEM};
use imas_linux::clock::now_unix_s;
use imas_linux::environment::Variables;
use imas_linux::host::Host;
use imas_runs::executor::{Execution, Executor, RunLimits};
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{Elimination, NextStep, Observer, Rules, Runner, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};
use imas_runs::service::{SYSTEM_RUNS, Service, ServiceExecutor};
use imas_runs::subject::{Subject, Timeout};

use super::journal::{self, Header};
use super::recipes::{self, RecipeArgs};

/// A candidate with this number of failed runs of a service has no further run with it: a run takes minutes.
/// `system` as well, and then the service has none.
const MOST_FAILURES: usize = 2;

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    recipes: RecipeArgs,
    /// The journal
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Go on with a journal that is there
    #[arg(long)]
    resume: bool,
    /// Rounds
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Runs under system in each round: all others are compared with their mean
    #[arg(long, value_name = "N", default_value_t = SYSTEM_RUNS, value_parser = clap::value_parser!(u32).range(1..=10))]
    system_runs: u32,
    /// Candidates beside system [default: the default set of services]
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
    /// Begin no run after this number of hours
    #[arg(long, value_name = "HOURS")]
    limit: Option<f64>,
}

/// Makes the runs that are missing.
pub(super) fn measure(args: &RunArgs, context: &Context) -> Result<ExitCode> {
    let services = services(args, context)?;
    let candidates = usable(&args.with, DefaultComparison::ServiceSet, context)?;
    let (mut journal, earlier) = journal::open(&args.out, args.resume)?;
    let interruption = Interruption::watch()?;
    append(&mut journal, &header(args, &services, &candidates))?;
    let names: Vec<String> = candidates.iter().map(|candidate| candidate.name.clone()).collect();
    let order: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
    let system = names.iter().position(|name| name == SYSTEM).unwrap_or(0);
    let steps = steps(&order, candidates.len(), args.rounds, args.seed);
    let steps = schedule::with_repeats(steps, system, args.system_runs, args.seed);
    let steps = with_counted(steps, services.len(), system, args.counted);
    let steps = not_made(steps, &earlier, |step| (order[step.subject], names[step.candidate].as_str()));
    let subject = |service: &Service| {
        // A server that hangs ends its run by the time limits of its own lines.
        let mut subject = Subject::new(&service.name, Timeout::After(Duration::MAX));
        subject.resume(earlier.iter().filter(|run| run.kind == RunKind::Measured));
        subject
    };
    let subjects = services.iter().map(subject).collect();
    let elimination = Elimination::MeasuredFailures(MOST_FAILURES);
    let rules = Rules { elimination, warmup_must_succeed: false };
    let mut runner = Runner::new(names, subjects, rules, &interruption);
    let mut executor = Servers {
        context,
        services: &services,
        candidates: &candidates,
        interruption: &interruption,
        set_up: None,
        rates: rates(&order, &earlier),
    };
    let mut log = Log { until: args.limit.map(|hours| now_unix_s() + hours * 3600.0), journal };
    match runner.run(steps, &mut executor, &mut log)? {
        SessionEnd::Finished | SessionEnd::Stopped => Ok(ExitCode::SUCCESS),
        SessionEnd::Interrupted(signal) => {
            message::say(&format!("imas: {}", InterruptedBy(signal)));
            Ok(ExitCode::from(InterruptedBy(signal).exit_status()))
        }
    }
}

/// The steps without those that earlier sessions made; `names` gives service and candidate of a step.
fn not_made<'a>(
    mut steps: Vec<Step>,
    earlier: &'a [RawRun],
    names: impl Fn(&Step) -> (&'a str, &'a str),
) -> Vec<Step> {
    let mut made: BTreeMap<(&str, &str, RunKind, u32), usize> = BTreeMap::new();
    for run in earlier {
        *made.entry((&run.program, &run.candidate, run.kind, run.round)).or_default() += 1;
    }
    steps.retain(|step| {
        let (service, candidate) = names(step);
        let (kind, round) = step.kind.kept().unwrap_or_default();
        let left = made.entry((service, candidate, kind, round)).or_default();
        let is_made = *left > 0;
        *left -= usize::from(is_made);
        !is_made
    });
    steps
}

/// The steps, and in front of them the counted runs of each service under `system`.
fn with_counted(steps: Vec<Step>, services: usize, system: usize, counted: u32) -> Vec<Step> {
    let of = |subject| {
        (0..counted).map(move |round| Step { subject, candidate: system, kind: RoundKind::Counted { round } })
    };
    (0..services).flat_map(of).chain(steps).collect()
}

/// Round by round all services, each under all candidates.
fn steps(services: &[&str], candidates: usize, rounds: u32, seed: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..rounds {
        for subject in schedule::candidates("", services.len(), round, seed) {
            let order = schedule::candidates(services[subject], candidates, round, seed);
            let kind = RoundKind::Measured { round };
            steps.extend(order.into_iter().map(|candidate| Step { subject, candidate, kind }));
        }
    }
    steps
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

fn header(args: &RunArgs, services: &[Service], candidates: &[&CatalogueCandidate]) -> Header {
    Header {
        imas: "services".to_owned(),
        schema: 2,
        at_s: now_unix_s(),
        host: Host::now(),
        seed: args.seed,
        candidates: candidates
            .iter()
            .map(|one| (one.name.clone(), imas_engine::candidates::version(one)))
            .collect(),
        services: services.to_vec(),
    }
}

/// Appends a line durably. A run takes minutes: it is on the disk before the next begins.
fn append(journal: &mut Journal, line: &impl serde::Serialize) -> Result<()> {
    journal.append_durably(line).with_context(|| journal.path().display().to_string())
}

/// The laboratory's services.
struct Servers<'a> {
    context: &'a Context,
    services: &'a [Service],
    candidates: &'a [&'a CatalogueCandidate],
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
        let candidate = self.candidates[step.candidate];
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
    /// Unix time in seconds after which no run begins.
    until: Option<f64>,
    journal: Journal,
}

impl Observer for Log {
    fn before(&mut self, _step: &Step, _subjects: &[Subject]) -> Result<NextStep> {
        if self.until.is_some_and(|until| now_unix_s() > until) {
            message::say("imas: the time is over; every finished run is kept, --resume goes on");
            return Ok(NextStep::Stop);
        }
        Ok(NextStep::Make)
    }

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
        append(&mut self.journal, &run)?;
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
    fn a_run_that_was_made_is_not_made_again() {
        let names = |step: &Step| ("web", ["system", "a"][step.candidate]);
        let all = schedule::with_repeats(steps(&["web"], 2, 2, 1), 0, 3, 1);
        assert_eq!(all.len(), 2 * 4);
        let run = |candidate: &str, round| RawRun {
            program: "web".into(),
            candidate: candidate.into(),
            round,
            ..RawRun::default()
        };
        let earlier = [run("system", 0), run("system", 0), run("a", 0), run("system", 1)];
        let left = not_made(all, &earlier, names);
        let of = |round, candidate| {
            left.iter().filter(|step| (round_of(step), step.candidate) == (round, candidate)).count()
        };
        assert_eq!([of(0, 0), of(0, 1), of(1, 0), of(1, 1)], [1, 0, 2, 1]);
    }

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

    #[test]
    fn services_take_turns_and_the_runs_of_one_are_side_by_side() {
        let steps = steps(&["web", "db"], 3, 4, 1);
        assert_eq!(steps.len(), 2 * 3 * 4);
        for (round, of_round) in (0..).zip(steps.chunks(6)) {
            assert!(of_round.iter().all(|step| round_of(step) == round));
            assert!(of_round[..3].iter().all(|step| step.subject == of_round[0].subject));
            assert_ne!(of_round[0].subject, of_round[3].subject);
        }
    }
}
