// SPDX-License-Identifier: Apache-2.0
//! Results of the runs of `imas bench`, by candidate.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Result;
use imas_cli::format::counted;
use imas_core::Sample;
use imas_core::bench::{CandidateRuns, Observed, Options};
use imas_core::run::RawRun;
use imas_core::sample::{Ended, is_crash_signal};
use imas_engine::compared::ComparedCandidate;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::mapping_text::CLibrary;
use imas_linux::measure::RunOutcome;
use imas_runs::executor::{Execution, last_line};
use imas_runs::runner::{NextStep, Observer};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::Subject;

use super::progress::{Progress, StopRule};

/// Runs of one candidate and their ends.
#[derive(Default)]
pub(super) struct CollectedRuns {
    pub(super) runs: Vec<RawRun>,
    pub(super) counted: Vec<CountedEnd>,
    signals: Vec<i32>,
    /// A run of the candidate hung and was ended.
    pub(super) hung: bool,
    /// A run of the candidate took many times what any took under `system`, and was ended.
    pub(super) excess: bool,
    /// The kernel killed a run of the candidate at the limit of its memory.
    out_of_memory: bool,
    /// A run of the candidate did not end in time.
    pub(super) timed_out: bool,
}

/// End of a counted run, and its figures where it left any.
pub(super) struct CountedEnd {
    exit: i32,
    sample: Option<Sample>,
}

impl CollectedRuns {
    /// Exit statuses of the candidate's runs of either kind.
    pub(super) fn exits(&self) -> impl Iterator<Item = i32> {
        self.runs.iter().map(|run| run.exit).chain(self.counted.iter().map(|run| run.exit))
    }

    /// Samples of the counted runs that ended in one of these ways.
    pub(super) fn samples(&self, exits: &BTreeSet<i32>) -> Vec<&Sample> {
        let ended_so = self.counted.iter().filter(|run| exits.contains(&run.exit));
        ended_so.filter_map(|run| run.sample.as_ref()).collect()
    }

    /// Processes of its counted run, where there was one.
    pub(super) fn processes(&self) -> Option<u32> {
        self.counted.iter().find_map(|run| run.sample.as_ref()).map(|sample| sample.processes + sample.forks)
    }

    /// First exit of the candidate's runs that is not among these. What was ended by us is none.
    fn other_exit(&self, usual: &BTreeSet<i32>) -> Option<Ended> {
        let mut exits = self.exits().filter(|exit| !usual.contains(exit));
        exits.next().filter(|_| !self.timed_out).map(|status| Ended::Failed { status })
    }

    /// First crash, kill for want of memory, hang or excess of the candidate's runs.
    fn harm(&self) -> Option<Ended> {
        let mut signals = self.signals.iter().filter_map(|&signal| u32::try_from(signal).ok());
        let crash = signals.find(|&signal| is_crash_signal(signal));
        let others = [
            // 128 + SIGKILL: the same command has no such end under `system`, or nothing would be compared.
            (self.out_of_memory, Ended::Failed { status: 137 }),
            (self.hung, Ended::Hung),
            (self.excess, Ended::Excess),
        ];
        let other = || others.into_iter().find_map(|(is_so, ended)| is_so.then_some(ended));
        crash.map(|signal| Ended::Signal { signal }).or_else(other)
    }
}

/// A bad system call.
const SIGSYS: i32 = 31;

/// The measured runs have nothing inside that makes such a call.
const COUNTED_UNDER_FILTER: &str = "its calls of malloc are not counted: a counted run was ended by a filter of system calls \
                                    (SIGSYS) that the program sets by an instruction of its own";

/// Why nothing can be compared: a run under `system` that does not count.
pub(super) enum Failure {
    /// The run did not end in time.
    TimedOut { wall_s: f64 },
    /// The run failed.
    Failed { message: String },
    /// Earlier runs under `system` did not fail.
    NowAndThen { message: String, runs: u32 },
}

/// Runs under `system` that are added where several candidates fail alike. A program that fails by itself in one of
/// three runs shows it in 98 of 100 such series.
pub(super) const AGAIN: usize = 10;

/// Gathers runs as they are made.
pub(super) struct Collector<'a> {
    pub(super) compared: &'a [ComparedCandidate<'a>],
    /// Collected runs of each candidate; empty for a candidate that cannot be used.
    pub(super) collected: Vec<CollectedRuns>,
    pub(super) notes: Vec<String>,
    pub(super) output_varies: bool,
    /// The command may fail under `system`.
    pub(super) ignores_failure: bool,
    pub(super) failure: Option<Failure>,
    pub(super) progress: Progress,
    pub(super) stop: StopRule,
    /// Runs under `system` so far, of every kind.
    system_runs: u32,
    /// The round that was begun last.
    begun: u32,
    /// Options for the looks at the runs.
    options: Options,
}

