// SPDX-License-Identifier: Apache-2.0
//! The raw runs of one program as they are compared: the same as the session that made them did.

use super::data::Data;
use crate::bench::{CandidateRuns, Floor, Observed, Options};
use crate::candidate::SYSTEM;
use crate::run::{RawRun, RunKind};

/// Failures that no exit status shows: a candidate with one has no runs that count.
const UNSEEN: [&str; 3] = ["check", "ready", "load"];

impl Data {
    /// The candidates of a program, `system` first. The order of the first round is random, so it is that of
    /// names.
    #[must_use]
    pub fn candidates_of(&self, program: &str) -> Vec<&str> {
        let mut names: Vec<&str> = self.runs_of(program).map(|run| run.candidate.as_str()).collect();
        names.sort_unstable_by_key(|name| (*name != SYSTEM, *name));
        names.dedup();
        names
    }

    /// All that was observed of a program.
    #[must_use]
    pub fn observed(&self, program: &str) -> Observed {
        let mut observed = Observed::default();
        for name in self.candidates_of(program) {
            let of_it = || self.runs_of(program).filter(|run| run.candidate == name);
            let failed = |why: &str| of_it().any(|run| run.why.as_deref() == Some(why));
            let is_out = UNSEEN.into_iter().any(failed);
            let measured = of_it().filter(|run| run.kind == RunKind::Measured && !is_out);
            observed.runs.push(CandidateRuns { name: name.to_owned(), runs: measured.cloned().collect() });
            let counted = of_it().filter(|run| run.kind == RunKind::Counted);
            observed.counted.insert(name.to_owned(), counted.map(|run| run.exit).collect());
            observed.hung.extend(failed("hang").then(|| name.to_owned()));
            observed.excess.extend(failed("excess").then(|| name.to_owned()));
            observed.timed_out.extend(failed("timeout").then(|| name.to_owned()));
        }
        observed
    }

    /// How `imas bench` compares the runs of a program: with the seed of the session, and with its floor.
    #[must_use]
    pub fn options(&self, program: &str) -> Options {
        let seed = self.headers.last().map_or(0, |header| header.seed);
        Options {
            seed,
            output_varies: self.varying.contains(program),
            floor: Floor::BENCH,
            ..Options::default()
        }
    }

    fn runs_of(&self, program: &str) -> impl Iterator<Item = &RawRun> {
        self.runs.iter().filter(move |run| run.program == program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::IneligibleCandidate::{Crashed, Excess, ExitDiffers, Hung, NoRuns, TimedOut};

    fn raw(candidate: &str, round: u32, kind: RunKind, exit: i32, why: Option<&str>) -> RawRun {
        RawRun {
            program: "p".into(),
            candidate: candidate.into(),
            round,
            kind,
            exit,
            ok: why.is_none(),
            why: why.map(str::to_owned),
            user_s: 1.0,
            ..RawRun::default()
        }
    }

    #[test]
    fn a_candidate_is_out_for_the_same_reasons_as_in_the_session() {
        use RunKind::{Counted, Measured};
        let mut runs: Vec<RawRun> = vec![];
        for round in 0..3 {
            for name in ["system", "crashes", "fails", "gluts", "hangs", "late", "checked", "counted"] {
                runs.push(raw(name, round, Measured, 0, None));
            }
        }
        runs.push(raw("crashes", 3, Measured, 139, Some("crash")));
        runs.push(raw("fails", 3, Measured, 3, Some("exit")));
        runs.push(raw("hangs", 3, Measured, 137, Some("hang")));
        runs.push(raw("gluts", 3, Measured, 137, Some("excess")));
        runs.push(raw("late", 3, Measured, 137, Some("timeout")));
        runs.push(raw("checked", 3, Measured, 0, Some("check")));
        runs.push(raw("counted", 0, Counted, 134, Some("crash")));
        let data = Data { runs, ..Data::default() };
        let (_, comparison) = data.observed("p").compare(&data.options("p"));
        let why: Vec<_> =
            comparison.candidates.iter().map(|one| (one.name.as_str(), one.ineligible)).collect();
        let expected = [
            ("system", None),
            ("checked", Some(NoRuns)),
            ("counted", Some(Crashed { signal: 6 })),
            ("crashes", Some(Crashed { signal: 11 })),
            ("fails", Some(ExitDiffers { exit: 3 })),
            ("gluts", Some(Excess)),
            ("hangs", Some(Hung)),
            ("late", Some(TimedOut)),
        ];
        assert_eq!(why, expected);
    }
}
