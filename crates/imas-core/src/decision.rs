// SPDX-License-Identifier: Apache-2.0
//! Decides the candidate of a program's next start, from its history and the machine's conditions: first by what a
//! person said or the program itself forbids, else by the policy in force. First the default policy; then the paper's: the
//! next test while tests are left, then the pick of Algorithm 1. Last, why a decision was taken: each [`Reason`] has an id,
//! a sentence and a way to undo it.

use serde::{Deserialize, Serialize};

use crate::adaptive::{AdaptiveState, Due, Judgement, Objective, Proof, Standing, Status, weight};
use crate::candidate::SYSTEM;
use crate::paper::{PaperState, Pick, Picks, choose, cpu_load_pct};
use crate::printable::counted;
use crate::profile::{CandidateView, IneligibleCause, PolicyState, ProfileView};
use crate::quarantine::{Crashes, Quarantine};
use crate::sample::Ended;
use crate::stats::more;

pub use crate::history::Conditions;

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
        PolicyState::Adaptive(known) => adaptive_decision(profile, known, conditions, may_try),
        PolicyState::Paper(known) => paper_decision(profile, known, conditions, may_try),
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
            PolicyState::Adaptive(known) => adaptive_rests_on(known, conditions),
            PolicyState::Paper(_) => Self::Moment,
        }
    }
}

/// Whether the tests of the program are done and their answer stands, or a person has given it.
pub fn is_settled(profile: &ProfileView, conditions: &Conditions) -> bool {
    match (without_policy(profile), &profile.policy) {
        (Some(decision), _) => decision.reason == Reason::Pinned,
        (None, PolicyState::Adaptive(known)) => is_settled_by_adaptive(profile, known, conditions),
        (None, PolicyState::Paper(known)) => is_settled_by_paper(known),
    }
}

