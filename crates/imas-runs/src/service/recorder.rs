// SPDX-License-Identifier: Apache-2.0
//! The server's memory over time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use imas_linux::sampler::Watcher;

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

    pub(crate) fn peak_threads(&self) -> Option<u64> {
        self.0.iter().map(|point| point.threads).max()
    }

    /// Seconds and bytes of each look.
    pub(crate) fn curve(&self) -> Vec<(f64, u64)> {
        self.0.iter().map(|point| ((point.at_s * 1e3).round() / 1e3, point.bytes)).collect()
    }
}

/// Thins a curve out for a picture, evenly. Of each stretch the highest look is kept, so its mean is too high.
pub(crate) fn thin(curve: &mut Vec<(f64, u64)>) {
    let stretch = curve.len().div_ceil(MOST_POINTS).max(1);
    let highest = |points: &[(f64, u64)]| points.iter().max_by_key(|point| point.1).copied();
    *curve = curve.chunks(stretch).filter_map(highest).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
