// SPDX-License-Identifier: Apache-2.0
//! Two candidates side by side, round by round.

use std::collections::BTreeMap;

use super::options::Options;
use super::run::MeasuredRun;
use crate::stats::{
    Interval, bootstrap, mean_and_deviation, median, p_below_zero, runs_to_settle, t_quantile,
};

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
    /// Difference worth reporting. For the balance: what the smaller of both margins alone would make of it.
    pub(super) fn margin(self, options: &Options) -> f64 {
        match self {
            Self::Cpu | Self::Wall => options.cpu_margin,
            Self::Memory | Self::Peak => options.memory_margin,
            Self::Balance => 1.0 - (1.0 - options.cpu_margin.min(options.memory_margin)).sqrt(),
        }
    }
}

/// Figures of one round: of the one and of the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair {
    cpu: (f64, f64),
    memory: (f64, f64),
    wall: (f64, f64),
    peak: (f64, f64),
}

impl Pair {
    fn new(one: &MeasuredRun, other: &MeasuredRun) -> Self {
        Self {
            cpu: (one.compared_cpu_s(), other.compared_cpu_s()),
            memory: (one.mean_bytes as f64, other.mean_bytes as f64),
            wall: (one.wall_s, other.wall_s),
            peak: (one.peak_bytes as f64, other.peak_bytes as f64),
        }
    }

    fn ratio(&self, criterion: Criterion) -> f64 {
        let of = |(one, other): (f64, f64)| one / other;
        match criterion {
            Criterion::Cpu => of(self.cpu),
            Criterion::Memory => of(self.memory),
            Criterion::Wall => of(self.wall),
            Criterion::Peak => of(self.peak),
            Criterion::Balance => (of(self.cpu) * of(self.memory)).sqrt(),
        }
    }

    /// A figure of 0 was not measured: the run was too short for it.
    fn has(&self, criterion: Criterion) -> bool {
        let both = |(one, other): (f64, f64)| one > 0.0 && other > 0.0;
        match criterion {
            Criterion::Cpu => both(self.cpu),
            Criterion::Memory => both(self.memory),
            Criterion::Wall => both(self.wall),
            Criterion::Peak => both(self.peak),
            Criterion::Balance => both(self.cpu) && both(self.memory),
        }
    }
}

/// Pairs of the rounds in which both have a run.
pub(super) fn pairs<'a>(
    one: impl Iterator<Item = &'a MeasuredRun>,
    other: impl Iterator<Item = &'a MeasuredRun>,
) -> Vec<Pair> {
    let others: BTreeMap<u32, &MeasuredRun> = other.map(|run| (run.round, run)).collect();
    one.filter_map(|run| others.get(&run.round).map(|other| Pair::new(run, other))).collect()
}

/// A ratio with the number of rounds it rests on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    pub(super) interval: Interval,
    pub(super) rounds: usize,
    /// Probability of ratios at least so far below 1 by chance alone: paired t test of their logarithms.
    pub(super) p_below_1: f64,
    /// Mean and standard deviation of the logarithms.
    pub(super) log: (f64, f64),
}

impl Ratio {
    /// Where the runs are looked at again and again: whether it differs from 1 at this look, one way or the
    /// other. The interval alone would, sooner or later, exclude 1 by chance.
    pub(super) fn is_shown(&self, options: &Options) -> bool {
        let p = self.p_below_1.min(1.0 - self.p_below_1);
        options.looks.is_none() || p < options.chance(self.rounds)
    }

    /// Whether it is shown to be above `bound`; where the runs are looked at again and again, at this look.
    pub(super) fn is_above(&self, bound: f64, options: &Options) -> bool {
        if options.looks.is_none() || self.rounds < 2 {
            return self.interval.lo > bound;
        }
        let (mean, deviation) = self.log;
        let n = self.rounds as f64;
        let error = deviation / n.sqrt() * t_quantile(options.chance(self.rounds), n - 1.0);
        self.interval.lo > bound && mean - error.max(0.0) > bound.ln()
    }
}

/// Median over the rounds of the one's figure by the other's. None when the criterion was measured in no
/// round.
///
/// Both runs of a round are made within seconds of each other, so what slows the machine for a while falls
/// out of their ratio. In simulation (15 % drift common to a round, 3 % noise of the run's own, 5 rounds) its
/// error was 0.024, that of the ratio of both medians 0.036; without drift they are alike.
pub(super) fn ratio(pairs: &[Pair], criterion: Criterion, options: &Options) -> Option<Ratio> {
    let measured: Vec<Pair> = pairs.iter().copied().filter(|pair| pair.has(criterion)).collect();
    let interval = bootstrap(&measured, options.resamples, options.seed, |drawn| {
        median(&drawn.iter().map(|pair| pair.ratio(criterion)).collect::<Vec<_>>())
    })?;
    let logarithms: Vec<f64> = measured.iter().map(|pair| pair.ratio(criterion).ln()).collect();
    let log = mean_and_deviation(&logarithms);
    Some(Ratio { interval, rounds: measured.len(), p_below_1: p_below_zero(&logarithms), log })
}

/// With fewer runs than a word needs, at least those that are missing.
pub(super) fn more_runs(interval: Interval, rounds: usize, margin: f64, min_runs: usize) -> Option<u32> {
    let missing = u32::try_from(min_runs.saturating_sub(rounds)).unwrap_or(u32::MAX);
    runs_to_settle(interval, rounds, margin).map(|more| more.max(missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, user_s: f64, mean_bytes: u64) -> MeasuredRun {
        MeasuredRun { round, user_s, mean_bytes, ..MeasuredRun::default() }
    }

    #[test]
    fn only_common_rounds_are_paired() {
        let one = [run(1, 1.0, 0), run(2, 2.0, 0), run(4, 4.0, 0)];
        let other = [run(4, 40.0, 0), run(1, 10.0, 0), run(3, 30.0, 0)];
        let pairs = pairs(one.iter(), other.iter());
        assert_eq!(pairs.iter().map(|pair| pair.cpu).collect::<Vec<_>>(), [(1.0, 10.0), (4.0, 40.0)]);
    }

    #[test]
    fn an_unmeasured_figure_has_no_ratio() {
        let one = [run(1, 1.0, 0), run(2, 3.0, 50)];
        let other = [run(1, 2.0, 100), run(2, 6.0, 100)];
        let pairs = pairs(one.iter(), other.iter());
        let options = Options::default();
        assert_eq!(
            ratio(&pairs, Criterion::Cpu, &options).map(|r| (r.interval.mid, r.rounds)),
            Some((0.5, 2))
        );
        assert_eq!(
            ratio(&pairs, Criterion::Memory, &options).map(|r| (r.interval.mid, r.rounds)),
            Some((0.5, 1))
        );
        assert_eq!(
            ratio(&pairs, Criterion::Balance, &options).map(|r| (r.interval.mid, r.rounds)),
            Some((0.5, 1))
        );
        assert_eq!(ratio(&[], Criterion::Cpu, &options), None);
    }
}