/// Intervals of looks need not be as exact as those that are printed.
const RESAMPLES_OF_LOOKS: usize = 2000;

impl<'a> Collector<'a> {
    pub(super) fn new(
        compared: &'a [ComparedCandidate<'a>],
        progress: Progress,
        stop: StopRule,
        options: Options,
    ) -> Self {
        let collected = compared.iter().map(|_| CollectedRuns::default()).collect();
        Self {
            compared,
            collected,
            notes: vec![],
            output_varies: false,
            ignores_failure: false,
            failure: None,
            progress,
            stop,
            system_runs: 0,
            begun: 0,
            options: Options { resamples: RESAMPLES_OF_LOOKS, ..options },
        }
    }

    /// Rounds in which `system` has a run.
    pub(super) fn rounds(&self) -> u32 {
        let runs = self.system().map_or(0, |system| system.runs.len());
        u32::try_from(runs).unwrap_or(u32::MAX)
    }

    /// Looks at the runs before a round, to find out whether it is made.
    fn look(&mut self, rounds: u32) {
        if rounds > 0 {
            self.stop.check_time();
        }
        if self.stop.ended.is_some() || !self.stop.is_look(rounds) {
            return;
        }
        let options = Options { output_varies: self.output_varies, ..self.options };
        let judgement = self.observed().compare(&options).1.judgement;
        self.progress.looked(&judgement);
        self.stop.looked(judgement.course);
    }

    fn next(&mut self, kind: RoundKind) -> NextStep {
        match kind {
            RoundKind::Warmup => return NextStep::Make,
            RoundKind::Measured { round } if round > self.begun => {
                self.begun = round;
                self.look(round);
            }
            _ if self.begun > 0 => self.stop.check_time(),
            _ => {}
        }
        if self.stop.ended.is_some() { NextStep::Stop } else { NextStep::Make }
    }

    pub(super) fn system(&self) -> Option<&CollectedRuns> {
        self.named().find(|(candidate, _)| candidate.is_system()).map(|(_, runs)| runs)
    }

    /// Every candidate with its runs.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'a CatalogueCandidate, &CollectedRuns)> {
        self.compared.iter().map(|compared| compared.candidate).zip(&self.collected)
    }

    /// Observations of all candidates that are compared.
    pub(super) fn observed(&self) -> Observed {
        let of = |(candidate, collected): (&CatalogueCandidate, &CollectedRuns)| CandidateRuns {
            name: candidate.name.clone(),
            runs: collected.runs.clone(),
        };
        let exits = |collected: &CollectedRuns| collected.counted.iter().map(|run| run.exit).collect();
        Observed {
            runs: self.named().map(of).collect(),
            counted: self.named().map(|(one, collected)| (one.name.clone(), exits(collected))).collect(),
            hung: self.names_of(|collected| collected.hung),
            excess: self.names_of(|collected| collected.excess),
            timed_out: self.names_of(|collected| collected.timed_out),
        }
    }

    fn names_of(&self, has: fn(&CollectedRuns) -> bool) -> Vec<String> {
        self.named().filter(|(_, collected)| has(collected)).map(|(one, _)| one.name.clone()).collect()
    }

    /// First crash, kill for want of memory, hang or excess of each candidate, `system` included: its crashes are the
    /// baseline. Under settings of a runtime an exit that `system` never showed counts too: a heap that is too small
    /// ends so.
    pub(super) fn harms(&self) -> impl Iterator<Item = (&'a CatalogueCandidate, Ended)> {
        let usual: BTreeSet<i32> = self.system().into_iter().flat_map(CollectedRuns::exits).collect();
        self.named().filter_map(move |(candidate, collected)| {
            let may_fail = candidate.runtime.is_some() && !usual.is_empty();
            let failed = || may_fail.then(|| collected.other_exit(&usual)).flatten();
            Some((candidate, collected.harm().or_else(failed)?))
        })
    }

    fn failure_of(&self, run: &Execution) -> Option<Failure> {
        if run.outcome.timed_out {
            return Some(Failure::TimedOut { wall_s: run.outcome.wall_s });
        }
        if run.record.ok || self.ignores_failure {
            return None;
        }
        let message = run.record.message.clone().unwrap_or_default();
        Some(match self.system_runs {
            1 => Failure::Failed { message },
            runs => Failure::NowAndThen { message, runs },
        })
    }

    /// Whether several candidates failed alike, which none of the few runs under `system` did: the program itself may
    /// fail now and then.
    pub(super) fn suspects_the_program(&self) -> bool {
        let usual: BTreeSet<i32> = self.system().into_iter().flat_map(CollectedRuns::exits).collect();
        let mut failed: Vec<i32> = vec![];
        for (_, collected) in self.named() {
            let own: BTreeSet<i32> = collected.exits().filter(|exit| !usual.contains(exit)).collect();
            failed.extend(own);
        }
        failed.iter().any(|exit| failed.iter().filter(|other| *other == exit).count() > 1)
    }

    /// Whether `system` and a candidate have a run in one round.
    pub(super) fn has_common_round(&self) -> bool {
        let rounds = |collected: &CollectedRuns| collected.runs.iter().map(|run| run.round).collect();
        let system: BTreeSet<u32> = self.system().map(rounds).unwrap_or_default();
        let others = self.named().filter(|(candidate, _)| !candidate.is_system());
        others.flat_map(|(_, collected)| &collected.runs).any(|run| system.contains(&run.round))
    }

    /// Runs that were made, of every candidate.
    pub(super) fn made(&self) -> usize {
        self.collected.iter().map(|one| one.runs.len() + one.counted.len()).sum()
    }

    fn note_once(&mut self, note: &str) {
        if !self.notes.iter().any(|known| known == note) {
            self.notes.push(note.to_owned());
        }
    }

    /// Warns if `system` is not glibc's malloc for this program.
    pub(super) fn system_note(&self) -> Option<String> {
        let served = &self.system()?.counted.iter().find_map(|run| run.sample.as_ref())?.served;
        (!served.is_empty() && CLibrary::of_file(Path::new(served)) != Some(CLibrary::Glibc))
            .then(|| format!("under system, {served} serves this program"))
    }
}

