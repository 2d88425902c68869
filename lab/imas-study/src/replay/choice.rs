// SPDX-License-Identifier: Apache-2.0
//! Cost of a choice by prediction against the live best.

use imas_core::printable;
use imas_core::stats::{Interval, more};
use imas_replay::reliability::{PredictedFigure, ReliabilityTable};

use super::judged::{JudgedCandidate, JudgedProgram};
use super::promising::{PredictedRatios, promising};
use crate::band::mean;

/// Objective of a choice: what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChoiceObjective {
    Cpu,
    Memory,
    Both,
}

impl ChoiceObjective {
    pub(crate) const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::Both];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Both => "both",
        }
    }

    /// Weight of CPU in the score.
    fn weight(self) -> f64 {
        match self {
            Self::Cpu => 1.0,
            Self::Memory => 0.0,
            Self::Both => 0.5,
        }
    }
}

/// Loss of each choice in one program: how much its live score exceeds the live best, as a logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChoiceLoss {
    /// Loss of no change.
    pub(crate) system: f64,
    /// Loss of the best prediction, or of `system` where no candidate is predicted to gain.
    pub(crate) first: f64,
    /// Loss of the best of `system` and the two best predictions, measured live.
    pub(crate) two: f64,
}

/// Interval of live over predicted ratio that is assumed where no other prediction is known.
const UNKNOWN: Interval = Interval { lo: 0.5, mid: 1.0, hi: 2.0 };
/// Candidates that are measured live.
const MEASURED: usize = 2;

/// Loss of each choice in one program. `table` has the intervals of predictions.
pub(crate) fn loss(
    program: &JudgedProgram,
    table: &ReliabilityTable,
    objective: ChoiceObjective,
) -> ChoiceLoss {
    let weight = objective.weight();
    let live = |one: &JudgedCandidate| one.live.point.score(weight);
    let best = program.candidates.iter().map(live).fold(0.0, f64::min);
    let predicted: Vec<_> = program.candidates.iter().map(|one| ratios(one, program, table)).collect();
    let chosen = promising(&predicted, weight, MEASURED);
    let first = chosen.first().map(|at| &program.candidates[*at]);
    let first = first.filter(|one| one.predicted.score(weight) < 0.0).map_or(0.0, live);
    let two = chosen.iter().map(|at| live(&program.candidates[*at])).fold(0.0, f64::min);
    ChoiceLoss { system: -best, first: first - best, two: two - best }
}

fn ratios(one: &JudgedCandidate, program: &JudgedProgram, table: &ReliabilityTable) -> PredictedRatios {
    let around = |figure, log: f64| {
        let factors = table.factors(figure, &one.name, &program.facts).unwrap_or(UNKNOWN);
        let value = log.exp();
        Interval { lo: value * factors.lo, mid: value, hi: value * factors.hi }
    };
    PredictedRatios {
        cpu: around(PredictedFigure::Cpu, one.predicted.cpu),
        memory: around(PredictedFigure::Memory, one.predicted.memory),
    }
}

/// Losses over several programs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChoiceSummary {
    pub(crate) programs: usize,
    /// Programs in which the first choice is within 3 % of the live best.
    pub(crate) first_within: usize,
    /// Programs in which the best of `system` and the first two is.
    pub(crate) two_within: usize,
    /// Mean loss, parts of 1.
    pub(crate) system: f64,
    pub(crate) first: f64,
    pub(crate) two: f64,
}

/// Greatest ratio to the live best at which a choice counts as within.
const CLOSE: f64 = 1.03;

impl ChoiceSummary {
    pub(crate) fn of(losses: &[ChoiceLoss]) -> Self {
        let within =
            |get: fn(&ChoiceLoss) -> f64| losses.iter().filter(|loss| get(loss) <= CLOSE.ln()).count();
        let mean = |get: fn(&ChoiceLoss) -> f64| mean(losses.iter().map(|loss| more(get(loss))));
        Self {
            programs: losses.len(),
            first_within: within(|loss| loss.first),
            two_within: within(|loss| loss.two),
            system: mean(|loss| loss.system),
            first: mean(|loss| loss.first),
            two: mean(|loss| loss.two),
        }
    }

    /// "88 of 97 programs".
    pub(crate) fn found_by_two(&self) -> String {
        format!("{} of {}", self.two_within, printable::counted(self.programs, "program"))
    }
}

#[cfg(test)]
mod tests {
    use imas_replay::reliability::RecordedRunFacts;

    use super::*;
    use crate::replay::made_up::{MadeUpCandidate, program};

    fn losses(candidates: &[MadeUpCandidate<'_>]) -> [ChoiceLoss; 3] {
        let program = program("p", RecordedRunFacts::default(), candidates);
        ChoiceObjective::ALL.map(|objective| loss(&program, &ReliabilityTable::default(), objective))
    }

    /// The prediction calls `a` the fastest; live it is `b`, which is second; `c` is leanest in both.
    #[test]
    fn the_second_choice_repairs_what_the_first_misses() {
        let [cpu, memory, _] = losses(&[
            ("a", (-0.3, 0.5), (-0.1, 0.5)),
            ("b", (-0.2, 0.4), (-0.4, 0.4)),
            ("c", (0.1, -0.2), (0.1, -0.3)),
        ]);
        assert!((cpu.system - 0.4).abs() < 1e-12 && (cpu.first - 0.3).abs() < 1e-12 && cpu.two == 0.0);
        assert!((memory.system - 0.3).abs() < 1e-12 && memory.first == 0.0 && memory.two == 0.0);
    }

    #[test]
    fn where_nothing_is_predicted_to_gain_the_first_choice_is_system() {
        let [cpu, ..] = losses(&[("a", (0.2, 0.0), (-0.1, 0.0))]);
        assert!((cpu.first - 0.1).abs() < 1e-12, "{cpu:?}");
        assert_eq!(cpu.two, 0.0, "the best prediction is measured all the same");
    }

    #[test]
    fn a_summary_counts_what_is_within_three_per_cent() {
        let loss = |first, two| ChoiceLoss { system: 0.5, first, two };
        let all = ChoiceSummary::of(&[loss(0.0, 0.0), loss(0.2, 0.02), loss(0.2, 0.2)]);
        assert_eq!((all.programs, all.first_within, all.two_within), (3, 1, 2));
        assert!((all.system - (0.5_f64.exp() - 1.0)).abs() < 1e-12);
    }
}
