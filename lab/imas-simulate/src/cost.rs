// SPDX-License-Identifier: Apache-2.0
//! What a candidate costs a program on some of its rounds, beside `system` in the same rounds.

use crate::program::SimulatedProgram;
use imas_core::adaptive::Point;
use imas_core::stats::median;

/// Excess of a candidate over `system`, logarithms: median over the rounds, axis by axis. None when it has no
/// run in them.
pub fn cost(program: &SimulatedProgram, rounds: &[usize], candidate: usize) -> Option<Point> {
    let excess = |&round: &usize| Some(program.rounds[round][candidate]?.over(program.rounds[round][0]?));
    let points: Vec<Point> = rounds.iter().filter_map(excess).collect();
    let axis = |get: fn(&Point) -> f64| median(&points.iter().map(get).collect::<Vec<_>>());
    Some(Point { cpu: axis(|p| p.cpu)?, memory: axis(|p| p.memory)? })
}

/// Index of the candidate that these rounds call the best at weight `w` of CPU, without margin or proof. None
/// without rounds.
pub fn best(program: &SimulatedProgram, rounds: &[usize], w: f64) -> Option<usize> {
    let scored = |i| Some((i, cost(program, rounds, i)?.score(w)));
    let scores = (0..program.candidates.len()).filter_map(scored);
    scores.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(i, _)| i)
}
