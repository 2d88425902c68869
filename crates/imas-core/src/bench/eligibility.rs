// SPDX-License-Identifier: Apache-2.0
//! The runs of a candidate before they are compared: their medians; correctness, which comes first (a candidate that changes
//! the program's behaviour is ineligible); normalised CPU time, and marks on outliers.
//! Last, the one rule for outputs: whether a program's output varies by itself, and whether a candidate is to blame for
//! another output ([`OutputCheck`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::candidate::SYSTEM;
use crate::pace::{PaceCorrection, Paced};
use crate::run::RawRun;
use crate::sample::is_crash_signal;
use crate::stats::{median, outliers};

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

/// Why a candidate cannot be picked.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum IneligibleCandidate {
    /// The candidate has no runs.
    NoRuns,
    /// The program crashed under it, by this signal, and does not under `system`.
    Crashed {
        /// SIGSEGV, SIGABRT, SIGBUS, SIGILL or SIGSYS.
        signal: u32,
    },
    /// The program hung under it, far longer than any run under `system` took, and was ended.
    Hung,
    /// A run took many times the CPU time or memory of any run under `system`, and was ended.
    Excess,
    /// A run did not end within the time that was allowed.
    TimedOut,
    /// The program exits differently than under `system`.
    ExitDiffers {
        /// First such exit: status, or 128 + signal.
        exit: i32,
    },
    /// The program writes something else to its standard output than under `system`.
    OutputDiffers,
}

/// Exits and outputs of `system`, by which the others are judged.
#[derive(Debug)]
pub(super) struct Reference {
    exits: BTreeSet<i32>,
    /// Exit statuses of the counted runs.
    counted_exits: BTreeSet<i32>,
    outputs: OutputCheck,
}

impl Reference {
    /// Reference from the measured runs of `system` and the exits of its counted runs.
    pub(super) fn of(system: &[RawRun], counted: &[i32]) -> Self {
        let mut outputs = OutputCheck::default();
        system.iter().filter_map(|run| run.output.as_deref()).for_each(|output| {
            outputs.see(output);
        });
        Self {
            exits: system.iter().map(|run| run.exit).collect(),
            counted_exits: counted.iter().copied().collect(),
            outputs,
        }
    }

    /// Exits of `system` other than 0, if any.
    pub(super) fn failure(&self) -> Option<i32> {
        self.exits.iter().copied().find(|&exit| exit != 0)
    }

    /// Whether the run ended as a run under `system` did.
    pub(super) fn is_expected(&self, run: &RawRun) -> bool {
        self.exits.contains(&run.exit)
    }

    /// This reference with the knowledge of other runs that the output varies, if it `varies`.
    pub(super) fn with_varying_output(mut self, varies: bool) -> Self {
        if varies {
            self.outputs = OutputCheck::varying();
        }
        self
    }

    /// True when the output under `system` differs from run to run, so that nothing can be learnt from it.
    pub(super) fn varies(&self) -> bool {
        self.outputs.varies()
    }

    /// An exit that `system` showed in a run of either kind.
    fn is_known(&self, exit: i32) -> bool {
        self.exits.contains(&exit) || self.counted_exits.contains(&exit)
    }

    fn is_same_output(&self, run: &RawRun) -> bool {
        let differs = |output: &String| self.outputs.judge(output) == OutputJudgement::Differs;
        !run.output.as_ref().is_some_and(differs)
    }

    /// First reason against `candidate`, whose counted runs ended with `counted`: a crash before a wrong exit
    /// before no runs before a wrong output. A crash that only a counted run showed is none the less one, and
    /// may be why there are no others.
    pub(super) fn objection(
        &self,
        candidate: &CandidateRuns,
        counted: &[i32],
    ) -> Option<IneligibleCandidate> {
        let runs = &candidate.runs;
        let unexpected = || {
            let measured = runs.iter().filter(|run| !self.is_expected(run)).map(|run| run.exit);
            counted.iter().copied().filter(|exit| !self.is_known(*exit)).chain(measured)
        };
        let crash = unexpected().find_map(crash_signal).map(|signal| IneligibleCandidate::Crashed { signal });
        let other_exit = || unexpected().next().map(|exit| IneligibleCandidate::ExitDiffers { exit });
        let no_runs = || runs.is_empty().then_some(IneligibleCandidate::NoRuns);
        let is_same = || runs.iter().all(|run| self.is_same_output(run));
        crash
            .or_else(other_exit)
            .or_else(no_runs)
            .or_else(|| (!is_same()).then_some(IneligibleCandidate::OutputDiffers))
    }
}

