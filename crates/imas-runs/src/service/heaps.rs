// SPDX-License-Identifier: Apache-2.0
//! Contents of the heaps of one process of the server, read from outside while it has no load.

use imas_core::server_run::{ArenaHeaps, HeldMemory};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::process_trim;
use imas_linux::resident::{ResidentMemory, arena_heaps};

/// The heaps of a process; None when it has ended.
pub(crate) fn of(pid: u32) -> Option<ArenaHeaps> {
    let heaps = arena_heaps(pid)?;
    let read = process_trim::heaps_of(pid).ok().zip(ResidentMemory::of(pid));
    let held = read.map(|(figures, resident)| held(&heaps, &figures, &resident));
    Some(ArenaHeaps { held, ..heaps })
}

/// A look counts a page that several processes have since a fork in each of them, so its figures are reduced by the
/// share of the heaps that this process bears.
fn held(heaps: &ArenaHeaps, figures: &HeapFigures, resident: &ResidentMemory) -> HeldMemory {
    let whole = (resident.heap + resident.arenas).max(1) as f64;
    let share = (heaps.all_heap_bytes() as f64 / whole).min(1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a number of bytes"
    )]
    let part = |bytes: u64| (bytes as f64 * share) as u64;
    let bytes = &figures.bytes;
    HeldMemory {
        live: part(bytes.live),
        cached: part(bytes.cached),
        free_pages: part(bytes.returnable.saturating_add(bytes.top_resident)),
        stacks: resident.stacks,
        is_estimate: figures.is_estimate(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_linux::heap::figures::HeapBytes;

    /// Two processes that share all pages since a fork bear half of them each.
    #[test]
    fn what_is_shared_since_a_fork_counts_in_parts() {
        let heaps = ArenaHeaps { main_bytes: 30, heap_bytes: vec![20], ..ArenaHeaps::default() };
        let bytes =
            HeapBytes { live: 60, cached: 10, returnable: 16, top_resident: 4, ..HeapBytes::default() };
        let figures = HeapFigures { held: 100, read: 90, bytes, ..HeapFigures::default() };
        let resident = ResidentMemory { heap: 60, arenas: 40, stacks: 7, ..ResidentMemory::default() };
        let found = held(&heaps, &figures, &resident);
        let wanted = HeldMemory { live: 30, cached: 5, free_pages: 10, stacks: 7, is_estimate: true };
        assert_eq!(found, wanted);
    }
}
