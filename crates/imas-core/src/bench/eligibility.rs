// SPDX-License-Identifier: Apache-2.0
//! Correctness first: a candidate that changes what the program does is no candidate.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::run::{CandidateRuns, Run};
use crate::sample::is_crash_signal;

/// Why a candidate cannot be picked.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Ineligible {
    /// It has no runs.
    NoRuns,
    /// The program crashed under it, by this signal, and does not under `system`.
    Crashed {
        /// SIGSEGV, SIGABRT, SIGBUS, SIGILL or SIGSYS.
        signal: u32,
    },
    /// The program exits differently than under `system`.
    ExitDiffers {
        /// First such exit: status, or 128 + signal.
        exit: i32,
    },
    /// The program writes something else to its standard output than under `system`.
    OutputDiffers,
}

/// What `system` did, by which the others are judged.
#[derive(Debug)]
pub(super) struct Reference<'a> {
    exits: BTreeSet<i32>,
    outputs: BTreeSet<&'a str>,
}

impl<'a> Reference<'a> {
    pub(super) fn of(system: &'a [Run]) -> Self {
        Self {
            exits: system.iter().map(|run| run.exit).collect(),
            outputs: system.iter().filter_map(|run| run.output.as_deref()).collect(),
        }
    }

    /// Exits of `system` other than 0, if any.
    pub(super) fn failure(&self) -> Option<i32> {
        self.exits.iter().copied().find(|&exit| exit != 0)
    }

    /// An exit that `system` showed too.
    pub(super) fn is_expected(&self, run: &Run) -> bool {
        self.exits.contains(&run.exit)
    }

    /// True when the output under `system` differs from run to run, so that nothing can be learnt from it.
    pub(super) fn varies(&self) -> bool {
        self.outputs.len() > 1
    }

    fn is_same_output(&self, run: &Run) -> bool {
        match (&run.output, self.outputs.len()) {
            (Some(output), 1) => self.outputs.contains(output.as_str()),
            _ => true,
        }
    }

    /// First reason against `candidate`, a crash before a wrong exit before a wrong output.
    pub(super) fn objection(&self, candidate: &CandidateRuns) -> Option<Ineligible> {
        let runs = &candidate.runs;
        if runs.is_empty() {
            return Some(Ineligible::NoRuns);
        }
        let unexpected = || runs.iter().filter(|run| !self.is_expected(run));
        let crash = unexpected().find_map(|run| crash_signal(run.exit));
        let other_exit = unexpected().map(|run| run.exit).next();
        crash
            .map(|signal| Ineligible::Crashed { signal })
            .or_else(|| other_exit.map(|exit| Ineligible::ExitDiffers { exit }))
            .or_else(|| {
                (!runs.iter().all(|run| self.is_same_output(run))).then_some(Ineligible::OutputDiffers)
            })
    }
}

/// The signal behind an exit of 128 + signal, when it is a crash.
fn crash_signal(exit: i32) -> Option<u32> {
    u32::try_from(exit - 128).ok().filter(|&signal| is_crash_signal(signal))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(exit: i32, output: Option<&str>) -> Run {
        Run { exit, output: output.map(str::to_owned), ..Run::default() }
    }

    fn objection(system: &[Run], runs: &[Run]) -> Option<Ineligible> {
        let candidate = CandidateRuns { name: "x".into(), runs: runs.to_vec() };
        Reference::of(system).objection(&candidate)
    }

    #[test]
    fn the_same_behaviour_is_eligible() {
        assert_eq!(objection(&[run(0, Some("a"))], &[run(0, Some("a"))]), None);
        assert_eq!(objection(&[run(0, None)], &[run(0, Some("a"))]), None);
        assert_eq!(objection(&[run(0, Some("a"))], &[run(0, None)]), None);
        assert_eq!(objection(&[run(1, None), run(0, None)], &[run(1, None)]), None, "flaky by itself");
    }

    #[test]
    fn each_objection() {
        let system = [run(0, Some("a")), run(0, Some("a"))];
        assert_eq!(objection(&system, &[]), Some(Ineligible::NoRuns));
        assert_eq!(objection(&system, &[run(0, Some("b"))]), Some(Ineligible::OutputDiffers));
        let exits = [run(0, Some("a")), run(3, Some("a"))];
        assert_eq!(objection(&system, &exits), Some(Ineligible::ExitDiffers { exit: 3 }));
        let crashes = [run(3, Some("b")), run(139, Some("b"))];
        assert_eq!(objection(&system, &crashes), Some(Ineligible::Crashed { signal: 11 }));
        assert_eq!(objection(&system, &[run(137, None)]), Some(Ineligible::ExitDiffers { exit: 137 }));
    }

    #[test]
    fn a_program_that_crashes_anyway_is_not_the_candidates_fault() {
        assert_eq!(objection(&[run(134, None)], &[run(134, None)]), None);
    }

    #[test]
    fn an_output_that_varies_by_itself_says_nothing() {
        let system = [run(0, Some("a")), run(0, Some("b"))];
        assert!(Reference::of(&system).varies());
        assert_eq!(objection(&system, &[run(0, Some("c"))]), None);
    }
}
