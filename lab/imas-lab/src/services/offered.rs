// SPDX-License-Identifier: Apache-2.0
//! The candidates of a session, as each service gets them: those for every program, and settings of its own runtime.

use std::collections::BTreeMap;

use anyhow::Result;
use imas_cli::message;
use imas_engine::compared::{ComparedCandidate, DefaultComparison, OfRuntime, typed_for_services};
use imas_engine::context::Context;
use imas_engine::inspect;
use imas_engine::runtime_command::{RuntimeCommand, served_runtime};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Variables;
use imas_linux::program::Command;
use imas_linux::running_runtime::RunningRuntime;
use imas_linux::runtime::Runtime;
use imas_runs::interruption::Interruption;
use imas_runs::service::{Service, ServiceError, ServiceExecutor};
use imas_store::Store;

use crate::with_list::{for_every_program, names_for_runtimes};

/// The candidates that the services of a session get.
pub(super) struct OfferedCandidates {
    /// Each of them: those for every program, then settings of runtimes.
    pub(super) all: Vec<CatalogueCandidate>,
    /// Each as the service gets it, by service and name.
    fitted: BTreeMap<String, BTreeMap<String, CatalogueCandidate>>,
}

impl OfferedCandidates {
    /// The candidates that `with` names, else the default ones. A service that gets none beside `system` is named and
    /// left out. Without `interruption` it is for a plan: neither a set-up nor a service is run.
    pub(super) fn of(
        services: &mut Vec<Service>,
        with: &[String],
        interruption: Option<&Interruption>,
        context: &Context,
    ) -> Result<Self> {
        let for_every = for_every_program(with, DefaultComparison::ServiceSet, context)?;
        let typed = typed_for_services(with, context)?;
        let for_every: Vec<_> = for_every.into_iter().cloned().chain(typed).collect();
        let store = context.open_store().ok(); // only a cache here
        let names = names_for_runtimes(with);
        let offer =
            Offer { context, store: store.as_ref(), names: &names, for_every: &for_every, interruption };
        let mut fitted: BTreeMap<String, BTreeMap<String, CatalogueCandidate>> = BTreeMap::new();
        services.retain(|service| {
            let why = match offer.candidates_of(service) {
                Ok(own) if own.len() > 1 => {
                    let own = own.into_iter().map(|one| (one.name.clone(), one));
                    fitted.insert(service.name.clone(), own.collect());
                    return true;
                }
                Ok(_) => "no candidate of the session is for it".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            message::say(&format!("imas: {}: not run: {why}", service.name));
            false
        });
        let is_offered = |one: &&CatalogueCandidate| fitted.values().any(|own| own.contains_key(&one.name));
        let settings = context.catalogue.all().filter(|one| one.runtime.is_some());
        let (offered, others): (Vec<_>, Vec<_>) = settings.partition(is_offered);
        say_unused(&others, with);
        Ok(Self { all: for_every.into_iter().chain(offered.into_iter().cloned()).collect(), fitted })
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.all.iter().map(|one| one.name.clone()).collect()
    }

    /// The candidate as the service gets it; None where it does not.
    pub(super) fn get(&self, service: &str, candidate: &str) -> Option<&CatalogueCandidate> {
        self.fitted.get(service)?.get(candidate)
    }
}

/// Settings that were asked for by name, and that no service has a use for, are named once.
fn say_unused(unused: &[&CatalogueCandidate], with: &[String]) {
    let names: Vec<&str> =
        unused.iter().filter(|one| with.contains(&one.name)).map(|one| one.name.as_str()).collect();
    if !names.is_empty() {
        message::say(&format!(
            "imas: left out, as no service of this session gets them: {}",
            names.join(", ")
        ));
    }
}

/// Candidates that are offered to every service.
struct Offer<'a> {
    context: &'a Context,
    store: Option<&'a Store>,
    /// Names of candidates of a runtime, as [`OfRuntime::find`] takes them.
    names: &'a [String],
    for_every: &'a [CatalogueCandidate],
    /// None for a plan.
    interruption: Option<&'a Interruption>,
}

