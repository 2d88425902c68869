// SPDX-License-Identifier: Apache-2.0
//! What a process and its descendants have taken so far: CPU time and memory.

use crate::activity::{cpu_s, process};
use crate::sampler::tree;

/// CPU time and memory that were taken, or may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Most {
    /// CPU seconds, whole tree.
    pub cpu_s: f64,
    /// Resident bytes that belong to no file, largest process.
    pub bytes: f64,
}

/// CPU time that a process and its descendants have taken so far, and the memory of the largest of them. Of
/// forked processes that share pages the sum would count these many times; smaps, which would not, holds up
/// the process.
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
