// SPDX-License-Identifier: Apache-2.0
//! What a comparison may assume.

use super::floor::Floor;
use super::looks::Looks;
use crate::conditions::Conditions;
use crate::stats::RESAMPLES;

/// Settings of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seed of the bootstrap: the same runs and seed give the same answer.
    pub seed: u64,
    /// Bootstrap resamples per interval.
    pub resamples: usize,
    /// Smallest difference in CPU time worth reporting (0.02 = 2 %).
    pub cpu_margin: f64,
    /// Smallest difference in memory worth reporting.
    pub memory_margin: f64,
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
            cpu_margin: 0.02,
            memory_margin: 0.05,
            floor: Floor::NONE,
            looks: None,
            wall_and_peak: false,
            min_runs: 3,
            output_varies: false,
            conditions: None,
        }
    }
}

/// Probability that some candidate is taken for better than `system` although none is.
const CHANCE: f64 = 0.05;

impl Options {
    /// The error that a test after this number of rounds may have: all of it, or its share where there are
    /// more looks.
    pub(super) fn chance(&self, rounds: usize) -> f64 {
        self.looks.map_or(CHANCE, |looks| CHANCE * looks.share(rounds))
    }
}
