// SPDX-License-Identifier: Apache-2.0
//! Which candidate some rounds of a service call the best.

use imas_core::compare::{Answer, Demand, PairedRatio, PairedRuns, Resampling, Spread};
use imas_core::stats::median;

use crate::services::round_changes::RoundChanges;
use imas_service::GuardRail;
use imas_service::ServiceGoal;

/// A rule for picks.
#[derive(Clone, PartialEq, Debug)]
pub struct PickRule {
    /// Goal: the figure that counts.
    pub goal: ServiceGoal,
    /// Guard rails: what the pick may cost, by the medians.
    pub rails: Vec<GuardRail>,
    /// Least gain of a pick: 0.05 is 5 % less. At 0 it must be better than `system` at all.
    pub least_gain: f64,
    /// The gain must be proven, as `imas bench` demands.
    pub needs_proof: bool,
    /// Resamples of a proof's interval.
    pub resamples: usize,
}

impl PickRule {
    /// What a candidate costs by these rounds, as a logarithm; below 0 is a gain. None if it may not be
    /// picked.
    #[must_use]
    pub fn score(&self, changes: &RoundChanges, candidate: usize, rounds: &[u32]) -> Option<f64> {
        let is_within = |rail: &GuardRail| {
            let middle = median(&changes.changes(candidate, rounds, &rail.figure));
            middle.is_none_or(|log| rail.allows(log.exp()))
        };
        if changes.has_failed(candidate, rounds) || !self.rails.iter().all(is_within) {
            return None;
        }
        let costs: Vec<f64> =
            rounds.iter().filter_map(|&round| cost(self.goal, changes, candidate, round)).collect();
        let score = median(&costs)?;
        let is_enough = score < 0.0 && -score.exp_m1() >= self.least_gain;
        let is_proof = || {
            let ratios: Vec<f64> = costs.iter().map(|cost| cost.exp()).collect();
            let how = Resampling { seed: 1, resamples: self.resamples };
            let ratio = PairedRatio::of(&ratios, self.spread(changes, rounds), how);
            let demand = Demand::of(changes.candidates.len());
            ratio.is_some_and(|ratio| ratio.answer(self.least_gain, &demand) == Answer::Better)
        };
        (is_enough && (!self.needs_proof || is_proof())).then_some(score)
    }

    /// How far one change scatters, by these rounds of all candidates.
    fn spread(&self, changes: &RoundChanges, rounds: &[u32]) -> Spread {
        let mut all = PairedRuns::default();
        for &round in rounds {
            all.push(changes.candidates.len(), round as usize, 1.0); // `system`
            for candidate in 0..changes.candidates.len() {
                let cost = cost(self.goal, changes, candidate, round);
                cost.into_iter().for_each(|cost| all.push(candidate, round as usize, cost.exp()));
            }
        }
        all.spread()
    }

    /// The best candidate by these rounds; None is `system`.
    #[must_use]
    pub fn pick(&self, changes: &RoundChanges, rounds: &[u32]) -> Option<usize> {
        let scores = (0..changes.candidates.len())
            .filter_map(|candidate| Some((self.score(changes, candidate, rounds)?, candidate)));
        scores.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
    }
}

/// Cost of a candidate in one round for a goal, as a logarithm; below 0 is a gain.
pub(crate) fn cost(goal: ServiceGoal, changes: &RoundChanges, candidate: usize, round: u32) -> Option<f64> {
    let of = |figure| changes.change(candidate, round, figure);
    match goal {
        ServiceGoal::Memory => of("memory"),
        ServiceGoal::Cpu => of("cpu"),
        ServiceGoal::Latency => of("p99"),
        ServiceGoal::Balanced => Some(f64::midpoint(of("cpu")?, of("memory")?)),
    }
}
