// SPDX-License-Identifier: Apache-2.0
//! What the search looks for.

use serde::{Deserialize, Serialize};

/// Figures of a point as ratios to those under `system`; below 1 is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PointRatios {
    /// CPU time.
    pub cpu: f64,
    /// Mean of resident memory.
    pub memory: f64,
    /// Its peak.
    pub peak: f64,
}

/// A figure that can be limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitedFigure {
    /// CPU time.
    Cpu,
    /// Mean of resident memory.
    Memory,
    /// Its peak.
    Peak,
}

/// The most that a figure may grow.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Of which figure.
    pub figure: LimitedFigure,
    /// Largest ratio to `system`: 1.03 is 3 % more.
    pub most: f64,
}

/// What counts, and what must not happen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Goal {
    /// Of CPU in the score: 1 for CPU alone, 0 for memory alone.
    pub cpu_weight: f64,
    /// All of them are kept.
    pub limits: Vec<Limit>,
}

/// Below this a ratio says no more than "very small".
const LEAST: f64 = 1e-3;
/// What one unit of ln(ratio) beyond a limit costs in the score. It is so high that no gain makes up for it,
/// and finite so that the search still sees the way back.
const PENALTY: f64 = 20.0;

impl Goal {
    /// The score: the weighted mean of the logarithms; less is better, 0 is `system`. Beyond a limit it is
    /// much higher.
    #[must_use]
    pub fn score(&self, ratios: &PointRatios) -> f64 {
        let ln = |ratio: f64| ratio.max(LEAST).ln();
        let score = self.cpu_weight * ln(ratios.cpu) + (1.0 - self.cpu_weight) * ln(ratios.memory);
        let beyond: f64 =
            self.limits.iter().map(|limit| (ln(limit.figure.of(ratios)) - limit.most.ln()).max(0.0)).sum();
        score + PENALTY * beyond
    }

    /// Whether all limits are kept.
    #[must_use]
    pub fn allows(&self, ratios: &PointRatios) -> bool {
        self.limits.iter().all(|limit| limit.figure.of(ratios) <= limit.most)
    }
}

impl LimitedFigure {
    /// From its name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "cpu" => Some(Self::Cpu),
            "memory" => Some(Self::Memory),
            "peak" => Some(Self::Peak),
            _ => None,
        }
    }

    fn of(self, ratios: &PointRatios) -> f64 {
        match self {
            Self::Cpu => ratios.cpu,
            Self::Memory => ratios.memory,
            Self::Peak => ratios.peak,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(cpu: f64, memory: f64) -> PointRatios {
        PointRatios { cpu, memory, peak: memory }
    }

    #[test]
    fn a_gain_beyond_a_limit_is_no_gain() {
        let limit = Limit { figure: LimitedFigure::Cpu, most: 1.03 };
        let goal = Goal { cpu_weight: 0.0, limits: vec![limit] };
        assert!(goal.allows(&ratios(1.03, 0.9)) && !goal.allows(&ratios(1.04, 0.1)));
        assert!(goal.score(&ratios(1.2, 0.1)) > goal.score(&ratios(1.0, 1.0)));
        assert!(goal.score(&ratios(1.2, 0.1)) > goal.score(&ratios(1.1, 0.1)), "the way back is seen");
        assert!(goal.score(&ratios(1.02, 0.8)) < 0.0);
    }

    #[test]
    fn the_weight_decides_between_the_two() {
        let score = |cpu_weight| Goal { cpu_weight, limits: vec![] }.score(&ratios(0.5, 2.0));
        assert!(score(1.0) < 0.0 && score(0.0) > 0.0 && score(0.5).abs() < 1e-12);
        assert!(Goal { cpu_weight: 1.0, limits: vec![] }.score(&ratios(0.0, 1.0)).is_finite());
    }
}
