// SPDX-License-Identifier: Apache-2.0
//! Predictions beside live figures, program by program.

use std::collections::BTreeMap;

use super::learned::learned;
use crate::predictions::{PredictionLine, Predictions};
use imas_core::adaptive::Point;
use imas_core::raw_runs::data::Data;
use imas_replay::reliability::{CheckedPrediction, PredictedFigure, RecordedRunFacts, ReliabilityTable};
use imas_simulate::programs;

use super::live::{LiveFigures, live_figures};

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
