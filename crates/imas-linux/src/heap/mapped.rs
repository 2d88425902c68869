// SPDX-License-Identifier: Apache-2.0
//! Large blocks of glibc's malloc, each in a mapping of its own: they begin at a page, and their size says so. The
//! kernel joins mappings that lie side by side.

use std::ops::Range;
use std::time::Instant;

use super::libc::{FLAGS, MAPPED};
use super::memory::{Memory, Residency, Stop};

/// A block, with malloc's own words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MappedBlock {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Least bytes of a block with a mapping of its own.
const LEAST: u64 = 32 << 10;
/// Most pages that are looked at, and pages in a row without a block after which the rest of a region is left.
const MOST_PAGES: u64 = 1 << 18;
const MOST_MISSED: u64 = 512;

/// Blocks in the regions, outside of the heaps, which are in order. A block in a region that begins with something else
/// may be missed.
pub(crate) fn mapped_blocks(
    memory: &dyn Memory,
    regions: &[Range<u64>],
    heaps: &[Range<u64>],
    until: Instant,
) -> Result<Vec<MappedBlock>, Stop> {
    let page_bytes = memory.page_bytes();
    let mut residency = Residency::new(memory, until);
    let (mut blocks, mut pages) = (vec![], 0);
    for region in regions {
        let (mut at, mut missed) = (region.start, 0);
        while at < region.end && pages < MOST_PAGES && missed < MOST_MISSED {
            pages += 1;
            let inside = heaps.partition_point(|heap| heap.end <= at);
            if let Some(heap) = heaps.get(inside).filter(|heap| heap.contains(&at)) {
                at = heap.end.next_multiple_of(page_bytes);
                continue;
            }
            let is_there = residency.has(at / page_bytes)?;
            let block = if is_there { block_at(memory, at, region.end) } else { None };
            missed = if block.is_some() { 0 } else { missed + 1 };
            at = block.map_or(at + page_bytes, |block| block.address + block.bytes);
            blocks.extend(block);
        }
    }
    Ok(blocks)
}

/// Resident bytes of the blocks.
pub(crate) fn resident_bytes(
    memory: &dyn Memory,
    blocks: &[MappedBlock],
    until: Instant,
) -> Result<u64, Stop> {
    let mut residency = Residency::new(memory, until);
    blocks.iter().try_fold(0_u64, |sum, block| {
        let pages = residency.bytes_between(block.address..block.address + block.bytes)?;
        Ok(sum.saturating_add(pages.iter().sum()))
    })
}

fn block_at(memory: &dyn Memory, address: u64, end: u64) -> Option<MappedBlock> {
    let mut words = [[0; 8]; 2];
    let got = memory.read(address, words.as_flattened_mut()).ok()?;
    let [previous, size] = words.map(u64::from_ne_bytes);
    let bytes = size & !FLAGS;
    let is_one = got == 16
        && previous == 0
        && size & FLAGS == MAPPED
        && bytes >= LEAST
        && bytes.is_multiple_of(memory.page_bytes())
        && address.checked_add(bytes).is_some_and(|own| own <= end);
    is_one.then_some(MappedBlock { address, bytes })
}
