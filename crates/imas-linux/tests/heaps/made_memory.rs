// SPDX-License-Identifier: Apache-2.0
//! A made-up process with glibc 2.36 or 2.43: its C library, `[heap]`, and other arenas, chunk by chunk.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use imas_linux::heap::memory::{Memory, PageState};
use imas_linux::heap::{Region, RegionKind};

pub(crate) const PAGE: u64 = 4096;
const TEXT: u64 = 0x7f00_0000_0000;
const DATA: u64 = TEXT + 0x10000;
/// Record of the first arena.
pub(crate) const MAIN: u64 = DATA + 0xc60;
/// `[heap]`.
pub(crate) const HEAP: u64 = 0x5555_0000_0000;
const OTHERS: u64 = 0x7e00_0000_0000;
const OTHER_BYTES: u64 = 64 << 20;
const HEAP_INFO: u64 = 0x30;
/// Key of blocks in the caches of threads, and where it lies.
const KEY: u64 = 0xa5a5_1234_5678_9abc;
const KEY_PLACE: u64 = DATA + 0x40;

/// A chunk of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Size of the block in units of 16 bytes, two at least.
    pub(crate) units: u16,
    pub(crate) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Live,
    Cached,
    Fast,
    Free,
}

/// Figures that a look must find.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) live: u64,
    pub(crate) cached: u64,
    pub(crate) fast: u64,
    pub(crate) free: u64,
    pub(crate) returnable: u64,
}

/// Memory by the address where each piece begins.
#[derive(Debug, Clone, Default)]
pub(crate) struct MadeMemory {
    pieces: BTreeMap<u64, Vec<u8>>,
    pub(crate) regions: Vec<Region>,
    /// Offset of the lists in an arena's record. What follows is the same in all versions.
    bins: u64,
}

impl MadeMemory {
    /// A process of glibc 2.36 with these chunks in its first arena, and in each of the others.
    pub(crate) fn of(main: &[Chunk], others: &[Vec<Chunk>]) -> (Self, Expected) {
        Self::of_glibc(36, main, others)
    }

    /// A process of glibc `2.minor`.
    pub(crate) fn of_glibc(minor: u32, main: &[Chunk], others: &[Vec<Chunk>]) -> (Self, Expected) {
        let mut memory = Self { bins: if minor < 43 { 0x70 } else { 0x18 }, ..Self::default() };
        let mut expected = Expected::default();
        memory.add(RegionKind::LibraryText, TEXT, PAGE);
        memory.write(TEXT, b"\x7fELF\x02");
        let line = format!("GNU C Library (made up) stable release version 2.{minor}.\n");
        memory.write(TEXT + 0x100, line.as_bytes());
        memory.add(RegionKind::LibraryData, DATA, 2 * PAGE);
        memory.word(KEY_PLACE, KEY);
        let arenas: Vec<u64> =
            (0..others.len() as u64).map(|at| OTHERS + at * OTHER_BYTES + HEAP_INFO).collect();
        let next = |at: usize| arenas.get(at).copied().unwrap_or(MAIN);
        let bytes = heap_bytes(main, 0);
        memory.add(RegionKind::MainHeap, HEAP, bytes);
        memory.arena(MAIN, next(0), bytes);
        memory.fill(MAIN, HEAP, HEAP + bytes, main, &mut expected);
        for (at, (arena, chunks)) in arenas.iter().zip(others).enumerate() {
            let begin = arena - HEAP_INFO;
            let first = (arena + memory.bins + 0x828).next_multiple_of(16);
            let bytes = heap_bytes(chunks, first - begin);
            memory.add(RegionKind::Anonymous, begin, bytes);
            for (offset, word) in [(0, *arena), (8, 0), (16, bytes), (24, bytes), (32, PAGE)] {
                memory.word(begin + offset, word);
            }
            memory.arena(*arena, next(at + 1), bytes);
            memory.fill(*arena, first, begin + bytes, chunks, &mut expected);
        }
        (memory, expected)
    }

    fn add(&mut self, kind: RegionKind, begin: u64, bytes: u64) {
        self.pieces.insert(begin, vec![0; usize::try_from(bytes).unwrap()]);
        self.regions.push(Region { begin, end: begin + bytes, kind });
    }

