// SPDX-License-Identifier: Apache-2.0
//! Runs of several candidates, round by round against the run of `system` in the same round.
//!
//! A candidate is **proven** better or worse when three things hold:
//! - the interval of its ratio excludes 1, and the ratio lies beyond the margin;
//! - the mean of its logarithms differs from 0 beyond what the luckiest of all candidates would show by chance
//!   (Bonferroni), by the spread of the runs of all candidates;
//! - its own rounds, taken alone, show the same with the error of a single test. So a candidate that varies far more
//!   than the others is not proven by their steadiness.
//!
//! The common spread matters where rounds are few. With seven candidates, six rounds and a noise of 5 %, a true gain
//! of 10 % is found in 80 of 100 benchmarks; by the candidate's own spread alone in 56 (docs/decisions/0038).
//!
//! Last, one thing before a change and after it: the runs were not made side by side, so they cannot be paired.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

use super::estimate::{Residue, ResidueRun};
use super::{Answer, Estimate, Spread};
use crate::stats::{CONFIDENCE, Interval, bootstrap, look_share, mean_and_deviation, median, t_quantile};

/// Probability that some candidate is taken for better than `system` although none is.
pub const ERROR: f64 = 0.05;
/// Fewest common rounds for a proof: with one or two, an interval is meaningless.
pub const FEWEST_ROUNDS: usize = 3;
/// Largest number of further rounds that is reported.
const MOST_ROUNDS: u32 = 1000;

/// A figure as it is known beside the figure of its reference. Values below 1 are better.
#[derive(Clone, Copy, Debug)]
pub enum KnownFigure<'a> {
    /// Rounds of one of several candidates, and the conditions of a proof.
    Rounds(&'a PairedRatio, &'a Demand),
    /// An interval whose error several tests share already: of pods, of runs against a baseline.
    Interval(Interval),
    /// A ratio without a known spread: it is shown, and nothing is done by itself on its account.
    Ratio(f64),
    /// An estimated gain, with the probability of an error that its proof may have: of trials, of a fleet. Gain and
    /// margin are differences of logarithms.
    Gain(Estimate, f64),
}

/// The one judgement of all comparisons: whether a figure is better or worse than its reference, by the
/// margin that [`super::MARGINS`] has for it or that the user set.
pub fn judge(evidence: KnownFigure<'_>, margin: f64) -> Answer {
    match evidence {
        KnownFigure::Rounds(ratio, demand) => ratio.answer(margin, demand),
        KnownFigure::Interval(interval) => Answer::by_interval(interval, margin),
        KnownFigure::Gain(gain, tail) if gain.proves(margin, tail) => Answer::Better,
        KnownFigure::Gain(gain, tail) if gain.reversed().proves(margin, tail) => Answer::Worse,
        KnownFigure::Gain(..) => Answer::NotShown,
        KnownFigure::Ratio(ratio) => {
            Answer::by_interval(Interval { lo: ratio, mid: ratio, hi: ratio }, margin)
        }
    }
}

/// The runs of all candidates, by one figure.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PairedRuns {
    runs: Vec<ResidueRun>,
}

impl PairedRuns {
    /// Adds a run; `candidate` is any number that stands for the candidate. A figure that is not above 0 was not measured.
    pub fn push(&mut self, candidate: usize, round: usize, figure: f64) {
        if figure > 0.0 && figure.is_finite() {
            self.runs.push(ResidueRun { round, candidate, figures: [figure.ln(), 0.0] });
        }
    }

    /// How far the difference of one run to the reference of its round scatters. The reference is the mean of the runs
    /// of one candidate in that round, so it scatters less where there are several.
    pub fn spread(&self, reference: usize) -> Spread {
        let residue = Residue::of_runs(self.runs.clone());
        let share = 1.0 + self.share_of(reference);
        Spread::common(share * residue.sums.xx, residue.freedom)
    }

