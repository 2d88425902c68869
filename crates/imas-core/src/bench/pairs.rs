// SPDX-License-Identifier: Apache-2.0
//! Two candidates side by side, round by round.

use std::collections::BTreeMap;

use super::options::Options;
use crate::compare::{PairedRatio, PairedRuns, Spread};
use crate::run::RawRun;
use crate::stats::{Interval, runs_to_settle};

/// What candidates are compared on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Criterion {
    /// User and system CPU time.
    Cpu,
    /// Mean of resident anonymous memory.
    Memory,
    /// Elapsed time. Nothing is decided by it.
    Wall,
    /// Peak of resident anonymous memory. Nothing is decided by it.
    Peak,
    /// Geometric mean of CPU and memory ratios, which is exp(0.5 ln cpu + 0.5 ln memory).
    Balance,
}

impl Criterion {
    /// The figure of a run.
    fn figure(self, run: &RawRun) -> f64 {
        let (cpu, memory) = (run.compared_cpu_s(), run.mean_bytes as f64);
        match self {
            Self::Cpu => cpu,
            Self::Memory => memory,
            Self::Wall => run.wall_s,
            Self::Peak => run.peak_bytes as f64,
            Self::Balance => (cpu * memory).sqrt(),
        }
    }

    /// Difference worth reporting. For the balance: what the smaller of both margins alone would make of it.
    pub(super) fn margin(self, options: &Options) -> f64 {
        match self {
            Self::Cpu | Self::Wall => options.margins.cpu,
            Self::Memory | Self::Peak => options.margins.memory,
            Self::Balance => 1.0 - (1.0 - options.margins.cpu.min(options.margins.memory)).sqrt(),
        }
    }
}

/// Two runs of one round. The ratio is that of the first to the second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair<'a>(&'a RawRun, &'a RawRun);

impl Pair<'_> {
    fn ratio(&self, criterion: Criterion) -> f64 {
        criterion.figure(self.0) / criterion.figure(self.1)
    }

    /// A figure of 0 was not measured: the run was too short for it.
    fn has(&self, criterion: Criterion) -> bool {
        [self.0, self.1].into_iter().all(|run| criterion.figure(run) > 0.0)
    }
}

/// Pairs of the rounds in which both have a run.
pub(super) fn pairs<'a>(
    one: impl Iterator<Item = &'a RawRun>,
    other: impl Iterator<Item = &'a RawRun>,
) -> Vec<Pair<'a>> {
    let others: BTreeMap<u32, &RawRun> = other.map(|run| (run.round, run)).collect();
    one.filter_map(|run| others.get(&run.round).map(|other| Pair(run, other))).collect()
}

/// The ratio of these pairs; None when the criterion was measured in no round. `common` is the spread of one
/// difference by the runs of all candidates.
pub(super) fn ratio(
    pairs: &[Pair<'_>],
    criterion: Criterion,
    common: Spread,
    options: &Options,
) -> Option<PairedRatio> {
    let measured = pairs.iter().filter(|pair| pair.has(criterion));
    let ratios: Vec<f64> = measured.map(|pair| pair.ratio(criterion)).collect();
    PairedRatio::of(&ratios, common, options.resampling())
}

/// The spread by the runs of all these candidates.
pub(super) fn common_spread<'a>(
    candidates: impl Iterator<Item = impl Iterator<Item = &'a RawRun>>,
    criterion: Criterion,
) -> Spread {
    let mut all = PairedRuns::default();
    for (candidate, runs) in candidates.enumerate() {
        runs.for_each(|run| all.push(candidate, run.round as usize, criterion.figure(run)));
    }
    all.spread(0)
}

/// Rough number of further runs until a ratio is settled. With fewer runs than a word needs, it is at least
/// the number of those that are missing.
pub(super) fn more_runs(interval: Interval, rounds: usize, margin: f64, min_runs: usize) -> Option<u32> {
    let missing = u32::try_from(min_runs.saturating_sub(rounds)).unwrap_or(u32::MAX);
    runs_to_settle(interval, rounds, margin).map(|more| more.max(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, user_s: f64, mean_bytes: u64) -> RawRun {
        RawRun { round, user_s, mean_bytes, ..RawRun::default() }
    }

    #[test]
    fn only_common_rounds_are_paired() {
        let one = [run(1, 1.0, 0), run(2, 2.0, 0), run(4, 4.0, 0)];
        let other = [run(4, 40.0, 0), run(1, 10.0, 0), run(3, 30.0, 0)];
        let pairs = pairs(one.iter(), other.iter());
        assert_eq!(
            pairs.iter().map(|pair| (pair.0.user_s, pair.1.user_s)).collect::<Vec<_>>(),
            [(1.0, 10.0), (4.0, 40.0)]
        );
    }

    #[test]
    fn an_unmeasured_figure_has_no_ratio() {
        let one = [run(1, 1.0, 0), run(2, 3.0, 50)];
        let other = [run(1, 2.0, 100), run(2, 6.0, 100)];
        let pairs = pairs(one.iter(), other.iter());
        let options = Options::default();
        let ratio = |pairs: &[Pair<'_>], criterion| ratio(pairs, criterion, Spread::default(), &options);
        assert_eq!(ratio(&pairs, Criterion::Cpu).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 2)));
        assert_eq!(ratio(&pairs, Criterion::Memory).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 1)));
        assert_eq!(ratio(&pairs, Criterion::Balance).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 1)));
        assert_eq!(ratio(&[], Criterion::Cpu), None);
    }
}
