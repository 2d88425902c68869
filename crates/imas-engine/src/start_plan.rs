// SPDX-License-Identifier: Apache-2.0
//! The policy's answer for one program: what its next starts are to be.

use imas_core::decision::{Conditions, Decision, Evidence, decide_production};
use imas_core::quarantine::Quarantine;
use imas_core::{ProfileView, Reason, SYSTEM, decide};
use imas_linux::clock::now_unix_s;
use imas_store::decisions::Decided;

/// What a program's next starts are to be.
#[derive(Debug, Clone, PartialEq)]
pub struct StartPlan {
    /// The decision: a trial, if one is due.
    pub decision: Decision,
    /// The decision for every start that is not that trial.
    pub production: Decision,
}

impl StartPlan {
    /// The plan under these conditions. One process runs a trial; all others start as if none were due.
    #[must_use]
    pub fn of(profile: &ProfileView, conditions: &Conditions) -> Self {
        let decision = decide(profile, conditions);
        let production =
            if decision.trial { decide_production(profile, conditions) } else { decision.clone() };
        Self { decision, production }
    }

    /// The plan that leaves every start as it is.
    #[must_use]
    pub fn untouched(reason: Reason, why: &str) -> Self {
        let decision = untouched(reason, why);
        Self { production: decision.clone(), decision }
    }

    /// Candidate of the next trial, if one is due.
    #[must_use]
    pub fn trial(&self) -> Option<&str> {
        self.decision.trial.then_some(self.decision.candidate.as_str())
    }
}

/// A decision to leave a program as it is; `why` is the evidence, if there is any.
#[must_use]
pub fn untouched(reason: Reason, why: &str) -> Decision {
    let evidence = Evidence { name: "the program".to_owned(), value: why.to_owned() };
    Decision {
        candidate: SYSTEM.to_owned(),
        trial: false,
        reason,
        evidence: if why.is_empty() { vec![] } else { vec![evidence] },
    }
}

/// The decision as it is stored. `begun` is the id of the trial that it begins, and the waiting time between
/// tests then in force, in seconds.
#[must_use]
pub fn decided(decision: &Decision, begun: Option<(String, f64)>) -> Decided {
    Decided {
        at_s: now_unix_s(),
        candidate: decision.candidate.clone(),
        trial: begun.is_some(),
        reason: decision.reason.id().to_owned(),
        because: decision.text(),
        begun,
    }
}

/// When the plan may change by time alone, Unix time: the end of the first waiting time between two tests, or
/// of this host's turn in its fleet; within an hour in any case, since trials grow old.
#[must_use]
pub fn valid_until_s(profile: &ProfileView, now_unix_s: f64) -> f64 {
    const HOUR_S: f64 = 3600.0;
    let waits = profile.candidates.iter().filter(|view| view.is_usable());
    let ends =
        waits.filter_map(|view| view.summary.last_trial_s()).map(|last_s| last_s + profile.limits.retest_s);
    let turn = profile.adaptive.as_ref().and_then(|adaptive| adaptive.turn.as_ref());
    let ends = ends.chain(turn.map(|turn| turn.until_s));
    ends.filter(|end_s| *end_s > now_unix_s).fold(now_unix_s + HOUR_S, f64::min)
}

/// The quarantines of this program that began after that time.
pub fn quarantines_since(profile: &ProfileView, since_unix_s: f64) -> impl Iterator<Item = &Quarantine> {
    let quarantined = profile.candidates.iter().filter_map(|view| view.quarantine.as_ref());
    quarantined.filter(move |quarantine| quarantine.since_unix_s > since_unix_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_stored_as_a_trial_only_if_one_begins() {
        let decision = Decision { trial: true, ..untouched(Reason::TrialDue, "") };
        assert!(!decided(&decision, None).trial, "a start beside the trial");
        let stored = decided(&decision, Some(("t".to_owned(), 60.0)));
        assert_eq!((stored.trial, stored.begun), (true, Some(("t".to_owned(), 60.0))));
    }

    #[test]
    fn a_program_is_left_as_it_is_with_the_reason_as_evidence() {
        let plan = StartPlan::untouched(Reason::NoCandidate, "it is static");
        assert_eq!((plan.trial(), plan.production.candidate.as_str()), (None, SYSTEM));
        assert_eq!(plan.decision.evidence[0].value, "it is static");
        assert_eq!(untouched(Reason::NoData, "").evidence, []);
    }
}
