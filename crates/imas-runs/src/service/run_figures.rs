// SPDX-License-Identifier: Apache-2.0
//! The figures of a run, from its cycles and from the recording of its memory.

use crate::service::load;
use crate::service::recorder::{Recording, thin};
use imas_core::run::RawRun;
use imas_core::server_run::{CycleFigures, Figure, ServerRun};

/// The run with what its server did. Its memory follows from all looks; the curve is thinned out after that, for the
/// highest look of each stretch would count too much.
pub(crate) fn finished(run: RawRun, server: ServerRun) -> RawRun {
    let mut run = run.with_server(server);
    run.server.iter_mut().for_each(|server| thin(&mut server.curve));
    run
}

/// Adds the figures of a run whose cycles and recording are complete, but its memory under load and over the day:
/// [`finished`] adds these.
pub(crate) fn add_figures(run: &mut ServerRun, recording: &Recording, cpu_s: f64) {
    if run.cycles.is_empty() {
        return;
    }
    let n = run.cycles.len() as f64;
    let walls: Vec<f64> = run.cycles.iter().map(|cycle| cycle.wall_s).collect();
    let wall = imas_core::stats::median(&walls).unwrap_or(0.0);
    let mut figures = load::over_all(&run.cycles);
    if !figures.contains_key("rate") && wall > 0.0 {
        figures.insert("rate".to_owned(), Figure::higher("rate", 1.0 / wall, "cycles/s"));
    }
    let ends = run.cycles.iter().map(|cycle| cycle.end_bytes);
    let peak = recording.peak_bytes().into_iter().chain(ends).max();
    let found = [
        Some(Figure::lower("cycle", wall, "s")),
        Some(Figure::lower("cpu", cpu_s / n, "s")),
        peak.map(|peak| Figure::lower("memory_peak", peak as f64, "B")),
        slope(&run.cycles).map(|slope| Figure::lower("memory_slope", slope, "B/cycle")),
        recording.peak_threads().map(|threads| Figure::lower("threads", threads as f64, "threads")),
    ];
    run.figures.extend(figures);
    found.into_iter().flatten().for_each(|figure| run.record(figure));
}

/// Growth of memory per cycle, bytes: the slope of the regression line through the ends of all cycles.
fn slope(cycles: &[CycleFigures]) -> Option<f64> {
    let n = cycles.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = cycles.iter().map(|cycle| cycle.end_bytes as f64).sum::<f64>() / n;
    let places = || {
        cycles.iter().zip(0_u32..).map(|(cycle, i)| (f64::from(i) - middle, cycle.end_bytes as f64 - mean))
    };
    let spread: f64 = places().map(|(x, _)| x * x).sum();
    (spread > 0.0).then(|| places().map(|(x, y)| x * y).sum::<f64>() / spread)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::DayFigures;

    /// One look of six is high. Their mean is 150, and the highest of each six is 400.
    #[test]
    fn memory_is_of_all_looks_and_not_of_the_stored_curve() {
        let looks =
            (0..=3600_u32).map(|look| (f64::from(look) / 10.0, if look % 6 == 3 { 400 } else { 100 }));
        let day = vec![DayFigures { part: "busy".into(), wall_s: 360.0, ..DayFigures::default() }];
        let server = ServerRun { curve: looks.collect(), day, ..ServerRun::default() };
        let found = finished(RawRun::default(), server);
        assert_eq!(found.value("memory_day").unwrap().round(), 150.0);
        let curve = &found.of_server().curve;
        assert!(curve.len() <= 601 && curve.iter().filter(|point| point.1 == 400).count() >= 500);
    }

    #[test]
    fn the_slope_is_that_of_the_line_through_all_ends() {
        let cycles = |ends: &[u64]| -> Vec<CycleFigures> {
            ends.iter().map(|&end_bytes| CycleFigures { end_bytes, ..CycleFigures::default() }).collect()
        };
        assert_eq!(slope(&cycles(&[10, 20, 30])), Some(10.0));
        assert_eq!(slope(&cycles(&[30, 10])), Some(-20.0));
        assert_eq!((slope(&cycles(&[30])), slope(&cycles(&[]))), (None, None));
    }
}
