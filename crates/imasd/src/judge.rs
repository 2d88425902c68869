// SPDX-License-Identifier: Apache-2.0
//! The policy's answer for one program: what its next starts are to be, and when to ask again.

use imas_core::decision::decide_production;
use imas_core::quarantine::Quarantine;
use imas_core::{Conditions, Decision, ProfileView, SYSTEM, decide};

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
