// SPDX-License-Identifier: Apache-2.0
//! The profile of a program: always computed from its trials, never stored.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::adaptive::{AdaptiveState, ExpectedGain, Role, Settings, expected};
use crate::candidate::{Candidate, NotCounted, TrialRecord, cost, count, in_order_of_time};
use crate::history::trials;
use crate::paper::{self, Limits, PaperState, Pick, TrialSummary};
use crate::quarantine::{Quarantine, quarantined};
use crate::sample::PageKind;
use crate::split::Split;

pub use crate::history::History;

/// A finding that no candidate can serve the program is looked at again after this many seconds (one week):
/// the cause may lie in a library, whose change the program's build-id does not show.
pub const INELIGIBLE_FOR_S: f64 = 7.0 * 24.0 * 3600.0;

/// Number of trials in a row in which the hook did nothing, whatever the reason, after which the program is
/// left alone.
const ASIDE_TRIALS: usize = 3;
/// Time for which such a program is left alone, seconds (a day). Under a seccomp filter, a limit of its
/// address space or a switch, the next trial would give nothing either.
pub const ASIDE_LASTS_S: f64 = 24.0 * 3600.0;

/// State of a program under one candidate.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct CandidateView {
    /// Name in the catalogue.
    pub name: String,
    /// False when it cannot be loaded here.
    pub available: bool,
    /// False when it has left the set of those that are tested.
    pub tested: bool,
    /// Averages over the trials that count.
    pub summary: TrialSummary,
    /// Set when the candidate crashed the program, or made it hang.
    pub quarantine: Option<Quarantine>,
    /// Groups of other hosts on which it crashed the program, if there are enough of them that it is not used
    /// here either.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_crashes: Option<u32>,
    /// Split of the resident memory: mean over the trials that count and have one.
    pub split: Option<Split>,
    /// Trials of this candidate that do not count, in order of time, with the reason.
    pub left_out: Vec<UncountedTrial>,
}

impl CandidateView {
    /// True when the program may be started under it.
    pub fn is_usable(&self) -> bool {
        self.available && self.quarantine.is_none() && self.fleet_crashes.is_none()
    }

    fn role(&self) -> Role {
        match self.is_usable() {
            true if self.tested => Role::Tested,
            true => Role::Kept,
            false => Role::Ineligible,
        }
    }

    /// Whether the paper's picks may be taken from it. One that left the set before its tests were complete
    /// has fewer tests than the others.
    fn is_complete(&self, limits: &Limits) -> bool {
        self.tested || self.summary.is_spent(limits)
    }
}

/// A trial that does not count.
#[derive(Serialize, Clone, PartialEq, Eq, Debug)]
pub struct UncountedTrial {
    /// Id of the trial.
    pub trial_id: String,
    /// Reason why it does not count.
    pub why: NotCounted,
}

/// Why no candidate can serve the program.
#[derive(Serialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum IneligibleCause {
    /// The program brings a malloc of its own.
    OwnMalloc,
    /// The program calls functions of its allocator's own beside malloc.
    AllocatorInterface,
    /// The program is built with a sanitizer.
    Sanitizer,
    /// The program sets a filter of system calls unseen, which may end a trial.
    OwnFilter,
    /// The hook did nothing in its last trials.
    StoodAside,
}

/// State of a program under the policy in force.
#[derive(Clone, PartialEq, Debug)]
pub enum PolicyState {
    /// State of the default policy.
    Adaptive(Box<AdaptiveState>),
    /// State of the policy of the paper.
    Paper(PaperState),
}

/// One of the three picks of the policy in force.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PolicyPick {
    /// Which of the three it is.
    pub pick: Pick,
    /// Index of the candidate.
    pub candidate: usize,
    /// Gain that is expected of it; None under `paper`, which has no such figure.
    pub gain: Option<ExpectedGain>,
}

impl PolicyState {
    /// The picks by the trials so far. Empty as long as nothing is known.
    pub fn picks(&self) -> Vec<PolicyPick> {
        match self {
            Self::Adaptive(known) => expected(known)
                .into_iter()
                .map(|gain| PolicyPick { pick: gain.pick, candidate: gain.candidate, gain: Some(gain) })
                .collect(),
            Self::Paper(PaperState { picks: Some(picks), .. }) => {
                [Pick::Fastest, Pick::Leanest, Pick::Balanced]
                    .map(|pick| PolicyPick { pick, candidate: picks.get(pick), gain: None })
                    .into()
            }
            Self::Paper(_) => vec![],
        }
    }

