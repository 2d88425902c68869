// SPDX-License-Identifier: Apache-2.0
//! What replays of a recorded run predicted of a program, for people and scripts.

use imas_core::adaptive::Status;
use imas_core::replay_prior::{CandidateForecast, Forecast};
use imas_core::stats::more;
use serde::Serialize;

use crate::program_view::ProgramView;
use imas_cli::when::when;

/// What is predicted of a candidate, as fractions of what `system` takes: -0.1 is 10 % less.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownForecast {
    /// Name of the candidate.
    pub candidate: String,
    /// Version of its allocator.
    pub version: String,
    /// CPU time by the replays.
    pub predicted_cpu: f64,
    /// Mean memory by the replays.
    pub predicted_memory: f64,
    /// CPU time that is expected, with what such predictions were off by.
    pub expected_cpu: ExpectedChange,
    /// Memory that is expected, with what such predictions were off by.
    pub expected_memory: ExpectedChange,
}

/// A change with what it may be off by.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ExpectedChange {
    /// Change as a fraction of what `system` takes: -0.1 is 10 % less.
    pub change: f64,
    /// Standard deviation of its logarithm.
    pub deviation: f64,
}

impl ExpectedChange {
    fn of(forecast: Forecast) -> Self {
        Self { change: more(forecast.mean), deviation: forecast.deviation }
    }
}

/// Forecasts of the candidates, in the order of the profile's candidates. Empty without predictions.
pub fn by_candidate(state: &ProgramView) -> &[Option<CandidateForecast>] {
    let replay = state.profile.adaptive.as_ref().and_then(|known| known.board.replay.as_ref());
    replay.map_or(&[], |replay| &replay.candidates)
}

/// Forecasts of the candidates that have one.
#[must_use]
pub fn forecasts(state: &ProgramView) -> Vec<ShownForecast> {
    let shown = |one: &CandidateForecast| ShownForecast {
        candidate: one.predicted.candidate.clone(),
        version: one.predicted.version.clone(),
        predicted_cpu: more(one.predicted.cpu),
        predicted_memory: more(one.predicted.memory),
        expected_cpu: ExpectedChange::of(one.cpu),
        expected_memory: ExpectedChange::of(one.memory),
    };
    by_candidate(state).iter().flatten().map(shown).collect()
}

/// When a run was replayed, and how many candidates it spares a trial, in words; None without predictions.
#[must_use]
pub fn words(state: &ProgramView) -> Option<String> {
    let replayed = by_candidate(state).iter().flatten().count();
    let known = state.known.replay().filter(|_| replayed > 0)?;
    let standings = state.judgement.as_ref().map_or(&[][..], |judgement| judgement.standings.as_slice());
    let spared = standings.iter().filter(|standing| standing.status == Status::Unpromising).count();
    Some(format!(
        "a recorded run was replayed under {replayed} candidates ({}); {spared} of them promise less than a trial costs",
        when(known.at_s)
    ))
}
