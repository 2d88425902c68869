// SPDX-License-Identifier: Apache-2.0
//! What a comparison may assume.

use super::floor::Floor;
use crate::compare::{CostLimits, Demand, FEWEST_ROUNDS, Looks, Margins, Resampling};
use crate::conditions::Conditions;
use crate::stats::RESAMPLES;

/// Settings of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seed of the bootstrap: the same runs and seed give the same answer.
    pub seed: u64,
    /// Bootstrap resamples per interval.
    pub resamples: usize,
    /// Smallest differences worth reporting.
    pub margins: Margins,
    /// Largest costs of a pick on the axis that it is not picked for.
    pub most_cost: CostLimits,
    /// How much a program must take for its candidates to be compared.
    pub floor: Floor,
    /// The runs are looked at while they are made, and end when they are settled; None: their number is
    /// fixed.
    pub looks: Option<Looks>,
    /// Elapsed time and peak memory are compared, too, for tables that show them.
    pub wall_and_peak: bool,
    /// Fewest common rounds for a word.
    pub min_runs: usize,
    /// Runs that are not compared showed that the output varies by itself.
    pub output_varies: bool,
    /// State of the machine before the first run, where known.
    pub conditions: Option<Conditions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            resamples: RESAMPLES,
            margins: Margins::USUAL,
            most_cost: CostLimits::USUAL,
            floor: Floor::NONE,
            looks: None,
            wall_and_peak: false,
            min_runs: FEWEST_ROUNDS,
            output_varies: false,
            conditions: None,
        }
    }
}

/// A candidate may be picked for its CPU time, and for its memory; for both only where it is better in one of them.
const FIGURES: usize = 2;

impl Options {
    /// Conditions of a proof for one of `candidates` candidates.
    pub(super) fn demand(&self, candidates: usize) -> Demand {
        Demand { candidates, figures: FIGURES, looks: self.looks, fewest: self.min_runs }
    }

    pub(super) fn resampling(&self) -> Resampling {
        Resampling { seed: self.seed, resamples: self.resamples }
    }
}
