// SPDX-License-Identifier: Apache-2.0
//! The runs of a candidate, and their medians.

use serde::{Deserialize, Serialize};

use crate::run::RawRun;
use crate::stats::median;

/// All runs of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct CandidateRuns {
    /// Name in the catalogue.
    pub name: String,
    /// Empty when it could not run at all.
    pub runs: Vec<RawRun>,
}

/// Medians of a candidate's runs, figure by figure (no single run need have them all). Of an even number of
/// integers the mean of the two in the middle, rounded.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct MedianRun {
    /// User CPU time, seconds.
    pub user_s: f64,
    /// System CPU time, seconds.
    pub system_s: f64,
    /// User and system CPU time, seconds: the median of the sums, not the sum of the medians.
    pub cpu_s: f64,
    /// Elapsed time, seconds.
    pub wall_s: f64,
    /// Peak of resident anonymous memory, bytes.
    pub peak_bytes: u64,
    /// Time-weighted mean of resident anonymous memory, bytes.
    pub mean_bytes: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// User-mode instructions.
    pub instructions: Option<u64>,
    /// Cycles.
    pub cycles: Option<u64>,
    /// Misses of the data TLB.
    pub dtlb_misses: Option<u64>,
    /// Last-level cache misses.
    pub cache_misses: Option<u64>,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
}

impl MedianRun {
    /// Medians of `runs`; None without any. A counter that some of the runs lack is the median of those that
    /// have it.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a RawRun>) -> Option<Self> {
        let runs: Vec<&RawRun> = runs.into_iter().collect();
        let real = |get: fn(&RawRun) -> f64| median(&runs.iter().map(|run| get(run)).collect::<Vec<_>>());
        let counter = |get: fn(&RawRun) -> Option<u64>| median_count(runs.iter().filter_map(|run| get(run)));
        let count = |get: fn(&RawRun) -> u64| median_count(runs.iter().map(|run| get(run))).unwrap_or(0);
        Some(Self {
            user_s: real(|run| run.user_s)?,
            system_s: real(|run| run.system_s)?,
            cpu_s: real(RawRun::cpu_s)?,
            wall_s: real(|run| run.wall_s)?,
            peak_bytes: count(|run| run.peak_bytes),
            mean_bytes: count(|run| run.mean_bytes),
            minor_faults: count(|run| run.minor_faults),
            major_faults: count(|run| run.major_faults),
            instructions: counter(|run| run.instructions),
            cycles: counter(|run| run.cycles),
            dtlb_misses: counter(|run| run.dtlb_misses),
            cache_misses: counter(|run| run.cache_misses),
            voluntary_switches: count(|run| run.voluntary_switches),
            involuntary_switches: count(|run| run.involuntary_switches),
        })
    }
}

/// Median of integers without the detour over f64, which is exact to 2^53 only.
fn median_count(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut sorted: Vec<u64> = values.collect();
    sorted.sort_unstable();
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(lower + (upper - lower).div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(user_s: f64, system_s: f64, peak_bytes: u64, cycles: Option<u64>) -> RawRun {
        RawRun { user_s, system_s, wall_s: user_s + system_s, peak_bytes, cycles, ..RawRun::default() }
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let runs = [run(1.0, 3.0, 10, None), run(2.0, 1.0, 30, Some(7)), run(3.0, 2.0, 21, None)];
        let median = MedianRun::of(&runs).unwrap();
        assert_eq!((median.user_s, median.system_s, median.cpu_s), (2.0, 2.0, 4.0));
        assert_eq!((median.peak_bytes, median.cycles, median.instructions), (21, Some(7), None));
        assert_eq!(MedianRun::of(&[]), None);
    }

    #[test]
    fn large_counts_stay_exact() {
        assert_eq!(median_count([u64::MAX, u64::MAX - 1, 5].into_iter()), Some(u64::MAX - 1));
        assert_eq!(median_count([3, 6].into_iter()), Some(5));
        assert_eq!(median_count([].into_iter()), None);
    }
}
