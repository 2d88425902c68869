// SPDX-License-Identifier: Apache-2.0
//! An executor that runs nothing: each run ends as its script says.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::path::Path;

use anyhow::Result;
use imas_core::raw_runs::data::Line;
use imas_core::run::RawRun;
use imas_linux::measure::RunOutcome;
use imas_runs::executor::{Execution, Executor, RunLimits, record};
use imas_runs::runner::{Elimination, NextStep, Observer, Rules};
use imas_runs::schedule::{RoundKind, Step};
use imas_runs::subject::Subject;

/// One candidate's way to end, run after run; the last one stays.
pub(crate) type Script = VecDeque<Result<RunOutcome, std::io::Error>>;

#[derive(Default)]
pub(crate) struct Fake {
    /// Scripts by subject and candidate.
    pub(crate) scripts: Vec<Vec<Script>>,
    /// Steps that were asked for, with their limits.
    pub(crate) asked: Vec<(Step, RunLimits)>,
}

impl Fake {
    /// Subjects whose candidates always end in the same way.
    pub(crate) fn always(outcomes: &[&[RunOutcome]]) -> Self {
        let of = |outcome: &RunOutcome| Script::from([Ok(outcome.clone())]);
        let scripts = outcomes.iter().map(|subject| subject.iter().map(of).collect()).collect();
        Self { scripts, asked: vec![] }
    }
}

impl Executor for Fake {
    fn execute(&mut self, step: &Step, limits: &RunLimits) -> Result<Execution> {
        self.asked.push((*step, *limits));
        let script = &mut self.scripts[step.subject][step.candidate];
        let outcome = match (script.len(), script.front()) {
            (1, Some(Ok(outcome))) => outcome.clone(),
            _ => script.pop_front().unwrap()?,
        };
        Ok(Execution { record: record(&outcome, None), outcome, ..Execution::default() })
    }
}

/// Writes down what the runner says.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) runs: Vec<RawRun>,
    pub(crate) skipped: Vec<Step>,
    pub(crate) left_out: Vec<String>,
    pub(crate) varies: Vec<String>,
    /// A run that cannot be made leaves its subject out instead of ending the session.
    pub(crate) goes_on: bool,
    pub(crate) stop_after: Option<usize>,
}

impl Observer for Log {
    fn skipped(&mut self, step: &Step) {
        self.skipped.push(*step);
    }

    fn after(&mut self, step: &Step, run: Execution) -> Result<NextStep> {
        if step.kind != RoundKind::Warmup {
            self.runs.push(run.record);
        }
        let is_enough = self.stop_after.is_some_and(|most| self.runs.len() >= most);
        Ok(if is_enough { NextStep::Stop } else { NextStep::Make })
    }

    fn failed(&mut self, _step: &Step, error: anyhow::Error) -> Result<String> {
        if self.goes_on { Ok(error.to_string()) } else { Err(error) }
    }

    fn output_varies(&mut self, subject: &Subject) {
        self.varies.push(subject.name.clone());
    }

    fn left_out(&mut self, subject: &Subject, why: &str) {
        self.left_out.push(format!("{}: {why}", subject.name));
    }
}

pub(crate) fn measured(subject: usize, candidate: usize, round: u32) -> Step {
    Step { subject, candidate, kind: RoundKind::Measured { round } }
}

/// Rounds of two candidates in their order.
pub(crate) fn rounds(rounds: u32) -> Vec<Step> {
    (0..rounds).flat_map(|round| [measured(0, 0, round), measured(0, 1, round)]).collect()
}

pub(crate) fn names() -> Vec<String> {
    ["system", "other"].map(str::to_owned).to_vec()
}

pub(crate) fn rules(elimination: Elimination) -> Rules {
    Rules { elimination, warmup_must_succeed: false }
}

pub(crate) fn output(output_hash: u64) -> RunOutcome {
    RunOutcome { output_hash, wall_s: 1.0, ..RunOutcome::default() }
}

pub(crate) fn killed(signal: i32) -> RunOutcome {
    RunOutcome { exit: 128 + signal, signal: Some(signal), ..output(1) }
}

/// The runs of a journal.
pub(crate) fn runs_of(journal: &Path) -> Vec<RawRun> {
    let text = std::fs::read_to_string(journal).unwrap();
    let run = |line: &str| match Line::parse(line) {
        Ok(Line::Run(run)) => Some(*run),
        _ => None,
    };
    text.lines().filter_map(run).collect()
}
