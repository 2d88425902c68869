// SPDX-License-Identifier: Apache-2.0
//! Blocks by their addresses, the copy of the heaps in which they lie, and the marks of those that are reached.

use std::ops::Range;

use super::super::libc::{CACHE_KEY, SIZE, USER};
use super::super::mapped::mapped_blocks;
use super::super::memory::{Memory, Stop};
use super::super::walk::{FoundBlocks, HeapBlock};
use super::{Reached, Roots, SearchBounds, Seen, read_resident};

/// Bytes that the list, the marks, and what is kept of a block take.
const BLOCK_BYTES: u64 = 96;
/// Addresses have so many bits; programs use those above as tags.
const ADDRESS: u64 = (1 << 48) - 1;
const PAGE_SHIFT: u32 = 12;

/// Memory in which blocks lie side by side.
#[derive(Debug)]
struct Area {
    begin: u64,
    end: u64,
    /// Number of its first block in the list, and the number after its last.
    blocks: Range<usize>,
    /// For each page, the number of the first block that begins there or above.
    pages: Vec<u32>,
    /// The copy; empty for a block with a mapping of its own, which is read when it is reached.
    bytes: Vec<u8>,
}

/// All blocks.
pub(super) struct Graph<'m> {
    memory: &'m dyn Memory,
    bounds: SearchBounds,
    /// In the order of their addresses, as the areas.
    blocks: Vec<HeapBlock>,
    areas: Vec<Area>,
    between: Range<u64>,
}

/// Marks of the blocks, and those whose words were not looked at yet.
pub(super) struct Marks {
    marked: Vec<bool>,
    open: Vec<u32>,
}

impl<'m> Graph<'m> {
    pub(super) fn of(
        memory: &'m dyn Memory,
        mut found: FoundBlocks,
        roots: &Roots,
        bounds: SearchBounds,
    ) -> Result<Self, Stop> {
        found.heaps.sort_by_key(|heap| heap.start);
        let mapped = mapped_blocks(memory, &roots.anonymous, &found.heaps, bounds.until)?;
        let copied: u64 = found.heaps.iter().map(|heap| heap.end.saturating_sub(heap.start)).sum();
        let count = (found.blocks.len() + mapped.len()) as u64;
        if copied.saturating_add(count * BLOCK_BYTES) > bounds.bytes || u32::try_from(count).is_err() {
            return Err(Stop::TooMuch(copied.saturating_add(count * BLOCK_BYTES)));
        }
        let mut graph = Self { memory, bounds, blocks: vec![], areas: vec![], between: 0..0 };
        found.blocks.sort_unstable();
        let mut rest = found.blocks.as_slice();
        for heap in &found.heaps {
            let below = rest.partition_point(|block| block.address < heap.start);
            let of_heap = rest.partition_point(|block| block.address < heap.end);
            graph.add_heap(heap, &rest[below..of_heap], &found.cache_keys)?;
            rest = &rest[of_heap..];
        }
        drop(found.blocks);
        mapped.into_iter().for_each(|block| graph.add_mapped(block));
        // Lists of free blocks begin there, and the first word of a free block is the last of the one below.
        let Range { start: begin, end } = found.first_arena;
        graph.areas.push(Area { begin, end, blocks: 0..0, pages: vec![], bytes: vec![0] });
        graph.areas.sort_by_key(|area| area.begin);
        let begin = graph.areas.first().map_or(0, |area| area.begin);
        graph.between = begin..graph.areas.last().map_or(0, |area| area.end);
        Ok(graph)
    }

