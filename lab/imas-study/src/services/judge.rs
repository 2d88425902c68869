// SPDX-License-Identifier: Apache-2.0
//! Judges the picks of services on rounds that did not choose them.
//!
//! Each round judges once what all others chose. The best of several noisy figures looks better than it is on
//! the rounds that made it the best.

use std::array::from_fn;
use std::collections::BTreeMap;

use imas_cli::format;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::compare::{Answer, ERROR, FEWEST_ROUNDS, KnownFigure, Spread, judge, smallest_difference};
use imas_core::stats::{Interval, mean_and_deviation, mean_interval, median};
use serde::Serialize;

use crate::services::pick_rule::PickRule;
use crate::services::round_changes::{RoundChanges, for_every_service};
use crate::study::without_empty_columns;

/// The figures that are judged.
pub const JUDGED: [&str; 6] = ["memory", "cpu", "p99", "memory_idle", "memory_day", "cpu_day"];
/// The figures of [`JUDGED`] as columns of a table.
pub(crate) const JUDGED_COLUMNS: [&str; JUDGED.len()] =
    ["memory", "CPU", "p99", "after the pause", "over the day", "CPU of the day"];
/// "At least 25 % less memory".
const QUARTER: f64 = 0.75;

/// A candidate with its ratios to `system`; above 1 is worse.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct JudgedPick {
    /// Name of the candidate; `system` where nothing is picked.
    pub candidate: String,
    /// Ratios in the order of [`JUDGED`]; None where a figure was not measured.
    pub ratios: [Option<f64>; JUDGED.len()],
}

/// Results of the picks on the rounds that did not choose them.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct HeldOutPicks {
    /// The picks, each once, the most frequent first.
    pub candidates: Vec<String>,
    /// Ratios to `system` in the order of [`JUDGED`], geometric means over the rounds.
    pub ratios: [Option<f64>; JUDGED.len()],
    /// Whether each figure of [`JUDGED`] is worse than `system`'s by more than the margin.
    pub worse: [bool; JUDGED.len()],
    /// Whether each figure of [`JUDGED`] is worse by more than the margin, with an error of at most 5 %.
    pub proven_worse: [bool; JUDGED.len()],
    /// Number of rounds in which the pick failed.
    pub failed: usize,
    /// Number of rounds that judged.
    pub judged: usize,
    /// The pick by the other rounds, by the round that judges it.
    pub by_round: BTreeMap<u32, String>,
}

/// The picks of a rule for one service.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct JudgedService {
    /// Name of the service.
    pub service: String,
    /// Number of rounds with a valid run under `system`.
    pub rounds: usize,
    /// Memory under `system`, bytes.
    pub memory_bytes: Option<f64>,
    /// The pick by all rounds, with its medians. That flatters it: the rounds that choose also judge.
    pub by_all: JudgedPick,
    /// The picks on the rounds that did not choose them. None with a single round.
    pub held_out: Option<HeldOutPicks>,
}

impl JudgedService {
    /// Judges the picks of a rule.
    #[must_use]
    pub fn of(changes: &RoundChanges, rule: &PickRule) -> Self {
        let pick = rule.pick(changes, &changes.rounds);
        let middle = |figure: &str| match pick {
            Some(candidate) => median(&changes.changes(candidate, &changes.rounds, figure)).map(f64::exp),
            None => changes.is_measured(figure).then_some(1.0),
        };
        Self {
            service: changes.service.clone(),
            rounds: changes.rounds.len(),
            memory_bytes: changes.memory_bytes,
            by_all: JudgedPick { candidate: name(changes, pick), ratios: JUDGED.map(middle) },
            held_out: HeldOutPicks::of(changes, |_, others| rule.pick(changes, others)),
        }
    }
}

fn name(changes: &RoundChanges, pick: Option<usize>) -> String {
    pick.map_or_else(|| SYSTEM.to_owned(), |candidate| changes.candidates[candidate].clone())
}