    /// Mean over the rounds of 1 / number of runs of this candidate.
    fn share_of(&self, candidate: usize) -> f64 {
        let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.candidate == candidate) {
            *counts.entry(run.round).or_default() += 1.0;
        }
        let shares: Vec<f64> = counts.values().map(|count| 1.0 / count).collect();
        if shares.is_empty() { 1.0 } else { mean_and_deviation(&shares).0 }
    }

    /// How far two runs of one candidate in one round differ: the noise floor. None without such a pair.
    pub fn floor(&self, candidate: usize) -> Option<NoiseFloor> {
        let mut rounds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for run in self.runs.iter().filter(|run| run.candidate == candidate) {
            rounds.entry(run.round).or_default().push(run.figures[0]);
        }
        let squares = |logs: &Vec<f64>| mean_and_deviation(logs).1.powi(2) * (logs.len() as f64 - 1.0);
        let freedom: f64 = rounds.values().map(|logs| logs.len() as f64 - 1.0).sum();
        let sum: f64 = rounds.values().map(squares).sum();
        (freedom > 0.0).then(|| NoiseFloor { deviation: (2.0 * sum / freedom).sqrt(), freedom })
    }
}

/// How far two runs of the same thing differ.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct NoiseFloor {
    /// Standard deviation of the logarithm of their ratio.
    pub deviation: f64,
    /// Degrees of freedom of the deviation.
    pub freedom: f64,
}

/// Whether it is proven that a candidate costs more than `most` times what `system` costs. `logs` are the logarithms
/// of its ratios to `system`, round by round; `common` is the spread of the runs of all candidates.
pub fn is_cost_proven(logs: &[f64], most: f64, common: Spread, demand: &Demand) -> bool {
    let (interval, log) = (Interval::ONE, mean_and_deviation(logs));
    let ratio = PairedRatio { interval, rounds: logs.len(), log, common };
    logs.len() >= demand.fewest && ratio.is_beyond_chance(log.0 - most.ln(), logs.len(), demand)
}

/// A look after each round, from the first that may end the runs to the last that is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Looks {
    /// Fewest rounds.
    pub first: u32,
    /// Most rounds.
    pub most: u32,
}

impl Looks {
    /// Looks of `imas bench -n auto`.
    pub const AUTO: Self = Self { first: 5, most: 30 };
    /// Looks of `imas bench -n auto` of a server, whose runs take minutes. Three rounds are the fewest of a proof.
    pub const SERVER: Self = Self { first: 3, most: 8 };

    /// Share of the allowed error that the test after this number of rounds may spend.
    pub fn share(self, rounds: usize) -> f64 {
        look_share(u32::try_from(rounds).unwrap_or(u32::MAX), self.first, self.most)
    }
}

/// How intervals are resampled: the same runs and seed give the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resampling {
    /// Seed of the bootstrap.
    pub seed: u64,
    /// Resamples per interval.
    pub resamples: usize,
}

/// Conditions of a proof: how many tests share the allowed error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Number of candidates: the best would be picked.
    pub candidates: usize,
    /// Number of figures by which one of them may be picked.
    pub figures: usize,
    /// The runs are looked at while they are made, and end when they are settled; None: their number is fixed.
    pub looks: Option<Looks>,
    /// Fewest common rounds.
    pub fewest: usize,
}

impl Demand {
    /// Conditions for a limit on what a candidate may cost. Each candidate and each limit has the whole error for
    /// itself: rejecting one of several candidates by chance costs little.
    pub fn of_limit(looks: Option<Looks>) -> Self {
        Self { looks, ..Self::of(1) }
    }

    /// Conditions for one of `candidates` candidates by one figure, in a fixed number of rounds.
    pub fn of(candidates: usize) -> Self {
        Self { candidates, figures: 1, looks: None, fewest: FEWEST_ROUNDS }
    }

    /// The error that a single test after this number of rounds may have: all of it, or its share where there are
    /// more looks.
    pub fn error(&self, rounds: usize) -> f64 {
        self.looks.map_or(ERROR, |looks| ERROR * looks.share(rounds))
    }

