// SPDX-License-Identifier: Apache-2.0
//! The one loop that makes runs of servers: warm-ups, then round by round all services, each under all its
//! candidates.
//!
//! Why it is not `imas_runs::runner`: docs/decisions/0029.

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_runs::interruption::Interruption;
use imas_runs::runner::{NextStep, SessionEnd};
use imas_runs::schedule::{self, RoundKind, Step};

use crate::error::ServiceError;
use crate::run::ServiceRun;

/// So many failed runs eliminate a candidate: another one would most likely fail as well, and takes minutes.
const MOST_FAILURES: usize = 2;

/// When a candidate has no further run with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceElimination {
    /// After one crash or two failed runs. `system` is never eliminated: when every run of it has failed, the
    /// session stops.
    FirstCrash,
    /// After two failed runs, `system` as well.
    Failures,
}

/// A service and the candidates it is measured under.
#[derive(Debug, Clone)]
pub struct RoundService<'a> {
    /// As in its records.
    pub name: &'a str,
    /// The order of its candidates depends on this text.
    pub order_key: &'a str,
    /// By the index that steps have; the first is that of the warm-ups.
    pub candidates: Vec<&'a CatalogueCandidate>,
}

/// What is to be measured.
#[derive(Debug)]
pub struct ServiceRounds<'a> {
    /// By the index that steps have.
    pub services: Vec<RoundService<'a>>,
    /// Runs of each service under its first candidate before the first round; not kept.
    pub warmup: u32,
    /// Rounds.
    pub rounds: u32,
    /// Of the order.
    pub seed: u64,
    /// When a candidate has no further run.
    pub elimination: ServiceElimination,
    /// Ends the session.
    pub interruption: &'a Interruption,
}

/// Makes the runs, and receives their results.
pub trait ServiceSession {
    /// The round of a service comes next.
    fn before_round(&mut self, _service: usize) -> NextStep {
        NextStep::Make
    }

    /// The first run of a service's round is about to be made.
    ///
    /// # Errors
    /// When the service cannot be run.
    fn prepare(&mut self, _service: usize) -> Result<(), ServiceError> {
        Ok(())
    }

    /// Makes a run.
    ///
    /// # Errors
    /// When the run cannot be made at all; if a server fails, the record has the failure.
    fn make(&mut self, step: &Step) -> Result<ServiceRun, ServiceError>;

    /// The step is not made: its candidate is eliminated, or an earlier session made it.
    fn skipped(&mut self, _step: &Step) {}

    /// A run is final. Warm-ups are not.
    ///
    /// # Errors
    /// Ends the session.
    fn after(&mut self, step: &Step, run: &ServiceRun) -> Result<()>;

    /// The service cannot be run, so its round is over.
    ///
    /// # Errors
    /// Ends the session.
    fn not_prepared(&mut self, service: usize, error: ServiceError) -> Result<()>;

    /// The run could not be made.
    ///
    /// # Errors
    /// Ends the session.
    fn not_made(&mut self, step: &Step, error: ServiceError) -> Result<()>;
}

/// The session is over, or goes on.
type Ended = Option<SessionEnd>;

