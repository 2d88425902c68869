// SPDX-License-Identifier: Apache-2.0
//! Predictions beside live figures, program by program. Live figures are logarithms of ratios to `system`.

use std::collections::BTreeMap;

use imas_core::adaptive::Point;
use imas_core::candidate::SYSTEM;
use imas_core::raw_runs::data::Data;
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::median;
use imas_replay::reliability::{CheckedPrediction, PredictedFigure, RecordedRunFacts, ReliabilityTable};
use imas_simulate::{SimulatedProgram, cost, programs};

use super::learned::learned;
use crate::predictions::{PredictionLine, Predictions};

/// A candidate of a program: logarithms of ratios to `system`.
#[derive(Debug, Clone)]
pub(crate) struct JudgedCandidate {
    pub(crate) name: String,
    pub(crate) predicted: Point,
    pub(crate) predicted_peak: Option<f64>,
    pub(crate) live: LiveFigures,
    /// The largest part of the replay's memory in huge pages.
    pub(crate) huge_share: f64,
}

/// A program with predictions and live figures.
#[derive(Debug, Clone)]
pub(crate) struct JudgedProgram {
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) facts: RecordedRunFacts,
    pub(crate) process_share: f64,
    /// Candidates with predictions and live figures; `system` is left out.
    pub(crate) candidates: Vec<JudgedCandidate>,
}

impl JudgedCandidate {
    /// Predicted and live figure, as logarithms of ratios; None where one of them is not known.
    pub(crate) fn pair(&self, figure: PredictedFigure) -> Option<(f64, f64)> {
        match figure {
            PredictedFigure::Cpu => Some((self.predicted.cpu, self.live.point.cpu)),
            PredictedFigure::Memory => Some((self.predicted.memory, self.live.point.memory)),
            PredictedFigure::Peak => self.predicted_peak.zip(self.live.peak),
        }
    }

    /// ln(live / predicted).
    pub(crate) fn off(&self, figure: PredictedFigure) -> Option<f64> {
        self.pair(figure).map(|(predicted, live)| live - predicted)
    }
}

impl JudgedProgram {
    fn of(lines: &[&PredictionLine], live: &BTreeMap<String, LiveFigures>) -> Option<Self> {
        let first = lines.first()?;
        let candidate = |line: &&PredictionLine| {
            Some(JudgedCandidate {
                name: line.candidate.clone(),
                predicted: Point::new(line.cpu_ratio?, line.mean_ratio?)?,
                predicted_peak: line.peak_ratio.filter(|ratio| *ratio > 0.0).map(f64::ln),
                live: *live.get(&line.candidate)?,
                huge_share: line.huge_share,
            })
        };
        let candidates: Vec<_> = lines.iter().filter_map(candidate).collect();
        (!candidates.is_empty()).then(|| Self {
            name: first.program.clone(),
            category: first.category.clone(),
            facts: first.facts(),
            process_share: first.process_share,
            candidates,
        })
    }

    fn checked(&self) -> impl Iterator<Item = CheckedPrediction> {
        let of = |one| PredictedFigure::ALL.into_iter().map(move |figure| (one, figure));
        self.candidates.iter().flat_map(of).filter_map(|(one, figure): (&JudgedCandidate, _)| {
            let (candidate, run) = (one.name.clone(), self.facts);
            Some(CheckedPrediction { figure, candidate, run, off: one.off(figure)? })
        })
    }
}

/// Programs with predictions and live figures, by name.
pub(crate) fn judged(predictions: &Predictions, data: &Data) -> Vec<JudgedProgram> {
    let mut by_program: BTreeMap<&str, Vec<&PredictionLine>> = BTreeMap::new();
    for line in &predictions.lines {
        by_program.entry(&line.program).or_default().push(line);
    }
    let (live, _) = programs(data);
    let of = |program: &imas_simulate::SimulatedProgram| {
        JudgedProgram::of(by_program.get(program.name.as_str())?, &live_figures(program, data))
    };
    live.iter().filter_map(of).collect()
}

/// Table of how far the predictions of these programs were off.
pub(crate) fn reliability<'a>(
    source: &str,
    programs: impl Iterator<Item = &'a JudgedProgram>,
) -> ReliabilityTable {
    let (mut count, mut checked) = (0, vec![]);
    for program in programs {
        count += 1;
        checked.extend(program.checked());
    }
    learned(source, count, &checked)
}

/// Medians over the rounds of one candidate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LiveFigures {
    /// CPU time and mean memory.
    pub(crate) point: Point,
    /// Peak memory; None without a round in which both ran.
    pub(crate) peak: Option<f64>,
}

/// Live figures by the candidate's name. `system`, and candidates without figures, are left out.
pub(crate) fn live_figures(program: &SimulatedProgram, data: &Data) -> BTreeMap<String, LiveFigures> {
    let rounds: Vec<usize> = (0..program.rounds.len()).collect();
    let peaks = Peaks::of(&program.name, data);
    let candidates = program.candidates.iter().enumerate().skip(1);
    let figures = candidates.filter_map(|(at, name)| {
        let figures = LiveFigures { point: cost(program, &rounds, at)?, peak: peaks.over_system(name) };
        Some((name.clone(), figures))
    });
    figures.collect()
}

/// Peaks of the measured runs of one program, by candidate and round.
struct Peaks<'a>(BTreeMap<(&'a str, u32), f64>);

impl<'a> Peaks<'a> {
    fn of(program: &str, data: &'a Data) -> Self {
        let counts = |run: &&RawRun| {
            run.program == program && run.ok && run.kind == RunKind::Measured && run.peak_bytes > 0
        };
        let runs = data.runs.iter().filter(counts);
        Self(runs.map(|run| ((run.candidate.as_str(), run.round), run.peak_bytes as f64)).collect())
    }

    fn over_system(&self, name: &str) -> Option<f64> {
        let of = self.0.iter().filter(|((candidate, _), _)| *candidate == name);
        let beside =
            |((_, round), bytes): (&(&str, u32), &f64)| Some((bytes / self.0.get(&(SYSTEM, *round))?).ln());
        median(&of.filter_map(beside).collect::<Vec<_>>())
    }
}
