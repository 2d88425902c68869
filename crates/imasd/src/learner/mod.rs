// SPDX-License-Identifier: Apache-2.0
//! The learner: which programs there are, what was measured of them, what their next starts are to be.
//!
//! It owns the store, the program table and the settings, and writes them alone. Pages come to it as finished
//! records; it returns what others must know of as [`LearnerEvents`].

mod admission;
mod decisions;
pub(crate) mod fleet;
mod results;

use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::Result;
use imas_core::Conditions;
use imas_engine::config::Exclusions;
use imas_engine::daemon_status::DaemonCounters;
use imas_engine::inspect;
use imas_linux::host::now_unix_s;
use imas_linux::index::Executable;
use imas_store::daemon::{Offer, Witness};
use imas_store::{RowId, StoreError};

use crate::config::{Config, Installation};
use crate::folders::ServedUsers;
use crate::kept_store::KeptStore;
use crate::notify::TroubleLog;
use crate::owners::Owner;
use crate::process_info::ProcessInfo;
use crate::program_table::{Ineligible, Moment, ProgramTable, TrackedProgram};
use crate::trial_offer::{LONGEST_PAUSE_S, TrialOffer};
use decisions::DisabledAllocators;
use fleet::{FleetEvents, Membership};

/// Parts that the learner is made of.
#[derive(Debug)]
pub(crate) struct LearnerParts {
    pub(crate) store: KeptStore,
    pub(crate) config: Config,
    /// Seconds between two tests of one candidate, of the command line.
    pub(crate) retest_s: Option<f64>,
    pub(crate) users: Rc<ServedUsers>,
    pub(crate) exclusions: Exclusions,
    pub(crate) conditions: Conditions,
}

/// State of the learner.
#[derive(Debug)]
pub(crate) struct Learner {
    parts: LearnerParts,
    installation: Option<Installation>,
    catalogue_trouble: TroubleLog,
    programs: ProgramTable,
    ineligible: Ineligible,
    disabled: DisabledAllocators,
    events: LearnerEvents,
    counts: DaemonCounters,
    /// Membership in a fleet: the host that it takes part as, if it does.
    fleet: Option<Membership>,
    fleet_events: FleetEvents,
}

/// Events that others must know of.
#[derive(Debug, Default)]
pub(crate) struct LearnerEvents {
    /// The index would say something else now.
    pub(crate) changed: bool,
    /// The change cannot wait: the next start must not fail in the same way.
    pub(crate) urgent: bool,
    /// A new store was begun: it gives the numbers of programs to others.
    pub(crate) store_begun_anew: bool,
    /// Starts under another allocator failed, of programs that these answer for.
    pub(crate) failed_starts: Vec<Owner>,
}

impl Learner {
    /// Reads the disabled allocators; programs are read by [`Self::read_programs`].
    pub(crate) fn new(parts: LearnerParts) -> Result<Self> {
        Ok(Self {
            disabled: DisabledAllocators::read(parts.store.get())?,
            parts,
            installation: None,
            catalogue_trouble: TroubleLog::default(),
            programs: ProgramTable::default(),
            ineligible: Ineligible::default(),
            events: LearnerEvents { changed: true, ..LearnerEvents::default() },
            counts: DaemonCounters::default(),
            fleet: None,
            fleet_events: FleetEvents::default(),
        })
    }

    /// Events since the last call.
    pub(crate) fn take_events(&mut self) -> LearnerEvents {
        std::mem::take(&mut self.events)
    }

    pub(crate) fn programs(&self) -> &ProgramTable {
        &self.programs
    }

    pub(crate) fn installation(&self) -> Option<&Installation> {
        self.installation.as_ref()
    }

    pub(crate) fn ineligible(&self) -> &Ineligible {
        &self.ineligible
    }

    pub(crate) fn conditions(&self) -> &Conditions {
        &self.parts.conditions
    }

    /// Something else on disk could not be written: it is tried again with what the store refused.
    pub(crate) fn report_trouble(&mut self, what: &str) {
        self.parts.store.trouble(what);
    }

