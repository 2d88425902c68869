// SPDX-License-Identifier: Apache-2.0
//! Memory under load, weighted by the work that was done and not by the time that it took.
//!
//! A load is fixed work: each of its lines in each cycle is the same for all candidates. So each has the same weight.
//! A neighbour that slows one line down makes it longer, not heavier. A mean over time changes with it
//! (docs/decisions/0040).
//!
//! Memory over a day: a load with busy, quiet and bursting parts, each of a fixed length.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Figure, ServerRun};

/// Memory by work, bytes: the mean of all lines in all cycles. None without a curve or cycles.
#[must_use]
pub fn memory_by_work(run: &ServerRun) -> Option<f64> {
    mean_by_work(run, &with_ends(run)).filter(|mean| *mean > 0.0)
}

/// Mean by work of any curve through the same run: seconds since the start, and a figure.
#[must_use]
pub fn mean_by_work(run: &ServerRun, curve: &[(f64, f64)]) -> Option<f64> {
    let means = along(run, curve);
    (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64)
}

/// Mean of the curve over the time of each line in each cycle, in order; empty without a curve.
fn along(run: &ServerRun, curve: &[(f64, f64)]) -> Vec<f64> {
    if curve.is_empty() {
        return vec![];
    }
    phase_spans(run).into_iter().map(|(from_s, to_s)| mean_between(curve, from_s, to_s)).collect()
}

/// Begin and end of each line of each cycle, in order, in seconds since the start of the server.
#[must_use]
pub fn phase_spans(run: &ServerRun) -> Vec<(f64, f64)> {
    let mut all = Vec::new();
    let mut began_s = ready_s(run);
    for figures in &run.cycles {
        let lines_s: f64 = figures.phases.iter().map(|phase| phase.wall_s).sum();
        // The lines take the whole cycle but for a few milliseconds between them.
        let stretch = if lines_s > 0.0 { figures.wall_s / lines_s } else { 1.0 };
        let mut from_s = began_s;
        for line in &figures.phases {
            let to_s = from_s + line.wall_s * stretch;
            all.push((from_s, to_s));
            from_s = to_s;
        }
        began_s += figures.wall_s;
    }
    all
}

fn ready_s(run: &ServerRun) -> f64 {
    run.value("ready").unwrap_or(0.0)
}

/// The stored curve with the exact memory at the end of each cycle.
fn with_ends(run: &ServerRun) -> Vec<(f64, f64)> {
    let mut at_s = ready_s(run);
    let ends = run.cycles.iter().map(|cycle| {
        at_s += cycle.wall_s;
        (at_s, cycle.end_bytes as f64)
    });
    let ends: Vec<_> = ends.filter(|(_, bytes)| *bytes > 0.0).collect();
    let mut curve: Vec<(f64, f64)> = run.curve.iter().map(|(at_s, bytes)| (*at_s, *bytes as f64)).collect();
    curve.extend(ends);
    curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    curve
}

/// Mean over a span of time of the line through the points; at its ends the line goes on level.
fn mean_between(curve: &[(f64, f64)], from_s: f64, to_s: f64) -> f64 {
    let first = at(curve, from_s);
    if to_s <= from_s {
        return first;
    }
    let inside = curve.iter().copied().filter(|(at_s, _)| from_s < *at_s && *at_s < to_s);
    let points: Vec<(f64, f64)> =
        std::iter::once((from_s, first)).chain(inside).chain([(to_s, at(curve, to_s))]).collect();
    let area = |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1);
    points.windows(2).map(area).sum::<f64>() / (to_s - from_s)
}

/// Height of the line through the points, which are in order.
fn at(curve: &[(f64, f64)], at_s: f64) -> f64 {
    let after = curve.partition_point(|(point_s, _)| *point_s < at_s);
    match (after.checked_sub(1).and_then(|before| curve.get(before)), curve.get(after)) {
        (Some(before), Some(after)) if after.0 > before.0 => {
            before.1 + (after.1 - before.1) * (at_s - before.0) / (after.0 - before.0)
        }
        (Some(near), _) | (None, Some(near)) => near.1,
        (None, None) => 0.0,
    }
}

/// A part of a day that was made.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct DayFigures {
    /// Name of the part.
    pub part: String,
    /// Seconds since the start of the server.
    pub began_s: f64,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// CPU seconds of the server.
    pub cpu_s: f64,
}

