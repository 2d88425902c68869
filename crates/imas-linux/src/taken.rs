// SPDX-License-Identifier: Apache-2.0
//! What a process and its descendants have taken so far: CPU time and memory.

use procfs::process::{Process, Stat};

use crate::sampler::tree;

/// What was taken, or may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Most {
    /// CPU seconds, whole tree.
    pub cpu_s: f64,
    /// Resident bytes that belong to no file, largest process.
    pub bytes: f64,
}

/// What a process and its descendants have taken so far: their CPU time, and the memory of the largest. Of forked
/// processes that share pages the sum would count these many times; smaps, which would not, holds up the process.
pub(crate) fn taken(pid: u32) -> Most {
    let one = |pid| {
        let process = process(pid)?;
        let bytes = process.statm().map_or(0, |statm| statm.resident.saturating_sub(statm.shared));
        #[expect(clippy::cast_precision_loss, reason = "memory of a machine")]
        let bytes = (bytes * procfs::page_size()) as f64;
        Some(Most { cpu_s: cpu_s(&process.stat().ok()?), bytes })
    };
    let add = |sum: Most, one: Most| Most { cpu_s: sum.cpu_s + one.cpu_s, bytes: sum.bytes.max(one.bytes) };
    tree(pid).into_iter().filter_map(one).fold(Most::default(), add)
}

pub(crate) fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// Its own and that of the children it has waited for.
pub(crate) fn cpu_s(stat: &Stat) -> f64 {
    let waited = u64::try_from(stat.cutime.saturating_add(stat.cstime)).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "ticks of a lifetime are far below 2^52")]
    let ticks = (stat.utime + stat.stime + waited) as f64;
    #[expect(clippy::cast_precision_loss, reason = "100 or so")]
    let per_second = procfs::ticks_per_second() as f64;
    ticks / per_second
}
