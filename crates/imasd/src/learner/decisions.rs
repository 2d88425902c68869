// SPDX-License-Identifier: Apache-2.0
//! Judging programs, and offering their trials.

use std::path::Path;

use anyhow::{Result, anyhow};
use imas_core::decision::{Conditions, Decision, trial_beside};
use imas_core::{ProfileView, Reason};
use imas_engine::inspect;
use imas_engine::start_plan::{StartPlan, decided, valid_until_s};
use imas_linux::clock::now_unix_s;
use imas_store::daemon::Offer;
use imas_store::{RowId, StoreError};

use super::Learner;
use crate::program_table::TrackedProgram;

impl Learner {
    /// Judges every program anew.
    pub(crate) fn judge_all(&mut self) {
        for id in self.programs.ids() {
            self.judge(id);
        }
        self.disable_culprits();
    }

    /// Works out from the store what the program's next starts are to be.
    pub(super) fn judge(&mut self, id: RowId) {
        if let Err(error) = self.try_judge(id) {
            match error.downcast_ref::<StoreError>() {
                Some(store) => self.store_refused(store),
                None => tracing::warn!(PROGRAM_ID = id, "a program cannot be judged: {error:#}"),
            }
        }
    }

    fn try_judge(&mut self, id: RowId) -> Result<()> {
        let (Some(known), Some(installation)) = (self.programs.get(id), &self.installation) else {
            return Ok(());
        };
        let (build_id, unfit) = self.facts_of(known);
        let (store, rules) = (self.parts.store.get(), &self.parts.config.rules);
        let program = (known.program.clone(), build_id.as_str());
        let disabled = self.disabled.list();
        let state = installation.state_of(store, program, rules.candidates.as_deref(), disabled)?;
        let now_s = now_unix_s();
        let profile = state.profile(&self.parts.config.policy(&known.program), self.limits(), now_s);
        log_quarantines(known, &profile);
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        known.look_again_s = Some(valid_until_s(&profile, now_s));
        (known.build_id, known.unfit) = (build_id, unfit);
        known.profile = Some(profile);
        self.decide(id)
    }

    /// Build-id of the program's file, and why nothing may be preloaded into it.
    fn facts_of(&self, known: &TrackedProgram) -> (String, Option<String>) {
        let store = self.parts.store.get();
        let inspected = match known.executable {
            Some(executable) => inspect::running(store, Path::new(&known.program.path), executable),
            None => Err(anyhow!("its file is gone, or was not seen running since it changed")),
        };
        match inspected {
            Ok(found) => (found.build_id, found.unfit),
            Err(error) => (known.build_id.clone(), Some(error.to_string())),
        }
    }

    /// The plan under the present conditions, from the profile as it was last worked out.
    pub(super) fn decide(&mut self, id: RowId) -> Result<()> {
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        let Some(profile) = &known.profile else { return Ok(()) };
        known.plan = match &known.unfit {
            Some(why) => StartPlan::untouched(Reason::NoCandidate, why),
            None => StartPlan::of(profile, &self.parts.conditions),
        };
        if !known.plan.decision.trial {
            self.parts.store.get().record(id, &decided(&known.plan.decision, None))?;
        }
        self.events.changed = true;
        self.offer(id)
    }

    /// A trial was taken: another instance may have another candidate at the same time.
    pub(super) fn offer_beside(&mut self, id: RowId) {
        if let Err(error) = self.offer(id) {
            tracing::warn!(PROGRAM_ID = id, "no trial could be offered: {error:#}");
        }
    }

    /// Brings the offered trial into line with the plan.
    fn offer(&mut self, id: RowId) -> Result<()> {
        let least_s = self.parts.config.own.worth_life_s;
        let Some(known) = self.programs.get_mut(id) else { return Ok(()) };
        let wanted = wanted(known, &self.parts.conditions, least_s);
        let offered = known.trial.untaken();
        if wanted.as_deref() == offered.map(|offer| offer.candidate.as_str()) {
            return Ok(());
        }
        if let Some(offer) = offered {
            self.parts.store.get().withdraw(&offer.token)?;
            known.trial.withdraw();
            self.events.changed = true;
        }
        match wanted.filter(|_| !known.trial.pauses(now_unix_s())) {
            Some(candidate) => self.make_offer(id, candidate),
            None => Ok(()),
        }
    }

    fn make_offer(&mut self, id: RowId, candidate: String) -> Result<()> {
        let token = format!("{:016x}", rand::random::<u64>().max(1));
        let retest_s = self.limits().retest_s;
        let offer = Offer { token, program: id, candidate, retest_s, at_s: now_unix_s() };
        let store = self.parts.store.get();
        store.add_offer(&offer)?;
        if let Some(known) = self.programs.get_mut(id) {
            let begun = Some((offer.token.clone(), retest_s));
            let decision = Decision { candidate: offer.candidate.clone(), ..known.plan.decision.clone() };
            store.record(id, &decided(&decision, begun))?;
            known.trial.begin(offer);
        }
        self.events.changed = true;
        Ok(())
    }
}

/// The candidate of the next trial. While one runs, its result is waited for, unless several instances of the
/// program live side by side.
fn wanted(known: &mut TrackedProgram, conditions: &Conditions, least_s: f64) -> Option<String> {
    let planned = known.plan.trial()?;
    let running = known.trial.running();
    if running.is_empty() {
        return Some(planned.to_owned());
    }
    let profile = known.profile.as_ref().filter(|_| known.replicas.are_there(least_s))?;
    trial_beside(profile, conditions, &running).map(str::to_owned)
}

/// One line in the log for each quarantine that is new, and for each that is over.
fn log_quarantines(known: &TrackedProgram, profile: &ProfileView) {
    let Some(before) = &known.profile else { return };
    for view in &profile.candidates {
        let was_quarantined = before.candidate(&view.name).is_some_and(|view| view.quarantine.is_some());
        match &view.quarantine {
            Some(quarantine) if !was_quarantined => tracing::warn!(
                PROGRAM = %known.program,
                CANDIDATE = view.name,
                "quarantined: the program {} under it ({:?}, {} of {} starts); it is tried again when one of the \
                 two changes, or after: imas pin --system --unblock {} {}",
                if quarantine.hung.is_some() { "hung" } else { "crashed" },
                quarantine.ended,
                quarantine.under_candidate.crashed,
                quarantine.under_candidate.starts,
                known.program.id,
                view.name,
            ),
            None if was_quarantined => {
                tracing::info!(PROGRAM = %known.program, CANDIDATE = view.name, "no longer quarantined");
            }
            _ => {}
        }
    }
}