impl Offer<'_> {
    /// The candidates as the service gets them, as `imas bench` would offer them.
    fn candidates_of(&self, service: &Service) -> Result<Vec<CatalogueCandidate>> {
        let Some((executor, command)) = self.started(service)? else {
            let why = "its set-up makes its program, so the plan has no settings of its runtime";
            message::say(&format!("imas: {}: {why}", service.name));
            return Ok(self.for_every.to_vec());
        };
        let executable = inspect::command(&command, self.store)?;
        let environment = executor.environment();
        let behind = match executable.runtimes.is_empty() && command.is_of_a_shell() {
            true => self.runtime_behind_a_script(service, executor)?,
            false => None,
        };
        // Variables that the laboratory's programs set themselves are the laboratory's.
        let of_command = RuntimeCommand {
            command: &command,
            executable: &executable,
            environment: &environment,
            has_files: false,
        };
        let of_runtime = match &behind {
            Some(runtime) => OfRuntime::behind_a_script(runtime, self.names, self.context, self.store),
            None => OfRuntime::find(&of_command, self.names, self.context, self.store),
        };
        let for_every = self.for_every.iter();
        let compared: Vec<ComparedCandidate<'_>> =
            for_every.map(|candidate| ComparedCandidate { candidate, obstacle: None }).collect();
        let joined = of_runtime.join(&compared, &executable);
        let found = behind.as_ref().map(|runtime| &runtime.found).or_else(|| served_runtime(&executable));
        say_left_out(service, &joined, found.map(|found| found.runtime));
        let usable = joined.into_iter().filter(|one| one.obstacle.is_none());
        Ok(usable.map(|one| one.candidate.clone()).collect())
    }

    /// The command of the service, after its set-up where that makes the program; None if a plan would need it.
    fn started(&self, service: &Service) -> Result<Option<(ServiceExecutor, Command)>> {
        let at_once = Service { setup: None, ..service.clone() };
        match started(at_once, self.context) {
            Err(ServiceError::Command(_)) if service.setup.is_some() => match self.interruption {
                None => Ok(None),
                Some(_) => Ok(Some(started(service.clone(), self.context)?)),
            },
            other => Ok(Some(other?)),
        }
    }

    /// Runtime of the process that holds most of the memory of a service that a start script starts, as `imas bench` finds
    /// it: by one run. None in a plan.
    fn runtime_behind_a_script(
        &self,
        service: &Service,
        executor: ServiceExecutor,
    ) -> Result<Option<RunningRuntime>> {
        let Some(interruption) = self.interruption else { return Ok(None) };
        let executor = match executor.service().setup == service.setup {
            true => executor,
            false => started(service.clone(), self.context)?.0,
        };
        Ok(executor.find_runtime(interruption)?)
    }
}

/// The command of a service, with what made its set-up.
fn started(service: Service, context: &Context) -> Result<(ServiceExecutor, Command), ServiceError> {
    let executor = ServiceExecutor::new(service, context.libraries.clone(), Variables::inherited())?;
    let command = executor.command()?;
    Ok((executor, command))
}

/// Says why the service does not get a candidate. What is for another runtime needs no word.
fn say_left_out(service: &Service, joined: &[ComparedCandidate<'_>], own: Option<Runtime>) {
    let is_for_another =
        |one: &CatalogueCandidate| one.runtime.as_ref().is_some_and(|of| Some(of.runtime) != own);
    let mut reasons: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in joined.iter().filter(|one| !is_for_another(one.candidate)) {
        if let Some(why) = &one.obstacle {
            reasons.entry(why).or_default().push(&one.candidate.name);
        }
    }
    for (why, names) in reasons {
        message::say(&format!("imas: {}: left out: {}: {why}", service.name, names.join(", ")));
    }
}
