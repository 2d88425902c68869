// SPDX-License-Identifier: Apache-2.0
//! Measures services under candidates, round by round over all services, into the journal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use imas_engine::compared::{DefaultComparison, usable};
use imas_engine::context::Context;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::clock::now_unix_s;
use imas_linux::environment::Variables;
use imas_linux::host::Host;
use imas_report::message;
use imas_runs::interruption::{InterruptedBy, Interruption};
use imas_runs::journal::Journal;
use imas_runs::runner::{NextStep, SessionEnd};
use imas_runs::schedule::Step;
use imas_service::{
    RoundService, Service, ServiceElimination, ServiceError, ServiceExecutor, ServiceRounds, ServiceRun,
    ServiceSession,
};

use super::journal::{self, Header};
use super::recipes::{self, RecipeArgs};

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
    /// Candidates beside system [default: the default set of services]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    with: Vec<String>,
    /// Cycles of load in place of those of the files
    #[arg(long, value_name = "N")]
    cycles: Option<u32>,
    /// Seconds of the pause in place of those of the files
    #[arg(long, value_name = "SECONDS")]
    idle: Option<f64>,
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
    let (mut journal, mut runs) = journal::open(&args.out, args.resume)?;
    let interruption = Interruption::watch()?;
    append(&mut journal, &header(args, &services, &candidates))?;
    let rounds = ServiceRounds {
        services: services
            .iter()
            .map(|Service { name, .. }| RoundService {
                name,
                order_key: name,
                candidates: candidates.clone(),
            })
            .collect(),
        warmup: 0,
        rounds: args.rounds,
        seed: args.seed,
        elimination: ServiceElimination::Failures,
        interruption: &interruption,
    };
    let mut session = LabRounds {
        context,
        rounds: &rounds,
        services: &services,
        until: args.limit.map(|hours| now_unix_s() + hours * 3600.0),
        executor: None,
        journal,
    };
    match rounds.run(&mut runs, &mut session)? {
        SessionEnd::Finished | SessionEnd::Stopped => Ok(ExitCode::SUCCESS),
        SessionEnd::Interrupted(signal) => {
            message::say(&format!("imas: {}", InterruptedBy(signal)));
            Ok(ExitCode::from(InterruptedBy(signal).exit_status()))
        }
    }
}

/// Those that can be run here, as they are asked for.
fn services(args: &RunArgs, context: &Context) -> Result<Vec<Service>> {
    let mut services = recipes::recipes(&args.recipes, context)?;
    if args.install {
        recipes::install(&services)?;
    }
    recipes::retain_installed(&mut services);
    for service in &mut services {
        service.cycles = args.cycles.unwrap_or(service.cycles);
        service.idle = args.idle.unwrap_or(service.idle);
    }
    Ok(services)
}

fn header(args: &RunArgs, services: &[Service], candidates: &[&CatalogueCandidate]) -> Header {
    Header {
        imas: "services".to_owned(),
        schema: 1,
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

/// A run takes minutes: it is on the disk before the next begins.
fn append(journal: &mut Journal, line: &impl serde::Serialize) -> Result<()> {
    journal.append_durably(line).with_context(|| journal.path().display().to_string())
}

/// The runs of the laboratory's services.
struct LabRounds<'a> {
    context: &'a Context,
    rounds: &'a ServiceRounds<'a>,
    services: &'a [Service],
    /// No round of a service begins later, Unix time in seconds.
    until: Option<f64>,
    /// Of the service whose round it is.
    executor: Option<ServiceExecutor>,
    journal: Journal,
}

impl ServiceSession for LabRounds<'_> {
    fn before_round(&mut self, _service: usize) -> NextStep {
        self.executor = None;
        if self.until.is_some_and(|until| now_unix_s() > until) {
            message::say("imas: the time is over; every finished run is kept, --resume goes on");
            return NextStep::Stop;
        }
        NextStep::Make
    }

    fn prepare(&mut self, service: usize) -> Result<(), ServiceError> {
        let inherited = Variables::inherited();
        let service = self.services[service].clone();
        self.executor = Some(ServiceExecutor::new(service, self.context.libraries.clone(), inherited)?);
        Ok(())
    }

    fn make(&mut self, step: &Step) -> Result<ServiceRun, ServiceError> {
        let Some(executor) = &self.executor else {
            return Err(ServiceError::Definition("its round was not prepared".to_owned()));
        };
        executor.run(self.candidate(step), round_of(step), self.rounds.interruption)
    }

    fn after(&mut self, step: &Step, run: &ServiceRun) -> Result<()> {
        let end = run
            .failure
            .as_ref()
            .map_or_else(|| format!("{:.0} s", run.took_s), |failure| failure.what.clone());
        let end = std::iter::once(end).chain(run.notes.iter().cloned()).collect::<Vec<_>>().join("; ");
        let (service, candidate) = (&self.services[step.subject].name, &self.candidate(step).name);
        message::say(&format!("imas: round {}: {service} under {candidate}: {end}", run.round + 1));
        append(&mut self.journal, run)
    }

    fn not_prepared(&mut self, service: usize, error: ServiceError) -> Result<()> {
        message::say(&format!("imas: {}: not run: {error}", self.services[service].name));
        Ok(())
    }

    fn not_made(&mut self, step: &Step, error: ServiceError) -> Result<()> {
        let (service, candidate) = (&self.services[step.subject].name, &self.candidate(step).name);
        message::say(&format!("imas: {service}: no run under {candidate}: {error}"));
        Ok(())
    }
}

impl LabRounds<'_> {
    fn candidate(&self, step: &Step) -> &CatalogueCandidate {
        self.rounds.services[step.subject].candidates[step.candidate]
    }
}

fn round_of(step: &Step) -> u32 {
    step.kind.kept().map_or(0, |(_, round)| round)
}
