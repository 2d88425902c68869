// SPDX-License-Identifier: Apache-2.0
//! An estimated difference, and what it proves; and the scatter of single runs after the effects of candidate and round.

use serde::{Deserialize, Serialize};

use crate::stats::{Interval, Moments, t_quantile, t_tail};

/// The result of a comparison of a figure with the reference's.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Proven better.
    Better,
    /// Proven worse.
    Worse,
    /// Proven neither better nor worse.
    NotShown,
}

impl Answer {
    /// The answer of one ratio for itself: below 1 is better. Its interval must exclude 1, and its estimate must
    /// lie beyond the margin. Where a candidate was chosen among several, that is not enough ([`super::Demand`]).
    pub fn by_interval(ratio: Interval, margin: f64) -> Self {
        match ratio {
            Interval { mid, hi, .. } if hi < 1.0 && mid < 1.0 - margin => Self::Better,
            Interval { lo, mid, .. } if lo > 1.0 && mid > 1.0 + margin => Self::Worse,
            _ => Self::NotShown,
        }
    }
}

/// An estimated gain, a difference of logarithms: above 0 is better.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The gain.
    pub gain: f64,
    /// Standard error of the gain.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// Probability of at least this gain by chance alone. 1 where nothing is known of the error.
    pub fn chance(&self) -> f64 {
        t_tail(self.gain / self.error, self.freedom)
    }

    /// The loss as a gain.
    pub(super) fn reversed(self) -> Self {
        Self { gain: -self.gain, ..self }
    }

    /// Whether a gain is proven that is at least `margin`; `tail` is the probability of an error.
    pub(super) fn proves(&self, margin: f64, tail: f64) -> bool {
        self.gain >= margin && self.chance() <= tail
    }
}

/// Spread of one difference, a standard deviation of logarithms.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Standard deviation of one difference.
    pub sigma: f64,
    /// Degrees of freedom of the standard deviation.
    pub freedom: f64,
}

/// Degrees of freedom of the common variance against a candidate's own variance.
const COMMON_FREEDOM: f64 = 20.0;

impl Spread {
    /// The spread that all candidates have in common; `squares` is the sum of squared differences. 0 where nothing is
    /// known: no bound follows from it, for the degrees of freedom are 0 as well.
    pub fn common(squares: f64, freedom: f64) -> Self {
        Self { sigma: if freedom > 0.0 { (squares / freedom).sqrt() } else { 0.0 }, freedom }
    }

    /// A candidate's own spread, moderated towards the common one (G. K. Smyth, "Linear models and empirical Bayes
    /// methods", SAGMB 3, 2004). `squares` is the sum of squared deviations of its `count` differences. The degrees
    /// of freedom are right for a spread in which candidates differ.
    #[must_use]
    pub fn moderated(self, squares: f64, count: u32) -> Self {
        let weight = self.freedom.min(COMMON_FREEDOM);
        let own = f64::from(count.saturating_sub(1));
        Self::common(weight * self.sigma.powi(2) + squares, weight + own)
    }

    /// Estimate of a gain that is the mean of `count` differences.
    pub fn estimate(&self, gain: f64, count: u32) -> Estimate {
        let error = if count == 0 { f64::INFINITY } else { self.sigma / f64::from(count).sqrt() };
        Estimate { gain, error, freedom: self.freedom }
    }

    /// One-sided bound of the error of the mean of `count` differences, with error probability `tail`.
    pub fn bound(&self, tail: f64, count: u32) -> f64 {
        if count == 0 {
            return f64::INFINITY;
        }
        t_quantile(tail, self.freedom) * self.sigma / f64::from(count).sqrt()
    }
}

/// Sweeps after which the fit is taken as it is: what is left is then counted as noise.
const SWEEPS: usize = 500;
/// Change of an effect, as a difference of logarithms, below which the fit is done.
const DONE: f64 = 1e-10;

/// Residuals of the least squares fit of one effect for each candidate and one for each round, held as sums
/// of squares and products (x: cpu, y: memory). The differences to `system` share the run of `system`; these
/// residuals do not, so their degrees of freedom are correct, also where no round has all candidates.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Residue {
    /// Sums.
    pub sums: Moments,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// One run with two figures, logarithms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ResidueRun {
    /// Round of the run.
    pub round: usize,
    /// Candidate of the run.
    pub candidate: usize,
    /// ln CPU and ln memory.
    pub figures: [f64; 2],
}

impl Residue {
    /// The residuals of these runs.
    pub fn of_runs(mut runs: Vec<ResidueRun>) -> Self {
        let count = |of: fn(&ResidueRun) -> usize| runs.iter().map(of).max().map_or(0, |last| last + 1);
        let (rounds, candidates) = (count(|run| run.round), count(|run| run.candidate));
        let freedom = freedom(&runs, rounds, candidates);
        if freedom == 0 {
            return Self::default();
        }
        for _ in 0..SWEEPS {
            let moved = centre(&mut runs, rounds, |run| run.round);
            if moved.max(centre(&mut runs, candidates, |run| run.candidate)) < DONE {
                break;
            }
        }
        let sum = |of: &dyn Fn(&[f64; 2]) -> f64| runs.iter().map(|run| of(&run.figures)).sum();
        let sums = Moments {
            xx: sum(&|[x, _]| x * x),
            yy: sum(&|[_, y]| y * y),
            xy: sum(&|[x, y]| x * y),
            ..Moments::default()
        };
        Self { sums, freedom: freedom as f64 }
    }
}