impl ServiceRounds<'_> {
    /// Makes all runs that are not in `runs` yet, and adds them there. What a signal cut short is in neither.
    ///
    /// # Errors
    /// When the session returns one.
    pub fn run(&self, runs: &mut Vec<ServiceRun>, session: &mut dyn ServiceSession) -> Result<SessionEnd> {
        if let Some(end) = self.warm_up(session)? {
            return Ok(end);
        }
        for round in 0..self.rounds {
            for service in schedule::candidates("", self.services.len(), round, self.seed) {
                if let Some(end) = self.one_round(service, round, runs, session)? {
                    return Ok(end);
                }
            }
        }
        Ok(SessionEnd::Finished)
    }

    fn warm_up(&self, session: &mut dyn ServiceSession) -> Result<Ended> {
        for service in 0..self.services.len() {
            for _ in 0..self.warmup {
                let step = Step { subject: service, candidate: 0, kind: RoundKind::Warmup };
                match self.execute(&step, session)? {
                    Made::Run(_) | Made::Nothing => {}
                    Made::Interrupted(end) => return Ok(Some(end)),
                }
            }
        }
        Ok(None)
    }

    fn one_round(
        &self,
        service: usize,
        round: u32,
        runs: &mut Vec<ServiceRun>,
        session: &mut dyn ServiceSession,
    ) -> Result<Ended> {
        if session.before_round(service) == NextStep::Stop {
            return Ok(Some(SessionEnd::Stopped));
        }
        let (due, others): (Vec<Step>, Vec<Step>) =
            self.steps(service, round).into_iter().partition(|step| self.is_due(step, round, runs));
        others.iter().for_each(|step| session.skipped(step));
        if due.is_empty() {
            return Ok(None);
        }
        let prepared = session.prepare(service);
        if let Some(end) = self.interrupted() {
            return Ok(Some(end));
        }
        if let Err(error) = prepared {
            session.not_prepared(service, error)?;
            return Ok(None);
        }
        for step in due {
            match self.execute(&step, session)? {
                Made::Run(run) => {
                    session.after(&step, &run)?;
                    runs.push(*run);
                }
                Made::Nothing => {}
                Made::Interrupted(end) => return Ok(Some(end)),
            }
            if self.elimination == ServiceElimination::FirstCrash && fails_untouched(self.name(service), runs)
            {
                return Ok(Some(SessionEnd::Stopped));
            }
        }
        Ok(None)
    }

    /// The runs of a service in a round, in their order.
    fn steps(&self, service: usize, round: u32) -> Vec<Step> {
        let of = &self.services[service];
        let order = schedule::candidates(of.order_key, of.candidates.len(), round, self.seed);
        let kind = RoundKind::Measured { round };
        order.into_iter().map(|candidate| Step { subject: service, candidate, kind }).collect()
    }

    /// The run that a signal cut short is not kept.
    fn execute(&self, step: &Step, session: &mut dyn ServiceSession) -> Result<Made> {
        if let Some(end) = self.interrupted() {
            return Ok(Made::Interrupted(end));
        }
        let made = session.make(step);
        if let Some(end) = self.interrupted() {
            return Ok(Made::Interrupted(end));
        }
        match made {
            Ok(run) => Ok(Made::Run(Box::new(run))),
            Err(error) => session.not_made(step, error).map(|()| Made::Nothing),
        }
    }

    fn interrupted(&self) -> Ended {
        self.interruption.signal().map(SessionEnd::Interrupted)
    }

    fn name(&self, service: usize) -> &str {
        self.services[service].name
    }

    fn is_due(&self, step: &Step, round: u32, runs: &[ServiceRun]) -> bool {
        let candidate = self.services[step.subject].candidates[step.candidate];
        let name = self.name(step.subject);
        let of = || runs.iter().filter(|run| run.service == name && run.candidate == candidate.name);
        let failures: Vec<_> = of().filter_map(|run| run.failure.as_ref()).collect();
        let has_crashed = || failures.iter().any(|failure| failure.signal.is_some());
        let is_eliminated = match self.elimination {
            ServiceElimination::FirstCrash => {
                !candidate.is_system() && (failures.len() >= MOST_FAILURES || has_crashed())
            }
            ServiceElimination::Failures => failures.len() >= MOST_FAILURES,
        };
        !is_eliminated && !of().any(|run| run.round == round)
    }
}

/// What came of a step.
enum Made {
    Run(Box<ServiceRun>),
    Nothing,
    Interrupted(SessionEnd),
}

/// Every run of the service under `system` so far has failed. What fails untouched cannot be compared.
fn fails_untouched(service: &str, runs: &[ServiceRun]) -> bool {
    let of_system = |run: &&ServiceRun| run.service == service && run.candidate == imas_core::SYSTEM;
    let mut system = runs.iter().filter(of_system).peekable();
    system.peek().is_some() && system.all(|run| !run.is_ok())
}