    /// The smallest difference of logarithms that this number of rounds with this spread would prove. None where nothing
    /// is known of the spread, or the rounds are too few.
    pub fn visible(&self, spread: Spread, rounds: usize) -> Option<f64> {
        let count = u32::try_from(rounds).ok()?;
        (rounds >= self.fewest && spread.freedom > 0.0).then(|| spread.bound(self.tail(rounds), count))
    }

    /// The error of each of the tests together.
    fn tail(&self, rounds: usize) -> f64 {
        self.error(rounds) / (self.candidates.max(1) * self.figures.max(1)) as f64
    }
}

/// A ratio to `system`: below 1 is better.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PairedRatio {
    /// Median over the rounds, with its 95 % interval.
    pub interval: Interval,
    /// Number of rounds.
    pub rounds: usize,
    /// Mean and standard deviation of the logarithms.
    pub log: (f64, f64),
    /// Spread of one logarithm by the runs of all candidates.
    common: Spread,
}

impl PairedRatio {
    /// The ratio of these rounds; None without any. `common` is the spread of the runs of all candidates.
    ///
    /// Both runs of a round are made within seconds of each other, so what slows the machine for a while falls out of
    /// their ratio. In simulation (15 % drift common to a round, 3 % noise of the run's own, 5 rounds) its error was
    /// 0.024, the error of the ratio of both medians 0.036; without drift they are alike.
    pub fn of(ratios: &[f64], common: Spread, how: Resampling) -> Option<Self> {
        let interval = bootstrap(ratios, how.resamples, how.seed, median)?;
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        Some(Self { interval, rounds: ratios.len(), log: mean_and_deviation(&logs), common })
    }

    /// Whether the ratio is proven better or worse.
    pub fn answer(&self, margin: f64, demand: &Demand) -> Answer {
        let answer = Answer::by_interval(self.interval, margin);
        let gain = if answer == Answer::Worse { self.log.0 } else { -self.log.0 };
        let is_proven = self.rounds >= demand.fewest && self.is_beyond_chance(gain, self.rounds, demand);
        if is_proven { answer } else { Answer::NotShown }
    }

    /// Whether this gain would be proven after `rounds` rounds, its spread being what it is now.
    fn is_beyond_chance(&self, gain: f64, rounds: usize, demand: &Demand) -> bool {
        let growth = (rounds as f64 - 1.0) / (self.rounds as f64 - 1.0).max(1.0);
        let count = u32::try_from(rounds).unwrap_or(u32::MAX);
        let alone = self.alone(rounds);
        let moderated = Spread { freedom: self.common.freedom * growth, ..self.moderated() };
        moderated.estimate(gain, count).proves(0.0, demand.tail(rounds))
            && alone.estimate(gain, count).proves(0.0, demand.error(rounds) / demand.figures.max(1) as f64)
    }

    /// Spread of this candidate, moderated by the common one.
    fn moderated(&self) -> Spread {
        let count = u32::try_from(self.rounds).unwrap_or(u32::MAX);
        self.common.moderated(self.log.1.powi(2) * (self.rounds as f64 - 1.0).max(0.0), count)
    }

    fn alone(&self, rounds: usize) -> Spread {
        Spread { sigma: self.log.1, freedom: rounds as f64 - 1.0 }
    }

