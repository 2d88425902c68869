// SPDX-License-Identifier: Apache-2.0
//! The arenas of a process: the first one among the C library's variables, the others in its ring, and their heaps.

use std::collections::BTreeMap;

use super::figures::NotReadable;
use super::libc::{ALIGNMENT, HEAP_BYTES, Layout, Library, Region, RegionKind};
use super::memory::{Memory, PageState};

/// Most arenas that are looked at.
const MOST_ARENAS: usize = 4096;
/// Most places where a heap may begin.
const MOST_HEAPS: usize = 1 << 16;
/// Lists of the first arena that may be caught in the middle of a change.
const TORN_LISTS: usize = 2;
/// Records that look like the first arena's: the ring of each is followed.
const MOST_RINGS: usize = 4;
/// Most values of the lock, the flags and the sign of small blocks.
const SMALL: u64 = 3;

/// The record of an arena (`malloc_state`).
#[derive(Debug, Clone)]
pub(crate) struct Arena {
    pub(crate) address: u64,
    pub(crate) is_main: bool,
    pub(crate) top: u64,
    pub(crate) next: u64,
    pub(crate) system_mem: u64,
    pub(crate) fastbins: Vec<u64>,
}

/// A heap of an arena beside the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeapInfo {
    pub(crate) address: u64,
    pub(crate) arena: u64,
    pub(crate) bytes: u64,
}

impl Arena {
    /// The arena with its record at an address; None where that cannot be read.
    pub(crate) fn read(memory: &dyn Memory, layout: &Layout, address: u64, is_main: bool) -> Option<Self> {
        let state = read_words(memory, address, layout.state)?;
        Some(Self::parsed(&state, layout, address, is_main))
    }

    fn parsed(state: &[u64], layout: &Layout, address: u64, is_main: bool) -> Self {
        let word = |offset: u64| word(state, offset);
        let lists = (0..layout.fastbins.1).map(|list| word(layout.fastbins.0 + list * 8)).collect();
        Self {
            address,
            is_main,
            top: word(layout.top),
            next: word(layout.next),
            system_mem: word(layout.system_mem),
            fastbins: lists,
        }
    }

    /// Address of the first chunk in the heap where this arena's record lies.
    fn first_chunk(&self, layout: &Layout) -> u64 {
        (self.address + layout.state).next_multiple_of(ALIGNMENT)
    }
}

impl HeapInfo {
    /// The heap that begins at an address, if what is there can be one.
    pub(crate) fn read(memory: &dyn Memory, layout: &Layout, address: u64) -> Option<Self> {
        let words = read_words(memory, address, layout.heap_info)?;
        let [arena, previous, bytes, usable] = words.get(..4)?.try_into().ok()?;
        let is_size =
            |bytes: u64| bytes <= HEAP_BYTES && bytes.is_multiple_of(memory.page_bytes()) && bytes > 0;
        let is_aligned = previous % HEAP_BYTES == 0 && arena % HEAP_BYTES == layout.heap_info;
        let pages = words.get(4).copied().filter(|_| layout.has_page_size);
        let is_page = pages.is_none_or(|bytes| bytes.is_power_of_two() && bytes >= 4096);
        let is_heap = is_size(bytes) && is_size(usable) && bytes <= usable && is_aligned && is_page;
        is_heap.then_some(Self { address, arena, bytes })
    }

    /// Address of its first chunk.
    pub(crate) fn first_chunk(&self, arena: &Arena, layout: &Layout) -> u64 {
        let record = self.address + layout.heap_info;
        if arena.address == record { arena.first_chunk(layout) } else { record.next_multiple_of(ALIGNMENT) }
    }
}

/// All arenas, the first one first.
pub(crate) fn all(memory: &dyn Memory, library: &Library) -> Result<Vec<Arena>, NotReadable> {
    let (mut unused, mut rings) = (false, 0);
    for (begin, words) in &library.data {
        for (at, address) in (0..words.len()).zip((*begin..).step_by(8)) {
            if rings >= MOST_RINGS {
                break;
            }
            let Some(state) = words.get(at..at + word_count(library.layout.state)) else { break };
            let main = Arena::parsed(state, &library.layout, address, true);
            match looks_like_main(state, &library.layout, &main) {
                Main::No => {}
                Main::Unused => unused = true,
                Main::Used => {
                    rings += 1;
                    if let Some(arenas) = ring(memory, &library.layout, main) {
                        return Ok(arenas);
                    }
                }
            }
        }
    }
    Err(NotReadable::because(match unused {
        true => "glibc's malloc was never used in it: another one serves it",
        false => "the first arena of glibc's malloc was not found",
    }))
}