impl HeldOutPicks {
    /// The picks of a rule, each by the round that judges and all others, judged. None with a single round.
    pub(crate) fn of(
        changes: &RoundChanges,
        mut rule: impl FnMut(u32, &[u32]) -> Option<usize>,
    ) -> Option<Self> {
        if changes.rounds.len() < 2 {
            return None;
        }
        let mut logs: [Vec<f64>; JUDGED.len()] = Default::default();
        let (mut by_round, mut failed, mut judged) = (BTreeMap::new(), 0, 0);
        for &judging in &changes.rounds {
            let others: Vec<u32> = changes.rounds.iter().copied().filter(|round| *round != judging).collect();
            let pick = rule(judging, &others);
            let has_failed = pick.is_some_and(|candidate| changes.has_failed(candidate, &[judging]));
            failed += usize::from(has_failed);
            let at = |figure: &str| match pick {
                Some(candidate) => changes.change(candidate, judging, figure),
                None => changes.is_measured(figure).then_some(0.0),
            };
            judged += usize::from(has_failed || at("memory").is_some());
            logs.iter_mut().zip(JUDGED).for_each(|(logs, figure)| logs.extend(at(figure)));
            by_round.insert(judging, name(changes, pick));
        }
        let worse = |at: usize| {
            !logs[at].is_empty()
                && mean_and_deviation(&logs[at]).0 > (1.0 + smallest_difference(JUDGED[at])).ln()
        };
        let is_proven = |at: usize| is_proven_above(&logs[at], 1.0 + smallest_difference(JUDGED[at]));
        Some(HeldOutPicks {
            candidates: by_frequency(by_round.values().cloned().collect()),
            ratios: from_fn(|at| (!logs[at].is_empty()).then(|| mean_and_deviation(&logs[at]).0.exp())),
            worse: from_fn(worse),
            proven_worse: from_fn(is_proven),
            failed,
            judged,
            by_round,
        })
    }
}

/// Whether these logarithms of ratios, of three rounds at least, prove a ratio above `limit`, with an error of at most
/// 5 % (Student's t test).
pub(crate) fn is_proven_above(logs: &[f64], limit: f64) -> bool {
    let ((mean, sigma), rounds) = (mean_and_deviation(logs), logs.len());
    let spread = Spread { sigma, freedom: rounds as f64 - 1.0 };
    let estimate = spread.estimate(mean - limit.ln(), u32::try_from(rounds).unwrap_or(u32::MAX));
    rounds >= FEWEST_ROUNDS && judge(KnownFigure::Gain(estimate, ERROR), 0.0) == Answer::Better
}

/// Names, each once, the most frequent first.
fn by_frequency(names: Vec<String>) -> Vec<String> {
    let count = |name: &String| names.iter().filter(|other| *other == name).count();
    let mut each = names.clone();
    each.sort_by_key(|name| (std::cmp::Reverse(count(name)), name.clone()));
    each.dedup();
    each
}

/// The memory of several services.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct MemoryGain {
    /// Number of services.
    pub services: usize,
    /// Number of services that take at least 25 % less.
    pub quarter_less: usize,
    /// Geometric mean of the ratios to `system`, with its 95 % interval over the services.
    pub mean: Option<Interval>,
}

impl MemoryGain {
    /// Gain by ratios to `system`, one for each service.
    #[must_use]
    pub fn of(ratios: &[f64]) -> Self {
        Self {
            services: ratios.len(),
            quarter_less: ratios.iter().filter(|ratio| **ratio <= QUARTER).count(),
            mean: geometric_mean(ratios),
        }
    }
}

/// Geometric mean with its 95 % interval over the services. None without ratios.
pub(crate) fn geometric_mean(ratios: &[f64]) -> Option<Interval> {
    let Interval { lo, mid, hi } = mean_interval(&ratios.iter().map(|ratio| ratio.ln()).collect::<Vec<_>>())?;
    Some(Interval { lo: lo.exp(), mid: mid.exp(), hi: hi.exp() })
}

