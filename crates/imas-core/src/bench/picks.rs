// SPDX-License-Identifier: Apache-2.0
//! The three picks of a benchmark.
//!
//! A pick must be proven to beat `system`. Among those that do, the best estimate is not simply taken:
//! between near equals chance decides, and the pick would change from one invocation to the next. A candidate
//! whose difference to the best is not proven counts as tied with it. Ties are decided by the other criterion
//! in the same way, then by the catalogue's order.

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::pairs::{Criterion, Ratio, pairs, ratio};
use super::run::MeasuredRun;
use super::verdict::is_better;
use crate::candidate::SYSTEM;

/// Names of the picks; `system` where nothing beats it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct BenchPicks {
    /// Least CPU time.
    pub fastest: String,
    /// Least memory.
    pub leanest: String,
    /// Best of both: lowest 0.5 ln cpu + 0.5 ln memory, beating `system` on one of them and worse on neither
    /// by more than the margin.
    pub balanced: String,
}

/// An eligible candidate, in the catalogue's order.
#[derive(Debug)]
pub(super) struct Entrant<'a> {
    pub(super) name: &'a str,
    pub(super) runs: Vec<&'a MeasuredRun>,
    pub(super) cpu: Option<Ratio>,
    pub(super) memory: Option<Ratio>,
    pub(super) balance: Option<Ratio>,
}

impl Entrant<'_> {
    /// Without ratios that rest on too few rounds for a word.
    pub(super) fn with_enough(&self, options: &Options) -> Self {
        let [cpu, memory, balance] =
            [self.cpu, self.memory, self.balance].map(|ratio| ratio.filter(|r| r.rounds >= options.min_runs));
        Self { name: self.name, runs: self.runs.clone(), cpu, memory, balance }
    }

    pub(super) fn ratio(&self, criterion: Criterion) -> Option<Ratio> {
        match criterion {
            Criterion::Cpu => self.cpu,
            Criterion::Memory => self.memory,
            Criterion::Balance => self.balance,
            // These have no pick.
            Criterion::Wall | Criterion::Peak => None,
        }
    }

    /// Beyond the margin, beyond its own interval, and beyond what the luckiest of `of` equal candidates
    /// would reach (Bonferroni). The last matters with few runs: five of them are all below 1 once in 32
    /// times by chance, and there are several candidates.
    pub(super) fn beats_system(&self, criterion: Criterion, of: usize, options: &Options) -> bool {
        self.ratio(criterion).is_some_and(|ratio| {
            is_better(ratio.interval, criterion.margin(options))
                && ratio.p_below_1 < options.chance(ratio.rounds) / of as f64
        })
    }

    /// Better than `system` on at least one axis (two gains within the noise do not add up to one outside it)
    /// and worse by more than the margin on neither.
    fn is_balanced(&self, of: usize, options: &Options) -> bool {
        let gains =
            [Criterion::Cpu, Criterion::Memory].iter().any(|&axis| self.beats_system(axis, of, options));
        gains && self.is_nowhere_worse(options)
    }

    /// Worse by more than the margin in neither CPU time nor memory.
    pub(super) fn is_nowhere_worse(&self, options: &Options) -> bool {
        let within =
            |ratio: Option<Ratio>, margin| ratio.is_some_and(|ratio| ratio.interval.mid <= 1.0 + margin);
        within(self.cpu, options.cpu_margin) && within(self.memory, options.memory_margin)
    }
}

/// All three picks among `entrants`, whose ratios are to `system` and rest on enough runs.
pub(super) fn picks(entrants: &[Entrant<'_>], options: &Options) -> BenchPicks {
    let pick = |criterion, then: &[Criterion]| {
        let winners: Vec<&Entrant<'_>> = entrants
            .iter()
            .filter(|entrant| qualifies(entrant, criterion, entrants.len(), options))
            .collect();
        let tied = then
            .iter()
            .fold(near_best(&winners, criterion, options), |tied, &next| near_best(&tied, next, options));
        tied.first().map_or(SYSTEM, |entrant| entrant.name).to_owned()
    };
    BenchPicks {
        fastest: pick(Criterion::Cpu, &[Criterion::Memory]),
        leanest: pick(Criterion::Memory, &[Criterion::Cpu]),
        balanced: pick(Criterion::Balance, &[]),
    }
}

fn qualifies(entrant: &Entrant<'_>, criterion: Criterion, of: usize, options: &Options) -> bool {
    entrant.beats_system(criterion, of, options)
        && (criterion != Criterion::Balance || entrant.is_balanced(of, options))
}

/// The candidate with the lowest ratio and those whose difference to it is not proven, in the order given.
/// All of them when none has a ratio on this criterion.
fn near_best<'a, 'b>(
    entrants: &[&'a Entrant<'b>],
    criterion: Criterion,
    options: &Options,
) -> Vec<&'a Entrant<'b>> {
    let measured =
        entrants.iter().filter_map(|entrant| Some((entrant, entrant.ratio(criterion)?.interval.mid)));
    let Some((best, _)) = measured.min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return entrants.to_vec();
    };
    entrants.iter().copied().filter(|entrant| is_tied(entrant, best, criterion, options)).collect()
}

/// True when the difference between `entrant` and `best` is not proven: they are the same, its interval
/// against `best` reaches down to 1, or it is worse by no more than the margin.
fn is_tied(entrant: &Entrant<'_>, best: &Entrant<'_>, criterion: Criterion, options: &Options) -> bool {
    let against = pairs(entrant.runs.iter().copied(), best.runs.iter().copied());
    std::ptr::eq(entrant, best)
        || ratio(&against, criterion, options)
            .is_some_and(|r| r.interval.lo <= 1.0 || r.interval.mid <= 1.0 + criterion.margin(options))
}
