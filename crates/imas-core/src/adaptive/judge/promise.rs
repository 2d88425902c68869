// SPDX-License-Identifier: Apache-2.0
//! Which candidates are worth a first trial by what their replays predict, and how they share the allowed
//! error.
//!
//! A candidate is promising when the best of those that are tried is expected to become better by it: by more
//! than a trial costs. Of two that promise the same, the second one adds less than the first. When those that
//! are tried turn out worse than predicted, others become promising in turn. The most promising one is tried
//! in any case, unless a proof for it is out of reach.
//!
//! A prediction is trusted as far as predictions were right before, and less where this program's own trials
//! show that its predictions are further off (R. T. Birge, "The calculation of errors by the method of least
//! squares", Physical Review 40, 1932). Then the policy tries what it would have tried without them.

use super::super::noise::Noise;
use super::super::worth::Belief;
use super::{Board, Judge, PRICE, Role, USUAL};

/// Expected gain below which a first trial is not made. It is never the only one: a proof takes two rounds at
/// least, each with its `system`, so it has the price of three.
const FIRST_PRICE: f64 = 3.0 * PRICE;
/// Weight of the expected error, in predictions, when the errors of a program's own predictions are judged.
const FITTING: f64 = 2.0;
/// Part of the allowed error that all candidates share equally, whatever is predicted.
const EQUAL: f64 = 0.5;

/// Factor by which the squares of the errors of prediction are larger than usual for this program, 1 at
/// least.
pub(super) fn misprediction(board: &Board, axis: usize, noise: Noise) -> f64 {
    let Some(replay) = &board.replay else { return 1.0 };
    let a = [1.0, 0.0][axis];
    let tried = board.pairs.iter().enumerate().filter(|(i, pairs)| *i != board.system && pairs.count > 0);
    let squares: Vec<f64> = tried
        .filter_map(|(i, pairs)| {
            let forecast = replay.of(i)?.axis(axis);
            let of_trials = noise.expected(pairs).sigma.powi(2) / f64::from(pairs.count);
            let error = pairs.mean(a, 1.0 - a) - forecast.mean;
            Some(error.powi(2) / (forecast.deviation.powi(2) + of_trials))
        })
        .collect();
    ((FITTING + squares.iter().sum::<f64>()) / (FITTING + squares.len() as f64)).max(1.0)
}

/// Part of the allowed error of each candidate. It depends on the predictions alone and not on a trial, so
/// that all parts together are the whole error whatever is tried.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ErrorShares(Vec<f64>);

impl ErrorShares {
    /// None without predictions: all share equally.
    pub(super) fn of(board: &Board, roles: &[Role], incumbent: usize, w: f64) -> Option<Self> {
        let replay = board.replay.as_ref()?;
        let may = |i: usize| roles[i] != Role::Ineligible && i != board.system && i != incumbent;
        let expected = |i: usize| {
            let axis = |axis: usize| {
                let usual = Belief::usual(USUAL[axis]);
                replay.of(i).map_or(usual, |one| {
                    let forecast = one.axis(axis);
                    usual.after(1, forecast.mean, forecast.deviation)
                })
            };
            gain(axis(0), axis(1), w)
        };
        let rivals: Vec<(usize, Belief)> =
            (0..roles.len()).filter(|&i| may(i)).map(|i| (i, expected(i))).collect();
        let predicted = rivals.iter().filter(|(i, _)| replay.of(*i).is_some()).copied().collect();
        let mut promising = promising(Belief { mean: 0.0, variance: 0.0 }, predicted);
        promising.extend(rivals.iter().map(|(i, _)| *i).filter(|&i| replay.of(i).is_none()));
        let equal = if promising.is_empty() { 1.0 } else { EQUAL };
        let mut shares = vec![0.0; roles.len()];
        rivals.iter().for_each(|&(i, _)| shares[i] = equal / rivals.len() as f64);
        promising.iter().for_each(|&i| shares[i] += (1.0 - equal) / promising.len() as f64);
        Some(Self(shares))
    }

