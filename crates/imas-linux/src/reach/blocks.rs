// SPDX-License-Identifier: Apache-2.0
//! Blocks that a program holds of glibc's malloc, each with the addresses to which its words may lead, copied while the
//! heap is walked.
//!
//! A heap changes meanwhile. A walk that meets an impossible size goes back some chunks and copies them anew; the rest of
//! a heap where that does not help is no heap for this look, but a root as a whole. Every byte is untrusted.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::copy::{Copied, PIECE};
use super::space::{ADDRESS_BITS, Targets};
use crate::heap::libc::{
    ALIGNMENT, CACHE_KEY, CacheKey, CacheRecord, FENCE, FLAGS, PREVIOUS_IN_USE, SIZE, USER,
};
use crate::heap::memory::Stop;
use crate::heap::walk::{CacheKeys, Heap, chunk_end, is_fence};

/// Bytes between two places to which a walk can go back, number of these places, and of times to go back.
const BETWEEN: u64 = 64 << 10;
const MOST_EARLIER: usize = 16;
const TRIES: usize = 60;
/// Bytes of a chunk's body that are looked at in one piece.
const BODY: u64 = PIECE / 2;
/// No file is mapped below.
const LEAST_ADDRESS: u64 = 64 << 10;
/// Most first words that are kinds beside the general kinds.
const MOST_FIRST_WORDS: usize = 1 << 16;

/// Reason why a look has no result.
#[derive(Debug)]
pub(super) enum Halt {
    /// A walk or a copy came to no end.
    Stopped(Stop),
    /// It would hold too much memory.
    TooLarge,
}

impl From<Stop> for Halt {
    fn from(stop: Stop) -> Self {
        Self::Stopped(stop)
    }
}

/// A block of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    /// Address that malloc has returned.
    pub(super) address: u64,
    /// Bytes of its chunk, in units of 16.
    pub(super) units: u32,
    /// Kind of its first word ([`FirstWords`]); the highest bit says that it may be a freed one in a thread's cache.
    kind: u32,
    /// Index of its first address among all.
    words: u64,
}

/// Sign of a block that may be freed.
const MAY_BE_FREE: u32 = 1 << 31;

impl Block {
    /// Bytes of its chunk.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.units) * ALIGNMENT
    }

    /// Kind of its first word.
    pub(super) fn kind(&self) -> u32 {
        self.kind & !MAY_BE_FREE
    }

    /// Whether it is surely held by the program.
    pub(super) fn is_held(&self) -> bool {
        self.kind & MAY_BE_FREE == 0
    }
}

/// Kinds of first words. Those that lead into a mapped file are each a kind: it may be the table of a class.
#[derive(Debug, Default)]
pub(super) struct FirstWords {
    numbers: HashMap<u64, u32>,
    words: Vec<u64>,
}

impl FirstWords {
    const ZERO: u32 = 0;
    const HEAP: u32 = 1;
    const OTHER: u32 = 2;
    const FIRST: u32 = 3;

    /// The kind of a word. `is_of_file`: it leads into a mapped file.
    pub(super) fn kind(&mut self, word: u64, targets: &Targets, is_of_file: &dyn Fn(u64) -> bool) -> u32 {
        if word == 0 {
            return Self::ZERO;
        }
        if targets.has(word) {
            return Self::HEAP;
        }
        if word >> ADDRESS_BITS != 0 || word < LEAST_ADDRESS {
            return Self::OTHER;
        }
        if let Some(known) = self.numbers.get(&word) {
            return *known;
        }
        if self.words.len() >= MOST_FIRST_WORDS || !is_of_file(word) {
            return Self::OTHER;
        }
        let number = u32::try_from(self.words.len()).unwrap_or(0) + Self::FIRST;
        self.numbers.insert(word, number);
        self.words.push(word);
        number
    }

    /// The word of a kind; `None` for the general ones.
    pub(super) fn word(&self, kind: u32) -> Option<u64> {
        self.words.get(usize::try_from(kind.checked_sub(Self::FIRST)?).ok()?).copied()
    }
}

/// Bytes of the heaps that were walked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HeapSums {
    /// Blocks that the program holds.
    pub(super) live: u64,
    /// Freed blocks, whatever list they are in, and the rests at the ends of arenas.
    pub(super) free: u64,
    /// Parts that could not be walked.
    pub(super) unwalked: u64,
}

/// All blocks by address, and what their words lead to.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    pub(super) list: Vec<Block>,
    pub(super) words: Vec<u64>,
    pub(super) sums: HeapSums,
    /// Heaps that were walked, which are no roots.
    pub(super) walked: Vec<Walked>,
    /// Second words of blocks that may be the record of a cache, with the index of the block.
    keyed: Vec<(usize, u64)>,
}

