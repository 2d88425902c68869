// SPDX-License-Identifier: Apache-2.0
//! Watches a session of the suite: its progress, its limit of time, and what its user should know of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use imas_core::run::RunKind;
use imas_runs::executor::Execution;
use imas_runs::runner::{NextStep, Observer};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::Subject;

use super::progress::Progress;
use super::sessions::Limit;

/// A run of a round; a warm-up belongs to the round that it is made in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) step: Step,
    pub(super) kind: RunKind,
    pub(super) round: u32,
}

pub(super) struct Watcher {
    planned: Vec<Planned>,
    /// Index in `planned` of the run that comes next.
    at: usize,
    /// Programs and the seconds that a run is expected to take.
    programs: Vec<(String, f64)>,
    candidates: Vec<String>,
    progress: Progress,
    limit: Limit,
}

impl Watcher {
    pub(super) fn start(
        planned: Vec<Planned>,
        programs: Vec<(String, f64)>,
        candidates: Vec<String>,
        time_limit: Option<Duration>,
    ) -> Self {
        let mut left: BTreeMap<String, (u64, f64)> =
            programs.iter().map(|(name, seconds)| (name.clone(), (0, *seconds))).collect();
        for one in planned.iter().filter(|one| one.step.kind != RoundKind::Warmup) {
            if let Some((runs, _)) = left.get_mut(&programs[one.step.subject].0) {
                *runs += 1;
            }
        }
        let (progress, limit) = (Progress::start(left), Limit::start(time_limit));
        Self { planned, at: 0, programs, candidates, progress, limit }
    }

    pub(super) fn finish(self) {
        self.progress.finish();
    }

    fn name(&self, step: &Step) -> &str {
        &self.programs[step.subject].0
    }

    /// Whether the next step is the first of its round, and of its program in the round.
    fn begins(&self) -> (bool, bool) {
        let Some(before) = self.at.checked_sub(1).map(|at| self.planned[at]) else { return (true, true) };
        let now = self.planned[self.at];
        let round = (before.kind, before.round) != (now.kind, now.round);
        (round, round || before.step.subject != now.step.subject)
    }

    /// Expected time for the rest of the round that begins.
    fn round_needs(&self, subjects: &[Subject]) -> Duration {
        let now = self.planned[self.at];
        let left = self.planned[self.at..].iter();
        let of_round = left.take_while(|one| (one.kind, one.round) == (now.kind, now.round));
        let made = of_round.filter(|one| !subjects[one.step.subject].is_left_out());
        made.map(|one| self.progress.expected(self.name(&one.step), 1)).sum()
    }

    /// A step is done.
    fn pass(&mut self) {
        self.at += 1;
        let Some(last) = self.at.checked_sub(1).map(|at| self.planned[at]) else { return };
        if self.planned.get(self.at).is_none_or(|next| (next.kind, next.round) != (last.kind, last.round)) {
            self.progress.round(&name_of(last.kind, last.round));
        }
    }

    /// A warm-up is no run of its own: what is left counts it with the first.
    fn done(&mut self, step: &Step, took: Option<Duration>) {
        if step.kind != RoundKind::Warmup {
            let name = self.name(step).to_owned();
            self.progress.done(&name, took);
        }
        self.pass();
    }
}

impl Observer for Watcher {
    fn before(&mut self, step: &Step, subjects: &[Subject]) -> Result<NextStep> {
        let Planned { kind, round, .. } = self.planned[self.at];
        let (begins_round, begins_program) = self.begins();
        let left = if begins_round && !self.limit.begins(self.round_needs(subjects)) {
            Some("begun")
        } else {
            (begins_program && self.limit.is_over()).then_some("finished")
        };
        if let Some(what) = left {
            self.progress.say(&self.limit.message(&format!("{} is not {what}", name_of(kind, round))));
            return Ok(NextStep::Stop);
        }
        let is_warmup = step.kind == RoundKind::Warmup;
        let candidate = if is_warmup { "warm-up" } else { &self.candidates[step.candidate] };
        self.progress.step(self.name(step), candidate);
        Ok(NextStep::Make)
    }

    fn skipped(&mut self, step: &Step) {
        self.done(step, None);
    }

    fn made(&mut self, step: &Step, took: Duration) {
        self.done(step, Some(took));
    }

    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        let (record, name) = (&run.record, self.name(step));
        let of_what = format!("{name} under {}", record.candidate);
        if step.kind == RoundKind::Warmup {
        } else if let Some(why) = &record.why {
            let message = record.message.as_deref().unwrap_or_default();
            self.progress.say(&format!("imas: {of_what}: {why}: {message}"));
        } else if record.kind == RunKind::Counted && run.counted.is_none() {
            self.progress.say(&format!("imas: note: {of_what}: no process of it was counted"));
        }
        Ok(NextStep::Make)
    }

    /// Reason why a program is left out when a run of it could not be made. That is not the candidate's
    /// doing, and no reason to lose the other programs; --resume makes the run again.
    fn failed(&mut self, _step: &Step, error: anyhow::Error) -> Result<String> {
        Ok(format!("{error:#}"))
    }

    fn output_varies(&mut self, subject: &Subject) {
        self.progress.say(&format!(
            "imas: note: {}: its output varies under system; outputs are not compared, and no candidate is left out for a different one",
            subject.name
        ));
    }

    fn left_out(&mut self, subject: &Subject, why: &str) {
        self.progress.say(&format!("imas: {}: left out: {why}", subject.name));
    }
}

fn name_of(kind: RunKind, round: u32) -> String {
    let what = if kind == RunKind::Counted { "counted round" } else { "round" };
    format!("{what} {}", round + 1)
}
