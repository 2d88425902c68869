// SPDX-License-Identifier: Apache-2.0
//! What a comparison may assume.

use crate::conditions::Conditions;
use crate::stats::RESAMPLES;

/// Settings of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seed of the bootstrap: the same runs and seed give the same answer.
    pub seed: u64,
    /// Bootstrap resamples per interval.
    pub resamples: usize,
    /// Smallest difference in CPU time worth a word (0.02 = 2 %).
    pub cpu_margin: f64,
    /// Smallest difference in memory worth a word.
    pub memory_margin: f64,
    /// Fewest common rounds for a word.
    pub min_runs: usize,
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
            min_runs: 3,
            conditions: None,
        }
    }
}
