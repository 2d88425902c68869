// SPDX-License-Identifier: Apache-2.0
//! One execution under one candidate, its whole process tree summed.

use serde::{Deserialize, Serialize};

use super::eligibility::Reference;
use crate::candidate::SYSTEM;
use crate::pace::{EvenPace, Pace, Paced};
use crate::stats::{median, outliers};

/// One execution. The field names are those of the exported JSON.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Run {
    /// Round of the benchmark; one run per candidate and round.
    pub round: u32,
    /// Exit status, or 128 + the signal.
    pub exit: i32,
    /// User CPU time, seconds.
    pub user_s: f64,
    /// System CPU time, seconds.
    pub system_s: f64,
    /// Elapsed time, seconds.
    pub wall_s: f64,
    /// Peak of resident anonymous memory, bytes.
    pub peak_bytes: u64,
    /// Time-weighted mean of resident anonymous memory, bytes; 0 when the run was too short to see any.
    pub mean_bytes: u64,
    /// Page faults served without I/O.
    pub minor_faults: u64,
    /// Page faults that needed I/O.
    pub major_faults: u64,
    /// User-mode instructions, where the kernel counts them.
    pub instructions: Option<u64>,
    /// Cycles, where the kernel counts them.
    pub cycles: Option<u64>,
    /// Misses of the data TLB, where the kernel counts them.
    pub dtlb_misses: Option<u64>,
    /// Last-level cache misses, where the kernel counts them.
    pub cache_misses: Option<u64>,
    /// Context switches by waiting.
    pub voluntary_switches: u64,
    /// Context switches by preemption.
    pub involuntary_switches: u64,
    /// Its time is far from that of the candidate's other runs ([`prepare`]).
    pub outlier: bool,
    /// Digest of the standard output; None when it was not looked at.
    pub output: Option<String>,
    /// How slow the CPU was meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// CPU time at even pace, seconds ([`prepare`]).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub even_cpu_s: Option<f64>,
}

impl Run {
    /// User and system CPU time, seconds.
    pub fn cpu_s(&self) -> f64 {
        self.user_s + self.system_s
    }

    /// What runs are compared by: CPU time at even pace where that is known.
    pub fn compared_cpu_s(&self) -> f64 {
        self.even_cpu_s.unwrap_or_else(|| self.cpu_s())
    }
}

/// All runs of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct CandidateRuns {
    /// Name in the catalogue.
    pub name: String,
    /// Empty when it could not run at all.
    pub runs: Vec<Run>,
}

/// Makes the runs of one program ready to be compared: CPU time at even pace, then marks on odd runs.
pub fn prepare(candidates: &mut [CandidateRuns]) {
    even_pace(candidates);
    for candidate in candidates {
        mark_outliers(&mut candidate.runs);
    }
}

/// Writes the CPU time at even pace into the runs of one program ([`EvenPace`]). It is learnt from those that ended as one under `system` did:
/// what a run that crashed or hung took is no matter of the pace, and hides what is.
fn even_pace(candidates: &mut [CandidateRuns]) {
    let paced = |run: &Run| (run.cpu_s(), run.pace);
    let system = candidates.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
    let reference = Reference::of(system, &[]);
    let tells = |run: &&Run| system.is_empty() || reference.is_expected(run);
    let groups: Vec<Vec<Paced>> =
        candidates.iter().map(|c| c.runs.iter().filter(tells).map(paced).collect()).collect();
    let even = EvenPace::fit(&groups);
    for run in candidates.iter_mut().flat_map(|candidate| &mut candidate.runs) {
        run.even_cpu_s = run.pace.map(|_| even.cpu_s(paced(run)));
    }
}