    /// Rough number of further rounds until its gain is proven in rounds of a fixed number; None where it has none or
    /// that takes more than a thousand. It assumes that neither mean nor spread changes.
    pub fn rounds_to_prove(&self, demand: &Demand) -> Option<u32> {
        let last = demand.looks.map_or(self.rounds, |looks| looks.most as usize);
        let fixed = Demand { looks: None, ..*demand };
        let share = demand.error(last) / ERROR;
        let tests = (demand.candidates.max(1) as f64 / share).ceil();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small count, made larger"
        )]
        let fixed = Demand { candidates: tests as usize, ..fixed };
        let is_proven = |more: &u32| self.is_beyond_chance(-self.log.0, self.rounds + *more as usize, &fixed);
        (self.log.0 < 0.0 && self.rounds > 1).then(|| (0..=MOST_ROUNDS).find(is_proven)).flatten()
    }

    /// Whether the ratio is shown to differ from 1, one way or the other, at this look. The interval alone
    /// would, sooner or later, exclude 1 by chance.
    pub fn is_shown(&self, demand: &Demand) -> bool {
        demand.looks.is_none() || 2.0 * self.own(self.log.0.abs()).chance() < demand.error(self.rounds)
    }

    /// Whether the ratio is shown to be above `bound`; where the runs are looked at again and again, at this
    /// look.
    pub fn is_above(&self, bound: f64, demand: &Demand) -> bool {
        let beyond = self.own(self.log.0 - bound.ln());
        self.interval.lo > bound
            && (demand.looks.is_none() || self.rounds < 2 || beyond.proves(0.0, demand.error(self.rounds)))
    }

    /// Whether the ratio is shown to be above `bound` by this candidate's rounds alone, with the error of a single test:
    /// for so few rounds that an interval from the lowest to the highest means little.
    pub fn is_above_alone(&self, bound: f64) -> bool {
        self.rounds > 1 && self.own(self.log.0 - bound.ln()).proves(0.0, ERROR)
    }

    /// Estimate of `gain` from this candidate's rounds alone.
    fn own(&self, gain: f64) -> Estimate {
        self.alone(self.rounds).estimate(gain, u32::try_from(self.rounds).unwrap_or(u32::MAX))
    }
}

/// The later figures by the earlier ones; None with fewer than three of either. Figures are logarithms.
///
/// The interval is Welch's, of the difference of the means (B. L. Welch, "The generalization of 'Student's' problem
/// when several different population variances are involved", Biometrika 34, 1947). `checks` intervals share the
/// error of one (Bonferroni).
pub fn ratio_after(before: &[f64], after: &[f64], checks: usize) -> Option<Interval> {
    ratio_within(&[[before.to_vec(), after.to_vec()]], checks)
}

/// The later figures by the earlier ones, each compared with the earlier ones of its own group: groups may differ from the start.
/// Groups with fewer than three of either are left out; None if no group is left. Figures are logarithms.
///
/// A group weighs as much as its number of figures tells. The interval is Welch's, of the weighted mean of the groups'
/// differences.
pub fn ratio_within(groups: &[[Vec<f64>; 2]], checks: usize) -> Option<Interval> {
    let (mut weights, mut difference, mut variance, mut squares) = (0.0, 0.0, 0.0_f64, 0.0);
    for group in groups.iter().filter(|group| group.iter().all(|part| part.len() >= FEWEST_ROUNDS)) {
        let [before, after] = group.each_ref().map(|part| (mean_and_deviation(part), part.len() as f64));
        let weight = before.1 * after.1 / (before.1 + after.1);
        weights += weight;
        difference += weight * (after.0.0 - before.0.0);
        for ((_, deviation), n) in [before, after] {
            let part = (weight * deviation).powi(2) / n;
            variance += part;
            squares += part.powi(2) / (n - 1.0);
        }
    }
    if weights <= 0.0 {
        return None;
    }
    let (difference, error) = (difference / weights, variance.sqrt() / weights);
    let tail = (1.0 - CONFIDENCE) / 2.0 / checks.max(1) as f64;
    let half = if error > 0.0 { t_quantile(tail, variance.powi(2) / squares) * error } else { 0.0 };
    Some(Interval { lo: (difference - half).exp(), mid: difference.exp(), hi: (difference + half).exp() })
}

/// Events within a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EventCount {
    /// Number of events.
    pub events: u32,
    /// The time, seconds.
    pub seconds: f64,
}

