// SPDX-License-Identifier: Apache-2.0
//! The three picks of a benchmark.
//!
//! A pick must be proven to beat `system`, and may cost no more than a limit on the other axis. Among those that do,
//! the best estimate is not simply taken: between near equals chance decides, and the pick would change from one
//! invocation to the next. A candidate whose difference to the best is not proven counts as tied with it. Ties are
//! decided by the other criterion in the same way, then by the catalogue's order. Where the table shows a better figure
//! than that of the pick, [`PassedOver`] says why it is not the pick.

use serde::{Deserialize, Serialize};

use super::options::Options;
use super::pairs::{Criterion, pairs, ratio};
use crate::candidate::SYSTEM;
use crate::compare::{Answer, PairedRatio, Spread};
use crate::paper::Pick;
use crate::run::RawRun;

/// Why the best figure of the table is not the pick.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum WhyPassedOver {
    /// The candidate is not proven to be better than `system`.
    NotProven,
    /// The candidate costs more on the other axis than a pick may.
    CostsTooMuch,
    /// The pick is as good within the noise, and better on the other axis or earlier in the catalogue.
    Tied,
}

/// A candidate whose figure is better than that of the pick.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct PassedOver {
    /// Fastest or leanest.
    pub pick: Pick,
    /// Name of the candidate.
    pub candidate: String,
    /// Reason why the candidate is not the pick.
    pub why: WhyPassedOver,
}

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
    pub(super) runs: Vec<&'a RawRun>,
    pub(super) cpu: Option<PairedRatio>,
    pub(super) memory: Option<PairedRatio>,
    pub(super) balance: Option<PairedRatio>,
}

impl Entrant<'_> {
    /// This entrant without the ratios that rest on too few rounds for a word.
    pub(super) fn with_enough(&self, options: &Options) -> Self {
        let [cpu, memory, balance] =
            [self.cpu, self.memory, self.balance].map(|ratio| ratio.filter(|r| r.rounds >= options.min_runs));
        Self { name: self.name, runs: self.runs.clone(), cpu, memory, balance }
    }

    pub(super) fn ratio(&self, criterion: Criterion) -> Option<PairedRatio> {
        match criterion {
            Criterion::Cpu => self.cpu,
            Criterion::Memory => self.memory,
            Criterion::Balance => self.balance,
            // These have no pick.
            Criterion::Wall | Criterion::Peak => None,
        }
    }

    /// Whether the candidate is proven to be better than `system`, as one of `of` candidates.
    pub(super) fn beats_system(&self, criterion: Criterion, of: usize, options: &Options) -> bool {
        let answer =
            self.ratio(criterion).map(|ratio| ratio.answer(criterion.margin(options), &options.demand(of)));
        answer == Some(Answer::Better)
    }

    /// Whether the candidate costs no more on the other axis than a pick by this criterion may.
    pub(super) fn is_affordable(&self, criterion: Criterion, options: &Options) -> bool {
        let (other, most) = match criterion {
            Criterion::Cpu => (self.memory, options.most_cost.memory),
            Criterion::Memory => (self.cpu, options.most_cost.cpu),
            _ => return true,
        };
        other.is_none_or(|ratio| ratio.interval.mid <= 1.0 + most)
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
        let within = |ratio: Option<PairedRatio>, margin| {
            ratio.is_some_and(|ratio| ratio.interval.mid <= 1.0 + margin)
        };
        within(self.cpu, options.margins.cpu) && within(self.memory, options.margins.memory)
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

/// The candidates with the best figures of the table that are not the picks. Of one that is not proven only where
/// another is.
pub(super) fn passed_over(
    entrants: &[Entrant<'_>],
    picks: &BenchPicks,
    options: &Options,
) -> Vec<PassedOver> {
    let axes =
        [(Pick::Fastest, Criterion::Cpu, &picks.fastest), (Pick::Leanest, Criterion::Memory, &picks.leanest)];
    let of = |(pick, axis, picked): (Pick, Criterion, &String)| {
        let mid =
            |entrant: &&Entrant<'_>| entrant.ratio(axis).map_or(f64::INFINITY, |ratio| ratio.interval.mid);
        let best = entrants.iter().min_by(|a, b| mid(a).total_cmp(&mid(b)))?;
        let is_gain = mid(&best) < 1.0 - axis.margin(options) && best.name != picked;
        let why = match () {
            () if !is_gain => return None,
            () if !best.beats_system(axis, entrants.len(), options) => WhyPassedOver::NotProven,
            () if !best.is_affordable(axis, options) => WhyPassedOver::CostsTooMuch,
            () => WhyPassedOver::Tied,
        };
        let is_named = why != WhyPassedOver::NotProven || picked != SYSTEM;
        is_named.then(|| PassedOver { pick, candidate: best.name.to_owned(), why })
    };
    axes.into_iter().filter_map(of).collect()
}

fn qualifies(entrant: &Entrant<'_>, criterion: Criterion, of: usize, options: &Options) -> bool {
    entrant.beats_system(criterion, of, options)
        && entrant.is_affordable(criterion, options)
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
        || ratio(&against, criterion, Spread::default(), options)
            .is_some_and(|r| r.interval.lo <= 1.0 || r.interval.mid <= 1.0 + criterion.margin(options))
}
