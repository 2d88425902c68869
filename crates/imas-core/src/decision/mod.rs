// SPDX-License-Identifier: Apache-2.0
//! Decides the candidate of a program's next start, from its history and the machine's conditions: first by what a
//! person said or the program itself forbids, else by the policy in force.

use serde::{Deserialize, Serialize};

use crate::adaptive::{Due, weight};
use crate::candidate::SYSTEM;
pub use crate::history::Conditions;
use crate::profile::{CandidateView, IneligibleCause, PolicyState, ProfileView};
use crate::quarantine::{Crashes, Quarantine};
use crate::reason::Reason;
use crate::sample::Ended;

mod by_adaptive;
mod by_paper;

/// One figure or fact on which a decision rests.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Evidence {
    /// Name of the figure or fact, for people.
    pub name: String,
    /// Value of the figure or fact, with unit.
    pub value: String,
}

impl Evidence {
    fn new(name: &str, value: impl Into<String>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// The decision for the next start of a program.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Decision {
    /// Name in the catalogue.
    pub candidate: String,
    /// Whether the start is a trial, under the hook.
    pub trial: bool,
    /// Reason of the decision.
    pub reason: Reason,
    /// The evidence.
    pub evidence: Vec<Evidence>,
}

impl Decision {
    fn new(candidate: &str, reason: Reason, evidence: Vec<Evidence>) -> Self {
        Self { candidate: candidate.to_owned(), trial: false, reason, evidence }
    }

    fn system(reason: Reason, evidence: Vec<Evidence>) -> Self {
        Self::new(SYSTEM, reason, evidence)
    }

    /// Reason and evidence in one paragraph.
    pub fn text(&self) -> String {
        let evidence: Vec<_> = self.evidence.iter().map(|e| format!("{}: {}", e.name, e.value)).collect();
        let sentence = self.reason.sentence();
        if evidence.is_empty() {
            sentence.to_owned()
        } else {
            format!("{sentence} ({})", evidence.join("; "))
        }
    }
}

/// Decides: a pin takes precedence over an exclusion, an exclusion over the policy. A quarantined or
/// unavailable candidate is never chosen, not even when pinned; `system` always may be.
pub fn decide(profile: &ProfileView, conditions: &Conditions) -> Decision {
    decide_where(profile, conditions, true)
}

/// Decides for a start that must not be a trial, else as [`decide`].
pub fn decide_production(profile: &ProfileView, conditions: &Conditions) -> Decision {
    decide_where(profile, conditions, false)
}

fn decide_where(profile: &ProfileView, conditions: &Conditions, may_try: bool) -> Decision {
    without_policy(profile).unwrap_or_else(|| match &profile.policy {
        PolicyState::Adaptive(known) => by_adaptive::decision(profile, known, conditions, may_try),
        PolicyState::Paper(known) => by_paper::decision(profile, known, conditions, may_try),
    })
}

/// Part of the machine's state on which a production start rests.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub enum RestsOn {
    /// Nothing: the decision stands until something about the program changes.
    Nothing,
    /// This weight of CPU in the score.
    Weight(f64),
    /// Load and free memory as they are at this moment.
    Moment,
}

impl RestsOn {
    /// Returns the part on which the decision of this profile rests.
    pub fn of(profile: &ProfileView, conditions: &Conditions) -> Self {
        match &profile.policy {
            _ if without_policy(profile).is_some() => Self::Nothing,
            PolicyState::Adaptive(known) => by_adaptive::rests_on(known, conditions),
            PolicyState::Paper(_) => Self::Moment,
        }
    }
}

/// Whether the tests of the program are done and their answer stands, or a person has given it.
pub fn is_settled(profile: &ProfileView, conditions: &Conditions) -> bool {
    match (without_policy(profile), &profile.policy) {
        (Some(decision), _) => decision.reason == Reason::Pinned,
        (None, PolicyState::Adaptive(known)) => by_adaptive::is_settled(profile, known, conditions),
        (None, PolicyState::Paper(known)) => by_paper::is_settled(known),
    }
}

/// The next trial of a program that its policy decides about, due now or later, at weight `w`; None where nothing is
/// left to be tried or watched.
pub fn next_trial(profile: &ProfileView, w: f64) -> Option<Due> {
    match &profile.policy {
        PolicyState::Adaptive(known) => known.next_trial(w),
        PolicyState::Paper(_) => by_paper::next_trial(profile),
    }
}

