// SPDX-License-Identifier: Apache-2.0
//! One look: roots, the walk through the heaps, roots once more, and what none of them leads to.
//!
//! Roots are read before the walk, since a pointer may move from a root into a block that was walked already, and after
//! it, since it may move the other way. A block that is allocated between the two is not judged by this look alone.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Instant;

use super::blocks::{Block, Blocks, FirstWords, Halt, HeapSums, Walker};
use super::copy::{Bounds, Copied, PIECE};
use super::graph::Graph;
use super::roots::{Roots, without};
use super::space::{MappingUse, Space, Targets};
use crate::heap::MOST_GROWN;
use crate::heap::arena::{self, Arena, HeapInfo};
use crate::heap::figures::NotReadable;
use crate::heap::libc::{ALIGNMENT, FLAGS, HEAP_BYTES, Library, Region, RegionKind, SIZE};
use crate::heap::mapped;
use crate::heap::memory::{Memory, ProcessMemory, Stop, Window};
use crate::heap::walk::{self, CacheKeys, Heap};

/// Bytes of a lost block over which a sum is made, and an odd number that spreads the bits of each.
const PRINTED: u64 = 256;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Most blocks that are all counted by class, and not a part of them.
const COUNTED: usize = 1 << 20;

/// A block that nothing leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LostBlock {
    pub(super) address: u64,
    pub(super) class: BlockClass,
    /// Address of the block by which it would be reached: itself, or one that is lost as well.
    pub(super) head: u64,
    /// Sum over the beginning of its bytes: what nothing leads to cannot be written.
    pub(super) print: u64,
}

/// Size of blocks in units of 16 bytes, and kind of their first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockClass {
    pub(super) units: u32,
    pub(super) kind: u32,
}

impl BlockClass {
    pub(super) fn bytes(self) -> u64 {
        u64::from(self.units) * ALIGNMENT
    }
}

/// Result of a look.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    /// Blocks that nothing leads to, by address.
    pub(super) lost: Vec<LostBlock>,
    /// Lost blocks of the look before that are as they were, and to which the wider rule of this look has found a
    /// pointer.
    pub(super) covered: Vec<LostBlock>,
    /// Number of blocks that the program holds, by class.
    pub(super) held: HashMap<BlockClass, u64>,
    pub(super) sums: HeapSums,
    /// Parts of the heaps that could not be walked: what is lost there is not known.
    pub(super) unwalked: Vec<Range<u64>>,
    /// Bytes that were read.
    pub(super) read: u64,
    pub(super) has_hidden_requests: bool,
}

impl Seen {
    /// Lost blocks that lie where each of these looks has walked.
    pub(super) fn lost_in_all(&self, looks: &[Self]) -> Vec<LostBlock> {
        let unwalked = |address| {
            looks.iter().flat_map(|look| &look.unwalked).any(|range: &Range<u64>| range.contains(&address))
        };
        self.lost.iter().filter(|block| !unwalked(block.address)).copied().collect()
    }
}

/// Places of the heaps of a process.
struct Heaps {
    library: Library,
    main: Option<Region>,
    arenas: Vec<Arena>,
    others: Vec<HeapInfo>,
    mapped: Vec<Range<u64>>,
}

