// SPDX-License-Identifier: Apache-2.0
//! Runs in the order they were made, and decisions through time.

use imas_core::bench::{CandidateRuns, Run};
use serde::Serialize;

use super::Decision;
use super::scale::{Scale, Tick};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 58.0;
const BOTTOM: f64 = 160.0;
/// Pixels between two decisions.
const STEP: f64 = 11.0;

/// One figure by round, a line a candidate.
#[derive(Serialize)]
pub(super) struct Series {
    title: String,
    width: f64,
    height: f64,
    left: f64,
    bottom: f64,
    lines: Vec<Line>,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
}

#[derive(Serialize)]
struct Line {
    name: String,
    colour: usize,
    points: String,
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
        let x = Scale::new((0.0, f64::from(last)), (LEFT + 8.0, WIDTH - 16.0));
        let y = Scale::new((0.0, top * 1.05), (BOTTOM, 10.0));
        let point = |run: &Run| format!("{},{}", x.place(f64::from(run.round)), y.place(get(run)));
        let line = |(colour, candidate): (usize, &CandidateRuns)| Line {
            name: candidate.name.clone(),
            colour,
            points: candidate.runs.iter().map(point).collect::<Vec<_>>().join(" "),
        };
        Some(Self {
            title: title.to_owned(),
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            bottom: BOTTOM,
            lines: candidates.iter().enumerate().map(line).collect(),
            x_ticks: x.round_ticks(30.0),
            y_ticks: y.round_ticks(18.0),
        })
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