/// A ratio as the change that it means, with its interval; a dash where there is none.
pub(crate) fn change(ratio: Option<Interval>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format::change(&ratio))
}

/// Sentence on the rows of a table, each with its number of services, whose means are of fewer services than `all`;
/// empty where there is no such row.
#[must_use]
pub fn of_fewer_services<'a>(all: usize, rows: impl Iterator<Item = (&'a str, usize)>) -> String {
    let fewer: Vec<&str> = rows.filter(|(_, services)| *services < all).map(|(name, _)| name).collect();
    match fewer.is_empty() {
        true => String::new(),
        false => format!(
            "Means of fewer than {all} services, not to be compared with other rows: {}.",
            fewer.join(", ")
        ),
    }
}

/// One candidate given to all services. It chooses nothing, so all rounds judge it.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct CandidateForAll {
    /// Name of the candidate.
    pub candidate: String,
    /// Number of services with runs under the candidate.
    pub services: usize,
    /// Ratios to `system` in the order of [`JUDGED`], geometric means over the services with their 95 %
    /// intervals.
    pub ratios: [Option<Interval>; JUDGED.len()],
    /// Number of services for each figure of [`JUDGED`] that are worse than `system` by more than the margin.
    pub worse: [usize; JUDGED.len()],
    /// Number of services that failed under the candidate.
    pub failed: usize,
    /// Number of services that take at least 25 % less memory.
    pub quarter_less: usize,
}

impl CandidateForAll {
    /// Every candidate that may be given to all services, the leanest first.
    #[must_use]
    pub fn all(services: &[&RoundChanges]) -> Vec<Self> {
        let names = for_every_service(services.iter().copied());
        let mut all: Vec<Self> = names.into_iter().map(|name| Self::of(name, services)).collect();
        let memory = |one: &Self| one.ratios[0].map_or(f64::INFINITY, |ratio| ratio.mid);
        all.sort_by(|a, b| memory(a).total_cmp(&memory(b)));
        all
    }

    /// Table with a row for each candidate.
    #[must_use]
    pub fn table(all: &[Self]) -> Table {
        let counted = ["25 % less memory", "worse in memory", "in CPU", "in p99", "failed"];
        let columns = [&["candidate", "services"][..], &JUDGED_COLUMNS, &counted].concat();
        let mut table = Table::new("one-for-all", "One candidate for all services", &columns);
        for one in all {
            let own = [one.candidate.clone(), one.services.to_string()];
            let counts = [one.quarter_less, one.worse[0], one.worse[1], one.worse[2], one.failed];
            let counts = counts.map(|count| count.to_string());
            table.push(own.into_iter().chain(one.ratios.map(change)).chain(counts).collect());
        }
        without_empty_columns(table)
    }

    fn of(name: &str, services: &[&RoundChanges]) -> Self {
        let place = |one: &RoundChanges| one.candidates.iter().position(|candidate| candidate == name);
        let those: Vec<(&RoundChanges, usize)> =
            services.iter().filter_map(|one| Some((*one, place(one)?))).collect();
        let ratios = |figure: &str| -> Vec<f64> {
            let of = |(one, at): &(&RoundChanges, usize)| median(&one.changes(*at, &one.rounds, figure));
            those.iter().filter_map(of).map(f64::exp).collect()
        };
        let memory = ratios("memory");
        let beyond = |figure: &str| {
            let is_worse = |ratio: &&f64| {
                judge(KnownFigure::Ratio(**ratio), smallest_difference(figure)) == Answer::Worse
            };
            ratios(figure).iter().filter(is_worse).count()
        };
        Self {
            candidate: name.to_owned(),
            services: memory.len(),
            ratios: JUDGED.map(|figure| geometric_mean(&ratios(figure))),
            worse: JUDGED.map(beyond),
            failed: those.iter().filter(|(one, at)| one.has_failed(*at, &one.rounds)).count(),
            quarter_less: MemoryGain::of(&memory).quarter_less,
        }
    }
}