    /// Whether a trial of the candidate has figures by which it goes, beside what its summary counts.
    pub fn has_figures_of(&self, candidate: usize) -> bool {
        match self {
            Self::Adaptive(known) => known.board.counted[candidate] > 0,
            Self::Paper(_) => false,
        }
    }

    /// Whether it goes by counted malloc calls, which nothing counts in a program that is measured from outside.
    pub fn counts_calls(&self) -> bool {
        matches!(self, Self::Paper(_))
    }

    /// Most trials that a candidate gets.
    pub fn most_trials(&self, limits: &Limits) -> u32 {
        match self {
            Self::Adaptive(known) => known.settings.max_rounds,
            Self::Paper(_) => limits.max_tests,
        }
    }
}

/// State of a program: its candidates, its limits and its policy.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfileView {
    /// State of the program under each candidate, in the catalogue's order.
    pub candidates: Vec<CandidateView>,
    /// How often and how soon a candidate is tested.
    pub limits: Limits,
    /// Set when the latest trial of this build found that no candidate can serve.
    pub ineligible: Option<IneligibleCause>,
    /// The candidate the operator pinned.
    pub pinned: Option<String>,
    /// The operator excluded the program.
    pub excluded: bool,
    /// The time of this profile, seconds since the epoch.
    pub now_unix_s: f64,
    /// State under the policy in force.
    pub policy: PolicyState,
}

impl ProfileView {
    /// Profile under the given policy.
    pub fn under(history: &History<'_>, policy: &Policy) -> Self {
        let summaries = paper::fold(history.records, history.candidates, history.build_id, &history.limits);
        let candidates = candidate_views(history, &summaries);
        let policy = match policy {
            Policy::Adaptive(settings) => {
                let roles: Vec<Role> = candidates.iter().map(CandidateView::role).collect();
                PolicyState::Adaptive(Box::new(AdaptiveState::new(history, &roles, settings)))
            }
            Policy::Paper => PolicyState::Paper(paper_state(history, &summaries, &candidates)),
        };
        Self {
            limits: history.limits,
            ineligible: ineligible(history),
            candidates,
            pinned: history.pinned.map(str::to_owned),
            excluded: history.excluded,
            now_unix_s: history.now_unix_s,
            policy,
        }
    }

    /// State under the default policy; None where another one is in force.
    pub fn adaptive(&self) -> Option<&AdaptiveState> {
        match &self.policy {
            PolicyState::Adaptive(known) => Some(known),
            PolicyState::Paper(_) => None,
        }
    }

    /// State under the default policy, to be changed.
    pub fn adaptive_mut(&mut self) -> Option<&mut AdaptiveState> {
        match &mut self.policy {
            PolicyState::Adaptive(known) => Some(known),
            PolicyState::Paper(_) => None,
        }
    }

    /// The view of a candidate by name.
    pub fn candidate(&self, name: &str) -> Option<&CandidateView> {
        self.candidates.iter().find(|view| view.name == name)
    }
}

fn paper_state(history: &History<'_>, summaries: &[TrialSummary], views: &[CandidateView]) -> PaperState {
    let all = |is: &dyn Fn(&CandidateView) -> bool| views.iter().map(is).collect::<Vec<bool>>();
    let complete = all(&|view| view.is_complete(&history.limits));
    let usable = all(&|view| view.is_usable() && view.is_complete(&history.limits));
    let tested = all(&|view| view.is_usable() && view.tested);
    let last = last_tested(history);
    PaperState {
        picks: paper::analyse(summaries, &complete),
        usable_picks: paper::analyse(summaries, &usable),
        next_test: paper::next_test(summaries, last, &tested, &history.limits, history.now_unix_s),
    }
}

fn candidate_views(history: &History<'_>, summaries: &[TrialSummary]) -> Vec<CandidateView> {
    let mut quarantines = quarantined(
        history.records,
        history.candidates,
        history.build_id,
        history.unblocked_at,
        history.now_unix_s,
    );
    let view = |(candidate, summary): (&Candidate, &TrialSummary)| {
        let at = quarantines.iter().position(|q| q.candidate == candidate.name);
        CandidateView {
            name: candidate.name.clone(),
            available: candidate.available,
            tested: candidate.tested,
            summary: *summary,
            quarantine: at.map(|at| quarantines.swap_remove(at)),
            fleet_crashes: fleet_crashes(history, candidate),
            split: split(history, candidate),
            left_out: left_out(history, candidate),
        }
    };
    history.candidates.iter().zip(summaries).map(view).collect()
}

