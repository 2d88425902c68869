// SPDX-License-Identifier: Apache-2.0
//! The narrow seam to the policy: all that is known of a program in, what its next starts are to be out.

use anyhow::Result;
use imas_core::decision::decide_production;
use imas_core::paper::Limits;
use imas_core::policy::Policy;
use imas_core::quarantine::Quarantine;
use imas_core::{Candidate, Conditions, Decision, History, ProfileView, SYSTEM, TrialRecord, decide};
use imas_store::Store;
use imas_store::samples::Program;

/// What a program's next starts are to be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// The decision itself, for the store.
    pub(crate) decision: Decision,
    /// Candidate of every start that is no trial.
    pub(crate) production: String,
    /// Candidate of the next trial, if one is due.
    pub(crate) trial: Option<String>,
}

impl Verdict {
    /// For what is not known or must be left alone.
    pub(crate) fn untouched(decision: Decision) -> Self {
        Self { production: SYSTEM.to_owned(), trial: None, decision }
    }
}

/// What the policy is asked about.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    pub(crate) program: &'a Program,
    pub(crate) build_id: &'a str,
    /// Every trial that the store has of it.
    pub(crate) records: &'a [TrialRecord],
    pub(crate) pinned: Option<&'a str>,
    pub(crate) candidates: &'a [Candidate],
    pub(crate) limits: Limits,
    pub(crate) policy: Policy,
    pub(crate) now_unix_s: f64,
    /// Pages and CPUs as they are now.
    pub(crate) machine: String,
}

/// The profile, from everything that the store has of the program.
pub(crate) fn profile(store: &Store, question: &Question<'_>) -> Result<ProfileView> {
    let id = question.program.id;
    let history = History {
        records: question.records,
        candidates: question.candidates,
        build_id: question.build_id,
        pinned: question.pinned,
        excluded: store.is_excluded(&question.program.path, &question.program.detail)?,
        lifted_at: &store.lifts(id)?,
        limits: question.limits,
        now_unix_s: question.now_unix_s,
        machine: &question.machine,
    };
    Ok(ProfileView::under(&history, &question.policy))
}

/// The verdict under these conditions.
pub(crate) fn verdict(profile: &ProfileView, conditions: &Conditions) -> Verdict {
    let decision = decide(profile, conditions);
    if !decision.trial {
        return Verdict { production: decision.candidate.clone(), trial: None, decision };
    }
    // One process runs the trial; all others start as if none were due.
    let meanwhile = decide_production(profile, conditions);
    Verdict { production: meanwhile.candidate, trial: Some(decision.candidate.clone()), decision }
}

/// When the answer may change by time alone, Unix time: the end of the first wait; hourly when nothing waits, since trials grow old.
pub(crate) fn look_again_s(profile: &ProfileView, now_unix_s: f64) -> f64 {
    const HOUR_S: f64 = 3600.0;
    let waits = profile.candidates.iter().filter(|view| view.is_usable());
    let ends =
        waits.filter_map(|view| view.summary.last_trial_s()).map(|last_s| last_s + profile.limits.retest_s);
    ends.filter(|end_s| *end_s > now_unix_s).fold(now_unix_s + HOUR_S, f64::min)
}

/// The quarantines of this program that began after that time.
pub(crate) fn quarantines_since(
    profile: &ProfileView,
    since_unix_s: f64,
) -> impl Iterator<Item = &Quarantine> {
    let quarantined = profile.candidates.iter().filter_map(|view| view.quarantine.as_ref());
    quarantined.filter(move |quarantine| quarantine.since_unix_s > since_unix_s)
}