/// Takes the mean of each of `count` groups away from its runs; the largest of these means.
fn centre(runs: &mut [ResidueRun], count: usize, group: impl Fn(&ResidueRun) -> usize) -> f64 {
    let mut means = vec![([0.0; 2], 0.0); count];
    for run in &*runs {
        let (sums, runs) = &mut means[group(run)];
        *runs += 1.0;
        sums.iter_mut().zip(run.figures).for_each(|(sum, figure)| *sum += figure);
    }
    let mut largest: f64 = 0.0;
    for run in runs {
        let (sums, runs) = means[group(run)];
        for (figure, sum) in run.figures.iter_mut().zip(sums) {
            *figure -= sum / runs;
            largest = largest.max((sum / runs).abs());
        }
    }
    largest
}

/// Runs less the effects that the fit estimates: one for each round and each candidate that has runs, less one
/// for each part that shares no candidate with the others. These are the edges of a forest that joins rounds
/// and candidates.
fn freedom(runs: &[ResidueRun], rounds: usize, len: usize) -> usize {
    let mut part: Vec<usize> = (0..rounds + len).collect();
    let root = |part: &[usize], mut at: usize| {
        while part[at] != at {
            at = part[at];
        }
        at
    };
    let mut joined = 0;
    for run in runs {
        let (a, b) = (root(&part, run.round), root(&part, rounds + run.candidate));
        if a != b {
            part[a] = b;
            joined += 1;
        }
    }
    runs.len() - joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_both_the_interval_and_the_margin() {
        let of = |lo, mid, hi| Answer::by_interval(Interval { lo, mid, hi }, 0.02);
        assert_eq!(of(0.90, 0.95, 0.99), Answer::Better);
        assert_eq!(of(0.90, 0.95, 1.00), Answer::NotShown, "touches 1");
        assert_eq!(of(0.97, 0.985, 0.99), Answer::NotShown, "inside the margin");
        assert_eq!(of(1.01, 1.05, 1.20), Answer::Worse);
        assert_eq!(of(0.99, 1.05, 1.20), Answer::NotShown);
        assert_eq!(of(1.005, 1.01, 1.20), Answer::NotShown);
    }

    /// t = 2.132 with four degrees of freedom is exceeded with a probability of 0.05.
    #[test]
    fn a_proof_needs_both_the_margin_and_the_certainty() {
        let estimate = Estimate { gain: 0.2133, error: 0.1, freedom: 4.0 };
        assert!((estimate.chance() - 0.05).abs() < 1e-4);
        assert!(estimate.proves(0.2, 0.05) && !estimate.proves(0.22, 0.05) && !estimate.proves(0.2, 0.04));
        let unknown = Spread::default().estimate(0.5, 0);
        assert_eq!(unknown.chance(), 1.0, "nothing is known");
    }

    #[test]
    fn few_differences_of_its_own_hardly_move_the_common_spread() {
        let common = Spread::common(0.04, 4.0); // sigma 0.1
        let own = common.moderated(0.09, 2); // one degree of freedom, 0.3
        assert!((own.sigma - (0.13_f64 / 5.0).sqrt()).abs() < 1e-12 && own.freedom == 5.0);
        assert_eq!(Spread::default().moderated(0.0, 1), Spread::default());
    }

    fn residue(rounds: &[&[(usize, f64)]]) -> Residue {
        let of_round = |(round, runs): (usize, &&[(usize, f64)])| {
            let run = move |(candidate, cpu): &(usize, f64)| ResidueRun {
                round,
                candidate: *candidate,
                figures: [*cpu, -cpu],
            };
            runs.iter().map(run).collect::<Vec<_>>()
        };
        Residue::of_runs(rounds.iter().enumerate().flat_map(of_round).collect())
    }

    #[test]
    fn two_rounds_of_two_candidates_worked_by_hand() {
        // Effects 1.5 and 4.5 of the candidates, -1.5 and 1.5 of the rounds: residuals of 0.5 each.
        let residue = residue(&[&[(0, 1.0), (1, 3.0)], &[(0, 3.0), (1, 7.0)]]);
        assert!((residue.sums.xx - 1.0).abs() < 1e-8 && residue.freedom == 1.0, "{residue:?}");
        assert!((residue.sums.xy + 1.0).abs() < 1e-8 && (residue.sums.yy - 1.0).abs() < 1e-8);
    }

    /// The load of a deployment is no noise, though no deployment has all candidates.
    #[test]
    fn effects_of_rounds_that_share_system_alone_are_no_noise() {
        let load = [0.0, 3.0, -2.0, 0.7];
        let cost = [0.0, 0.5, -0.4, 0.1];
        let of = |round: usize, candidates: [usize; 3]| candidates.map(|i| (i, load[round] + cost[i]));
        let rounds = [of(0, [0, 1, 2]), of(1, [0, 3, 1]), of(2, [2, 0, 3]), of(3, [0, 1, 2])];
        let residue = residue(&rounds.each_ref().map(<[_; 3]>::as_slice));
        assert!(residue.sums.xx < 1e-12, "{residue:?}");
        assert_eq!(residue.freedom, 5.0, "12 runs, 4 rounds, 4 candidates, one of these effects is free");
    }

    #[test]
    fn parts_that_share_nothing_are_fitted_apart() {
        let residue = residue(&[&[(0, 1.0), (1, 2.0)], &[(2, 5.0), (3, 9.0)], &[]]);
        assert_eq!((residue.sums.xx, residue.freedom), (0.0, 0.0));
    }
}