/// The next trial of a program that its policy decides about, due now or later, at weight `w`; None where nothing is
/// left to be tried or watched.
pub fn next_trial(profile: &ProfileView, w: f64) -> Option<Due> {
    match &profile.policy {
        PolicyState::Adaptive(known) => known.next_trial(w),
        PolicyState::Paper(_) => next_paper_trial(profile),
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

/// Decision of the default policy. It is a trial only where `may_try`.
fn adaptive_decision(
    profile: &ProfileView,
    known: &AdaptiveState,
    conditions: &Conditions,
    may_try: bool,
) -> Decision {
    let weight = weight(conditions, known.settings.objective);
    let judgement = known.judge(weight.w);
    let name = |i: usize| profile.candidates[i].name.as_str();
    if let Some(next) = judgement.next.filter(|_| may_try) {
        let evidence = vec![
            Evidence::new("rounds so far", known.board.rounds.to_string()),
            Evidence::new("trials so far", known.board.trials().to_string()),
        ];
        return Decision { trial: true, ..Decision::new(name(next), Reason::TrialDue, evidence) };
    }
    if !profile.candidates.iter().any(CandidateView::is_usable) {
        return Decision::system(Reason::NoCandidate, vec![]);
    }
    // A fleet may have proven a candidate that this host never tried.
    if known.board.trials() == 0 && judgement.pick == known.board.system {
        return Decision::system(Reason::NoData, vec![]);
    }
    let mut evidence = vec![Evidence::new(
        "weight of CPU",
        format!(
            "{:.2} (pressure on CPU {:.0} %, on memory {:.0} %)",
            weight.w,
            weight.cpu * 100.0,
            weight.memory * 100.0
        ),
    )];
    let pick = judgement.pick;
    if pick == known.board.system {
        evidence.extend(runner_up(profile, known, &judgement));
        return Decision::system(Reason::NothingProven, evidence);
    }
    evidence.push(gains(name(pick), &judgement.standings[pick], hosts_of(known, pick)));
    evidence.extend(left_the_set(&profile.candidates[pick]));
    let reason = match (known.settings.objective, weight.w) {
        (Objective::Cpu, _) => Reason::FastestWanted,
        (Objective::Memory, _) => Reason::LeanestWanted,
        (Objective::Balanced, _) => Reason::BalancedWanted,
        (Objective::Auto, w) if w > 0.75 => Reason::FastestCpuShort,
        (Objective::Auto, w) if w < 0.25 => Reason::LeanestMemoryShort,
        (Objective::Auto, _) => Reason::Balanced,
    };
    Decision::new(name(pick), reason, evidence)
}

/// The best of those that were not proven better.
fn runner_up(profile: &ProfileView, known: &AdaptiveState, judgement: &Judgement) -> Option<Evidence> {
    let is_out = |s: &Standing| matches!(s.status, Status::Ineligible | Status::Left);
    let has_figures = |(_, s): &(usize, &Standing)| s.rounds > 0 && !is_out(s) && s.within > 0.0;
    let standings = judgement.standings.iter().enumerate().filter(has_figures);
    let (best, standing) = standings.max_by(|a, b| a.1.gain.total_cmp(&b.1.gain))?;
    Some(gains(&profile.candidates[best].name, standing, hosts_of(known, best)))
}

/// Number of other hosts whose figures of the candidate count: one of each group.
fn hosts_of(known: &AdaptiveState, i: usize) -> usize {
    let fleet = known.board.fleet.as_ref().and_then(|fleet| fleet.candidates.get(i));
    fleet.map_or(0, |candidate| candidate.groups.len())
}

/// Gain of a candidate over `system`, in words.
fn gains(name: &str, standing: &Standing, hosts: usize) -> Evidence {
    let Standing { cpu, memory, gain, within, rounds, proof, .. } = standing;
    let of = |difference: f64| format!("{:+.1} %", more(difference) * 100.0);
    let text = format!(
        "CPU {}, memory {}, score {} +- {:.1} % against system over {}{}",
        of(*cpu),
        of(*memory),
        of(-gain),
        within * 100.0,
        counted(*rounds, "round"),
        // The interval of the score may reach across 0 all the same.
        match proof {
            Some(Proof::Memory) => ", proven by its memory".to_owned(),
            Some(Proof::Fleet) => format!(", proven by {} of the fleet", counted(hosts, "host")),
            Some(Proof::Score) | None => String::new(),
        }
    );
    Evidence::new(name, text)
}

/// The weight alone: it stands for load and free memory.
fn adaptive_rests_on(known: &AdaptiveState, conditions: &Conditions) -> RestsOn {
    match known.settings.objective {
        Objective::Auto => RestsOn::Weight(weight(conditions, known.settings.objective).w),
        _ => RestsOn::Nothing,
    }
}

/// Whether something was compared, and no question is open that a trial will answer.
fn is_settled_by_adaptive(profile: &ProfileView, known: &AdaptiveState, conditions: &Conditions) -> bool {
    let w = weight(conditions, known.settings.objective).w;
    let judgement = known.judge(w);
    let is_known = known.board.trials() > 0 || judgement.pick != known.board.system;
    let is_open = known.next_trial(w).is_some_and(|due| !due.is_watch && due.at_s.is_finite());
    is_known
        && !is_open
        && judgement.next.is_none()
        && profile.candidates.iter().any(CandidateView::is_usable)
}

fn paper_decision(
    profile: &ProfileView,
    known: &PaperState,
    conditions: &Conditions,
    may_try: bool,
) -> Decision {
    match known.next_test.filter(|_| may_try) {
        Some(next) => paper_trial(profile, next),
        None => paper_pick(profile, known, conditions),
    }
}

/// Whether a usable candidate has figures, and no test is due.
fn is_settled_by_paper(known: &PaperState) -> bool {
    known.usable_picks.is_some() && known.next_test.is_none()
}

/// The test whose wait ends first.
fn next_paper_trial(profile: &ProfileView) -> Option<Due> {
    let of = |(candidate, view): (usize, &CandidateView)| {
        let is_left = view.is_usable() && view.tested && !view.summary.is_spent(&profile.limits);
        let last_s = view.summary.last_trial_s();
        let at_s = last_s.map_or(profile.now_unix_s, |last_s| last_s + profile.limits.retest_s);
        let is_now = profile.limits.wait_is_over(last_s, profile.now_unix_s);
        is_left.then_some(Due { candidate, at_s, is_now, is_watch: false })
    };
    profile.candidates.iter().enumerate().filter_map(of).min_by(|a, b| a.at_s.total_cmp(&b.at_s))
}

fn paper_trial(profile: &ProfileView, next: usize) -> Decision {
    let view = &profile.candidates[next];
    let tests = format!("{} of {}", view.summary.count, profile.limits.max_tests);
    let evidence = vec![Evidence::new("tests so far", tests)];
    Decision { trial: true, ..Decision::new(&view.name, Reason::TrialDue, evidence) }
}

fn paper_pick(profile: &ProfileView, known: &PaperState, conditions: &Conditions) -> Decision {
    if !profile.candidates.iter().any(|view| view.is_usable()) {
        return Decision::system(Reason::NoCandidate, vec![]);
    }
    let Some(picks) = known.picks else {
        return Decision::system(Reason::NoData, vec![]);
    };
    let (pick, mut evidence) = chosen(profile, &picks, conditions);
    let wanted = &profile.candidates[picks.get(pick)];
    if wanted.is_usable() {
        evidence.push(paper_figures(profile, picks.get(pick)));
        evidence.extend(left_the_set(wanted));
        return Decision::new(&wanted.name, reason_of(pick), evidence);
    }
    evidence.push(crash_evidence(profile, &wanted.name));
    let reason = if wanted.quarantine.is_some() { Reason::Quarantined } else { Reason::PickUnavailable };
    stand_in(profile, known, conditions, (reason, evidence))
}

/// Algorithm 1 again, among the usable candidates; `system` when none of them has data.
fn stand_in(
    profile: &ProfileView,
    known: &PaperState,
    conditions: &Conditions,
    (reason, mut evidence): (Reason, Vec<Evidence>),
) -> Decision {
    let Some(usable) = known.usable_picks else {
        return Decision::system(reason, evidence);
    };
    let (pick, _) = chosen(profile, &usable, conditions);
    evidence.push(paper_figures(profile, usable.get(pick)));
    Decision::new(&profile.candidates[usable.get(pick)].name, reason, evidence)
}

/// Algorithm 1 over one set of picks, with the evidence it used.
fn chosen(profile: &ProfileView, picks: &Picks, conditions: &Conditions) -> (Pick, Vec<Evidence>) {
    let heap = |i: usize| profile.candidates[i].summary.heap_bytes;
    let load_pct = cpu_load_pct(conditions.load5, conditions.cpus);
    let free = conditions.mem_available_bytes as f64;
    let evidence = vec![
        Evidence::new("CPU load", format!("{load_pct:.0} %")),
        Evidence::new("memory available", mebibytes(free)),
        Evidence::new("mean heap of the fastest", mebibytes(heap(picks.fastest))),
        Evidence::new("mean heap of the leanest", mebibytes(heap(picks.leanest))),
    ];
    (choose(load_pct, free, heap(picks.fastest), heap(picks.leanest)), evidence)
}

fn reason_of(pick: Pick) -> Reason {
    match pick {
        Pick::Fastest => Reason::FastestCpuShort,
        Pick::Leanest => Reason::LeanestMemoryShort,
        Pick::Balanced => Reason::Balanced,
    }
}

fn paper_figures(profile: &ProfileView, i: usize) -> Evidence {
    let view = &profile.candidates[i];
    let s = &view.summary;
    Evidence::new(
        &view.name,
        format!(
            "{:.1} ns per operation, {:.1} % fragmentation, {} heap over {} tests",
            s.ns_per_op,
            s.frag * 100.0,
            mebibytes(s.heap_bytes),
            s.count
        ),
    )
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / (1024.0 * 1024.0))
}

macro_rules! reasons {
    ($($name:ident, $id:literal, $undo:expr, $sentence:literal;)*) => {
        /// Reasons of a decision. Serialised as their id.
        #[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[serde(rename_all = "kebab-case")]
        pub enum Reason {
            $(#[doc = $sentence] $name,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: [Self; 21] = [$(Self::$name),*];

            /// Stable kebab-case word for stores, JSON and logs.
            pub fn id(self) -> &'static str {
                match self {
                    $(Self::$name => $id,)*
                }
            }

            /// The reason as one sentence for people.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$name => $sentence,)*
                }
            }

            /// The command that undoes or changes the decision, with PROGRAM for the program; None where nothing
            /// can be changed.
            pub fn undo(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => $undo,)*
                }
            }
        }
    };
}