impl Observer for Collector<'_> {
    fn before(&mut self, step: &Step, _subjects: &[Subject]) -> Result<NextStep> {
        let next = self.next(step.kind);
        if next == NextStep::Make {
            self.progress.step(&self.compared[step.candidate].candidate.name, step.kind);
        }
        Ok(next)
    }

    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        self.progress.ended();
        let candidate = self.compared[step.candidate].candidate;
        let is_ended_by_filter =
            matches!(step.kind, RoundKind::Counted { .. }) && run.outcome.signal == Some(SIGSYS);
        let counts = candidate.is_system() && !is_ended_by_filter;
        self.system_runs += u32::from(candidate.is_system());
        self.failure = Some(&run).filter(|_| counts).and_then(|run| self.failure_of(run));
        if self.failure.is_some() {
            return Ok(NextStep::Stop);
        }
        if is_ended_by_filter {
            self.note_once(COUNTED_UNDER_FILTER);
            return Ok(NextStep::Make);
        }
        let into = &mut self.collected[step.candidate];
        match step.kind {
            RoundKind::Warmup => return Ok(NextStep::Make),
            RoundKind::Counted { .. } => {
                let sample = run.counted.map(|counted| counted.sample);
                into.counted.push(CountedEnd { exit: run.outcome.exit, sample });
            }
            RoundKind::Measured { .. } => into.runs.push(run.record),
        }
        into.signals.extend(run.outcome.signal);
        into.hung |= run.outcome.hung;
        into.excess |= run.outcome.excess;
        into.out_of_memory |= run.outcome.out_of_memory;
        into.timed_out |= run.outcome.timed_out;
        self.notes.extend(run.notes);
        self.notes.extend(odd(&run.outcome, candidate));
        Ok(NextStep::Make)
    }

    fn output_varies(&mut self, _subject: &Subject) {
        self.output_varies = true;
    }
}

/// Note on what a reader of the figures should know of a run beyond them.
fn odd(outcome: &RunOutcome, candidate: &CatalogueCandidate) -> Option<String> {
    let name = &candidate.name;
    if outcome.hung {
        return Some(format!(
            "{name}: a run used no CPU time for far longer than any under system took, and was ended"
        ));
    }
    if outcome.excess {
        return Some(format!(
            "{name}: a run took many times the CPU time or memory of any under system, and was ended"
        ));
    }
    if outcome.timed_out {
        return Some(format!("{name}: a run took too long and was ended"));
    }
    let failed = candidate.is_system() && outcome.exit != 0;
    let message = last_line(&outcome.stderr_tail).filter(|_| failed);
    let were = if outcome.left_running == 1 { "was" } else { "were" };
    let left = (outcome.left_running > 0 && candidate.is_system()).then(|| {
        format!("{} outlived the command and {were} ended", counted(outcome.left_running, "process"))
    });
    message.map(|message| format!("the program says: {message}")).or(left)
}