/// Medians of a candidate's runs, figure by figure (no single run need have them all). Of an even number of integers the
/// mean of the two in the middle, rounded.
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
    /// Medians of `runs`; None without any. A counter that some of the runs lack is the median of those that have it.
    pub fn of<'a>(runs: impl IntoIterator<Item = &'a Run>) -> Option<Self> {
        let runs: Vec<&Run> = runs.into_iter().collect();
        let real = |get: fn(&Run) -> f64| median(&runs.iter().map(|run| get(run)).collect::<Vec<_>>());
        let counter = |get: fn(&Run) -> Option<u64>| median_count(runs.iter().filter_map(|run| get(run)));
        let count = |get: fn(&Run) -> u64| median_count(runs.iter().map(|run| get(run))).unwrap_or(0);
        Some(Self {
            user_s: real(|run| run.user_s)?,
            system_s: real(|run| run.system_s)?,
            cpu_s: real(Run::cpu_s)?,
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

/// Sets [`Run::outlier`] on those of a candidate's runs whose elapsed or CPU time is an outlier among them. They stay
/// in the comparison, where medians keep them harmless, and become a warning.
fn mark_outliers(runs: &mut [Run]) {
    let wall = outliers(&runs.iter().map(|run| run.wall_s).collect::<Vec<_>>());
    let cpu = outliers(&runs.iter().map(Run::compared_cpu_s).collect::<Vec<_>>());
    for ((run, wall), cpu) in runs.iter_mut().zip(wall).zip(cpu) {
        run.outlier = wall || cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(user_s: f64, system_s: f64, peak_bytes: u64, cycles: Option<u64>) -> Run {
        Run { user_s, system_s, wall_s: user_s + system_s, peak_bytes, cycles, ..Run::default() }
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

    #[test]
    fn a_run_on_a_slow_cpu_is_not_odd_at_even_pace() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of = |factor: f64| Run { pace: Some(slow(factor)), ..run(1.5 * factor.powf(1.6), 0.0, 0, None) };
        let runs: Vec<Run> = [1.0, 1.02, 0.99, 1.01, 1.4].map(of).to_vec();
        let mut candidates = [CandidateRuns { name: "a".into(), runs }];
        candidates[0].runs.iter_mut().for_each(|run| run.wall_s = 2.0);
        prepare(&mut candidates);
        let [CandidateRuns { runs, .. }] = &candidates;
        assert!(runs.iter().all(|run| !run.outlier), "{runs:?}");
        assert!((runs[4].compared_cpu_s() / runs[0].compared_cpu_s() - 1.0).abs() < 0.01);
        assert!(runs[4].cpu_s() > 2.0, "what the kernel counted stays");
    }

    #[test]
    fn runs_that_crashed_or_hung_do_not_hide_the_pace() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of = |cpu_s: f64, factor: f64, exit: i32| Run {
            pace: Some(slow(factor)),
            exit,
            ..run(cpu_s, 0.0, 0, None)
        };
        let steady: Vec<Run> =
            [1.0, 1.3, 0.9, 1.4].map(|factor: f64| of(factor.powf(1.6), factor, 0)).to_vec();
        let broken = [of(0.01, 1.0, 139), of(60.0, 0.9, 137), of(0.01, 1.4, 139), of(60.0, 1.0, 137)];
        let named = |name: &str, runs: &[Run]| CandidateRuns { name: name.into(), runs: runs.to_vec() };
        let mut candidates = [named(SYSTEM, &steady), named("broken", &broken)];
        prepare(&mut candidates);
        let even: Vec<f64> = candidates[0].runs.iter().map(Run::compared_cpu_s).collect();
        assert!(even.iter().all(|cpu_s| (cpu_s / even[0] - 1.0).abs() < 0.03), "{even:?}");
        assert!(candidates[1].runs.iter().all(|run| run.even_cpu_s.is_some()), "theirs is written, too");
    }

    #[test]
    fn an_odd_run_is_marked() {
        let mut runs: Vec<_> = [1.0, 1.01, 0.99, 1.02, 5.0].map(|s| run(s, 0.0, 0, None)).to_vec();
        runs[0].outlier = true;
        mark_outliers(&mut runs);
        assert_eq!(
            runs.iter().map(|run| run.outlier).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
    }
}
