// SPDX-License-Identifier: Apache-2.0
//! Raw runs: one line of JSON a run, as `imas bench --export-runs` and the laboratory write them.
//!
//! The raw runs of one program as they are compared: the same as the session that made them did.
//!
//! Whether a candidate is to blame for another output than `system`'s: not where `system` itself writes now
//! this, now that.

pub mod data;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::bench::{CandidateRuns, Floor, Observed, Options, OutputCheck};
use crate::candidate::SYSTEM;
use crate::run::{RawRun, RunKind};
use data::Data;

/// Failures that no exit status shows: a candidate with one has no runs that count.
const UNSEEN: [&str; 3] = ["check", "ready", "load"];

impl Data {
    /// The candidates of a program, `system` first. The order of the first round is random, so they are
    /// sorted by name.
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

/// Two runs under `system` wrote different things: no candidate is to blame for another output of this
/// program, in lines before this one or after it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct OutputVaries {
    /// Name of the program.
    pub output_varies: String,
    /// Time when that was seen, seconds since the epoch.
    #[serde(default)]
    pub at_s: f64,
}

/// Why a run does not count whose output `system` did not write; nothing where [`Varying`].
pub const OTHER_OUTPUT: &str = "output";

/// Reads files of runs line by line and knows the programs whose output varies: a line states it
/// ([`OutputVaries`]), or two runs of `system` in one file that count wrote different things. The latter
/// alone decides in files from before there were such lines.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Varying {
    programs: BTreeSet<String>,
    /// Outputs of `system` in this file. The keys are names of programs.
    checks: BTreeMap<String, OutputCheck>,
}

impl Varying {
    /// Begins another file. On another machine a program may well write something else, and the same each
    /// time.
    pub fn begin_file(&mut self) {
        self.checks.clear();
    }

    /// Records that the output of a program varies.
    pub fn record(&mut self, line: OutputVaries) {
        self.programs.insert(line.output_varies);
    }

    /// Notes the output of a run that counts, as a digest; None where it was not recorded.
    pub fn saw(&mut self, program: &str, candidate: &str, output: Option<&str>) {
        let Some(output) = output.filter(|_| candidate == SYSTEM) else { return };
        if self.checks.entry(program.to_owned()).or_default().see(output) {
            self.programs.insert(program.to_owned());
        }
    }

    /// Whether the program's output varies.
    #[must_use]
    pub fn contains(&self, program: &str) -> bool {
        self.programs.contains(program)
    }

    /// Marks a run of the program as `ok`, and removes its `why`, if all that failed was its output. Whether
    /// it did.
    pub fn accept(&self, program: &str, ok: &mut bool, why: &mut Option<String>) -> bool {
        let is_blamed = why.as_deref() == Some(OTHER_OUTPUT) && self.contains(program);
        if is_blamed {
            (*ok, *why) = (true, None);
        }
        is_blamed
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

    #[test]
    fn outputs_of_system_show_which_program_varies() {
        let mut varying = Varying::default();
        varying.saw("steady", SYSTEM, Some("1"));
        varying.saw("steady", "a", Some("2"));
        varying.saw("steady", SYSTEM, None);
        varying.saw("varies", SYSTEM, Some("1"));
        varying.saw("varies", SYSTEM, Some("2"));
        varying.begin_file();
        varying.saw("steady", SYSTEM, Some("3"));
        varying.record(OutputVaries { output_varies: "told".into(), at_s: 1.0 });
        let of = |name| varying.contains(name);
        assert_eq!([of("steady"), of("varies"), of("told"), of("unknown")], [false, true, true, false]);
    }

    #[test]
    fn only_rejections_for_the_output_are_withdrawn() {
        let mut varying = Varying::default();
        varying.record(OutputVaries { output_varies: "p".into(), at_s: 1.0 });
        for (program, why, is_accepted) in
            [("p", "output", true), ("p", "crash", false), ("q", "output", false)]
        {
            let mut run = (false, Some(why.to_owned()));
            assert_eq!(varying.accept(program, &mut run.0, &mut run.1), is_accepted);
            assert_eq!(run, if is_accepted { (true, None) } else { (false, Some(why.to_owned())) });
        }
    }
}
