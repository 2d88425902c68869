// SPDX-License-Identifier: Apache-2.0
//! Runs in the order they were made, and decisions through time.

use imas_core::bench::{CandidateRuns, Run};
use serde::Serialize;

use super::Decision;
use super::lines::{Frame, Lines};

const HEIGHT: f64 = 190.0;
/// Pixels between two labels of rounds.
const ROUNDS_APART: f64 = 30.0;
/// Pixels between two decisions.
const STEP: f64 = 11.0;

/// One figure by round, a line a candidate.
#[derive(Serialize)]
pub(super) struct Series {
    title: String,
    #[serde(flatten)]
    drawing: Lines,
}

impl Series {
    /// None with fewer than two rounds, or when nothing was measured.
    pub(super) fn of(title: &str, candidates: &[CandidateRuns], get: fn(&Run) -> f64) -> Option<Self> {
        let all = || candidates.iter().flat_map(|c| &c.runs);
        let last = all().map(|run| run.round).max()?;
        let top = all().map(get).fold(0.0, f64::max);
        if last == 0 || top <= 0.0 {
            return None;
        }
        let frame = Frame::new(HEIGHT, (0.0, f64::from(last)), top);
        let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
        let line = |candidate: &CandidateRuns| {
            let values = candidate.runs.iter().map(|run| (f64::from(run.round), get(run)));
            frame.line(&candidate.name, &names, values)
        };
        let lines = candidates.iter().map(line).collect();
        let ticks = frame.x.round_ticks(ROUNDS_APART);
        Some(Self { title: title.to_owned(), drawing: frame.with(lines, ticks) })
    }
}

/// A decision as a mark on the line of its candidate.
#[derive(Serialize)]
pub(super) struct Mark {
    x: f64,
    trial: bool,
    says: String,
}

/// Lines by candidate in the order of their first decision; marks from left to right, evenly.
pub(super) fn timeline(decisions: &[Decision]) -> Vec<(String, Vec<Mark>)> {
    let mut lines: Vec<(String, Vec<Mark>)> = vec![];
    for (decision, place) in decisions.iter().zip(0u32..) {
        let kind = if decision.trial { "trial of" } else { "in use:" };
        let mark = Mark {
            x: 120.0 + STEP * f64::from(place),
            trial: decision.trial,
            says: format!("{}: {kind} {}. {}", decision.at, decision.candidate, decision.because),
        };
        match lines.iter_mut().find(|(name, _)| *name == decision.candidate) {
            Some((_, marks)) => marks.push(mark),
            None => lines.push((decision.candidate.clone(), vec![mark])),
        }
    }
    lines
}
