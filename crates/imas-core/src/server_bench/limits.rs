// SPDX-License-Identifier: Apache-2.0
//! Limits on what a pick may cost (`p99+5%`, `cpu+2%`, `memory_peak+0%`), and what the runs say of them.

use serde::{Deserialize, Serialize};

use super::{CandidateFigures, ValidRuns, is_cpu, pairs};
use crate::compare::{CostLimits, Demand, FEWEST_ROUNDS, Looks, Spread, is_cost_proven};
use crate::judgement::Goal;
use crate::run::RawRun;
use crate::server_run::Better;
use crate::stats::Interval;

/// A limit on the change of one figure compared with `system`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct GuardRail {
    /// Name of the figure.
    pub figure: String,
    /// Largest allowed change for the worse: 0.05 is 5 %.
    pub most: f64,
}

impl GuardRail {
    /// Whether a ratio to `system` keeps the limit. In `worse`, values above 1 are worse.
    #[must_use]
    pub fn allows(&self, worse: f64) -> bool {
        worse <= 1.0 + self.most
    }

    /// The limit in per cent, as it was written: 0.07 * 100 is not 7.
    pub fn percent(&self) -> f64 {
        (self.most * 1e6).round() / 1e4
    }
}

impl std::str::FromStr for GuardRail {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: write FIGURE+N%, such as 'p99+5%' or 'cpu+2%'");
        let (figure, rest) = text.split_once('+').ok_or_else(wrong)?;
        let number = rest.trim().strip_suffix('%').ok_or_else(wrong)?;
        let percent: f64 = number.trim().parse().map_err(|_| wrong())?;
        let is_name =
            !figure.is_empty() && figure.chars().all(|c| c.is_ascii_alphanumeric() || "._".contains(c));
        if !is_name || !(0.0..=10_000.0).contains(&percent) {
            return Err(wrong());
        }
        Ok(Self { figure: figure.to_owned(), most: percent / 100.0 })
    }
}

impl std::fmt::Display for GuardRail {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}%", self.figure, self.percent())
    }
}

/// The limits of every pick, unless the user gives others: the figures that are not its goal
/// (docs/decisions/0038).
#[must_use]
pub fn usual_rails(goal: Goal) -> Vec<GuardRail> {
    let CostLimits { cpu, memory } = CostLimits::USUAL;
    let all = [(Goal::Cpu, "cpu", cpu), (Goal::Memory, "memory", memory), (Goal::Latency, "p99", cpu)];
    let others = all.into_iter().filter(|(of, ..)| *of != goal);
    others.map(|(_, figure, most)| GuardRail { figure: figure.to_owned(), most }).collect()
}

/// A limit that a candidate is neither proven to break nor shown to keep.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct OpenLimit {
    /// The limit.
    pub limit: GuardRail,
    /// Direction of its figure.
    pub better: Better,
    /// The cost, as far as it is known.
    #[serde(flatten)]
    pub known: KnownCost,
}

/// Cost that is not proven, as far as it is known.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum KnownCost {
    /// Its ratio to `system`; values above 1 are worse.
    Ratio(Interval),
    /// The candidate has it in some runs, and `system` had none in the same rounds.
    FromNothing {
        /// Runs that have it.
        runs: usize,
        /// All runs of the candidate.
        of: usize,
    },
}

/// The limits by which picks are judged. Where the load ends by the clock, a slower server does less work in the
/// same CPU time, and takes less memory for it: the limit of CPU is one of the rate of requests. A load that prints the
/// 95th percentile and no 99th (sysbench) is judged by the one it prints. `is_measured`: whether a run has the figure.
pub(super) fn limits_of(
    rails: &[GuardRail],
    by_clock: bool,
    is_measured: impl Fn(&str) -> bool,
) -> Vec<GuardRail> {
    let figure = |rail: &GuardRail| match rail.figure.as_str() {
        cpu if by_clock && is_cpu(cpu) => "rate".to_owned(),
        "p99" if !is_measured("p99") && is_measured("p95") => "p95".to_owned(),
        other => other.to_owned(),
    };
    rails.iter().map(|rail| GuardRail { figure: figure(rail), most: rail.most }).collect()
}

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
                one.unproven.push(OpenLimit {
                    limit: (*rail).clone(),
                    better,
                    known: KnownCost::Ratio(ratio),
                });
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
            let known = KnownCost::FromNothing { runs: costs, of: measured.len() };
            one.unproven.push(OpenLimit { limit: rail.clone(), better: Better::Lower, known });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_rail_is_a_figure_and_a_share() {
        let rail: GuardRail = "p99.9+5%".parse().unwrap();
        assert_eq!((rail.figure.as_str(), rail.to_string().as_str()), ("p99.9", "p99.9+5%"));
        assert_eq!("rate+7%".parse::<GuardRail>().unwrap().to_string(), "rate+7%");
        assert!(rail.allows(1.05) && !rail.allows(1.051) && rail.allows(0.5));
        for wrong in ["p99", "p99+5", "+5%", "p 99+5%", "cpu+-2%", "cpu+x%"] {
            assert!(wrong.parse::<GuardRail>().is_err(), "{wrong}");
        }
    }
}