    /// Copies a heap, and adds its blocks but for those in caches of threads.
    fn add_heap(&mut self, heap: &Range<u64>, blocks: &[HeapBlock], cache_keys: &[u64]) -> Result<(), Stop> {
        let mut bytes = vec![0; usize::try_from(heap.end - heap.start).map_err(|_| Stop::Torn)?];
        read_resident(self.memory, heap.clone(), self.bounds.until, &mut |address, piece| {
            let at = usize::try_from(address - heap.start).unwrap_or(usize::MAX);
            if let Some(place) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..piece.len())) {
                place.copy_from_slice(piece);
            }
        })?;
        let first = self.blocks.len();
        let is_cached = |block: &HeapBlock| {
            word_at(&bytes, block.address + CACHE_KEY - heap.start)
                .is_some_and(|word| cache_keys.contains(&word))
        };
        self.blocks.extend(blocks.iter().filter(|block| !is_cached(block)));
        let count = usize::try_from((heap.end - heap.start) >> PAGE_SHIFT).unwrap_or(0) + 1;
        let mut pages = Vec::with_capacity(count);
        let mut next = first;
        for page in 0..count as u64 {
            let begin = heap.start + (page << PAGE_SHIFT);
            while self.blocks.get(next).is_some_and(|block| block.address < begin) {
                next += 1;
            }
            pages.push(u32::try_from(next).map_err(|_| Stop::Torn)?);
        }
        let blocks = first..self.blocks.len();
        self.areas.push(Area { begin: heap.start, end: heap.end, blocks, pages, bytes });
        Ok(())
    }

    fn add_mapped(&mut self, block: HeapBlock) {
        let number = self.blocks.len();
        let end = block.address.saturating_add(block.bytes);
        let blocks = number..number + 1;
        self.blocks.push(block);
        self.areas.push(Area { begin: block.address, end, blocks, pages: vec![], bytes: vec![] });
    }

    pub(super) fn unmarked(&self) -> Marks {
        Marks { marked: vec![false; self.blocks.len()], open: vec![] }
    }

    fn area(&self, address: u64) -> Option<&Area> {
        let after = self.areas.partition_point(|area| area.begin <= address);
        self.areas.get(after.checked_sub(1)?).filter(|area| address < area.end)
    }

    /// Number of the block to whose bytes the address belongs. The last word of a block is its own, though malloc
    /// takes it for the next one's.
    fn block(&self, address: u64) -> Option<usize> {
        let area = self.area(address)?;
        let number = match area.pages.is_empty() {
            true => area.blocks.start,
            false => {
                let page = usize::try_from((address - area.begin) >> PAGE_SHIFT).ok()?;
                let from = *area.pages.get(page)? as usize;
                let to = area.pages.get(page + 1).map_or(area.blocks.end, |next| *next as usize);
                let here = self.blocks.get(from..to)?;
                // One that begins below the page may reach into it.
                (from + here.partition_point(|block| block.address <= address)).checked_sub(1)?
            }
        };
        let number = Some(number).filter(|number| area.blocks.contains(number))?;
        // Eight bytes into the next chunk lies its size; a block begins right above it.
        let has = |block: &HeapBlock| {
            (block.address + USER..block.address.saturating_add(block.bytes + SIZE)).contains(&address)
        };
        match self.blocks.get(number).is_some_and(has) {
            true => Some(number),
            // The first words of a chunk are the last of the block below.
            false => number
                .checked_sub(1)
                .filter(|below| area.blocks.contains(below) && self.blocks.get(*below).is_some_and(has)),
        }
    }

    /// Marks what can be reached from the open blocks.
    pub(super) fn drain(&self, marks: &mut Marks) -> Result<(), Stop> {
        let mut count = 0_u32;
        while let Some(number) = marks.open.pop() {
            count = count.wrapping_add(1);
            if count.is_multiple_of(1 << 16) && std::time::Instant::now() > self.bounds.until {
                return Err(Stop::Late);
            }
            self.words_of(number as usize, &mut |word| marks.consider(self, word))?;
        }
        Ok(())
    }

    /// Shows the words of a block.
    fn words_of(&self, number: usize, see: &mut dyn FnMut(u64)) -> Result<(), Stop> {
        let Some(block) = self.blocks.get(number) else { return Ok(()) };
        let Some(area) = self.area(block.address) else { return Ok(()) };
        let mut words = |bytes: &[u8]| {
            bytes.as_chunks::<8>().0.iter().for_each(|word| see(u64::from_ne_bytes(*word)));
        };
        if area.bytes.is_empty() {
            let range = block.address + USER..block.address.saturating_add(block.bytes);
            return read_resident(self.memory, range, self.bounds.until, &mut |_, bytes| words(bytes));
        }
        let begin = usize::try_from(block.address + USER - area.begin).unwrap_or(usize::MAX);
        let end = usize::try_from(block.address + block.bytes + SIZE - area.begin).unwrap_or(usize::MAX);
        words(area.bytes.get(begin..end.min(area.bytes.len())).unwrap_or_default());
        Ok(())
    }

    /// The parts of the range where no block and no heap lies.
    pub(super) fn outside_of_blocks(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut parts = vec![];
        let mut at = range.start;
        let first = self.areas.partition_point(|area| area.end <= range.start);
        for area in self.areas[first..].iter().take_while(|area| area.begin < range.end) {
            if at < area.begin {
                parts.push(at..area.begin);
            }
            at = at.max(area.end);
        }
        if at < range.end {
            parts.push(at..range.end);
        }
        parts
    }

    /// All blocks with how they were reached.
    pub(super) fn seen(&self, marks: &Marks, files: &[Range<u64>]) -> Result<Vec<Seen>, Stop> {
        let mut from_lost = vec![false; self.blocks.len()];
        for number in (0..self.blocks.len()).filter(|number| !marks.marked[*number]) {
            self.words_of(number, &mut |word| {
                if let Some(other) = self.pointed_at(word).filter(|other| *other != number) {
                    from_lost[other] = true;
                }
            })?;
        }
        let reach = |number: usize| match (marks.marked[number], from_lost[number]) {
            (true, _) => Reached::Yes,
            (false, true) => Reached::FromLost,
            (false, false) => Reached::No,
        };
        let seen = self.blocks.iter().enumerate().map(|(number, block)| {
            let word = self.first_word(block).filter(|word| is_in(files, *word)).unwrap_or(0);
            Seen { block: *block, word, reach: reach(number) }
        });
        Ok(seen.collect())
    }

    fn first_word(&self, block: &HeapBlock) -> Option<u64> {
        let area = self.area(block.address)?;
        word_at(&area.bytes, block.address + USER - area.begin)
    }

    fn pointed_at(&self, word: u64) -> Option<usize> {
        let address = word & ADDRESS;
        if self.between.contains(&address) { self.block(address) } else { None }
    }

    /// Bytes of blocks with mappings of their own.
    pub(super) fn mapped(&self) -> u64 {
        let mapped = self.areas.iter().filter(|area| area.bytes.is_empty());
        mapped.map(|area| area.end - area.begin).fold(0, u64::saturating_add)
    }
}

impl Marks {
    /// Marks the block to which a word points, if it does.
    pub(super) fn consider(&mut self, graph: &Graph<'_>, word: u64) {
        if let Some(number) = graph.pointed_at(word)
            && let Some(mark) = self.marked.get_mut(number)
            && !*mark
        {
            *mark = true;
            self.open.push(u32::try_from(number).unwrap_or(u32::MAX));
        }
    }
}

/// Whether one of the ranges, which are in order, has the address.
pub(super) fn is_in(ranges: &[Range<u64>], address: u64) -> bool {
    let after = ranges.partition_point(|range| range.start <= address);
    after.checked_sub(1).is_some_and(|at| ranges[at].contains(&address))
}

fn word_at(bytes: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