/// None where the operator unblocked it here.
fn fleet_crashes(history: &History<'_>, candidate: &Candidate) -> Option<u32> {
    let is_unblocked = history.unblocked_at.contains_key(&candidate.name);
    history.fleet.filter(|_| !is_unblocked)?.quarantines(candidate)
}

fn split(history: &History<'_>, candidate: &Candidate) -> Option<Split> {
    let counted = history.records.iter().filter(|record| count(record, candidate, history.build_id).is_ok());
    let splits: Vec<Split> = counted.filter_map(|record| record.sample.memory.split).collect();
    Split::mean(&splits)
}

fn left_out(history: &History<'_>, candidate: &Candidate) -> Vec<UncountedTrial> {
    let why = |record: &TrialRecord| match record.sample.is_uncounted() {
        true => cost(record, candidate, history.build_id).err(),
        false => count(record, candidate, history.build_id).err(),
    };
    in_order_of_time(history.records)
        .into_iter()
        .filter_map(|record| why(record).map(|why| (record, why)))
        .filter(|(_, why)| !matches!(why, NotCounted::OtherCandidate | NotCounted::Flight))
        .map(|(record, why)| UncountedTrial { trial_id: record.sample.trial_id.clone(), why })
        .collect()
}

/// Names of the candidates with a result under this build of a program: a trial, or a crash
/// however it was started.
pub fn candidates_with_results<'a>(records: &'a [TrialRecord], build_id: &str) -> BTreeSet<&'a str> {
    let has_result = |r: &TrialRecord| r.sample.kind == PageKind::Trial || r.sample.ended.is_crash();
    let is_one = |r: &&TrialRecord| has_result(r) && r.is_of_build(build_id);
    records.iter().filter(is_one).map(|r| r.sample.candidate.as_str()).collect()
}

/// Index of the candidate of the latest trial; None when there is none or the catalogue has it no longer.
fn last_tested(history: &History<'_>) -> Option<usize> {
    let name = &trials(history).last()?.sample.candidate;
    history.candidates.iter().position(|candidate| candidate.name == *name)
}

fn ineligible(history: &History<'_>) -> Option<IneligibleCause> {
    let trials = trials(history);
    // One such trial is the last one: the next would end the program as well.
    if trials.iter().any(|trial| trial.sample.pass_reason.as_deref() == Some("own-filter")) {
        return Some(IneligibleCause::OwnFilter);
    }
    let sample = &trials.last()?.sample;
    let age_s = history.now_unix_s - sample.made_unix_s;
    // One of the future (a clock set back) would keep the program ineligible for as long as the clock takes
    // to come up to it.
    let is_young = |lasts_s: f64| (0.0..lasts_s).contains(&age_s);
    match sample.pass_reason.as_deref()? {
        "own-malloc" if is_young(INELIGIBLE_FOR_S) => Some(IneligibleCause::OwnMalloc),
        "allocator-interface" if is_young(INELIGIBLE_FOR_S) => Some(IneligibleCause::AllocatorInterface),
        "sanitizer" if is_young(INELIGIBLE_FOR_S) => Some(IneligibleCause::Sanitizer),
        _ if is_young(ASIDE_LASTS_S) && stands_aside(&trials) => Some(IneligibleCause::StoodAside),
        _ => None,
    }
}

/// Whether the program stood aside in each of the last trials, and not by its candidate's doing.
fn stands_aside(trials: &[&TrialRecord]) -> bool {
    let is_aside = |trial: &&&TrialRecord| {
        let reason = trial.sample.pass_reason.clone();
        reason.is_some_and(|reason| !NotCounted::Passed(reason).is_candidates_doing())
    };
    trials.iter().rev().take(ASIDE_TRIALS).filter(is_aside).count() == ASIDE_TRIALS
}

/// One of the two policies.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Algorithms 1, 8, 9 and 10 of the IMAS paper.
    Paper,
    /// [`crate::adaptive`], the default.
    Adaptive(Settings),
}

impl Default for Policy {
    fn default() -> Self {
        Self::Adaptive(Settings::default())
    }
}
