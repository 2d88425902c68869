// SPDX-License-Identifier: Apache-2.0
//! The figures of one candidate, compared with those of `system`.

use std::collections::BTreeMap;

use imas_core::compare::Margins;
use imas_core::stats::Interval;
use serde::{Deserialize, Serialize};

use imas_core::server_run::{Better, Failure};

/// One figure of a candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ComparedFigure {
    /// Median over its runs.
    pub median: f64,
    /// Unit of the median.
    pub unit: String,
    /// Direction.
    pub better: Better,
    /// Ratio to `system`: median over the common rounds, with its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Interval>,
}

impl ComparedFigure {
    /// The ratio, inverted if necessary so that a value above 1 is worse.
    #[must_use]
    pub fn worse(&self) -> Option<Interval> {
        let turned =
            |ratio: Interval| Interval { lo: 1.0 / ratio.hi, mid: 1.0 / ratio.mid, hi: 1.0 / ratio.lo };
        self.ratio.map(|ratio| if self.better == Better::Lower { ratio } else { turned(ratio) })
    }
}

/// Figures and verdict of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateFigures {
    /// Name of the candidate.
    pub name: String,
    /// Number of rounds with a valid run.
    pub rounds: usize,
    /// Number of valid runs: `system` has several in a round.
    #[serde(default)]
    pub runs: usize,
    /// Runs of the candidate that failed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub failures: Vec<Failure>,
    /// Compared figures by name, as in [`imas_core::server_run::ServerRun::figures`].
    pub figures: BTreeMap<String, ComparedFigure>,
    /// The verdict as a sentence.
    pub verdict: String,
    /// The guard rails that it is proven to break.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exceeds: Vec<String>,
    /// The guard rails that it is neither proven to break nor shown to keep, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unproven: Vec<String>,
    /// Ratio to `system` by the figure of the goal: below 1 is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goal: Option<Interval>,
    /// Proven better than `system` at the goal, as one of all candidates.
    pub is_better: bool,
    /// It is left open whether it gains more than the margin at the goal.
    #[serde(default)]
    pub is_open: bool,
}

impl CandidateFigures {
    /// Whether the server failed under it.
    pub(crate) fn has_failed(&self) -> bool {
        self.failures.iter().any(|failure| failure.stage.is_of_the_server())
    }

    pub(crate) fn worse(&self, name: &str) -> Option<Interval> {
        self.figures.get(name)?.worse()
    }
}

/// Smallest difference that is reported.
pub fn margin(figure: &str) -> f64 {
    match figure {
        "cpu" | "cpu_day" | "rate" | "cycle" | "balance" => Margins::USUAL.cpu,
        _ => Margins::USUAL.memory,
    }
}
