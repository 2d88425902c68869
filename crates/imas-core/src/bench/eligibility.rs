// SPDX-License-Identifier: Apache-2.0
//! Correctness first: a candidate that changes the program's behaviour is ineligible.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::run::CandidateRuns;
use crate::output_check::{OutputCheck, OutputJudgement};
use crate::run::RawRun;
use crate::sample::is_crash_signal;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
