// SPDX-License-Identifier: Apache-2.0
//! Free chunks by the lists of their arena, for a first arena in several parts: somebody else moved the program break,
//! or the break could not be moved. Where the parts lie is not written down, but each free chunk is in a list.

use std::collections::HashSet;

use super::arena::Arena;
use super::figures::HeapBytes;
use super::layout::{ALIGNMENT, CHUNK_RECORD, FLAGS, LEAST_CHUNK, Layout, SIZE, USER};
use super::stop::Stop;
use super::window::Window;

/// Most free chunks.
const MOST: u64 = 1 << 20;

/// Bytes of an arena by its lists. All that is neither free nor the top counts as live.
pub(super) fn bytes(
    arena: &Arena,
    layout: &Layout,
    fast: &HashSet<u64>,
    window: &mut Window<'_>,
) -> Result<HeapBytes, Stop> {
    let mut bytes =
        HeapBytes { top: window.word(arena.top.wrapping_add(SIZE))? & !FLAGS, ..HeapBytes::default() };
    for list in 0..layout.bins.1 {
        let head = layout.bin(arena.address, list);
        let mut at = window.word(head.wrapping_add(USER))?;
        while at != head {
            add(&mut bytes, at, window)?;
            if bytes.blocks > MOST {
                return Err(Stop::Late);
            }
            if bytes.free > arena.system_mem {
                return Err(Stop::Torn);
            }
            at = window.word(at.wrapping_add(USER))?;
        }
    }
    let mut sorted: Vec<u64> = fast.iter().copied().collect();
    sorted.sort_unstable();
    for at in sorted {
        bytes.fast = bytes.fast.saturating_add(window.word(at.wrapping_add(SIZE))? & !FLAGS);
    }
    let free = bytes.free.saturating_add(bytes.fast).saturating_add(bytes.top);
    bytes.live = arena.system_mem.checked_sub(free).ok_or(Stop::Torn)?;
    Ok(bytes)
}

fn add(bytes: &mut HeapBytes, at: u64, window: &mut Window<'_>) -> Result<(), Stop> {
    let size = window.word(at.wrapping_add(SIZE))? & !FLAGS;
    let end = at.checked_add(size).ok_or(Stop::Torn)?;
    if size < LEAST_CHUNK || !size.is_multiple_of(ALIGNMENT) {
        return Err(Stop::Torn);
    }
    bytes.free = bytes.free.checked_add(size).ok_or(Stop::Torn)?;
    bytes.blocks += 1;
    if size > CHUNK_RECORD {
        let pages = window.residency.bytes_between(at + CHUNK_RECORD..end)?;
        bytes.add_returnable(pages);
    }
    Ok(())
}
