// SPDX-License-Identifier: Apache-2.0
//! A heap, chunk by chunk, from its first one to its end.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::arena::Arena;
use super::figures::HeapBytes;
use super::libc::{
    ALIGNMENT, CACHE_KEY, CHUNK_RECORD, CacheKey, CacheRecord, FENCE, FLAGS, LEAST_CHUNK, Layout, Library,
    MAPPED, PREVIOUS_IN_USE, SIZE, USER,
};
use super::memory::{Stop, Window};

/// Bytes between two places to which a walk can step back, and number of these places.
const BETWEEN: u64 = 64 << 10;
const MOST_EARLIER: usize = 16;

/// A piece of memory full of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heap {
    /// First address.
    pub(crate) start: u64,
    /// Address of the first chunk.
    pub(crate) begin: u64,
    /// Address after the last.
    pub(crate) end: u64,
    /// The arena's top, if that is here. Without it, fences end the heap.
    pub(crate) top: Option<u64>,
    /// Whether a trim returns what is free at the top.
    pub(crate) returns_top: bool,
}

/// Facts that are known beside the chunks themselves.
pub(crate) struct Known<'a> {
    pub(crate) fast: &'a HashSet<u64>,
    pub(crate) keys: &'a CacheKeys,
}

/// A walk through a heap, and what was counted until now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Walk {
    pub(crate) bytes: HeapBytes,
    pub(crate) keyed: KeyedBytes,
    /// Bytes of the heap that were passed.
    pub(crate) passed: u64,
    /// Where the walk is; None at its beginning.
    at: Option<u64>,
    /// Where the free chunks just below begin.
    free_from: Option<u64>,
}

/// A walk that can step back where the heap was torn.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) walk: Walk,
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
pub(crate) fn is_fence(size: u64, at: u64, last: u64) -> bool {
    match size & !FLAGS {
        0 => at == last,
        FENCE => at.checked_add(FENCE) == Some(last),
        _ => false,
    }
}