/// Looks once. `before` is what was lost in the look before, where that had a narrower rule.
///
/// # Errors
/// When the heaps cannot be read, with the reason.
pub(super) fn look(
    memory: &ProcessMemory,
    task: u32,
    (first_words, everywhere, before): (&mut FirstWords, bool, &[LostBlock]),
    bounds: Bounds,
) -> Result<Seen, NotReadable> {
    let at = Instant::now();
    let (space, found) = Space::read(memory.maps()).map_err(|error| NotReadable::of(&error))?;
    let regions = found.regions().map_err(|reason| found.with_other_malloc(reason))?;
    let heaps = Heaps::of(memory, regions, bounds).map_err(|reason| found.with_other_malloc(reason))?;
    let targets = heaps.targets();
    let mut copied = Copied::new(memory, bounds);
    let mut roots = Roots::default();
    let mut add_roots = |space: &Space, but: &[Range<u64>], copied: &mut Copied<'_>| {
        roots.add_kernel(task, &targets);
        match roots.add_memory(space, but, (&targets, everywhere), copied) {
            Ok(true) => Ok(()),
            Ok(false) => Err(Halt::TooLarge),
            Err(stop) => Err(Halt::Stopped(stop)),
        }
    };
    add_roots(&space, &heaps.places(), &mut copied).map_err(|halt| reason(&halt, bounds))?;
    let blocks = heaps
        .walked(memory, (&space, &targets, first_words, everywhere), &mut copied)
        .map_err(|halt| reason(&halt, bounds))?;
    // Mappings that are new are roots, too.
    let (space, _) = Space::read(memory.maps()).map_err(|error| NotReadable::of(&error))?;
    let mut walked: Vec<_> = blocks.walked.iter().map(|walked| walked.memory.clone()).collect();
    walked.sort_by_key(|memory| memory.start);
    add_roots(&space, &walked, &mut copied).map_err(|halt| reason(&halt, bounds))?;
    if blocks.list.is_empty() {
        return Err(NotReadable::because("its heaps are empty, or change too fast"));
    }
    let has_hidden_requests = space.has_hidden_requests;
    let ((mut lost, mut covered), held) = (lost(&blocks, &roots.addresses, before), classes(&blocks));
    copied.forget();
    for block in lost.iter_mut().chain(&mut covered) {
        block.print = print(block, &mut copied).map_err(|stop| crate::heap::reason(&stop))?;
    }
    let read = copied.read;
    let unwalked = heaps.places().into_iter().flat_map(|place| without(place, &walked)).collect();
    Ok(Seen { at, lost, covered, held, sums: blocks.sums, unwalked, read, has_hidden_requests })
}

fn reason(halt: &Halt, bounds: Bounds) -> NotReadable {
    match halt {
        Halt::Stopped(stop) => crate::heap::reason(stop),
        Halt::TooLarge => NotReadable::because(format!(
            "the look would hold more than {} MiB, a quarter of the memory that is available",
            bounds.most_bytes >> 20
        )),
    }
}

/// Blocks that nothing leads to, and blocks among those of `before` to which something does.
fn lost(blocks: &Blocks, roots: &[u64], before: &[LostBlock]) -> (Vec<LostBlock>, Vec<LostBlock>) {
    let graph = Graph::new(blocks);
    let mut marks = graph.marked(roots);
    let is_covered = |was: &&LostBlock| {
        let index = graph.block_at(was.address).filter(|index| marks.get(*index) == Some(&true));
        index.and_then(|index| blocks.list.get(index)).is_some_and(|block| {
            block.is_held() && block.address == was.address && class_of(block) == was.class
        })
    };
    let covered = before.iter().filter(is_covered).copied().collect();
    for (mark, block) in marks.iter_mut().zip(&blocks.list) {
        *mark |= !block.is_held();
    }
    let groups = graph.groups(&marks);
    let mut lost: Vec<_> = groups
        .into_iter()
        .filter_map(|(index, head)| {
            let (block, head) = (blocks.list.get(index)?, blocks.list.get(head)?.address);
            Some(LostBlock { address: block.address, class: class_of(block), head, print: 0 })
        })
        .collect();
    lost.sort_unstable();
    (lost, covered)
}

fn class_of(block: &Block) -> BlockClass {
    BlockClass { units: block.units, kind: block.kind() }
}

/// Sum over the first bytes of a block, in which the place of each counts.
fn print(block: &LostBlock, copied: &mut Copied<'_>) -> Result<u64, Stop> {
    let end = block.address + (block.class.bytes() - ALIGNMENT).min(PRINTED);
    let bytes = copied.part(block.address..end, block.address.saturating_add(PIECE))?;
    let add =
        |sum: u64, word: &[u8; 8]| (sum ^ u64::from_ne_bytes(*word)).wrapping_mul(FACTOR).rotate_left(29);
    Ok(bytes.as_chunks::<8>().0.iter().fold(0, add))
}

/// Number of held blocks by class, estimated from a part of them where there are many.
fn classes(blocks: &Blocks) -> HashMap<BlockClass, u64> {
    let step = blocks.list.len() / COUNTED + 1;
    let mut classes = HashMap::new();
    for block in blocks.list.iter().step_by(step).filter(|block| block.is_held()) {
        *classes.entry(class_of(block)).or_default() += step as u64;
    }
    classes
}

