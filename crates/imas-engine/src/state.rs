// SPDX-License-Identifier: Apache-2.0
//! The state of one program, everything that a decision about it rests on, and its profile under the installation's settings.

use std::collections::BTreeMap;

use anyhow::Result;
use imas_core::adaptive::{HostEvidence, Settings, host_evidence};
use imas_core::paper::Limits;
use imas_core::profile::{Policy, candidates_with_results};
use imas_core::service_life::UntouchedLife;
use imas_core::{Candidate, History, ProfileView, TrialRecord};
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::host::now_unix_s;
use imas_linux::runtime::FoundRuntime;
use imas_linux::runtime_start::unasked_obstacle;
use imas_store::samples::{Domain, StoredProgram};
use imas_store::{Store, StoreError};

use crate::candidates::{CandidateRules, is_service};
use crate::context::Context;
use crate::flags::RulesArgs;
use crate::fleet_turn::{FleetKnowledge, TrialSharing, TurnQuestion};
use crate::inspect::{ExecutableFacts, known_facts};
use crate::outside;
use crate::runtime_command::{self, is_served_by_settings, served_runtime};

/// State of one program, from the store, the catalogue and the machine.
#[derive(Debug)]
pub struct ProgramState {
    /// The program.
    pub program: StoredProgram,
    /// Build-id of its executable as it is now; empty where it has none.
    pub build_id: String,
    /// Every trial that is stored, in the order of storing.
    pub records: Vec<TrialRecord>,
    candidates: Vec<Candidate>,
    /// Reasons for which the program itself forbids a candidate, by the candidate's name.
    left_out: Vec<(String, String)>,
    pinned: Option<String>,
    excluded: bool,
    unblocked_at: BTreeMap<String, f64>,
    /// The fleet's knowledge of the program, as this host has it.
    fleet: Option<FleetKnowledge>,
    /// Replicas of this build that were left untouched, as they lived.
    untouched: Vec<UntouchedLife>,
    /// For each of `candidates`, whether no other host knows it.
    is_own: Vec<bool>,
    /// Page settings and CPU count as they are now ([`imas_linux::host::machine_state`]).
    pub machine: String,
}

impl ProgramState {
    /// Reads the state of a program; `rules` say which candidates the program may get.
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
        let facts = known_facts(store, program.domain, program.path.as_ref());
        let runtime = facts.as_ref().and_then(|facts| runtime(facts, program.domain));
        let is_pinned = |one: &Candidate| pinned.as_ref() == Some(&one.name);
        let mut candidates = rules.of_program(
            pinned.as_deref(),
            &candidates_with_results(&records, build_id),
            is_service(&records, build_id),
            runtime.map(|found| found.runtime),
        );
        if facts.as_ref().is_some_and(outside::is_measurable) {
            // Most candidates need a hook: they are none for this program.
            candidates.retain(|one| one.available || is_pinned(one));
        } else if facts.as_ref().is_some_and(is_served_by_settings) {
            // Trials are made with something loaded, and these settings with nothing.
            let is_setting =
                |one: &Candidate| rules.catalogue.find(&one.name).is_some_and(|one| one.runtime.is_some());
            candidates.retain(|one| !is_setting(one) || is_pinned(one));
        }
        // Before a start by `imas run` the runtime is asked.
        let unasked = runtime.filter(|_| program.domain != Domain::Own);
        let defined = facts.as_ref().map(|facts| facts.defines.as_slice()).unwrap_or_default();
        let left_out = leave_out(&mut candidates, rules.catalogue, defined, unasked);
        let is_own =
            |one: &Candidate| rules.catalogue.find(&one.name).is_none_or(|of_catalogue| of_catalogue.added);
        let machine = imas_linux::host::machine_state();
        Ok(Self {
            untouched: store.untouched_lives(program.id, build_id, &machine)?,
            is_own: candidates.iter().map(is_own).collect(),
            records,
            candidates,
            left_out,
            pinned,
            fleet: FleetKnowledge::read(store, &program)?,
            excluded: store.is_excluded(&program.path, &program.detail)?,
            unblocked_at: store.unblocked(program.id)?,
            build_id: build_id.to_owned(),
            machine,
            program,
        })
    }

    /// The profile at `now_unix_s`, in seconds since 1970.
    #[must_use]
    pub fn profile(&self, policy: &Policy, limits: Limits, now_unix_s: f64) -> ProfileView {
        let mut profile = ProfileView::under(&self.history(limits, now_unix_s), policy);
        if let (Some(fleet), Some(adaptive)) = (&self.fleet, profile.adaptive_mut()) {
            adaptive.turn = fleet.turn(&self.turn_question(&adaptive.settings, now_unix_s));
        }
        profile
    }

    /// How the fleet shares out the program's trials; None outside a fleet, and under a policy without one.
    #[must_use]
    pub fn sharing(&self, policy: &Policy, now_unix_s: f64) -> Option<TrialSharing> {
        let Policy::Adaptive(settings) = policy else { return None };
        Some(self.fleet.as_ref()?.sharing(&self.turn_question(settings, now_unix_s)))
    }

    fn turn_question<'a>(&'a self, settings: &'a Settings, now_s: f64) -> TurnQuestion<'a> {
        TurnQuestion { candidates: &self.candidates, is_own: &self.is_own, settings, now_s }
    }

    /// Evidence of its trials, trial by trial, as [`host_evidence`].
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

    /// Candidates of the program, in the order of the indices of [`Self::evidence`].
    #[must_use]
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// The candidates under which the program is left alone, with the reason.
    #[must_use]
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
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
            fleet: self.fleet.as_ref().and_then(FleetKnowledge::prior),
            untouched: &self.untouched,
        }
    }
}

