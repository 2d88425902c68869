// SPDX-License-Identifier: Apache-2.0
//! Costs of a candidate, judged by the limits for picks.

use imas_core::compare::{Demand, FEWEST_ROUNDS, Looks, Spread, is_cost_proven};
use imas_core::run::RawRun;
use imas_core::server_run::Better;

use super::{ValidRuns, pairs};
use crate::service::candidate_figures::CandidateFigures;
use crate::service::guard_rail::GuardRail;
use crate::service::verdict;

/// The limits on what a pick may cost, with the spread of their figures.
pub(super) struct RailFigures<'a> {
    rails: Vec<(&'a GuardRail, Spread)>,
    valid: &'a ValidRuns<'a>,
    looks: Option<Looks>,
}

impl<'a> RailFigures<'a> {
    pub(super) fn of(rails: &'a [GuardRail], valid: &'a ValidRuns<'a>, looks: Option<Looks>) -> Self {
        let spread = |rail: &GuardRail| valid.spread(|run| valid.value(run, &rail.figure));
        Self { rails: rails.iter().map(|rail| (rail, spread(rail))).collect(), valid, looks }
    }

    /// Notes which limits the candidate is proven to break, and which it is not shown to keep.
    pub(super) fn judge(&self, one: &mut CandidateFigures, own: &[&RawRun], system: &[&RawRun]) {
        let demand = Demand::of_limit(self.looks);
        for (rail, spread) in &self.rails {
            self.judge_from_nothing(one, rail, own, system);
            let Some(ratio) = one.worse(&rail.figure) else { continue };
            let better = one.figures[&rail.figure].better;
            let sign = if better == Better::Lower { 1.0 } else { -1.0 };
            let pairs = pairs(own, system, |run| self.valid.value(run, &rail.figure));
            let logs: Vec<f64> = pairs.iter().map(|(one, other)| sign * (one / other).ln()).collect();
            if is_cost_proven(&logs, 1.0 + rail.most, *spread, &demand) {
                one.exceeds.push(rail.to_string());
            } else if !rail.allows(ratio.hi) {
                one.unproven.push(verdict::not_proven(rail, ratio, better));
            }
        }
    }

    /// Notes a cost that `system` has nothing of in the same round, as of requests that fail: it has no ratio.
    fn judge_from_nothing(
        &self,
        one: &mut CandidateFigures,
        rail: &GuardRail,
        own: &[&RawRun],
        system: &[&RawRun],
    ) {
        if one.figures.get(&rail.figure).is_none_or(|figure| figure.better == Better::Higher) {
            return;
        }
        let value = |run: &&RawRun| self.valid.value(run, &rail.figure);
        let has_none = |round: u32| {
            let mut values = system.iter().filter(|run| run.round == round).filter_map(value).peekable();
            values.peek().is_some() && values.all(|value| value == 0.0)
        };
        let measured: Vec<(u32, f64)> = own.iter().filter_map(|run| Some((run.round, value(run)?))).collect();
        let costs = measured.iter().filter(|(round, value)| *value > 0.0 && has_none(*round)).count();
        // Were both alike, at most one of 64 benches of three rounds would have it under the candidate alone.
        if costs >= FEWEST_ROUNDS && costs == measured.len() {
            one.exceeds.push(rail.to_string());
        } else if costs > 0 {
            let (figure, runs) = (&rail.figure, measured.len());
            one.unproven.push(format!("{figure} in {costs} of {runs} runs, where system had none"));
        }
    }
}
