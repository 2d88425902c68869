// SPDX-License-Identifier: Apache-2.0
//! Scatter of single runs after the effects of candidate and round.

use crate::stats::Moments;

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