/// The figures of a day: `memory_day`, the mean over its time, which is its integral over its length; the same for
/// each part (`memory_day_busy`, a second one of a name `memory_day_quiet_2`); and `cpu_day`, CPU seconds. Empty
/// without a day or a curve.
#[must_use]
pub fn day_figures(run: &ServerRun) -> Vec<Figure> {
    let curve = with_ends(run);
    let (Some(first), Some(last), false) = (run.day.first(), run.day.last(), curve.is_empty()) else {
        return vec![];
    };
    let memory = |name: String, from_s, to_s| Figure::lower(&name, mean_between(&curve, from_s, to_s), "B");
    let cpu_s = run.day.iter().map(|part| part.cpu_s).sum();
    let mut figures = vec![
        memory("memory_day".to_owned(), first.began_s, last.began_s + last.wall_s),
        Figure::lower("cpu_day", cpu_s, "s"),
    ];
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for part in &run.day {
        let number = seen.entry(&part.part).or_default();
        *number += 1;
        let name = match number {
            1 => format!("memory_day_{}", part.part),
            number => format!("memory_day_{}_{number}", part.part),
        };
        figures.push(memory(name, part.began_s, part.began_s + part.wall_s));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_run::{CycleFigures, Figure, PhaseFigures};

    /// Two lines, of 10 and of 30 MiB. The first takes `first_s`, the second 10 s; ready after 1 s.
    fn run(first_s: f64) -> ServerRun {
        let phase = |wall_s| PhaseFigures { wall_s, ..PhaseFigures::default() };
        let cycle = CycleFigures {
            wall_s: first_s + 10.0,
            end_bytes: 30 << 20,
            phases: vec![phase(first_s), phase(10.0)],
            ..CycleFigures::default()
        };
        let steps = (0..=1000_u32).map(|tick| f64::from(tick) / 10.0);
        let height = |at_s: f64| if at_s < 1.0 + first_s { 10 << 20 } else { 30 << 20 };
        let mut run = ServerRun {
            cycles: vec![cycle],
            curve: steps.map(|at_s| (at_s, height(at_s))).collect(),
            ..ServerRun::default()
        };
        run.record(Figure::lower("ready", 1.0, "s"));
        run
    }

    #[test]
    fn a_slower_line_is_not_heavier() {
        let mib = |first_s| memory_by_work(&run(first_s)).unwrap() / f64::from(1 << 20);
        assert!((mib(10.0) - 20.0).abs() < 0.1, "{}", mib(10.0));
        assert!((mib(60.0) - 20.0).abs() < 0.1, "by time it were 12.9: {}", mib(60.0));
    }

    #[test]
    fn a_line_between_two_looks_has_the_height_between_them() {
        assert_eq!(mean_between(&[(0.0, 10.0), (10.0, 30.0)], 4.0, 6.0), 20.0);
        assert_eq!(mean_between(&[(2.0, 10.0)], 0.0, 6.0), 10.0);
        assert_eq!(mean_between(&[(0.0, 0.0), (10.0, 20.0)], 5.0, 5.0), 10.0);
    }

    #[test]
    fn the_exact_end_of_a_cycle_counts() {
        let mut run = run(10.0);
        run.curve.retain(|(at_s, _)| *at_s < 12.0);
        run.cycles[0].end_bytes = 50 << 20;
        let second = along(&run, &with_ends(&run))[1] / f64::from(1 << 20);
        assert!(second > 38.0, "{second}");
        run.curve.clear();
        run.cycles.clear();
        assert_eq!(memory_by_work(&run), None);
    }

    #[test]
    fn a_day_is_weighted_by_time_and_has_its_parts() {
        let part =
            |part: &str, began_s, wall_s| DayFigures { part: part.into(), began_s, wall_s, cpu_s: 1.0 };
        let run = ServerRun {
            curve: vec![(0.0, 100), (10.0, 100), (10.001, 400), (20.0, 400), (20.001, 200), (100.0, 200)],
            day: vec![part("quiet", 0.0, 10.0), part("busy", 10.0, 10.0), part("quiet", 20.0, 20.0)],
            ..ServerRun::default()
        };
        let figures = day_figures(&run);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().value.round();
        assert_eq!(
            [of("memory_day_quiet"), of("memory_day_busy"), of("memory_day_quiet_2")],
            [100.0, 400.0, 200.0]
        );
        assert_eq!((of("memory_day"), of("cpu_day")), (225.0, 3.0));
        assert_eq!(day_figures(&ServerRun { day: vec![], ..run }), []);
    }
}
