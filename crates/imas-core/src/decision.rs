// SPDX-License-Identifier: Apache-2.0
//! Decides the candidate of a program's next start, from its history and the machine's conditions.

use serde::{Deserialize, Serialize};

use crate::adaptive::{AdaptiveState, Judgement, Objective, Proof, Standing, Status, weight};
use crate::candidate::SYSTEM;
pub use crate::conditions::Conditions;
use crate::paper::{Pick, Picks, choose, cpu_load_pct};
use crate::plural::counted;
use crate::profile::{CandidateView, IneligibleCause, ProfileView};
use crate::quarantine::{Crashes, Quarantine};
use crate::reason::Reason;
use crate::sample::Ended;
use crate::stats::more;

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
    if let Some(name) = &profile.pinned {
        return pinned(profile, name);
    }
    if profile.excluded {
        return Decision::system(Reason::Excluded, vec![]);
    }
    if let Some(cause) = profile.ineligible {
        return ineligible(cause);
    }
    if let Some(known) = &profile.adaptive {
        return adaptively(profile, known, conditions, true);
    }
    if let Some(next) = profile.next_test {
        return trial(profile, next);
    }
    pick(profile, conditions)
}

/// Decides for a start that must not be a trial, else as [`decide`].
pub fn decide_production(profile: &ProfileView, conditions: &Conditions) -> Decision {
    let is_free = profile.pinned.is_none() && !profile.excluded && profile.ineligible.is_none();
    match &profile.adaptive {
        Some(known) if is_free => adaptively(profile, known, conditions, false),
        _ => decide(&ProfileView { next_test: None, ..profile.clone() }, conditions),
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
    let is_free = profile.pinned.is_none() && !profile.excluded && profile.ineligible.is_none();
    let Some(known) = profile.adaptive.as_ref().filter(|_| is_free) else { return vec![] };
    let index = |name: &&str| profile.candidates.iter().position(|view| view.name == **name);
    let running: Vec<usize> = running.iter().filter_map(index).collect();
    let w = weight(conditions, known.settings.objective).w;
    let trials = known.side_by_side(w, &running, room);
    trials.into_iter().map(|i| profile.candidates[i].name.as_str()).collect()
}

/// Decision of the default policy. It is a trial only where `may_try`.
fn adaptively(
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

/// The reason for a candidate that is in no list of tested ones.
fn left_the_set(view: &CandidateView) -> Option<Evidence> {
    let stays = "is no longer in the set that is tested; it stays until another is found better";
    (!view.tested).then(|| Evidence::new(&view.name, stays))
}

/// What a candidate gains over `system`, in words.
fn gains(name: &str, standing: &Standing, hosts: usize) -> Evidence {
    let Standing { cpu, memory, gain, within, rounds, proof, .. } = standing;
    let of = |difference: f64| format!("{:+.1} %", more(difference) * 100.0);
    let text = format!(
        "CPU {}, memory {}, together {} +- {:.1} % against system over {}{}",
        of(*cpu),
        of(*memory),
        of(-gain),
        within * 100.0,
        counted(*rounds, "round"),
        // The interval of both together may reach across 0 all the same.
        match proof {
            Some(Proof::Memory) => ", proven by its memory".to_owned(),
            Some(Proof::Fleet) => format!(", proven by {} of the fleet", counted(hosts, "host")),
            Some(Proof::Score) | None => String::new(),
        }
    );
    Evidence::new(name, text)
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

fn trial(profile: &ProfileView, next: usize) -> Decision {
    let view = &profile.candidates[next];
    let tests = format!("{} of {}", view.summary.count, profile.limits.max_tests);
    let evidence = vec![Evidence::new("tests so far", tests)];
    Decision { trial: true, ..Decision::new(&view.name, Reason::TrialDue, evidence) }
}

fn pick(profile: &ProfileView, conditions: &Conditions) -> Decision {
    if !profile.candidates.iter().any(|view| view.is_usable()) {
        return Decision::system(Reason::NoCandidate, vec![]);
    }
    let Some(picks) = profile.picks else {
        return Decision::system(Reason::NoData, vec![]);
    };
    let (pick, mut evidence) = chosen(profile, &picks, conditions);
    let wanted = &profile.candidates[picks.get(pick)];
    if wanted.is_usable() {
        evidence.push(figures(profile, picks.get(pick)));
        evidence.extend(left_the_set(wanted));
        return Decision::new(&wanted.name, reason_of(pick), evidence);
    }
    evidence.push(crash_evidence(profile, &wanted.name));
    let reason = if wanted.quarantine.is_some() { Reason::Quarantined } else { Reason::PickUnavailable };
    stand_in(profile, conditions, reason, evidence)
}

/// Algorithm 1 again, among the usable candidates; `system` when none of them has data.
fn stand_in(
    profile: &ProfileView,
    conditions: &Conditions,
    reason: Reason,
    mut evidence: Vec<Evidence>,
) -> Decision {
    let Some(usable) = profile.usable_picks else {
        return Decision::system(reason, evidence);
    };
    let (pick, _) = chosen(profile, &usable, conditions);
    evidence.push(figures(profile, usable.get(pick)));
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

fn figures(profile: &ProfileView, i: usize) -> Evidence {
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