    /// The record of an arena without chunks.
    fn arena(&mut self, at: u64, next: u64, bytes: u64) {
        for list in 0..127 {
            let head = at + self.bins + list * 16 - 16;
            self.word(head + 16, head);
            self.word(head + 24, head);
        }
        self.word(at + self.bins + 0x800, next);
        self.word(at + self.bins + 0x818, bytes);
    }

    fn fill(&mut self, arena: u64, first: u64, end: u64, chunks: &[Chunk], expected: &mut Expected) {
        let (mut at, mut in_use, mut fast) = (first, 1, 0);
        let (mut free_from, has_fast) = (None, self.bins == 0x70);
        for (index, chunk) in chunks.iter().enumerate() {
            let bytes = u64::from(chunk.units.max(2)) * 16;
            // Two free chunks side by side are one, and none touches the top.
            let is_last = index + 1 == chunks.len();
            let kind = match chunk.kind {
                Kind::Free if in_use == 0 || is_last => Kind::Live,
                Kind::Fast if is_last || !has_fast => Kind::Live,
                kind => kind,
            };
            self.word(at + 8, bytes | in_use);
            in_use = u64::from(kind != Kind::Free);
            match kind {
                Kind::Live => expected.live += bytes,
                Kind::Cached => {
                    expected.cached += bytes;
                    self.word(at + 24, KEY);
                }
                Kind::Fast => {
                    expected.fast += bytes;
                    self.word(at + 16, fast ^ ((at + 16) >> 12));
                    fast = at;
                }
                Kind::Free => {
                    expected.free += bytes;
                    self.word(at + bytes, bytes);
                }
            }
            match (kind, free_from) {
                (Kind::Free | Kind::Fast, None) => free_from = Some(at),
                (Kind::Live | Kind::Cached, Some(from)) => {
                    expected.returnable += whole_pages(from + 48, at);
                    free_from = None;
                }
                _ => {}
            }
            at += bytes;
        }
        if has_fast {
            self.word(arena + 0x10, fast);
        }
        self.word(at + 8, (end - at) | 1);
        self.word(arena + self.bins - 16, at);
        if arena == MAIN {
            expected.returnable += whole_pages(at + 33, end);
        }
    }

    pub(crate) fn word(&mut self, at: u64, word: u64) {
        self.write(at, &word.to_ne_bytes());
    }

    /// Writes where there is memory.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let Some((begin, piece)) = self.pieces.range_mut(..=at).next_back() else { return };
        let offset = usize::try_from(at - begin).unwrap();
        if let Some(place) = piece.get_mut(offset..offset + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// All bytes, piece by piece, in the order of their addresses.
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.values().map(|piece| piece.len() as u64).sum()
    }

    /// Address of the byte with this number.
    pub(crate) fn place(&self, number: u64) -> u64 {
        let mut left = number % self.bytes();
        for (begin, piece) in &self.pieces {
            if left < piece.len() as u64 {
                return begin + left;
            }
            left -= piece.len() as u64;
        }
        0
    }
}

fn whole_pages(from: u64, to: u64) -> u64 {
    (to / PAGE).saturating_sub(from.div_ceil(PAGE)) * PAGE
}

/// The chunks and a top.
fn heap_bytes(chunks: &[Chunk], first: u64) -> u64 {
    let chunks: u64 = chunks.iter().map(|chunk| u64::from(chunk.units.max(2)) * 16).sum();
    (first + chunks + 3 * PAGE).next_multiple_of(PAGE)
}

impl Memory for MadeMemory {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        let piece = self.pieces.range(..=address).next_back();
        let (begin, piece) = piece.ok_or_else(|| Error::from(ErrorKind::InvalidInput))?;
        let from = usize::try_from(address - begin).unwrap().min(piece.len());
        let part = &piece[from..piece.len().min(from + into.len())];
        into[..part.len()].copy_from_slice(part);
        Ok(part.len())
    }

    fn pages(&self, first: u64, pages: &mut [PageState]) -> Result<()> {
        for (page, number) in pages.iter_mut().zip(first..) {
            let address = number.wrapping_mul(PAGE);
            let piece = self.pieces.range(..=address).next_back();
            let is_there = piece.is_some_and(|(begin, piece)| address - begin < piece.len() as u64);
            *page = if is_there { PageState::Own } else { PageState::Absent };
        }
        Ok(())
    }
}
