// SPDX-License-Identifier: Apache-2.0
//! Which candidate some rounds of a service call the best.

use imas_core::compare::{Answer, Demand, PairedRatio, PairedRuns, Resampling, Spread, is_cost_proven};
use imas_core::stats::median;

use crate::services::round_changes::RoundChanges;
use imas_core::judgement::Goal;
use imas_core::server_bench::GuardRail;
use imas_core::server_bench::memory_goal;

/// A rule for picks.
#[derive(Clone, PartialEq, Debug)]
pub struct PickRule {
    /// Goal: the figure that counts.
    pub goal: Goal,
    /// Guard rails: a candidate that is proven to cost more is no pick.
    pub rails: Vec<GuardRail>,
    /// Least gain of a pick: 0.05 is 5 % less. At 0 it must be better than `system` at all.
    pub least_gain: f64,
    /// The gain must be proven, as `imas bench` demands.
    pub needs_proof: bool,
    /// Resamples of a proof's interval.
    pub resamples: usize,
}

impl PickRule {
    /// Cost of a candidate by these rounds, as a logarithm; below 0 is a gain. None if it may not be
    /// picked: also where it ran in fewer than half of the rounds, for the luck of one round would pick it.
    #[must_use]
    pub fn score(&self, changes: &RoundChanges, candidate: usize, rounds: &[u32]) -> Option<f64> {
        if changes.has_failed(candidate, rounds)
            || self.rails.iter().any(|rail| self.is_broken(rail, changes, candidate, rounds))
        {
            return None;
        }
        let costs: Vec<f64> =
            rounds.iter().filter_map(|&round| cost(self.goal, changes, candidate, round)).collect();
        if costs.len() * 2 < rounds.len() {
            return None;
        }
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

    /// Whether a candidate is proven by these rounds to cost more than a guard rail allows.
    #[must_use]
    pub fn is_broken(
        &self,
        rail: &GuardRail,
        changes: &RoundChanges,
        candidate: usize,
        rounds: &[u32],
    ) -> bool {
        let figure = rail.figure.as_str();
        let spread = spread(changes, rounds, |of| of(figure));
        let logs = changes.changes(candidate, rounds, figure);
        is_cost_proven(&logs, 1.0 + rail.most, spread, &Demand::of_limit(None))
    }

    /// How far one cost scatters, by these rounds of all candidates.
    fn spread(&self, changes: &RoundChanges, rounds: &[u32]) -> Spread {
        spread(changes, rounds, |of| cost_of(self.goal, of))
    }

    /// The best candidate by these rounds; None is `system`.
    #[must_use]
    pub fn pick(&self, changes: &RoundChanges, rounds: &[u32]) -> Option<usize> {
        let scores = (0..changes.candidates.len())
            .filter_map(|candidate| Some((self.score(changes, candidate, rounds)?, candidate)));
        scores.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
    }
}

/// How far one change scatters, by these rounds of all candidates and of `system`. `change` makes it from the changes
/// of all figures of a run.
fn spread(
    changes: &RoundChanges,
    rounds: &[u32],
    change: impl Fn(&dyn Fn(&str) -> Option<f64>) -> Option<f64>,
) -> Spread {
    let system = changes.candidates.len();
    let mut all = PairedRuns::default();
    for &round in rounds {
        for run in changes.references(round) {
            let log = change(&|figure| run.get(figure).copied());
            log.into_iter().for_each(|log| all.push(system, round as usize, log.exp()));
        }
        for candidate in 0..system {
            let log = change(&|figure| changes.change(candidate, round, figure));
            log.into_iter().for_each(|log| all.push(candidate, round as usize, log.exp()));
        }
    }
    all.spread(system)
}

/// Cost of a candidate in one round for a goal, as a logarithm; below 0 is a gain.
pub(crate) fn cost(goal: Goal, changes: &RoundChanges, candidate: usize, round: u32) -> Option<f64> {
    cost_of(goal, &|figure| changes.change(candidate, round, figure))
}

/// Cost by the changes of all figures of a run.
fn cost_of(goal: Goal, of: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
    let memory = || memory_goal(|figure| of(figure).map(f64::exp)).map(f64::ln);
    match goal {
        Goal::Memory => memory(),
        Goal::Cpu => of("cpu"),
        Goal::Latency => of("p99"),
        Goal::Balanced => Some(f64::midpoint(of("cpu")?, memory()?)),
    }
}

#[cfg(test)]
mod tests {
    use imas_core::run::RawRun;
    use imas_core::server_run::{Figure, ServerRun};

    use super::*;

    /// `short` left after two of six rounds, and was the leaner one in the first of them.
    #[test]
    fn a_candidate_of_few_rounds_is_no_pick() {
        let mut runs = vec![];
        for round in 0..6 {
            let short = [40.0, 120.0].get(round as usize).map(|memory| ("short", *memory));
            for (candidate, memory) in [("system", 100.0), ("steady", 80.0)].into_iter().chain(short) {
                let server = ServerRun::of([Figure::lower("memory", memory, "B")]);
                let run = RawRun { candidate: candidate.into(), round, ..RawRun::default() };
                runs.push(run.with_server(server));
            }
        }
        let changes = RoundChanges::of("", &runs);
        let goal = Goal::Memory;
        let rule = PickRule { goal, rails: vec![], least_gain: 0.05, needs_proof: false, resamples: 1 };
        let pick = |rounds: &[u32]| rule.pick(&changes, rounds).map(|at| changes.candidates[at].as_str());
        assert_eq!(pick(&[0, 2, 3, 4, 5]), Some("steady"), "the second round judges");
        assert_eq!(pick(&[0]), Some("short"), "of one round it has one");
    }

    /// Memory under load does not scatter under `system`, and memory after the pause does: the scatter of the goal is
    /// half of its own.
    #[test]
    fn the_runs_of_system_scatter_by_the_figure_of_the_goal() {
        let mut runs = vec![];
        for round in 0..4 {
            for (at, idle) in [(0.0, 80.0), (1.0, 100.0), (2.0, 125.0)] {
                let figures = [("memory", 100.0), ("memory_idle", idle)];
                let server = ServerRun::of(figures.map(|(name, value)| Figure::lower(name, value, "B")));
                let run = RawRun { candidate: "system".into(), round, at_s: at, ..RawRun::default() };
                runs.push(run.with_server(server));
            }
        }
        let changes = RoundChanges::of("", &runs);
        let (goal, resamples) = (Goal::Memory, 1);
        let rule = PickRule { goal, rails: vec![], least_gain: 0.0, needs_proof: true, resamples };
        let sigma = rule.spread(&changes, &changes.rounds).sigma;
        let own = 1.25_f64.ln() / 2.0;
        let wanted = own * (4.0_f64 / 3.0).sqrt();
        assert!((sigma - wanted).abs() < 0.01, "{sigma} and not {wanted}");
    }
}
