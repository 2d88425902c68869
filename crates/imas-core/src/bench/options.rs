// SPDX-License-Identifier: Apache-2.0
//! Settings of a comparison, and how much a program must use to be compared.

use super::run::MedianRun;
use crate::compare::{CostLimits, Demand, FEWEST_ROUNDS, Looks, Margins, Resampling};
use crate::history::Conditions;
use crate::run::RawRun;
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

/// The least that `system` must use. Below it, a ratio depends more on the start of a process than on the
/// allocator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Floor {
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Mean of resident anonymous memory, bytes.
    pub memory_bytes: u64,
}

impl Floor {
    /// Floor with which everything is compared that was measured: for summaries of many programs, which judge
    /// by all of them.
    pub const NONE: Self = Self { cpu_s: 0.0, memory_bytes: 1 };

    /// Floor for the verdict on one program: starting a process takes milliseconds and varies by as much, and
    /// a run with less memory ended before anybody could look.
    pub const BENCH: Self = Self { cpu_s: 0.005, memory_bytes: 64 << 10 };

    /// Whether these runs of `system` use enough CPU time, and enough memory.
    pub(super) fn reached(self, system: &[RawRun]) -> (bool, bool) {
        let median = MedianRun::of(system).unwrap_or_default();
        (median.cpu_s >= self.cpu_s, median.mean_bytes >= self.memory_bytes)
    }
}