    /// Time when what failed is to be tried again.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        self.parts.store.next()
    }

    /// Whether what failed is to be tried again now: first the pages that were not stored, then
    /// [`Self::finish_retry`].
    pub(crate) fn take_retry(&mut self, now: Instant) -> bool {
        self.parts.store.take_retry(now)
    }

    /// Judges every program, unless something has failed again.
    pub(crate) fn finish_retry(&mut self) {
        if !self.parts.store.is_in_trouble() {
            self.judge_all();
        }
        if !self.parts.store.is_in_trouble() {
            self.parts.store.works_again();
        }
    }

    /// Counters since the start.
    pub(crate) fn counts(&self) -> DaemonCounters {
        DaemonCounters { store_refusals: self.parts.store.refusals, ..self.counts }
    }

    /// Whether the approved catalogue has a candidate of that name.
    pub(crate) fn offers(&self, candidate: &str) -> bool {
        self.installation.as_ref().is_some_and(|installation| installation.table.id_of(candidate).is_some())
    }

    /// Whether the catalogue on disk is another one than was read.
    pub(crate) fn is_installation_outdated(&self, run_dir: &Path) -> bool {
        self.installation.as_ref().is_none_or(|installation| installation.is_outdated(run_dir))
    }

    /// Uses this catalogue from now on; keeps the last one if it cannot be read.
    pub(crate) fn set_installation(&mut self, read: Result<Installation>) {
        match read {
            Ok(installation) => {
                self.installation = Some(installation);
                self.catalogue_trouble = TroubleLog::default();
                self.events.changed = true;
            }
            Err(error) if self.installation.is_none() => {
                tracing::debug!("nothing is published until root has approved a catalogue: {error:#}");
            }
            Err(error) => {
                // It is tried again every few seconds.
                if self.catalogue_trouble.began() {
                    tracing::warn!("the approved catalogue cannot be read; the last one stays: {error:#}");
                }
            }
        }
    }

    /// Goes by these settings from now on.
    pub(crate) fn set_config(&mut self, config: Config, exclusions: Exclusions) {
        (self.parts.config, self.parts.exclusions) = (config, exclusions);
    }

    /// Every program is looked at again, ineligible ones too.
    pub(crate) fn forget_ineligible(&mut self) {
        self.ineligible.clear();
        self.events.changed = true;
    }

    /// The machine's load and memory changed.
    pub(crate) fn set_conditions(&mut self, conditions: Conditions) {
        self.parts.conditions = conditions;
        for id in self.programs.ids() {
            if let Err(error) = self.decide(id) {
                self.failed(id, &error);
                if self.parts.store.is_in_trouble() {
                    return; // every program is judged when it is tried again
                }
            }
        }
    }

    /// Programs whose decision or offers may change by time alone. No look is put off for longer than an hour: one
    /// that is farther away was due by a clock that has been set back since.
    pub(crate) fn judge_due(&mut self) {
        let now_s = now_unix_s();
        let is_due = |at_s: f64| at_s <= now_s || at_s > now_s + LONGEST_PAUSE_S;
        let due = self.programs.all().filter(|known| known.look_again_s.is_some_and(is_due));
        let due: Vec<_> = due.map(|known| known.program.id).collect();
        due.into_iter().for_each(|id| self.judge(id));
        self.renew_offers();
    }

    /// Takes up what other processes have written into the store, if they have.
    pub(crate) fn look_at_overrides(&mut self) {
        self.parts.store.look_around();
        if self.parts.store.open_if_replaced() {
            self.forget_store();
            return self.read_overrides();
        }
        match self.parts.store.was_changed() {
            Ok(true) => self.read_overrides(),
            Ok(false) => {}
            Err(error) => self.store_refused(&error),
        }
    }

    /// Reads what the operator wrote into the store.
    pub(crate) fn read_overrides(&mut self) {
        match DisabledAllocators::read(self.parts.store.get()) {
            Ok(disabled) => self.disabled = disabled,
            Err(error) => self.store_refused(&error),
        }
        if let Err(error) = self.read_programs() {
            tracing::warn!("the store could not be read again: {error:#}");
        }
    }

    /// Reads all programs of the store, and which trials are on offer, and judges them.
    pub(crate) fn read_programs(&mut self) -> Result<()> {
        self.load_programs()?;
        self.judge_all();
        Ok(())
    }

    /// Reads all programs of the store, and which trials are on offer, without judging: nothing is offered or
    /// withdrawn yet.
    pub(crate) fn load_programs(&mut self) -> Result<()> {
        let programs = self.parts.store.get().programs()?;
        let mut offers = self.parts.store.get().offers()?;
        for id in self.programs.ids() {
            if !programs.iter().any(|program| program.id == id) {
                self.programs.forget(id);
            }
        }
        for program in programs.into_iter().filter(|program| !program.domain.is_own()) {
            let (of_program, others) = offers.into_iter().partition(|offer| offer.program == program.id);
            offers = others;
            let known = self.restored(TrackedProgram::new(program), of_program);
            self.programs.put(known);
        }
        self.events.changed = true; // what was forgotten is judged no more
        self.fleet_events.changed_subjects = true;
        Ok(())
    }

    fn restored(&self, mut known: TrackedProgram, offers: Vec<Offer>) -> TrackedProgram {
        let before = self.programs.get(known.program.id);
        known.executable = match before {
            Some(before) => before.executable,
            None => self.file_read_before(&known),
        };
        known.seen = before.and_then(|before| before.seen);
        known.trial = TrialOffer::restored(offers, before.map(|before| &before.trial));
        known.replicas = before.map(|before| before.replicas.clone()).unwrap_or_default();
        known.fleet = before.and_then(|before| before.fleet.clone());
        known.noticed_uid = before.and_then(|before| before.noticed_uid);
        known
    }

    /// File at the path of a program that was not seen running in this process of the daemon, if it was read
    /// before. Another file there is looked at when it runs.
    fn file_read_before(&self, known: &TrackedProgram) -> Option<Executable> {
        let program = &known.program;
        let was_read = || inspect::was_read(self.parts.store.get(), program.domain, Path::new(&program.path));
        known.executable.filter(|_| was_read())
    }

    /// Processes that were seen, with their pages, in an earlier process of the daemon.
    pub(crate) fn witnesses(&mut self) -> Vec<Witness> {
        let read = self.parts.store.get().witnesses();
        self.stored(read).unwrap_or_default()
    }

    /// Seconds between two tests of one candidate, and the most tests of each.
    fn limits(&self) -> imas_core::paper::Limits {
        self.parts.config.rules.limits(self.parts.retest_s)
    }

    /// Answer of the store; `None` when it failed.
    fn stored<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        answer.map_err(|error| self.store_refused(&error)).ok()
    }

    /// The store could not read or write. Pages stay where they are until it does.
    fn store_refused(&mut self, error: &StoreError) {
        if self.parts.store.refused(error) {
            self.forget_store();
        }
    }

    /// Forgets what is known from the store: another one is open.
    fn forget_store(&mut self) {
        self.programs = ProgramTable::default();
        self.disabled = DisabledAllocators::default();
        self.events.changed = true;
        self.events.store_begun_anew = true;
        if let Some(fleet) = self.fleet.take() {
            let joined = self.join_fleet(Some(fleet));
            joined.unwrap_or_else(|error| tracing::error!("the fleet: {error:#}"));
        }
    }

    /// A process of the program was noticed.
    fn note_process(&mut self, id: RowId, process: &ProcessInfo) {
        if let Some(known) = self.programs.get_mut(id) {
            known.seen = Some(Instant::now());
            known.noticed_uid = Some(process.uid);
            known.replicas.note(process.identity, &Moment::now());
            // Known from the store alone until now: what it is to the fleet may depend on it.
            let is_first = known.threads.is_none();
            known.threads = known.threads.max(Some(process.threads));
            if is_first && known.fleet.is_none() && self.fleet.is_some() {
                self.judge(id);
            }
        }
        if let Some(known) = self.programs.get_mut(id) {
            // Its first trial may have been offered, or taken, before it was known to have replicas.
            if known.replicas.are_possible() {
                self.offer_beside(id);
            }
        }
    }
}
