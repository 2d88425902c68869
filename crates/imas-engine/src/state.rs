// SPDX-License-Identifier: Apache-2.0
//! The state of one program: everything that a decision about it rests on.

use std::collections::BTreeMap;

use imas_core::adaptive::{HostEvidence, Settings, host_evidence};
use imas_core::paper::Limits;
use imas_core::policy::Policy;
use imas_core::profile::known_of;
use imas_core::{Candidate, FleetPrior, History, ProfileView, TrialRecord};
use imas_fleet::FleetStatistics;
use imas_store::samples::StoredProgram;
use imas_store::{Store, StoreError};

use crate::candidates::{CandidateRules, is_service};

/// What the store, the catalogue and the machine say about one program.
#[derive(Debug)]
pub struct ProgramState {
    /// The program.
    pub program: StoredProgram,
    /// Build-id of its executable as it is now; empty where it has none.
    pub build_id: String,
    /// Every trial that is stored, in the order of storing.
    pub records: Vec<TrialRecord>,
    candidates: Vec<Candidate>,
    pinned: Option<String>,
    excluded: bool,
    unblocked_at: BTreeMap<String, f64>,
    /// What other hosts measured, where imasd takes part in a fleet that knows the program.
    fleet: Option<FleetPrior>,
    /// Page settings and CPU count as they are now ([`imas_linux::host::machine_state`]).
    pub machine: String,
}

impl ProgramState {
    /// Reads it; `rules` say which candidates the program may get.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn read(
        store: &Store,
        program: StoredProgram,
        build_id: &str,
        rules: &CandidateRules<'_>,
    ) -> Result<Self, StoreError> {
        let pinned = store.pinned(program.id)?;
        let records = store.trials(program.id)?;
        let candidates = rules.of_program(
            pinned.as_deref(),
            &known_of(&records, build_id),
            is_service(&records, build_id),
        );
        Ok(Self {
            records,
            candidates,
            pinned,
            fleet: fleet_prior(store, &program)?,
            excluded: store.is_excluded(&program.path, &program.detail)?,
            unblocked_at: store.unblocked(program.id)?,
            build_id: build_id.to_owned(),
            machine: imas_linux::host::machine_state(),
            program,
        })
    }

    /// The profile at `now_unix_s`, in seconds since 1970.
    #[must_use]
    pub fn profile(&self, policy: &Policy, limits: Limits, now_unix_s: f64) -> ProfileView {
        ProfileView::under(&self.history(limits, now_unix_s), policy)
    }

    /// What its trials show, trial by trial, as [`host_evidence`].
    #[must_use]
    pub fn evidence(
        &self,
        settings: &Settings,
        limits: Limits,
        now_unix_s: f64,
        is_last_complete: bool,
    ) -> HostEvidence {
        host_evidence(&self.history(limits, now_unix_s), settings, is_last_complete)
    }

    /// Its candidates: the indices of [`Self::evidence`].
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    fn history(&self, limits: Limits, now_unix_s: f64) -> History<'_> {
        History {
            records: &self.records,
            candidates: &self.candidates,
            build_id: &self.build_id,
            pinned: self.pinned.as_deref(),
            excluded: self.excluded,
            unblocked_at: &self.unblocked_at,
            limits,
            now_unix_s,
            machine: &self.machine,
            fleet: self.fleet.as_ref(),
        }
    }
}

/// The statistics of the fleet on the program, as imasd has stored them: `imas` explains by the same.
fn fleet_prior(store: &Store, program: &StoredProgram) -> Result<Option<FleetPrior>, StoreError> {
    let stored = store.statistics(program.id)?;
    let read = stored
        .and_then(|stored| FleetStatistics::read_of(&stored.subject, stored.statistics.as_bytes()).ok());
    Ok(read.map(|statistics| imas_fleet::prior(&statistics)))
}
