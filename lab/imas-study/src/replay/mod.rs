// SPDX-License-Identifier: Apache-2.0
//! Predictions of recorded and replayed runs, judged by live runs.
//!
//! ```text
//! predictions (imas_core) + live runs (live) -> programs with both (judged)
//!   -> agreement, choice, reason, by class -> tables, figures; reliability (imas_core)
//! ```

mod agreement;
mod choice;
mod figures;
mod judged;
mod learned;
#[cfg(test)]
mod made_up;
mod promising;
mod reason;
mod tables;

use std::path::PathBuf;

use crate::predictions::Predictions;
use imas_core::printable::counted;
use imas_core::raw_runs::data::{self, Data};
use imas_replay::reliability::{PredictedFigure, ReliabilityTable};

use crate::error::{StudyError, StudyResult};
use crate::study::Study;
use agreement::{Agreement, pairs, tables_of_others};
use choice::{ChoiceLoss, ChoiceObjective, ChoiceSummary, loss};
use judged::{JudgedProgram, judged};

/// How the table of reliability is made, for people.
const SOURCE: &str = "imas-lab study replay --reliability";

/// Predictions beside live runs.
#[derive(Debug)]
pub struct ReplayJudgement {
    predictions: Predictions,
    live: Data,
    programs: Vec<JudgedProgram>,
    /// Tables of reliability, one for each program. Each is learned from all other programs.
    others: Vec<ReliabilityTable>,
    losses: [Vec<ChoiceLoss>; 3],
}

impl ReplayJudgement {
    /// Reads predictions and raw runs.
    ///
    /// # Errors
    /// When a file cannot be read, or no program has both.
    pub fn read(predictions: &[PathBuf], live: &[PathBuf]) -> StudyResult<Self> {
        let text = |path: &PathBuf| {
            imas_runs::journal::read_text(path)
                .map_err(|source| StudyError::Read { path: path.clone(), source })
        };
        let lines: String = predictions.iter().map(text).collect::<StudyResult<Vec<_>>>()?.join("\n");
        let runs: Vec<String> = live.iter().map(text).collect::<StudyResult<_>>()?;
        Self::of(Predictions::of(&lines), data::read_all(runs.iter().map(String::as_str)))
    }

    fn of(predictions: Predictions, live: Data) -> StudyResult<Self> {
        let programs = judged(&predictions, &live);
        if programs.is_empty() {
            return Err(StudyError::NoPredictions { lines: predictions.lines.len(), runs: live.runs.len() });
        }
        let others = tables_of_others(&programs);
        let of = |objective| {
            programs.iter().zip(&others).map(|(program, table)| loss(program, table, objective)).collect()
        };
        let losses = ChoiceObjective::ALL.map(of);
        Ok(Self { predictions, live, losses, others, programs })
    }

    /// How far the predictions were off, by candidate and class.
    #[must_use]
    pub fn reliability(&self) -> ReliabilityTable {
        judged::reliability(SOURCE, self.programs.iter())
    }

    /// Tables, charts and the page.
    #[must_use]
    pub fn study(&self) -> Study {
        let figures = figures::figures(self);
        Study {
            id: "replay".to_owned(),
            title: "One recorded run, replayed under every candidate".to_owned(),
            paper: "Predictions of 'imas-lab replay' beside live runs of the suite".to_owned(),
            result: self.result(),
            picture: figures.first().and_then(|figure| figure.chart.clone()),
            method: self.method(),
            rule: String::new(),
            findings: vec![],
            tables: tables::tables(self),
            figures,
        }
    }

    /// Losses by one objective, in the order of the programs.
    fn losses(&self, objective: ChoiceObjective) -> &[ChoiceLoss] {
        &self.losses[ChoiceObjective::ALL.iter().position(|known| *known == objective).unwrap_or(0)]
    }

    /// Programs with predictions and without live figures.
    fn without_live(&self) -> Vec<&str> {
        let is_judged = |name: &str| self.programs.iter().any(|program| program.name == name);
        let mut names: Vec<&str> = self.predictions.lines.iter().map(|line| line.program.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.retain(|name| !is_judged(name));
        names
    }

    fn result(&self) -> String {
        let correlation = |figure| {
            let found = Agreement::of(&pairs(&self.programs, figure, |_| true));
            let value = found.and_then(|found| found.correlation);
            value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.2}"))
        };
        let [cpu, memory, both] =
            ChoiceObjective::ALL.map(|objective| ChoiceSummary::of(self.losses(objective)).found_by_two());
        format!(
            "Predicted and live change correlate with {} in CPU time and {} in mean memory. One of the two best \
             predictions, or system, is within 3 % of the live best in {cpu} by CPU time, {memory} by memory and \
             {both} by both.",
            correlation(PredictedFigure::Cpu),
            correlation(PredictedFigure::Memory),
        )
    }

    fn method(&self) -> Vec<String> {
        let lines = self.predictions.lines.len();
        let unreadable = match self.predictions.unreadable.len() {
            0 => String::new(),
            n => format!(" {n} lines are no predictions and were skipped."),
        };
        vec![
            format!(
                "{} with {} and {}.{unreadable} {}",
                counted(self.programs.len(), "program"),
                counted(lines, "prediction"),
                counted(self.live.runs.len(), "live run"),
                self.conditions(),
            ),
            "Each program was recorded once, under system. The calls of the process that made most of them were \
             made again under every candidate; programs in which that process used less than half of the CPU time \
             are left out. Predicted is what was recorded, plus the replay under the candidate, less the replay \
             under system: of CPU time the least of the replays, of memory the one with the median CPU time. Live is \
             the median over the rounds of the ratio to system in the same round, of the whole process tree, CPU \
             time normalised (docs/decisions/0012). The live runs were made at another time than the recording."
                .to_owned(),
            "The first choice is the candidate with the best predicted score, or system where none is predicted to \
             gain. The second is left out where even the good ends of its intervals promise less than 3 %, or less \
             than the first. A loss is how much the live \
             score is above that of the live best; the live best is chosen by the same runs that judge it, so every \
             loss includes noise of live runs. Both: CPU time and mean memory with the same weight."
                .to_owned(),
            "The interval of a prediction follows from how far predictions were off in all other programs: mean and \
             standard deviation of ln(live / predicted), by candidate and class, with Student's t for four of five. \
             CPU time is classed by the allocator's part of it, memory by its peak and by threads. A class borrows \
             from the candidate's other classes, and these from all candidates; an error counts at most as four \
             robust standard deviations."
                .to_owned(),
            "The reason of a failure is the first that applies: a tenth of the replay's memory is in huge pages; the \
             live change in CPU time is larger than predicted and than all of the allocator's own time, so it is in \
             the program's own cache misses; other processes used a tenth of the CPU time; there are several threads, which take turns \
             in a replay; which pages of a block the program writes is not recorded, and a replay that writes too \
             many has too many page faults and too much memory."
                .to_owned(),
        ]
    }

    fn conditions(&self) -> String {
        let Some(header) = self.predictions.headers.last() else { return String::new() };
        let text = |key: &str| match &header.host[key] {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        let machine =
            format!("Machine: {}, {} CPUs, {}, {}.", text("cpu"), text("cpus"), text("kernel"), text("libc"));
        match &header.note {
            Some(note) => format!("{machine} {note}"),
            None => machine,
        }
    }
}

fn figure_name(figure: PredictedFigure) -> &'static str {
    match figure {
        PredictedFigure::Cpu => "CPU time",
        PredictedFigure::Memory => "mean memory",
        PredictedFigure::Peak => "peak memory",
    }
}
