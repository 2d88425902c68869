// SPDX-License-Identifier: Apache-2.0
//! Decisions of the default policy.

use super::{Conditions, Decision, Evidence, RestsOn, left_the_set};
use crate::adaptive::{AdaptiveState, Judgement, Objective, Proof, Standing, Status, weight};
use crate::printable::counted;
use crate::profile::{CandidateView, ProfileView};
use crate::reason::Reason;
use crate::stats::more;

/// Decision of the default policy. It is a trial only where `may_try`.
pub(super) fn decision(
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
pub(super) fn rests_on(known: &AdaptiveState, conditions: &Conditions) -> RestsOn {
    match known.settings.objective {
        Objective::Auto => RestsOn::Weight(weight(conditions, known.settings.objective).w),
        _ => RestsOn::Nothing,
    }
}

/// Whether something was compared, and no question is open that a trial will answer.
pub(super) fn is_settled(profile: &ProfileView, known: &AdaptiveState, conditions: &Conditions) -> bool {
    let w = weight(conditions, known.settings.objective).w;
    let judgement = known.judge(w);
    let is_known = known.board.trials() > 0 || judgement.pick != known.board.system;
    let is_open = known.next_trial(w).is_some_and(|due| !due.is_watch && due.at_s.is_finite());
    is_known
        && !is_open
        && judgement.next.is_none()
        && profile.candidates.iter().any(CandidateView::is_usable)
}