/// The signal of an exit status 128 + signal, if that signal is a crash.
fn crash_signal(exit: i32) -> Option<u32> {
    u32::try_from(exit - 128).ok().filter(|&signal| is_crash_signal(signal))
}

/// Prepares the runs of one program for comparison: normalised CPU time, then marks on outliers.
pub fn prepare(candidates: &mut [CandidateRuns]) {
    normalise_pace(candidates);
    for candidate in candidates {
        mark_outliers(&mut candidate.runs);
    }
}

/// Writes the normalised CPU time into the runs of one program ([`PaceCorrection`]). It is learnt from those
/// that ended as one under `system` did: the time of a run that crashed or hung does not depend on the pace.
fn normalise_pace(candidates: &mut [CandidateRuns]) {
    let paced = |run: &RawRun| (run.cpu_s(), run.pace);
    let system = candidates.iter().find(|c| c.name == SYSTEM).map_or(&[][..], |c| &c.runs);
    let reference = Reference::of(system, &[]);
    let is_comparable = |run: &&RawRun| system.is_empty() || reference.is_expected(run);
    let groups: Vec<Vec<Paced>> =
        candidates.iter().map(|c| c.runs.iter().filter(is_comparable).map(paced).collect()).collect();
    let even = PaceCorrection::fit(&groups);
    for run in candidates.iter_mut().flat_map(|candidate| &mut candidate.runs) {
        run.even_cpu_s = run.pace.map(|_| even.cpu_s(paced(run)));
    }
}

/// Sets [`RawRun::outlier`]: of a candidate's runs, those whose elapsed or CPU time is an outlier among
/// them. They stay in the comparison, where medians keep them harmless, and become a warning.
fn mark_outliers(runs: &mut [RawRun]) {
    let wall = outliers(&runs.iter().map(|run| run.wall_s).collect::<Vec<_>>());
    let cpu = outliers(&runs.iter().map(RawRun::compared_cpu_s).collect::<Vec<_>>());
    for ((run, wall), cpu) in runs.iter_mut().zip(wall).zip(cpu) {
        run.outlier = Some(wall || cpu);
    }
}

/// The outputs of one program under `system`, by which those under candidates are judged: the one rule for
/// it.
///
/// Two runs of `system` that wrote different things show that the output varies; then no candidate is
/// rejected for another.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutputCheck {
    first: Option<String>,
    /// Runs of `system` that wrote the first.
    same: u32,
    varies: bool,
}

/// Judgement on an output under a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputJudgement {
    /// The output is the one of `system`, or it varies by itself.
    Fine,
    /// The output is another than the one of `system`.
    Differs,
    /// No run of `system` was seen yet.
    Unknown,
}

impl OutputCheck {
    /// A program whose output is known to vary already.
    #[must_use]
    pub fn varying() -> Self {
        Self { varies: true, ..Self::default() }
    }

    /// An output of `system`. True when this is the first to show that it varies.
    pub fn see(&mut self, output: &str) -> bool {
        match &self.first {
            None => self.first = Some(output.to_owned()),
            Some(first) if first != output => return !std::mem::replace(&mut self.varies, true),
            Some(_) => {}
        }
        self.same = self.same.saturating_add(1);
        false
    }