/// The end of a chunk, if its size is possible.
pub(crate) fn chunk_end(at: u64, size: u64, last: u64) -> Result<u64, Stop> {
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

// Free chunks by the lists of their arena, for a first arena in several parts: somebody else moved the program break,
// or the break could not be moved. Where the parts lie is not written down, but each free chunk is in a list.

/// Most free chunks.
const MOST_FREE: u64 = 1 << 20;

/// Bytes of an arena by its lists. All that is neither free nor the top counts as live.
pub(super) fn bytes_by_lists(
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
            add_free(&mut bytes, at, window)?;
            if bytes.blocks > MOST_FREE {
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

fn add_free(bytes: &mut HeapBytes, at: u64, window: &mut Window<'_>) -> Result<(), Stop> {
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

// Small free blocks that their neighbours take for used (fastbins): only the arena's lists name them.

/// Most blocks of one arena. Those beyond count as live.
const MOST_FAST: usize = 1 << 18;

/// Addresses of the blocks. A list that is changed meanwhile is taken as far as it makes sense.
pub(crate) fn fast_blocks(arena: &Arena, layout: &Layout, window: &mut Window<'_>) -> HashSet<u64> {
    let mut blocks = HashSet::new();
    for head in &arena.fastbins {
        let mut at = *head;
        while at != 0 && at.is_multiple_of(ALIGNMENT) && blocks.len() < MOST_FAST && blocks.insert(at) {
            match next_fast(at, layout, window) {
                Ok(next) => at = next,
                Err(_) => break,
            }
        }
    }
    blocks
}

/// The next one of the list: the pointer may be hidden by its own address.
fn next_fast(at: u64, layout: &Layout, window: &mut Window<'_>) -> Result<u64, Stop> {
    let place = at.wrapping_add(USER);
    let hidden_by = if layout.hides_pointers { place >> 12 } else { 0 };
    Ok(window.word(place)? ^ hidden_by)
}

// Blocks in the caches of threads (tcache). Each has a key in its second word. Since glibc 2.34 that is the process's
// random one, which is among the C library's variables; which of those shows in the heaps: it is the one in most
// blocks. From 2.29 to 2.33 it is the address of the record of the thread's cache, which is a block like others: it is
// known by its size, and by what is in it. A block whose cache lies in a heap that is read later counts as live.

/// Words that may be the key.
#[derive(Debug, Default)]
pub(crate) struct CacheKeys {
    kind: CacheKey,
    /// Random words, in their order.
    words: Vec<u64>,
}

/// Greatest number of words that are counted as possible keys. In an honest heap few words beside the key are among the
/// C library's variables.
const MOST_KEYS: usize = 64;

/// Bytes of blocks, by the word that may be the key.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyedBytes(BTreeMap<u64, u64>);

impl KeyedBytes {
    /// Adds the bytes of a block. A new word beyond the most is left out.
    pub(super) fn add(&mut self, key: u64, bytes: u64) {
        if self.0.len() < MOST_KEYS || self.0.contains_key(&key) {
            let sum = self.0.entry(key).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, bytes)| self.add(*key, *bytes));
    }

    fn of(&self, key: u64) -> u64 {
        self.0.get(&key).copied().unwrap_or(0)
    }

    fn knows(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    /// The key: the word in most blocks.
    fn most(&self) -> Option<u64> {
        self.0.iter().max_by_key(|(_, bytes)| **bytes).map(|(key, _)| *key)
    }
}

impl CacheKeys {
    pub(crate) fn of(library: &Library) -> Self {
        let words = library.data.iter().flat_map(|(_, words)| words);
        let mut keys: Vec<u64> = words.copied().filter(|word| is_random(*word)).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { kind: library.layout.cache_key, words: keys }
    }

    /// Whether a block with this word may be one in a cache, by the process's random key.
    pub(crate) fn may_be_cached(&self, key: u64) -> bool {
        self.kind == CacheKey::Random && is_random(key) && self.words.binary_search(&key).is_ok()
    }

    /// Adds a used block, if it may be one in a cache. It may be the record of a cache itself, which is noted.
    pub(super) fn note(
        &self,
        chunk: Range<u64>,
        key: u64,
        window: &mut Window<'_>,
        keyed: &mut KeyedBytes,
    ) -> Result<(), Stop> {
        let bytes = chunk.end - chunk.start;
        match self.kind {
            CacheKey::Random if is_random(key) && self.words.binary_search(&key).is_ok() => {
                keyed.add(key, bytes)
            }
            CacheKey::Record(record) if bytes == record.chunk() => {
                let at = chunk.start + USER;
                if is_record(record, at, window)? {
                    keyed.add(at, 0);
                }
            }
            CacheKey::Record(_) if keyed.knows(key) => keyed.add(key, bytes),
            _ => {}
        }
        Ok(())
    }

    /// Bytes that caches hold, of a part of all blocks.
    pub(super) fn bytes(&self, part: &KeyedBytes, all: &KeyedBytes) -> u64 {
        match self.kind {
            CacheKey::Random => all.most().map_or(0, |key| part.of(key)),
            _ => part.0.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        }
    }
}

/// Whether this is the record of a cache that has blocks: where it has some of a size it has a first one.
fn is_record(record: CacheRecord, at: u64, window: &mut Window<'_>) -> Result<bool, Stop> {
    let mut has_blocks = false;
    for size in 0..CacheRecord::SIZES {
        let place = at + size * record.count;
        let bits = 8 * record.count;
        let word = window.word(place - place % 8)?;
        let count = (word >> (8 * (place % 8))) & ((1 << bits) - 1);
        let first = window.word(at + record.blocks() + 8 * size)?;
        if (count == 0) != (first == 0) || !first.is_multiple_of(USER) {
            return Ok(false);
        }
        has_blocks |= count != 0;
    }
    Ok(has_blocks)
}

/// Whether the word is neither a small number nor an address.
fn is_random(word: u64) -> bool {
    let high = word >> 48;
    high != 0 && high != 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enemy_with_a_million_words_gets_room_for_a_few() {
        let mut keyed = KeyedBytes::default();
        keyed.add(7 << 48, 32);
        (0..1_000_000).for_each(|word| keyed.add(word, 16));
        keyed.add(7 << 48, 32);
        let mut sum = KeyedBytes::default();
        sum.add_all(&keyed);
        assert_eq!((keyed.0.len(), sum.most(), sum.of(7 << 48)), (MOST_KEYS, Some(7 << 48), 64));
    }
}
