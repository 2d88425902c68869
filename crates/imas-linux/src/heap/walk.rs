// SPDX-License-Identifier: Apache-2.0
//! A heap, chunk by chunk, from its first one to its end.

use std::collections::HashSet;
use std::ops::Range;

use super::cache_key::{CacheKeys, KeyedBytes};
use super::figures::HeapBytes;
use super::layout::{
    ALIGNMENT, CACHE_KEY, CHUNK_RECORD, FENCE, FLAGS, LEAST_CHUNK, MAPPED, PREVIOUS_IN_USE, SIZE,
};
use super::stop::Stop;
use super::window::Window;

/// Bytes between two places to which a walk can step back, and number of these places.
const BETWEEN: u64 = 64 << 10;
const MOST_EARLIER: usize = 16;

/// A piece of memory full of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Heap {
    /// First address.
    pub(super) start: u64,
    /// Address of the first chunk.
    pub(super) begin: u64,
    /// Address after the last.
    pub(super) end: u64,
    /// The arena's top, if that is here. Without it, fences end the heap.
    pub(super) top: Option<u64>,
    /// Whether a trim returns what is free at the top.
    pub(super) returns_top: bool,
}

/// What is known beside the chunks themselves.
pub(super) struct Known<'a> {
    pub(super) fast: &'a HashSet<u64>,
    pub(super) keys: &'a CacheKeys,
}

/// A walk through a heap, and what was counted until now.
#[derive(Debug, Clone, Default)]
pub(super) struct Walk {
    pub(super) bytes: HeapBytes,
    pub(super) keyed: KeyedBytes,
    /// Bytes of the heap that were passed.
    pub(super) passed: u64,
    /// Where the walk is; None at its beginning.
    at: Option<u64>,
    /// Where the free chunks just below begin.
    free_from: Option<u64>,
}

/// A walk that can step back where the heap was torn.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) walk: Walk,
    /// The walk at earlier places, the newest last.
    earlier: Vec<Walk>,
}

/// Kind of chunk.
#[derive(PartialEq, Eq)]
enum Chunk {
    Used,
    Fast,
    Free,
}

impl Steps {
    /// Goes on to the end of the heap. What was counted until a stop is of use, but for a torn heap: there the
    /// walk is to step back.
    pub(super) fn go_on(
        &mut self,
        heap: &Heap,
        known: &Known<'_>,
        window: &mut Window<'_>,
    ) -> Result<(), Stop> {
        while self.walk.step(heap, known, window)? {
            let last = self.earlier.last().map_or(0, |walk| walk.passed);
            if self.walk.passed - last >= BETWEEN {
                if self.earlier.len() >= MOST_EARLIER {
                    self.earlier.remove(0);
                }
                self.earlier.push(self.walk.clone());
            }
        }
        Ok(())
    }

    /// Steps back to an earlier place, in the end to the beginning.
    pub(super) fn back(&mut self) {
        self.walk = self.earlier.pop().unwrap_or_default();
    }
}

impl Walk {
    /// Passes one chunk; false at the end.
    fn step(&mut self, heap: &Heap, known: &Known<'_>, window: &mut Window<'_>) -> Result<bool, Stop> {
        let last = heap.end.checked_sub(FENCE).ok_or(Stop::Torn)?;
        let at = self.at.unwrap_or(heap.begin);
        let free = self.free_from.unwrap_or(at)..at;
        let is_top = heap.top == Some(at);
        if is_top {
            self.top(heap, at, free.clone(), window)?;
        }
        let size = if is_top { 0 } else { window.word(at.wrapping_add(SIZE))? };
        if is_top || heap.top.is_none() && is_fence(size, at, last) {
            if !is_top {
                self.give(free, window)?;
            }
            self.passed = heap.end - heap.start;
            return Ok(false);
        }
        let end = chunk_end(at, size, last)?;
        // Upwards, so that no page is read twice.
        let key = window.word(at + CACHE_KEY)?;
        let chunk = kind(at..end, known, window)?;
        if chunk == Chunk::Used {
            self.give(free, window)?;
            self.used(at..end, key, known, window)?;
            self.free_from = None;
        } else {
            let place = if chunk == Chunk::Fast { &mut self.bytes.fast } else { &mut self.bytes.free };
            *place += end - at;
            self.free_from = Some(free.start);
        }
        self.bytes.blocks += 1;
        self.at = Some(end);
        self.passed = end - heap.start;
        Ok(true)
    }

    fn used(
        &mut self,
        chunk: Range<u64>,
        key: u64,
        known: &Known<'_>,
        window: &mut Window<'_>,
    ) -> Result<(), Stop> {
        self.bytes.live += chunk.end - chunk.start;
        known.keys.note(chunk, key, window, &mut self.keyed)
    }

    /// Adds the whole pages of chunks that are free and side by side.
    fn give(&mut self, free: Range<u64>, window: &mut Window<'_>) -> Result<(), Stop> {
        if !free.is_empty() {
            let pages = window.residency.bytes_between(free.start + CHUNK_RECORD..free.end)?;
            self.bytes.add_returnable(pages);
        }
        Ok(())
    }

    /// The top, which takes in the free chunks just below. A trim leaves the smallest chunk of it.
    fn top(&mut self, heap: &Heap, at: u64, below: Range<u64>, window: &mut Window<'_>) -> Result<(), Stop> {
        let bytes = window.word(at + SIZE)? & !FLAGS;
        if at.checked_add(bytes) != Some(heap.end) {
            return Err(Stop::Torn);
        }
        self.bytes.top += bytes;
        let begin = if below.is_empty() { at } else { below.start };
        let resident = window.residency.bytes_between(begin + LEAST_CHUNK + 1..heap.end)?;
        match heap.returns_top {
            true => self.bytes.add_returnable(resident),
            false => self.bytes.top_resident += resident.iter().sum::<u64>(),
        }
        Ok(())
    }
}

/// Whether the chunks end here: nothing, or one fence and then nothing.
fn is_fence(size: u64, at: u64, last: u64) -> bool {
    match size & !FLAGS {
        0 => at == last,
        FENCE => at.checked_add(FENCE) == Some(last),
        _ => false,
    }
}

/// The end of a chunk, if its size is possible.
fn chunk_end(at: u64, size: u64, last: u64) -> Result<u64, Stop> {
    let bytes = size & !FLAGS;
    let end = at.checked_add(bytes).filter(|end| *end <= last).ok_or(Stop::Torn)?;
    let is_possible = bytes >= LEAST_CHUNK && bytes.is_multiple_of(ALIGNMENT) && size & MAPPED == 0;
    if is_possible { Ok(end) } else { Err(Stop::Torn) }
}

/// Whether the chunk is free: the next one says so, and repeats its size.
fn kind(chunk: Range<u64>, known: &Known<'_>, window: &mut Window<'_>) -> Result<Chunk, Stop> {
    let repeated = window.word(chunk.end)?;
    if window.word(chunk.end + SIZE)? & PREVIOUS_IN_USE == 0 {
        return if repeated == chunk.end - chunk.start { Ok(Chunk::Free) } else { Err(Stop::Torn) };
    }
    Ok(if known.fast.contains(&chunk.start) { Chunk::Fast } else { Chunk::Used })
}
