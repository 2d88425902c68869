// SPDX-License-Identifier: Apache-2.0
//! Decisions of the paper's policy: the next test while tests are left, then the pick of Algorithm 1.

use super::{Conditions, Decision, Evidence, crash_evidence, left_the_set};
use crate::adaptive::Due;
use crate::paper::{PaperState, Pick, Picks, choose, cpu_load_pct};
use crate::profile::{CandidateView, ProfileView};
use crate::reason::Reason;

pub(super) fn decision(
    profile: &ProfileView,
    known: &PaperState,
    conditions: &Conditions,
    may_try: bool,
) -> Decision {
    match known.next_test.filter(|_| may_try) {
        Some(next) => trial(profile, next),
        None => pick(profile, known, conditions),
    }
}

/// Whether a usable candidate has figures, and no test is due.
pub(super) fn is_settled(known: &PaperState) -> bool {
    known.usable_picks.is_some() && known.next_test.is_none()
}

/// The test whose wait ends first.
pub(super) fn next_trial(profile: &ProfileView) -> Option<Due> {
    let of = |(candidate, view): (usize, &CandidateView)| {
        let is_left = view.is_usable() && view.tested && !view.summary.is_spent(&profile.limits);
        let last_s = view.summary.last_trial_s();
        let at_s = last_s.map_or(profile.now_unix_s, |last_s| last_s + profile.limits.retest_s);
        let is_now = profile.limits.wait_is_over(last_s, profile.now_unix_s);
        is_left.then_some(Due { candidate, at_s, is_now, is_watch: false })
    };
    profile.candidates.iter().enumerate().filter_map(of).min_by(|a, b| a.at_s.total_cmp(&b.at_s))
}

fn trial(profile: &ProfileView, next: usize) -> Decision {
    let view = &profile.candidates[next];
    let tests = format!("{} of {}", view.summary.count, profile.limits.max_tests);
    let evidence = vec![Evidence::new("tests so far", tests)];
    Decision { trial: true, ..Decision::new(&view.name, Reason::TrialDue, evidence) }
}

fn pick(profile: &ProfileView, known: &PaperState, conditions: &Conditions) -> Decision {
    if !profile.candidates.iter().any(|view| view.is_usable()) {
        return Decision::system(Reason::NoCandidate, vec![]);
    }
    let Some(picks) = known.picks else {
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
