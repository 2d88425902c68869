// SPDX-License-Identifier: Apache-2.0
//! Heaps of a process that is an enemy: no panic, no endless walk, no figure beyond what is mapped.

use std::time::{Duration, Instant};

use imas_linux::heap::figures::{HeapFigures, NotReadable};
use imas_linux::heap::figures_in;

use crate::made_memory::{Chunk, Kind, MadeMemory};

/// More than any made-up heap takes.
const LONG: Duration = Duration::from_secs(20);

/// Chunks as bytes say, two for each.
pub(crate) fn chunks(bytes: &[u8]) -> Vec<Chunk> {
    let chunk = |pair: &[u8; 2]| Chunk {
        // Mostly small, some of many pages.
        units: u16::from(pair[0]) << (pair[1] >> 5).saturating_sub(3),
        kind: [Kind::Live, Kind::Cached, Kind::Fast, Kind::Free][usize::from(pair[1] & 3)],
    };
    bytes.as_chunks::<2>().0.iter().map(chunk).collect()
}

/// Looks at a made-up process after words of it were overwritten. `changes` has twelve bytes for each: where, and the
/// new word.
pub(crate) fn check(layout: &[u8], changes: &[u8]) -> Result<HeapFigures, NotReadable> {
    let (one, other) = layout.split_at(layout.len() / 2);
    let (mut memory, _) = MadeMemory::of(&chunks(one), &[chunks(other), chunks(one)]);
    for change in changes.as_chunks::<12>().0 {
        let [a, b, c, d, word @ ..] = *change;
        let place = memory.place(u64::from(u32::from_ne_bytes([a, b, c, d]))) & !7;
        memory.word(place, u64::from_ne_bytes(word));
    }
    let begun = Instant::now();
    let found = figures_in(&memory, &memory.regions, begun + Duration::from_millis(100));
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    if let Ok(figures) = &found {
        let bytes = &figures.bytes;
        assert!(
            figures.read.saturating_add(figures.unread) <= figures.held && bytes.returnable <= memory.bytes(),
            "{figures:?}"
        );
    }
    found
}
