// SPDX-License-Identifier: Apache-2.0
//! What live runs say of a program's candidates, as logarithms of ratios to `system`.

use std::collections::BTreeMap;

use imas_core::adaptive::Point;
use imas_core::candidate::SYSTEM;
use imas_core::raw_runs::data::Data;
use imas_core::run::{RawRun, RunKind};
use imas_core::stats::median;
use imas_simulate::{SimulatedProgram, cost};

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
