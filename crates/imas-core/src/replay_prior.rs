// SPDX-License-Identifier: Apache-2.0
//! What replays of one recorded run predict, as the policy takes it
//! (docs/decisions/0033-replays-as-a-prior.md).
//!
//! ```text
//! PredictedDifference + ReliabilityTable --> ReplayPrior --arranged by candidate--> ReplayEvidence --> beliefs
//! ```
//! The prior decides which candidates need no trial, and with which trials begin. It proves nothing: a candidate is
//! proven by live trials alone. Without a prior the policy is what it is.

use serde::{Deserialize, Serialize};

use crate::candidate::Candidate;
use crate::reliability::{LEAST, PredictedFigure, PredictionSpread, RecordedRunFacts, ReliabilityTable};

/// What the replays predict of one candidate: differences of logarithms to `system`.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct PredictedDifference {
    /// Name of the candidate.
    pub candidate: String,
    /// Version of its allocator; empty when not known.
    pub version: String,
    /// Predicted difference of ln CPU time.
    pub cpu: f64,
    /// Predicted difference of ln mean resident memory.
    pub memory: f64,
}

/// Normal distribution of a true difference that is expected.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
}

impl Forecast {
    /// Forecast of the true difference from a predicted difference of logarithms.
    fn of(predicted: f64, error: PredictionSpread) -> Self {
        Self { mean: predicted + error.mean, deviation: error.deviation.max(LEAST) }
    }
}

/// Forecast for one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateForecast {
    /// Differences that the replays predicted.
    pub predicted: PredictedDifference,
    /// Forecast of CPU time, corrected by how far off such predictions were.
    pub cpu: Forecast,
    /// Forecast of memory, corrected in the same way.
    pub memory: Forecast,
}

impl CandidateForecast {
    /// Forecast on an axis (0: CPU, 1: memory).
    pub(crate) fn axis(&self, axis: usize) -> Forecast {
        [self.cpu, self.memory][axis]
    }
}

/// The predictions for one program.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct ReplayPrior {
    /// One entry for each candidate that was replayed.
    pub forecasts: Vec<CandidateForecast>,
}

impl ReplayPrior {
    /// Predictions from such a run, corrected by the table. What is not finite is left out.
    pub fn new(predicted: &[PredictedDifference], run: &RecordedRunFacts, table: &ReliabilityTable) -> Self {
        let sound = predicted.iter().filter(|one| one.cpu.is_finite() && one.memory.is_finite());
        let forecast = |one: &PredictedDifference| {
            let error = |figure| table.of(figure, &one.candidate, run);
            CandidateForecast {
                predicted: one.clone(),
                cpu: Forecast::of(one.cpu, error(PredictedFigure::Cpu)),
                memory: Forecast::of(one.memory, error(PredictedFigure::Memory)),
            }
        };
        Self { forecasts: sound.map(forecast).collect() }
    }

    /// Arranged by candidate. What was predicted of another version does not count.
    pub fn evidence(&self, candidates: &[Candidate]) -> ReplayEvidence {
        let of = |candidate: &Candidate| {
            let is_it = |one: &&CandidateForecast| {
                candidate.is_same(&one.predicted.candidate, &one.predicted.version)
            };
            self.forecasts.iter().find(is_it).filter(|_| !candidate.is_system()).cloned()
        };
        ReplayEvidence { candidates: candidates.iter().map(of).collect() }
    }
}

/// The prior, arranged as the board is: one entry for each candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayEvidence {
    /// Prediction for each candidate; None where nothing is predicted.
    pub candidates: Vec<Option<CandidateForecast>>,
}

impl ReplayEvidence {
    /// What is expected of a candidate.
    pub(crate) fn of(&self, candidate: usize) -> Option<&CandidateForecast> {
        self.candidates.get(candidate)?.as_ref()
    }
}
