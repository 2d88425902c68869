// SPDX-License-Identifier: Apache-2.0
//! Which candidates of a prediction are worth live runs.

use imas_core::stats::Interval;

/// Predicted figures of a candidate, as ratios to `system`. The intervals are from earlier predictions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PredictedRatios {
    /// CPU time.
    pub(crate) cpu: Interval,
    /// Mean of resident memory.
    pub(crate) memory: Interval,
}

/// A smaller gain in the score is not worth a search: as a part of 1.
const WORTHWHILE: f64 = 0.03;
/// Below this a predicted ratio says no more than "very small".
const LEAST: f64 = 1e-3;

/// The share of CPU in the score: 1 for CPU alone, 0 for memory alone, 0.5 for both alike.
fn score(cpu: f64, memory: f64, cpu_weight: f64) -> f64 {
    cpu_weight * cpu.max(LEAST).ln() + (1.0 - cpu_weight) * memory.max(LEAST).ln()
}

impl PredictedRatios {
    /// The score, a logarithm: below 0 is better than `system`.
    fn score(&self, cpu_weight: f64) -> f64 {
        score(self.cpu.mid, self.memory.mid, cpu_weight)
    }

    /// The score at the good ends of the intervals, a logarithm.
    fn best_score(&self, cpu_weight: f64) -> f64 {
        score(self.cpu.lo, self.memory.lo, cpu_weight)
    }
}

/// The places of at most `most` candidates with the best predicted scores, best first.
///
/// The first is always among them: a prediction alone excludes nothing. A further one is left out when even at
/// the good ends of its intervals it would gain less than [`WORTHWHILE`], or be worse than the first.
pub(crate) fn promising(predicted: &[PredictedRatios], cpu_weight: f64, most: usize) -> Vec<usize> {
    let scores = predicted.iter().map(|ratios| ratios.score(cpu_weight)).enumerate();
    let mut by_score: Vec<(usize, f64)> = scores.collect();
    by_score.sort_by(|a, b| a.1.total_cmp(&b.1)); // stable: the catalogue's order decides between equals
    let first = by_score.first().map_or(0.0, |(_, score)| *score);
    let may_gain = |at: usize| predicted[at].best_score(cpu_weight) < first.min((1.0 - WORTHWHILE).ln());
    let places = by_score.into_iter().map(|(at, _)| at).enumerate();
    places.filter(|&(rank, at)| rank == 0 || may_gain(at)).map(|(_, at)| at).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(mid: f64) -> Interval {
        Interval { lo: mid * 0.85, mid, hi: mid * 1.15 }
    }

    fn ratios(cpu: f64, memory: f64) -> PredictedRatios {
        PredictedRatios { cpu: around(cpu), memory: around(memory) }
    }

    #[test]
    fn each_objective_has_its_own_best() {
        let all = [ratios(0.7, 2.0), ratios(1.0, 0.8), ratios(0.75, 0.85), ratios(1.0, 1.0)];
        assert_eq!(promising(&all, 1.0, 2), [0, 2]);
        assert_eq!(promising(&all, 0.0, 2), [1, 2]);
        assert_eq!(promising(&all, 0.5, 2), [2, 1]);
    }

    #[test]
    fn what_cannot_gain_is_measured_only_as_the_first() {
        let all = [ratios(1.5, 1.5), ratios(1.3, 1.3)];
        assert_eq!(promising(&all, 0.5, 2), [1]);
        assert_eq!(promising(&[], 0.5, 2), [0; 0]);
    }

    #[test]
    fn what_is_clearly_behind_the_first_is_not_measured() {
        let all = [ratios(1.0, 0.5), ratios(1.0, 0.58), ratios(1.0, 0.8)];
        assert_eq!(promising(&all, 0.5, 3), [0, 1]);
    }

    #[test]
    fn equals_keep_the_order_of_the_catalogue() {
        assert_eq!(promising(&[ratios(0.9, 0.9); 3], 0.5, 2), [0, 1]);
    }

    #[test]
    fn a_figure_of_zero_is_no_error() {
        assert_eq!(promising(&[ratios(0.5, 0.5), ratios(0.0, 1.0)], 1.0, 1), [1]);
    }
}