    /// The number of candidates that would each have this one's part.
    pub(super) fn rivals(&self, i: usize) -> f64 {
        if self.0[i] > 0.0 { 1.0 / self.0[i] } else { self.0.len() as f64 }
    }
}

/// Gain in score of these differences.
fn gain(cpu: Belief, memory: Belief, w: f64) -> Belief {
    let v = 1.0 - w;
    Belief {
        mean: -(w * cpu.mean + v * memory.mean),
        variance: w.powi(2) * cpu.variance + v.powi(2) * memory.variance,
    }
}

/// Candidates that are worth a trial, by index. `candidates` has each with the belief about its gain. `known`
/// is the belief about the gain of what is tried already.
fn promising(known: Belief, mut candidates: Vec<(usize, Belief)>) -> Vec<usize> {
    candidates.sort_by(|(_, a), (_, b)| b.mean.total_cmp(&a.mean));
    let mut known = known;
    let mut found = vec![];
    for (i, expected) in candidates {
        if expected.less(known).upside() >= FIRST_PRICE {
            known = known.greater(expected);
            found.push(i);
        }
    }
    found
}

impl Judge<'_> {
    /// Whether each candidate is worth a first trial. A candidate without a prediction is.
    pub(super) fn find_promising(&self) -> Vec<bool> {
        let len = self.board.pairs.len();
        let Some(replay) = &self.board.replay else { return vec![true; len] };
        let system = self.board.system;
        let others = (0..len).filter(|&i| i != system && self.may(i));
        let (tried, untried): (Vec<usize>, Vec<usize>) = others.partition(|&i| self.rounds(i) > 0);
        let is_first = tried.is_empty();
        let expected = |i: usize| self.belief(i, system);
        let still_open = tried.into_iter().filter(|&i| i == self.best || self.out(i).is_none());
        let known = still_open.map(expected).fold(Belief { mean: 0.0, variance: 0.0 }, Belief::greater);
        let predicted = untried.into_iter().filter(|&i| replay.of(i).is_some());
        let predicted: Vec<(usize, Belief)> = predicted.map(|i| (i, expected(i))).collect();
        let first = predicted.iter().max_by(|a, b| a.1.upside().total_cmp(&b.1.upside())).map(|(i, _)| *i);
        let mut found = promising(known, predicted);
        // A prediction alone excludes nothing: the most promising candidate is tried in any case, and shows
        // whether this program's predictions are right.
        if is_first && found.is_empty() {
            found.extend(first);
        }
        let needs_promise = |i: usize| self.rounds(i) == 0 && replay.of(i).is_some();
        (0..len).map(|i| !needs_promise(i) || found.contains(&i)).collect()
    }

    /// Whether each candidate is worth a trial and could still be proven better in the rounds to come. The
    /// second is asked only of untried candidates with a prediction.
    pub(super) fn without_hopeless(&self) -> Vec<bool> {
        let is_worth = |i: usize| {
            let is_predicted = self.board.replay.as_ref().is_some_and(|replay| replay.of(i).is_some());
            self.promising[i] && (!is_predicted || self.rounds(i) > 0 || !self.is_hopeless(i))
        };
        (0..self.promising.len()).map(is_worth).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::board::JudgedTrial;
    use super::super::super::{Point, Settings, Status, judge};
    use super::*;
    use crate::replay_prior::{CandidateForecast, Forecast, PredictedDifference, ReplayEvidence};

    const ROLES: [Role; 4] = [Role::Tested; 4];

    /// CPU and memory of three candidates beside `system`, each believed to within 3 %.
    fn board(trials: &[JudgedTrial], predicted: [Option<(f64, f64)>; 3]) -> Board {
        let forecast = |(cpu, memory): (f64, f64)| {
            let of = |mean| Forecast { mean, deviation: 0.03 };
            let predicted = PredictedDifference { cpu, memory, ..PredictedDifference::default() };
            CandidateForecast { predicted, cpu: of(cpu), memory: of(memory) }
        };
        let candidates = std::iter::once(None).chain(predicted.map(|one| one.map(forecast))).collect();
        Board { replay: Some(ReplayEvidence { candidates }), ..Board::new(trials, 4, 0) }
    }

    fn statuses(board: &Board) -> Vec<Status> {
        let judgement = judge(board, &ROLES, 0, 0.5, &Settings::default());
        judgement.standings.iter().map(|standing| standing.status).collect()
    }

    fn trials(costs: &[(usize, f64)], rounds: u32) -> Vec<JudgedTrial> {
        let round = |round: u32| {
            let little = 0.004 * f64::from(round % 2);
            let point = move |cost: f64| Some(Point { cpu: cost + little, memory: cost - little });
            let trial =
                move |&(candidate, cost): &(usize, f64)| JudgedTrial { candidate, point: point(cost) };
            std::iter::once(&(0, 0.0)).chain(costs).map(trial)
        };
        (0..rounds).flat_map(round).collect()
    }

    #[test]
    fn what_promises_nothing_is_not_tried() {
        use Status::{Incumbent, Open, Unpromising};
        let some = board(&[], [Some((0.1, 0.2)), Some((-0.1, -0.2)), Some((0.0, -0.02))]);
        assert_eq!(statuses(&some), [Incumbent, Unpromising, Open, Unpromising]);
        let none = board(&[], [Some((0.1, 0.2)), Some((0.1, 0.0)), Some((0.0, 0.1))]);
        assert_eq!(judge(&none, &ROLES, 0, 0.5, &Settings::default()).next, None, "not even system");
        let unknown = board(&[], [Some((0.1, 0.2)), None, Some((0.1, 0.0))]);
        assert_eq!(statuses(&unknown), [Incumbent, Unpromising, Open, Unpromising], "no replay of it");
    }

    #[test]
    fn a_prediction_proves_nothing() {
        let sure = board(&[], [Some((-0.9, -0.9)), None, None]);
        let judgement = judge(&sure, &ROLES, 0, 0.5, &Settings::default());
        assert_eq!((judgement.pick, judgement.standings[1].proof), (0, None));
        let wrong = board(&trials(&[(1, 0.05)], 8), [Some((-0.9, -0.9)), None, None]);
        assert_eq!(judge(&wrong, &ROLES, 0, 0.5, &Settings::default()).pick, 0);
    }

    /// The first choice is 10 % worse instead of 20 % better: the others, for which less was predicted, come
    /// next.
    #[test]
    fn where_predictions_are_wrong_the_others_are_tried() {
        let predicted = [Some((-0.2, -0.2)), Some((0.0, 0.02)), Some((0.02, 0.0))];
        assert_eq!(statuses(&board(&[], predicted))[2..], [Status::Unpromising; 2]);
        let after = board(&trials(&[(1, 0.10)], 1), predicted);
        assert!(statuses(&after)[2..].contains(&Status::Open));
        assert!(misprediction(&after, 0, Noise::of(&after, 1.0)) > 5.0);
        let as_predicted = board(&trials(&[(1, -0.2)], 1), predicted);
        assert_eq!(misprediction(&as_predicted, 0, Noise::of(&as_predicted, 1.0)), 1.0);
    }

    #[test]
    fn the_shares_are_the_whole_error() {
        for predicted in [[Some((-0.3, -0.3)), None, Some((0.1, 0.1))], [Some((0.3, 0.3)); 3]] {
            let shares = ErrorShares::of(&board(&[], predicted), &ROLES, 0, 0.5).unwrap();
            assert!((shares.0.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{shares:?}");
            assert!((1..4).all(|i| shares.rivals(i) <= 6.0), "none has less than half: {shares:?}");
        }
        assert_eq!(ErrorShares::of(&Board::new(&[], 4, 0), &ROLES, 0, 0.5), None);
    }
}
