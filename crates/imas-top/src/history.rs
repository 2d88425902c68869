// SPDX-License-Identifier: Apache-2.0
//! The memory of each process since the start of this program.

use std::collections::HashMap;

use imas_engine::live::memory_point::MemoryPoint;
use imas_engine::live::snapshot::{LiveProcess, LiveSnapshot};

/// Points kept of a process. Beyond, every other one is dropped: the whole time stays in view.
const MOST_POINTS: usize = 240;

/// Resident memory of one process over time, and its parts from when it was selected on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct MemoryCurve {
    /// Unix time in seconds, and resident bytes.
    pub(crate) resident: Vec<(f64, f64)>,
    /// The parts, while the process was selected.
    pub(crate) parts: Vec<MemoryPoint>,
    /// Looks that pass between two points.
    stride: usize,
    skipped: usize,
}

impl MemoryCurve {
    fn add(&mut self, at_s: f64, bytes: u64) {
        if self.resident.last().is_some_and(|last| at_s < last.0) {
            *self = Self::default(); // the clock was set back
        }
        self.skipped += 1;
        if self.skipped < self.stride.max(1) {
            return;
        }
        self.skipped = 0;
        self.resident.push((at_s, bytes as f64));
        if self.resident.len() > MOST_POINTS {
            self.stride = self.stride.max(1) * 2;
            thin(&mut self.resident);
        }
    }
}

/// Keeps every other point, and the last.
fn thin<T: Copy>(points: &mut Vec<T>) {
    let last = points.len().saturating_sub(1);
    let kept = points.iter().enumerate().filter(|(at, _)| at % 2 == 0 || *at == last);
    *points = kept.map(|(_, point)| *point).collect();
}

/// The curves of all processes.
#[derive(Debug, Default)]
pub(crate) struct History {
    curves: HashMap<(u32, u64), MemoryCurve>,
}

impl History {
    /// Takes a look in; curves of processes that have ended are dropped.
    pub(crate) fn add(&mut self, look: &LiveSnapshot) {
        let mut before = std::mem::take(&mut self.curves);
        for process in &look.processes {
            let key = (process.pid, process.start_ticks);
            let mut curve = before.remove(&key).unwrap_or_default();
            curve.add(look.at_unix_s, process.resident_bytes);
            self.curves.insert(key, curve);
        }
    }

    /// Takes the parts of the selected process in.
    pub(crate) fn add_parts(&mut self, process: &LiveProcess, point: MemoryPoint) {
        let curve = self.curves.entry((process.pid, process.start_ticks)).or_default();
        // The same answer twice is one point.
        if curve.parts.last() != Some(&point) {
            curve.parts.push(point);
        }
        if curve.parts.len() > MOST_POINTS {
            thin(&mut curve.parts);
        }
    }

    /// The memory curve of a process.
    pub(crate) fn of(&self, process: &LiveProcess) -> Option<&MemoryCurve> {
        self.curves.get(&(process.pid, process.start_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_curve_keeps_its_beginning_and_its_end() {
        let mut curve = MemoryCurve::default();
        (0..10_000u32).for_each(|at| curve.add(f64::from(at), u64::from(at)));
        assert!(curve.resident.len() <= MOST_POINTS && curve.resident.len() > MOST_POINTS / 4);
        assert_eq!(curve.resident[0].0, 0.0);
        assert!(curve.resident.last().unwrap().0 > 9800.0, "{:?}", curve.resident.last());
        assert!(curve.resident.is_sorted_by(|a, b| a.0 < b.0));
        curve.add(1.0, 1);
        assert_eq!(curve.resident, [(1.0, 1.0)], "the clock was set back");
    }
}