#[derive(PartialEq, Eq)]
enum Main {
    No,
    /// It has never held anything.
    Unused,
    Used,
}

/// Whether the words can be the first arena: each list has a head, which points to itself where the list is empty.
fn looks_like_main(state: &[u64], layout: &Layout, main: &Arena) -> Main {
    let is_ring = main.next == main.address || main.next % HEAP_BYTES == layout.heap_info;
    let [lock, flags] = halves(word(state, 0));
    // `have_fastchunks` goes with the lists.
    let has_sign = layout.fastbins.1 == 0 || word(state, 8) & 0xffff_ffff <= 1;
    if !is_ring || lock > SMALL || flags > SMALL || !has_sign {
        return Main::No;
    }
    let lists = (0..layout.bins.1).map(|list| {
        let at = layout.bins.0 + list * 16;
        (layout.bin(main.address, list), word(state, at), word(state, at + 8))
    });
    if main.top == 0 && main.next == main.address {
        let is_empty = lists.into_iter().all(|(_, next, previous)| next == 0 && previous == 0);
        return if is_empty && main.system_mem == 0 { Main::Unused } else { Main::No };
    }
    let is_torn = |(head, next, previous): &(u64, u64, u64)| {
        *next == 0 || *previous == 0 || (next == head) != (previous == head)
    };
    if lists.filter(is_torn).count() <= TORN_LISTS { Main::Used } else { Main::No }
}

/// The arenas from the first one on until it comes again.
fn ring(memory: &dyn Memory, layout: &Layout, main: Arena) -> Option<Vec<Arena>> {
    let (first, mut next) = (main.address, main.next);
    let mut arenas = vec![main];
    while next != first {
        if next % HEAP_BYTES != layout.heap_info || arenas.len() >= MOST_ARENAS {
            return None;
        }
        let arena = Arena::read(memory, layout, next, false)?;
        next = arena.next;
        arenas.push(arena);
    }
    Some(arenas)
}

/// Heaps of the arenas beside the first, by the address of their arena.
pub(crate) fn heaps(
    memory: &dyn Memory,
    layout: &Layout,
    regions: &[Region],
    arenas: &[Arena],
) -> BTreeMap<u64, Vec<HeapInfo>> {
    let mut heaps: BTreeMap<u64, Vec<HeapInfo>> =
        arenas.iter().skip(1).map(|arena| (arena.address, vec![])).collect();
    if heaps.is_empty() {
        return heaps;
    }
    let anonymous = regions.iter().filter(|region| region.kind == RegionKind::Anonymous);
    let places = anonymous.flat_map(|region| {
        let first = region.begin.next_multiple_of(HEAP_BYTES);
        (first..region.end).step_by(usize::try_from(HEAP_BYTES).unwrap_or(usize::MAX))
    });
    for place in places.take(MOST_HEAPS) {
        let Some(heap) = HeapInfo::read(memory, layout, place) else { continue };
        if let Some(of_arena) = heaps.get_mut(&heap.arena) {
            of_arena.push(heap);
        }
    }
    heaps
}

/// Words that are resident.
fn read_words(memory: &dyn Memory, address: u64, bytes: u64) -> Option<Vec<u64>> {
    let page_bytes = memory.page_bytes();
    let (first, last) = (address / page_bytes, address.checked_add(bytes)?.checked_sub(1)? / page_bytes);
    let mut pages = vec![PageState::Absent; usize::try_from(last - first + 1).ok()?];
    memory.pages(first, &mut pages).ok()?;
    if pages.contains(&PageState::Absent) {
        return None;
    }
    let mut read = vec![0; usize::try_from(bytes).ok()?];
    let got = memory.read(address, &mut read).ok()?;
    let words = read.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
    (got == read.len()).then(|| words.collect())
}

fn word_count(bytes: u64) -> usize {
    usize::try_from(bytes / 8).unwrap_or(usize::MAX)
}

fn word(words: &[u64], offset: u64) -> u64 {
    words.get(word_count(offset)).copied().unwrap_or(0)
}

/// A word's first and second number of four bytes.
fn halves(word: u64) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])].map(u64::from)
}