impl Heaps {
    fn of(memory: &dyn Memory, regions: &[Region], bounds: Bounds) -> Result<Self, NotReadable> {
        let library = Library::of(memory, regions)?;
        let arenas = arena::all(memory, &library)?;
        let by_arena = arena::heaps(memory, &library.layout, regions, &arenas);
        let mut others: Vec<HeapInfo> = by_arena.into_values().flatten().collect();
        others.sort_by_key(|heap| heap.address);
        let ranges: Vec<_> = others.iter().map(|heap| heap.address..heap.address + heap.bytes).collect();
        let of_kind = |kind| regions.iter().filter(move |region| region.kind == kind);
        let anonymous: Vec<_> =
            of_kind(RegionKind::Anonymous).map(|region| region.begin..region.end).collect();
        let found = mapped::mapped_blocks(memory, &anonymous, &ranges, bounds.until);
        let found = found.map_err(|stop| crate::heap::reason(&stop))?;
        let mapped = found.into_iter().map(|block| block.address..block.address + block.bytes).collect();
        Ok(Self { library, main: of_kind(RegionKind::MainHeap).next().copied(), arenas, others, mapped })
    }

    /// Addresses at which blocks may lie by the end of the look.
    fn targets(&self) -> Targets {
        let main = self.main.map(|main| main.begin..main.end.saturating_add(MOST_GROWN));
        let others = self.others.iter().map(|heap| heap.address..heap.address + HEAP_BYTES);
        Targets::new(main.into_iter().chain(others).chain(self.mapped.iter().cloned()).collect())
    }

    /// Ranges in which they lie now, in order.
    fn places(&self) -> Vec<Range<u64>> {
        let main = self.main.map(|main| main.begin..main.end);
        let others = self.others.iter().map(|heap| heap.address..heap.address + heap.bytes);
        let mut places: Vec<_> = main.into_iter().chain(others).chain(self.mapped.iter().cloned()).collect();
        places.sort_by_key(|place| place.start);
        places
    }

    fn walked(
        &self,
        memory: &dyn Memory,
        (space, targets, first_words, everywhere): (&Space, &Targets, &mut FirstWords, bool),
        copied: &mut Copied<'_>,
    ) -> Result<Blocks, Halt> {
        let keys = CacheKeys::of(&self.library);
        let is_of_file =
            |word| space.at(word).is_some_and(|map| map.file.is_some() || map.of == MappingUse::File);
        let cache = self.library.layout.cache_key;
        let walker = Walker { targets, keys: &keys, cache, everywhere, is_of_file: &is_of_file };
        let (mut blocks, bounds) = (Blocks::default(), copied.bounds);
        for arena in &self.arenas {
            let window = &mut Window::new(memory, copied.bounds.until);
            let fast = walk::fast_blocks(arena, &self.library.layout, window);
            if arena.is_main {
                let heap = || self.main_heap(memory, arena, bounds);
                blocks.add_heap(&heap, &fast, (&walker, first_words), copied)?;
                continue;
            }
            for info in self.others.iter().filter(|info| info.arena == arena.address) {
                let heap = || self.other_heap(memory, arena, info);
                blocks.add_heap(&heap, &fast, (&walker, first_words), copied)?;
            }
        }
        for chunk in &self.mapped {
            blocks.add_mapped(chunk.clone(), (&walker, first_words), copied)?;
        }
        blocks.note_cached(cache);
        Ok(blocks)
    }

    fn main_heap(&self, memory: &dyn Memory, arena: &Arena, bounds: Bounds) -> Result<Heap, Stop> {
        let arena = Arena::read(memory, &self.library.layout, arena.address, true).ok_or(Stop::Absent)?;
        let mut window = Window::new(memory, bounds.until);
        let top = window.word(arena.top.wrapping_add(SIZE))? & !FLAGS;
        let end = arena.top.checked_add(top).ok_or(Stop::Torn)?;
        let region = self.main.ok_or(Stop::Torn)?;
        let begin = region.begin.next_multiple_of(ALIGNMENT);
        let is_whole =
            end.checked_sub(arena.system_mem) == Some(begin) && end <= region.end.saturating_add(MOST_GROWN);
        let heap = Heap { start: begin, begin, end, top: Some(arena.top), returns_top: true };
        if is_whole { Ok(heap) } else { Err(Stop::Torn) }
    }

    fn other_heap(&self, memory: &dyn Memory, arena: &Arena, info: &HeapInfo) -> Result<Heap, Stop> {
        let layout = &self.library.layout;
        let arena = Arena::read(memory, layout, arena.address, false).ok_or(Stop::Absent)?;
        let info = HeapInfo::read(memory, layout, info.address).ok_or(Stop::Torn)?;
        let (begin, end) = (info.first_chunk(&arena, layout), info.address + info.bytes);
        let top = Some(arena.top).filter(|top| (begin..end).contains(top));
        Ok(Heap { start: info.address, begin, end, top, returns_top: false })
    }
}