/// A heap, or a block with a mapping of its own, that was walked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) memory: Range<u64>,
    /// Indexes of its blocks.
    pub(super) blocks: Range<usize>,
}

/// Settings of a walk beside the memory.
pub(super) struct Walker<'a> {
    pub(super) targets: &'a Targets,
    pub(super) keys: &'a CacheKeys,
    pub(super) cache: CacheKey,
    /// Whether a pointer may begin at any byte.
    pub(super) everywhere: bool,
    pub(super) is_of_file: &'a dyn Fn(u64) -> bool,
}

/// State of a walk at a place.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    blocks: usize,
    words: usize,
    keyed: usize,
    sums: HeapSums,
}

impl Blocks {
    /// Bytes that all of it takes.
    fn held(&self) -> u64 {
        (self.list.len() * size_of::<Block>() + self.words.len() * 8) as u64
    }

    /// Index of the addresses of a block.
    pub(super) fn words_of(&self, index: usize) -> &[u64] {
        let begin = self.list.get(index).map_or(0, |block| block.words);
        let end = self.list.get(index + 1).map_or(self.words.len() as u64, |block| block.words);
        let range = usize::try_from(begin).unwrap_or(0)..usize::try_from(end).unwrap_or(0);
        self.words.get(range).unwrap_or(&[])
    }

