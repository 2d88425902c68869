// SPDX-License-Identifier: Apache-2.0
//! The server's memory over time, and the figures of a run: from its cycles, from the recording of its memory, and from the
//! pages of a counted run, which know its live blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use imas_core::run::{MemorySnapshot, RawRun};
use imas_core::server_run::work::mean_by_work;
use imas_core::server_run::{CycleFigures, Figure, LiveMemory, ServerRun};
use imas_linux::sampler::Watcher;

use crate::counted::CountedRun;
use crate::executor::inside;
use crate::service::adapter;
use crate::service::tree::Tree;

/// The process tree, shared by two threads.
pub(crate) type SharedTree = Arc<Mutex<Tree>>;

/// Shortest time between two looks. It is longer if a look takes long, because a look delays the server's
/// page faults.
const SHORTEST_GAP: Duration = Duration::from_millis(100);
const LONGEST_GAP: Duration = Duration::from_secs(2);
/// The time between two looks, as a multiple of the time that a look takes.
const GAP_PER_LOOK: u32 = 30;
/// Limit for the points of a stored curve.
const MOST_POINTS: usize = 600;

/// One look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    /// Seconds since the start.
    pub(crate) at_s: f64,
    pub(crate) bytes: u64,
    pub(crate) threads: u64,
}

/// All looks of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording(pub(crate) Vec<Point>);

/// A thread that looks at intervals until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Recorder(Watcher<Recording>);

impl Recorder {
    pub(crate) fn start(tree: &SharedTree, began: Instant) -> Self {
        let tree = Arc::clone(tree);
        Self(Watcher::start(move |stop| watch(stop, &tree, began)))
    }

    pub(crate) fn stop(self) -> Recording {
        self.0.stop().unwrap_or_default()
    }
}

fn watch(stop: &AtomicBool, tree: &SharedTree, began: Instant) -> Recording {
    let mut points = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let before = Instant::now();
        let look = {
            let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.refresh();
            tree.look()
        };
        if look.processes > 0 {
            points.push(Point {
                at_s: began.elapsed().as_secs_f64(),
                bytes: look.bytes,
                threads: look.threads,
            });
        }
        std::thread::park_timeout((before.elapsed() * GAP_PER_LOOK).clamp(SHORTEST_GAP, LONGEST_GAP));
    }
    Recording(points)
}

impl Recording {
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        self.0.iter().map(|point| point.bytes).max()
    }

    fn peak_threads(&self) -> Option<u64> {
        self.0.iter().map(|point| point.threads).max()
    }

    /// Seconds and bytes of each look.
    pub(crate) fn curve(&self) -> Vec<(f64, u64)> {
        self.0.iter().map(|point| ((point.at_s * 1e3).round() / 1e3, point.bytes)).collect()
    }
}

/// Thins a curve out for a picture, evenly. Of each stretch the highest look is kept, so its mean is too high.
fn thin(curve: &mut Vec<(f64, u64)>) {
    let stretch = curve.len().div_ceil(MOST_POINTS).max(1);
    let highest = |points: &[(f64, u64)]| points.iter().max_by_key(|point| point.1).copied();
    *curve = curve.chunks(stretch).filter_map(highest).collect();
}

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
    let mut figures = adapter::over_all(&run.cycles);
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

/// The run with the figures of its counted pages. Where no process left one (a static program, one that starts its
/// children with an empty environment), a note says so.
pub(crate) fn with_live(mut run: RawRun, counted: anyhow::Result<CountedRun>) -> RawRun {
    let Some(server) = run.server.as_deref_mut() else { return run };
    let counted = match counted {
        Ok(counted) => counted,
        Err(error) => {
            server.notes.push(format!("live memory is unknown: {error:#}"));
            return run;
        }
    };
    let looks = counted.curve.as_ref().map(imas_core::run::Curve::looks).unwrap_or_default();
    server.live = live(server, &looks);
    let inside = inside(&counted);
    RawRun {
        ns_per_op: inside.ns_per_op,
        frag: inside.frag,
        heap_bytes: inside.heap_bytes,
        live_bytes: inside.live_bytes,
        resident_bytes: inside.resident_bytes,
        ops: inside.ops,
        latency: inside.latency,
        split: inside.split,
        ..run
    }
}

/// Resident and live memory under load and after the pause. None where the hook's estimate of live blocks is missing,
/// as where forked workers go on with their parent's.
fn live(server: &ServerRun, looks: &[MemorySnapshot]) -> Option<LiveMemory> {
    let curve = |of: fn(&MemorySnapshot) -> u64| -> Vec<(f64, f64)> {
        looks.iter().map(|look| (look.ms as f64 / 1e3, of(look) as f64 * 1024.0)).collect()
    };
    let both = [curve(|look| look.resident_kib), curve(|look| look.live_kib)];
    let ready_s = server.value("ready").unwrap_or(0.0);
    let loaded_s = ready_s + server.cycles.iter().map(|cycle| cycle.wall_s).sum::<f64>();
    let load = [mean_by_work(server, &both[0])?, mean_by_work(server, &both[1])?];
    let last = looks.iter().rev().find(|look| look.ms as f64 / 1e3 > loaded_s && look.resident_kib > 0)?;
    let idle = [last.resident_kib, last.live_kib].map(|kib| kib as f64 * 1024.0);
    (load[1] > 0.0).then_some(LiveMemory { load, idle })
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{DayFigures, PhaseFigures};

    #[test]
    fn a_long_curve_is_thinned_out_and_keeps_its_peak() {
        let points = (0..5000_u32).map(|i| Point {
            at_s: f64::from(i),
            bytes: if i == 4321 { 9 } else { 1 },
            threads: 1,
        });
        let mut curve = Recording(points.collect()).curve();
        thin(&mut curve);
        assert!(curve.len() <= MOST_POINTS && curve.contains(&(4321.0, 9)));
    }

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

    #[test]
    fn a_counted_run_without_pages_is_kept_with_a_note() {
        let run = RawRun { ok: true, ..RawRun::default() }.with_server(ServerRun::default());
        let found = with_live(run, Err(anyhow::anyhow!("no process of the tree was counted")));
        let server = found.of_server();
        assert!(found.ok && server.live.is_none());
        assert_eq!(server.notes, ["live memory is unknown: no process of the tree was counted"]);
    }

    #[test]
    fn live_memory_is_by_work_and_after_the_pause() {
        let phase = |wall_s| PhaseFigures { wall_s, ..PhaseFigures::default() };
        let phases = vec![phase(1.0), phase(9.0)];
        let cycles = vec![CycleFigures { wall_s: 10.0, phases, ..CycleFigures::default() }];
        let server = ServerRun { cycles, ..ServerRun::of([Figure::lower("ready", 0.0, "s")]) };
        let look = |ms, resident_kib, live_kib| MemorySnapshot {
            ms,
            resident_kib,
            live_kib,
            ..MemorySnapshot::default()
        };
        let looks = [
            look(0, 10, 8),
            look(1000, 10, 8),
            look(1001, 30, 16),
            look(10_000, 30, 16),
            look(12_000, 20, 4),
        ];
        let found = live(&server, &looks).unwrap();
        assert!(
            (found.load[0] / 1024.0 - 20.0).abs() < 0.1 && (found.load[1] / 1024.0 - 12.0).abs() < 0.1,
            "{found:?}"
        );
        assert_eq!(found.idle, [20.0 * 1024.0, 4.0 * 1024.0]);
        assert_eq!(live(&server, &looks[..4]), None, "nobody looked in the pause");
        assert_eq!(live(&server, &looks.map(|look| MemorySnapshot { live_kib: 0, ..look })), None);
    }
}