reasons! {
    Excluded, "excluded", Some("imas exclude remove PROGRAM"),
        "The program is excluded: it runs untouched and is not measured.";
    Pinned, "pinned", Some("imas unpin PROGRAM"),
        "The program is pinned to this candidate.";
    PinnedQuarantined, "pinned-quarantined", Some("imas unpin PROGRAM"),
        "The program is pinned to a candidate that crashed it; it runs untouched instead.";
    PinnedUnavailable, "pinned-unavailable", Some("imas unpin PROGRAM"),
        "The program is pinned to a candidate that cannot be used here; it runs untouched instead.";
    OwnMalloc, "own-malloc", None,
        "The program brings a malloc of its own, which no candidate can replace.";
    AllocatorInterface, "allocator-interface", None,
        "The program calls its allocator's own functions beside malloc, and no other allocator can free what they return.";
    Sanitizer, "sanitizer", None,
        "The program runs under a sanitizer, which needs its own malloc.";
    OwnFilter, "own-filter", None,
        "The program sets a filter of system calls by an instruction of its own, under which a trial may be its end.";
    // By a seccomp filter, a limit of the program's address space, or a switch.
    StoodAside, "stood-aside", None,
        "The hook stood aside in the program's last three trials, so that nothing can be measured for now.";
    TrialDue, "trial-due", Some("imas pin PROGRAM system"),
        "This candidate is due for a trial.";
    FastestCpuShort, "fastest-cpu-short", Some("imas pin PROGRAM system"),
        "CPU is short and memory suffices, so the fastest candidate is used.";
    LeanestMemoryShort, "leanest-memory-short", Some("imas pin PROGRAM system"),
        "Memory is short and CPU is not, so the leanest candidate is used.";
    Balanced, "balanced", Some("imas pin PROGRAM system"),
        "CPU and memory both suffice, or both are short, so the balanced candidate is used.";
    FastestWanted, "fastest-wanted", Some("imas pin PROGRAM system"),
        "The objective is CPU time, so the fastest candidate is used.";
    LeanestWanted, "leanest-wanted", Some("imas pin PROGRAM system"),
        "The objective is memory, so the leanest candidate is used.";
    BalancedWanted, "balanced-wanted", Some("imas pin PROGRAM system"),
        "The objective is CPU and memory alike, so the balanced candidate is used.";
    NothingProven, "nothing-proven", Some("imas pin PROGRAM system"),
        "No candidate is proven better than system, so the program runs untouched.";
    Quarantined, "quarantined", Some("imas pin PROGRAM system"),
        "The best candidate crashed the program, so the next best stands in.";
    PickUnavailable, "pick-unavailable", Some("imas pin PROGRAM system"),
        "The best candidate cannot be used here, so the next best stands in.";
    NoData, "no-data", Some("imas pin PROGRAM system"),
        "Nothing has been measured yet, so the program runs untouched.";
    NoCandidate, "no-candidate", Some("imas doctor"),
        "No candidate may be used, so the program runs untouched.";
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::BTreeSet;

    #[test]
    fn ids_are_distinct_and_what_serde_writes() {
        let ids: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.id()).collect();
        assert_eq!(ids.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.id()));
            assert!(reason.sentence().ends_with('.'), "{reason}");
        }
    }
}