    /// Walks one heap. `heap` says where it is, at each try anew.
    pub(super) fn add_heap(
        &mut self,
        heap: &dyn Fn() -> Result<Heap, Stop>,
        fast: &HashSet<u64>,
        (walker, first_words): (&Walker<'_>, &mut FirstWords),
        copied: &mut Copied<'_>,
    ) -> Result<(), Halt> {
        let mut earlier: Vec<Place> = vec![];
        let (first, begin) = (self.place(0), heap().map(|heap| heap.begin));
        let mut at = begin.unwrap_or(0);
        for _ in 0..TRIES {
            copied.forget();
            let walked = heap().map_err(Halt::from).and_then(|heap| {
                at = at.max(heap.begin);
                let end = self.go_on(&heap, &mut at, &mut earlier, (fast, walker, first_words), copied)?;
                Ok((heap.begin, end))
            });
            match walked {
                Ok((begin, end)) => {
                    self.walked.push(Walked { memory: begin..end, blocks: first.blocks..self.list.len() });
                    return Ok(());
                }
                Err(Halt::Stopped(Stop::Torn)) => at = self.back(earlier.pop().unwrap_or(first)),
                Err(halt) => return Err(halt),
            }
        }
        // What was walked until here may be wrong as well: blocks of a heap that was torn are not judged.
        self.back(first);
        self.sums.unwalked += heap().map_or(0, |heap| heap.end.saturating_sub(heap.begin));
        Ok(())
    }

    fn place(&self, at: u64) -> Place {
        Place {
            at,
            blocks: self.list.len(),
            words: self.words.len(),
            keyed: self.keyed.len(),
            sums: self.sums,
        }
    }

    fn back(&mut self, place: Place) -> u64 {
        self.list.truncate(place.blocks);
        self.words.truncate(place.words);
        self.keyed.truncate(place.keyed);
        self.sums = place.sums;
        place.at
    }

    fn go_on(
        &mut self,
        heap: &Heap,
        at: &mut u64,
        earlier: &mut Vec<Place>,
        (fast, walker, first_words): (&HashSet<u64>, &Walker<'_>, &mut FirstWords),
        copied: &mut Copied<'_>,
    ) -> Result<u64, Halt> {
        let last = heap.end.checked_sub(FENCE).ok_or(Stop::Torn)?;
        loop {
            if *at > last {
                return Err(Stop::Torn.into());
            }
            if heap.top == Some(*at) {
                self.sums.free += heap.end - *at;
                return Ok(heap.end);
            }
            let size = copied.word(*at + SIZE, heap.end)?;
            if heap.top.is_none() && is_fence(size, *at, last) {
                return Ok(heap.end);
            }
            let end = chunk_end(*at, size, last)?;
            self.chunk(*at..end, heap.end, (fast, walker, first_words), copied)?;
            *at = end;
            if *at >= earlier.last().map_or(heap.begin, |place| place.at) + BETWEEN {
                if self.held() > copied.bounds.most_bytes {
                    return Err(Halt::TooLarge);
                }
                if earlier.len() >= MOST_EARLIER {
                    earlier.remove(0);
                }
                earlier.push(self.place(*at));
            }
        }
    }

    fn chunk(
        &mut self,
        chunk: Range<u64>,
        end: u64,
        (fast, walker, first_words): (&HashSet<u64>, &Walker<'_>, &mut FirstWords),
        copied: &mut Copied<'_>,
    ) -> Result<(), Halt> {
        let bytes = chunk.end - chunk.start;
        let behind = chunk.end + USER;
        // A small chunk is copied with the next one's head; of a large one that may be free the head alone.
        let (repeated, next) = if bytes < BODY {
            copied.part(chunk.start..behind, end)?;
            (copied.word(chunk.end, end)?, copied.word(chunk.end + SIZE, end)?)
        } else {
            (copied.word(chunk.end, behind)?, copied.word(chunk.end + SIZE, behind)?)
        };
        if next & PREVIOUS_IN_USE == 0 && repeated != bytes {
            return Err(Stop::Torn.into());
        }
        if next & PREVIOUS_IN_USE == 0 || !fast.is_empty() && fast.contains(&chunk.start) {
            self.sums.free += bytes;
            return Ok(());
        }
        // The last word of a block lies in the next chunk's head.
        let body = chunk.start + USER..chunk.end + SIZE;
        self.block((body, bytes), end, (walker, first_words), copied)
    }

    /// Adds a block with what its words lead to.
    fn block(
        &mut self,
        (body, bytes): (Range<u64>, u64),
        end: u64,
        (walker, first_words): (&Walker<'_>, &mut FirstWords),
        copied: &mut Copied<'_>,
    ) -> Result<(), Halt> {
        let address = body.start;
        let first = copied.word(address, end)?;
        let key = copied.word(address - USER + CACHE_KEY, end)?;
        let mut kind = first_words.kind(first, walker.targets, walker.is_of_file);
        if walker.keys.may_be_cached(key) {
            kind |= MAY_BE_FREE;
        } else if matches!(walker.cache, CacheKey::Record(_)) && walker.targets.has(key) {
            self.keyed.push((self.list.len(), key));
        }
        let live = if kind & MAY_BE_FREE == 0 { &mut self.sums.live } else { &mut self.sums.free };
        *live += bytes;
        let units = u32::try_from(bytes / ALIGNMENT).unwrap_or(u32::MAX);
        self.list.push(Block { address, units, kind, words: self.words.len() as u64 });
        let mut at = body.start;
        while at < body.end {
            let next = body.end.min(at + BODY);
            // A pointer at an uneven place may lie on both sides.
            let more = if walker.everywhere { body.end.min(next + SIZE - 1) } else { next };
            let part = copied.part(at..more, end)?;
            walker.targets.collect(part, walker.everywhere, &mut self.words);
            at = next;
        }
        Ok(())
    }

    /// Adds a large block with a mapping of its own, which begins at an address.
    pub(super) fn add_mapped(
        &mut self,
        chunk: Range<u64>,
        (walker, first_words): (&Walker<'_>, &mut FirstWords),
        copied: &mut Copied<'_>,
    ) -> Result<(), Halt> {
        copied.forget();
        let size = copied.word(chunk.start + SIZE, chunk.end)?;
        if size & !FLAGS != chunk.end - chunk.start {
            return Ok(()); // it was freed, or made larger
        }
        let before = self.list.len();
        self.block(
            (chunk.start + USER..chunk.end, chunk.end - chunk.start),
            chunk.end,
            (walker, first_words),
            copied,
        )?;
        self.walked.push(Walked { memory: chunk, blocks: before..self.list.len() });
        if self.held() > copied.bounds.most_bytes { Err(Halt::TooLarge) } else { Ok(()) }
    }

    /// Finds freed blocks by the address of the record of their cache, once all blocks are known.
    pub(super) fn note_cached(&mut self, cache: CacheKey) {
        let CacheKey::Record(record) = cache else { return };
        let records: HashSet<u64> = self.records(record);
        for (index, key) in std::mem::take(&mut self.keyed) {
            if let Some(block) = self.list.get_mut(index).filter(|_| records.contains(&key)) {
                block.kind |= MAY_BE_FREE;
                self.sums.live = self.sums.live.saturating_sub(block.bytes());
                self.sums.free += block.bytes();
            }
        }
    }

    fn records(&self, record: CacheRecord) -> HashSet<u64> {
        let is_one = |block: &&Block| block.bytes() == record.chunk();
        self.list.iter().filter(is_one).map(|block| block.address).collect()
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "one range of addresses is meant")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reach::copy::made::{Made, bounds};

    impl Blocks {
        /// Adds a block with the addresses of its words.
        pub(in crate::reach) fn push_made(&mut self, address: u64, units: u32, words: &[u64]) {
            self.list.push(Block { address, units, kind: 0, words: self.words.len() as u64 });
            self.words.extend(words);
        }
    }

    const BEGIN: u64 = 0x5555_0000_0000;

    /// A heap of chunks, each with its bytes, whether it is in use, and its first word; then the top.
    fn heap_of(chunks: &[(u64, bool, u64)]) -> (Made, Heap) {
        let mut words = vec![];
        let mut previous = (0, true);
        for (bytes, in_use, first) in chunks {
            words.extend([previous.0, bytes | u64::from(previous.1), *first]);
            words.resize(words.len() + usize::try_from(bytes / 8).unwrap() - 3, 0);
            previous = (if *in_use { 0 } else { *bytes }, *in_use);
        }
        let top = BEGIN + 8 * words.len() as u64;
        words.extend([previous.0, 0x1000 | u64::from(previous.1)]);
        let heap = Heap { start: BEGIN, begin: BEGIN, end: top + 0x1000, top: Some(top), returns_top: true };
        (Made::new(BEGIN, &words), heap)
    }

    fn walked(memory: &Made, heap: Heap, fast: &[u64]) -> Blocks {
        let mut blocks = Blocks::default();
        let targets = Targets::new(vec![heap.begin..heap.end]);
        let walker = Walker {
            targets: &targets,
            keys: &CacheKeys::default(),
            cache: CacheKey::None,
            everywhere: false,
            is_of_file: &|word| word >> 32 == 0x7f00,
        };
        let fast = fast.iter().copied().collect();
        let mut copied = Copied::new(memory, bounds());
        let words = &mut FirstWords::default();
        blocks.add_heap(&|| Ok(heap), &fast, (&walker, words), &mut copied).unwrap();
        blocks
    }

    #[test]
    fn blocks_in_use_are_found_with_what_they_lead_to() {
        let (memory, heap) = heap_of(&[
            (0x20, true, BEGIN + 0x30),
            (0x400, true, 0x7f00_0000_1234),
            (0x30, false, BEGIN + 0x30),
            (0x100000, true, 5),
            (0x30, true, BEGIN + 0x30),
        ]);
        let blocks = walked(&memory, heap, &[BEGIN + 0x100450]);
        let found: Vec<_> = blocks.list.iter().map(|block| (block.address - BEGIN, block.bytes())).collect();
        assert_eq!(found, [(0x10, 0x20), (0x30, 0x400), (0x460, 0x100000)], "the last is in a fast list");
        assert_eq!((blocks.words_of(0), blocks.words_of(1)), (&[BEGIN + 0x30][..], &[][..]));
        assert_eq!((blocks.sums.live, blocks.sums.free), (0x100420, 0x1060));
        let kinds: Vec<_> = blocks.list.iter().map(Block::kind).collect();
        assert_eq!(kinds, [FirstWords::HEAP, FirstWords::FIRST, FirstWords::OTHER]);
        assert_eq!(blocks.walked, [Walked { memory: heap.begin..heap.end, blocks: 0..3 }]);
    }

    #[test]
    fn a_heap_that_makes_no_sense_is_left_as_a_whole() {
        let (mut memory, heap) = heap_of(&[(0x20, true, 0), (0x400, true, 0), (0x30, true, 0)]);
        memory.bytes[0x28] = 0x17;
        let blocks = walked(&memory, heap, &[]);
        assert!(blocks.list.is_empty() && blocks.walked.is_empty(), "{:?}", blocks.list);
        assert_eq!((blocks.sums.live, blocks.sums.unwalked), (0, heap.end - heap.begin));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn random_bytes_are_walked_to_an_end(
            words in prop::collection::vec(
                prop_oneof![0u64..0x200, any::<u64>(), (0u64..0x3000).prop_map(|at| BEGIN + at)],
                0..1500,
            ),
            top in 0u64..0x4000,
        ) {
            let memory = Made::new(BEGIN, &words);
            let end = BEGIN + 0x3000;
            for top in [None, Some(BEGIN + top)] {
                let blocks = walked(&memory, Heap { start: BEGIN, begin: BEGIN, end, top, returns_top: true }, &[]);
                let is_in = |block: &Block| (BEGIN..end).contains(&block.address) && block.bytes() <= 0x3000;
                prop_assert!(blocks.list.iter().all(is_in));
                prop_assert!(memory.reads.get() < 100_000);
            }
        }
    }
}