    /// Whether two runs of `system` differed.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.varies
    }

    /// Whether a second run of `system` wrote the same as the first, or another thing: one more shows
    /// nothing new.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.varies || self.same > 1
    }

    /// Judges an output under a candidate.
    #[must_use]
    pub fn judge(&self, output: &str) -> OutputJudgement {
        match &self.first {
            _ if self.varies => OutputJudgement::Fine,
            None => OutputJudgement::Unknown,
            Some(first) if first == output => OutputJudgement::Fine,
            Some(_) => OutputJudgement::Differs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;

    fn counted(user_s: f64, system_s: f64, peak_bytes: u64, cycles: Option<u64>) -> RawRun {
        RawRun { user_s, system_s, wall_s: user_s + system_s, peak_bytes, cycles, ..RawRun::default() }
    }

    #[test]
    fn medians_are_taken_figure_by_figure() {
        let runs = [counted(1.0, 3.0, 10, None), counted(2.0, 1.0, 30, Some(7)), counted(3.0, 2.0, 21, None)];
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

    fn run(exit: i32, output: Option<&str>) -> RawRun {
        RawRun { exit, output: output.map(str::to_owned), ..RawRun::default() }
    }

    fn objection(system: &[RawRun], runs: &[RawRun]) -> Option<IneligibleCandidate> {
        counted_objection((system, &[]), (runs, &[]))
    }

    /// Runs and the exits of counted ones, of `system` and of the candidate.
    fn counted_objection(
        system: (&[RawRun], &[i32]),
        one: (&[RawRun], &[i32]),
    ) -> Option<IneligibleCandidate> {
        let candidate = CandidateRuns { name: "x".into(), runs: one.0.to_vec() };
        Reference::of(system.0, system.1).objection(&candidate, one.1)
    }

    #[test]
    fn the_same_behaviour_is_eligible() {
        assert_eq!(objection(&[run(0, Some("a"))], &[run(0, Some("a"))]), None);
        assert_eq!(objection(&[run(0, None)], &[run(0, Some("a"))]), None);
        assert_eq!(objection(&[run(0, Some("a"))], &[run(0, None)]), None);
        assert_eq!(objection(&[run(1, None), run(0, None)], &[run(1, None)]), None, "flaky by itself");
        assert_eq!(objection(&[run(134, None)], &[run(134, None)]), None, "crashes by itself");
    }

    #[test]
    fn a_candidate_is_ineligible_for_each_reason() {
        let system = [run(0, Some("a")), run(0, Some("a"))];
        assert_eq!(objection(&system, &[]), Some(IneligibleCandidate::NoRuns));
        assert_eq!(objection(&system, &[run(0, Some("b"))]), Some(IneligibleCandidate::OutputDiffers));
        let exits = [run(0, Some("a")), run(3, Some("a"))];
        assert_eq!(objection(&system, &exits), Some(IneligibleCandidate::ExitDiffers { exit: 3 }));
        let crashes = [run(3, Some("b")), run(139, Some("b"))];
        assert_eq!(objection(&system, &crashes), Some(IneligibleCandidate::Crashed { signal: 11 }));
        assert_eq!(
            objection(&system, &[run(137, None)]),
            Some(IneligibleCandidate::ExitDiffers { exit: 137 })
        );
    }

    #[test]
    fn a_counted_run_that_ends_otherwise_counts() {
        let fine: &[RawRun] = &[run(0, Some("a"))];
        let of = |system: &[i32], runs: &[RawRun], counted: &[i32]| {
            counted_objection((fine, system), (runs, counted))
        };
        assert_eq!(of(&[0], fine, &[0, 139]), Some(IneligibleCandidate::Crashed { signal: 11 }));
        assert_eq!(
            of(&[0], &[], &[134]),
            Some(IneligibleCandidate::Crashed { signal: 6 }),
            "none were made after it"
        );
        assert_eq!(of(&[0], &[run(3, None)], &[134]), Some(IneligibleCandidate::Crashed { signal: 6 }));
        assert_eq!(of(&[], fine, &[137]), Some(IneligibleCandidate::ExitDiffers { exit: 137 }), "it hung");
        assert_eq!(of(&[139], fine, &[139]), None, "system does so too when it is counted");
        let uncounted = of(&[139], &[run(139, None)], &[]);
        assert_eq!(uncounted, Some(IneligibleCandidate::Crashed { signal: 11 }), "and not when it is not");
        assert_eq!(of(&[], fine, &[0]), None);
    }

    #[test]
    fn an_output_that_varies_under_system_is_no_evidence() {
        let system = [run(0, Some("a")), run(0, Some("b"))];
        assert!(Reference::of(&system, &[]).varies());
        assert_eq!(objection(&system, &[run(0, Some("c"))]), None);
    }

    fn timed(user_s: f64) -> RawRun {
        RawRun { user_s, wall_s: user_s, ..RawRun::default() }
    }

    #[test]
    fn a_run_on_a_slow_cpu_is_no_outlier_when_normalised() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of = |factor: f64| RawRun { pace: Some(slow(factor)), ..timed(1.5 * factor.powf(1.6)) };
        let runs: Vec<RawRun> = [1.0, 1.02, 0.99, 1.01, 1.4].map(of).to_vec();
        let mut candidates = [CandidateRuns { name: "a".into(), runs }];
        candidates[0].runs.iter_mut().for_each(|run| run.wall_s = 2.0);
        prepare(&mut candidates);
        let [CandidateRuns { runs, .. }] = &candidates;
        assert!(runs.iter().all(|run| run.outlier == Some(false)), "{runs:?}");
        assert!((runs[4].compared_cpu_s() / runs[0].compared_cpu_s() - 1.0).abs() < 0.01);
        assert!(runs[4].cpu_s() > 2.0, "what the kernel counted stays");
    }

    #[test]
    fn runs_that_crashed_or_hung_do_not_hide_the_pace() {
        let slow = |factor: f64| Pace { arithmetic_ns: 8e3 * factor, branches_ns: 4e4 * factor, looks: 9 };
        let of =
            |cpu_s: f64, factor: f64, exit: i32| RawRun { pace: Some(slow(factor)), exit, ..timed(cpu_s) };
        let steady: Vec<RawRun> =
            [1.0, 1.3, 0.9, 1.4].map(|factor: f64| of(factor.powf(1.6), factor, 0)).to_vec();
        let broken = [of(0.01, 1.0, 139), of(60.0, 0.9, 137), of(0.01, 1.4, 139), of(60.0, 1.0, 137)];
        let named = |name: &str, runs: &[RawRun]| CandidateRuns { name: name.into(), runs: runs.to_vec() };
        let mut candidates = [named(SYSTEM, &steady), named("broken", &broken)];
        prepare(&mut candidates);
        let even: Vec<f64> = candidates[0].runs.iter().map(RawRun::compared_cpu_s).collect();
        assert!(even.iter().all(|cpu_s| (cpu_s / even[0] - 1.0).abs() < 0.03), "{even:?}");
        assert!(candidates[1].runs.iter().all(|run| run.even_cpu_s.is_some()), "theirs is written, too");
    }

    #[test]
    fn an_odd_run_is_marked() {
        let mut runs: Vec<_> = [1.0, 1.01, 0.99, 1.02, 5.0].map(timed).to_vec();
        runs[0].outlier = Some(true);
        mark_outliers(&mut runs);
        assert_eq!(
            runs.iter().map(|run| run.outlier).collect::<Vec<_>>(),
            [false, false, false, false, true].map(Some)
        );
    }

    #[test]
    fn an_output_is_judged_by_those_of_system() {
        let mut check = OutputCheck::default();
        assert_eq!(check.judge("a"), OutputJudgement::Unknown);
        assert!(!check.see("a") && !check.is_confirmed());
        assert_eq!((check.judge("a"), check.judge("b")), (OutputJudgement::Fine, OutputJudgement::Differs));
        assert!(!check.see("a") && check.is_confirmed());
        assert!(check.see("b"), "the first to show that it varies");
        assert!(!check.see("c") && check.varies());
        assert_eq!(check.judge("d"), OutputJudgement::Fine, "no candidate is rejected");
        assert_eq!(OutputCheck::varying().judge("d"), OutputJudgement::Fine);
    }
}