/// The candidates of the trials of the next `room` starts, which are expected at about the same time, beside
/// the trials that run: so that they can be compared. Empty where none are due, or there is no room for a
/// comparison.
pub fn trials_side_by_side<'a>(
    profile: &'a ProfileView,
    conditions: &Conditions,
    running: &[&str],
    room: usize,
) -> Vec<&'a str> {
    let is_free = without_policy(profile).is_none();
    let Some(known) = profile.adaptive().filter(|_| is_free) else { return vec![] };
    let index = |name: &&str| profile.candidates.iter().position(|view| view.name == **name);
    let running: Vec<usize> = running.iter().filter_map(index).collect();
    let w = weight(conditions, known.settings.objective).w;
    let trials = known.side_by_side(w, &running, room);
    trials.into_iter().map(|i| profile.candidates[i].name.as_str()).collect()
}

/// The decision that no policy makes: of a pin, an exclusion, or of what the program's last trial found.
fn without_policy(profile: &ProfileView) -> Option<Decision> {
    let by_hand = profile.pinned.as_deref().map(|name| pinned(profile, name));
    by_hand
        .or_else(|| profile.excluded.then(|| Decision::system(Reason::Excluded, vec![])))
        .or_else(|| profile.ineligible.map(ineligible))
}

fn pinned(profile: &ProfileView, name: &str) -> Decision {
    let pin = Evidence::new("pinned to", name);
    if name == SYSTEM {
        return Decision::system(Reason::Pinned, vec![pin]);
    }
    match profile.candidate(name) {
        Some(view) if view.is_usable() => Decision::new(name, Reason::Pinned, vec![pin]),
        Some(view) if view.quarantine.is_some() => {
            Decision::system(Reason::PinnedQuarantined, vec![pin, crash_evidence(profile, name)])
        }
        Some(_) => Decision::system(Reason::PinnedUnavailable, vec![pin]),
        None => Decision::system(
            Reason::PinnedUnavailable,
            vec![pin, Evidence::new("catalogue", "has no such candidate")],
        ),
    }
}

/// Why a candidate is not usable.
fn crash_evidence(profile: &ProfileView, name: &str) -> Evidence {
    let quarantine = profile.candidate(name).and_then(|view| view.quarantine.as_ref());
    Evidence::new(name, quarantine.map_or_else(|| "not available here".to_owned(), crash_text))
}

fn crash_text(quarantine: &Quarantine) -> String {
    let Crashes { crashed, starts } = quarantine.under_candidate;
    let how = match quarantine.ended {
        _ if quarantine.hung.is_some() => "a hang, after which it was killed".to_owned(),
        Ended::Hung => "a hang that imas bench ended".to_owned(),
        _ if quarantine.is_excess() => "a start that took many times what it takes under system".to_owned(),
        Ended::Signal { signal } => format!("signal {signal}"),
        Ended::OutOfMemory => "the kernel, which killed it at the limit of its memory,".to_owned(),
        Ended::Clean { status: Some(status) } => format!("exit status {status}"),
        Ended::Failed { status } => format!("exit status {status} in imas bench"),
        _ => "death before the hook began".to_owned(),
    };
    let verb = if quarantine.is_failure() { "failed" } else { "crashed" };
    format!("{verb} {crashed} of {starts} starts, first by {how} in trial {}", quarantine.trial_id)
}

fn ineligible(cause: IneligibleCause) -> Decision {
    let reason = match cause {
        IneligibleCause::OwnMalloc => Reason::OwnMalloc,
        IneligibleCause::AllocatorInterface => Reason::AllocatorInterface,
        IneligibleCause::Sanitizer => Reason::Sanitizer,
        IneligibleCause::OwnFilter => Reason::OwnFilter,
        IneligibleCause::StoodAside => Reason::StoodAside,
    };
    Decision::system(reason, vec![])
}

/// The reason for a candidate that is in no list of tested ones.
fn left_the_set(view: &CandidateView) -> Option<Evidence> {
    let stays = "is no longer in the set that is tested; it stays until another is found better";
    (!view.tested).then(|| Evidence::new(&view.name, stays))
}