/// The probability of as many events or more after a change, if they are as frequent as before. Given the sum of both
/// counts, the later count has a binomial distribution.
pub fn chance_of_events(before: EventCount, after: EventCount) -> f64 {
    if after.events == 0 {
        return 1.0;
    }
    let seconds = |count: EventCount| count.seconds.max(1.0);
    let share = seconds(after) / (seconds(after) + seconds(before));
    let all = u64::from(after.events) + u64::from(before.events);
    Binomial::new(share, all).map_or(1.0, |count| count.sf(u64::from(after.events) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t = 2.132 with four degrees of freedom is exceeded with a probability of 0.05.
    #[test]
    fn a_gain_is_judged_in_both_directions() {
        let of = |gain, margin, tail| {
            judge(KnownFigure::Gain(Estimate { gain, error: 0.1, freedom: 4.0 }, tail), margin)
        };
        assert_eq!(of(0.2133, 0.2, 0.05), Answer::Better);
        assert_eq!(of(-0.2133, 0.2, 0.05), Answer::Worse);
        assert_eq!(of(0.2133, 0.22, 0.05), Answer::NotShown, "below the margin");
        assert_eq!(of(-0.2133, 0.2, 0.04), Answer::NotShown, "not sure enough");
        assert_eq!(of(f64::NAN, 0.0, 0.05), Answer::NotShown);
    }

    #[test]
    fn chances_are_those_of_the_binomial() {
        let of = |events, seconds, before, before_s| {
            let count = |events, seconds| EventCount { events, seconds };
            chance_of_events(count(before, before_s), count(events, seconds))
        };
        assert!((of(1, 10.0, 0, 90.0) - 0.1).abs() < 1e-9);
        assert!((of(2, 50.0, 0, 50.0) - 0.25).abs() < 1e-9);
        assert!((of(1, 50.0, 1, 50.0) - 0.75).abs() < 1e-9);
        assert_eq!(of(0, 50.0, 7, 50.0), 1.0);
        assert!(of(3000, 60.0, 2, 86400.0) < 1e-9);
    }

    #[test]
    fn the_ratio_needs_three_of_each() {
        let steady = [0.0, 0.01, -0.01, 0.0];
        let ratio = ratio_after(&steady, &[0.2, 0.21, 0.19], 1).unwrap();
        assert!(ratio.lo > 1.17 && ratio.hi < 1.28, "{ratio:?}");
        assert_eq!(ratio_after(&steady, &[0.2, 0.2], 1), None);
        let wider = ratio_after(&steady, &[0.2, 0.21, 0.19], 8).unwrap();
        assert!(wider.lo < ratio.lo && wider.hi > ratio.hi);
    }

    /// Twice as much in the second group, which most of the earlier figures are in: together it looks like a gain.
    #[test]
    fn groups_that_differ_from_the_start_make_no_difference() {
        let group = |level: f64, counts: [usize; 2], gain: f64| {
            let noise = |n: usize| n as f64 / 100.0;
            let figures = |count: usize, level: f64| (0..count).map(|n| level + noise(n)).collect::<Vec<_>>();
            [figures(counts[0], level), figures(counts[1], level - gain)]
        };
        let groups = |gain| [group(0.0, [4, 8], gain), group(2.0_f64.ln(), [8, 4], gain)];
        let [[a, b], [c, d]] = groups(0.0);
        assert!(ratio_after(&[a, c].concat(), &[b, d].concat(), 1).unwrap().mid < 0.85);
        assert!(ratio_within(&groups(0.0), 1).unwrap().contains(1.0));
        let gain = ratio_within(&groups(0.3), 1).unwrap();
        assert!(gain.hi < 0.8 && gain.contains((-0.3_f64).exp()), "{gain:?}");
        let few = group(5.0, [2, 9], 4.0);
        assert_eq!(ratio_within(std::slice::from_ref(&few), 1), None);
        let [first, second] = groups(0.3);
        assert_eq!(ratio_within(&[first, few, second], 1), Some(gain));
    }
}