/// The runtime whose settings the program may get: from `imas run`, and of other domains from the stub, which gives none
/// to a program with nothing loaded.
fn runtime(facts: &ExecutableFacts, domain: Domain) -> Option<&FoundRuntime> {
    let is_given = |found: &&FoundRuntime| {
        domain == Domain::Own || (found.runtime.is_placed() && !is_served_by_settings(facts))
    };
    served_runtime(facts).filter(is_given)
}

/// Takes from the program the candidates that call a function which it defines, and settings of a runtime that nobody
/// asks (`unasked`) and that may not have them.
fn leave_out(
    candidates: &mut [Candidate],
    catalogue: &Catalogue,
    defined: &[String],
    unasked: Option<&FoundRuntime>,
) -> Vec<(String, String)> {
    let mut left_out = vec![];
    for candidate in candidates {
        let why = catalogue.find(&candidate.name).and_then(|one| {
            runtime_command::wrapped_obstacle(one, defined).or_else(|| unasked_obstacle(one, unasked?))
        });
        if let Some(why) = why {
            candidate.available = false;
            left_out.push((candidate.name.clone(), why));
        }
    }
    left_out
}

// State and profile of a program under the installation's settings.

/// The program's state, with the candidates that this context allows. `build_id` is the executable's as
/// it is now.
///
/// # Errors
/// When the store cannot be read.
pub fn state(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    build_id: &str,
) -> Result<ProgramState> {
    let is_usable = |candidate: &CatalogueCandidate| context.obstacle(candidate, Some(store)).is_none();
    state_where(context, store, program, build_id, &is_usable)
}

/// The program's state as [`state`] reads it, with the candidates that `is_usable` allows.
///
/// # Errors
/// When the store cannot be read.
pub fn state_where(
    context: &Context,
    store: &Store,
    program: StoredProgram,
    build_id: &str,
    is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
) -> Result<ProgramState> {
    let facts = known_facts(store, program.domain, program.path.as_ref());
    let without_hook = facts.filter(|facts| facts.unfit.is_some());
    let is_usable = |candidate: &CatalogueCandidate| {
        without_hook.as_ref().is_none_or(|facts| outside::takes(context, facts, candidate))
            && is_usable(candidate)
    };
    let rules = CandidateRules {
        catalogue: &context.catalogue,
        configured: context.config.candidates.as_deref(),
        disabled: &store.disabled()?,
        is_usable: &is_usable,
    };
    Ok(ProgramState::read(store, program, build_id, &rules)?)
}

/// The profile of that state at this moment, under the configured rules.
#[must_use]
pub fn profile_of(state: &ProgramState, context: &Context, rules: &RulesArgs) -> ProfileView {
    let policy = context.config.policy(rules, &state.program.path, &state.program.detail);
    state.profile(&policy, context.limits, now_unix_s())
}
