// SPDX-License-Identifier: Apache-2.0
//! Blocks of glibc's malloc in another process that nothing points to: what can be reached from its variables,
//! stacks and other memory is marked, as a conservative collector does it.
//!
//! The process is not stopped, so one search errs: a pointer may be in a register, or may move from what is not yet
//! read to what was read. Such a block is found again by the next search. What stays unreached over several
//! searches ([`Watch`]) is lost to the program, unless its pointers are hidden (by XOR, in a file, or in a device).
//!
//! - `graph`: blocks by their addresses, and the marks
//! - `roots`: where the marking begins
//! - `watch`: several searches compared
//!
//! Every byte is untrusted. The copy of the heaps and the lists of blocks are bounded by a budget, and all of it by
//! a time limit.

mod graph;
mod roots;
mod watch;

use std::ops::Range;
use std::time::Instant;

use graph::Graph;
pub(crate) use roots::{ProcessRoots, epoll_words, stack_ends};
pub use watch::{Growth, LostClass, MoreBlocks, Searches, Watch};

use super::figures::{HeapFigures, NotReadable};
use super::libc::Region;
use super::memory::{Memory, PageState, Stop};
pub use super::walk::HeapBlock;
use super::{blocks_in, reason};

/// Pages that are read at once.
const PIECE: usize = 64;

/// Where pointers into the heaps may lie beside these, and what such a search may cost.
#[derive(Debug, Clone, Default)]
pub struct Roots {
    /// Memory that is no heap: variables, stacks, and what was mapped. In order, without overlaps.
    pub ranges: Vec<Range<u64>>,
    /// Words that the kernel keeps for the process.
    pub words: Vec<u64>,
    /// Mappings of files: a block may begin with an address in one of them, by which its class is known.
    pub files: Vec<Range<u64>>,
    /// Private memory of no file, where large blocks lie in mappings of their own.
    pub anonymous: Vec<Range<u64>>,
}

/// Bounds of a search.
#[derive(Debug, Clone, Copy)]
pub struct SearchBounds {
    /// Most bytes of the copy and the lists.
    pub bytes: u64,
    /// When the search ends, done or not.
    pub until: Instant,
}

/// What one search found.
#[derive(Debug)]
pub struct Search {
    /// Figures of the heaps.
    pub figures: HeapFigures,
    /// Live blocks, each with whether it was reached.
    pub(super) blocks: Vec<Seen>,
    /// Resident bytes in blocks with mappings of their own.
    pub mapped: u64,
}

/// A live block of one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) block: HeapBlock,
    /// Address in a file by which its class may be known; 0 without one.
    pub(super) word: u64,
    pub(super) reach: Reached,
}

/// How a block was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reached {
    /// From the program's own memory.
    Yes,
    /// Only from blocks that are not reached themselves.
    FromLost,
    No,
}

/// Searches a memory.
///
/// # Errors
/// When the heaps cannot be read, or the bounds are too narrow, with the reason.
pub fn search_in(
    memory: &dyn Memory,
    regions: &[Region],
    roots: &Roots,
    bounds: SearchBounds,
) -> Result<Search, NotReadable> {
    let (figures, found) = blocks_in(memory, regions, bounds)?;
    let stopped = |stop: Stop| reason(&stop);
    let graph = Graph::of(memory, found, roots, bounds).map_err(stopped)?;
    let mut marks = graph.unmarked();
    roots.words.iter().for_each(|word| marks.consider(&graph, *word));
    graph.drain(&mut marks).map_err(stopped)?;
    for range in &roots.ranges {
        for outside in graph.outside_of_blocks(range) {
            read_resident(memory, outside, bounds.until, &mut |_, bytes| {
                bytes
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .for_each(|word| marks.consider(&graph, u64::from_ne_bytes(*word)));
            })
            .map_err(stopped)?;
            graph.drain(&mut marks).map_err(stopped)?;
        }
    }
    let blocks = graph.seen(&marks, &roots.files).map_err(stopped)?;
    Ok(Search { figures, mapped: graph.mapped(), blocks })
}

/// Reads the resident pages between the addresses, in order. A piece that cannot be read is left out: it may be
/// gone, or a device's.
fn read_resident(
    memory: &dyn Memory,
    range: Range<u64>,
    until: Instant,
    see: &mut dyn FnMut(u64, &[u8]),
) -> Result<(), Stop> {
    let page_bytes = memory.page_bytes();
    let mut bytes = vec![0; PIECE * usize::try_from(page_bytes).unwrap_or(0)];
    let mut states = [PageState::Absent; PIECE];
    let (mut page, end) = (range.start / page_bytes, range.end.div_ceil(page_bytes));
    while page < end {
        if Instant::now() > until {
            return Err(Stop::Late);
        }
        let count = usize::try_from(end - page).unwrap_or(PIECE).min(PIECE);
        let states = &mut states[..count];
        memory.pages(page, states).map_err(Stop::Unreadable)?;
        let mut at = 0;
        for run in states.chunk_by(|a, b| (*a == PageState::Absent) == (*b == PageState::Absent)) {
            let first = (page + at) * page_bytes;
            at += run.len() as u64;
            if run[0] == PageState::Absent {
                continue;
            }
            let last = (page + at) * page_bytes;
            let (begin, end) = (first.max(range.start), last.min(range.end));
            let room = usize::try_from(end.saturating_sub(begin)).unwrap_or(0).min(bytes.len());
            let got = memory.read(begin, &mut bytes[..room]).unwrap_or(0);
            see(begin, &bytes[..got]);
        }
        page += count as u64;
    }
    Ok(())
}
