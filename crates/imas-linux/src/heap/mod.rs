// SPDX-License-Identifier: Apache-2.0
//! The heaps of glibc's malloc in another process: live blocks, free ones, and the pages that
//! `malloc_trim(0)` would return.
//!
//! `/proc/PID/mem` and `/proc/PID/pagemap` are read. The process is neither attached to nor stopped, so a heap changes
//! while it is read: a walk that meets an impossible size is thrown away and repeated. Every byte is untrusted.
//! Reads are bounded by a time limit, and only pages that are resident are read: a look at others would make them
//! so. The exception is the text of `libc.so.6`, where the version is: its page is not always in the page table of
//! a process. A file of this name on a file system that does not answer (FUSE) holds the reader. So it is a helper,
//! which is killed after it was asleep for a second ([`crate::foreign_process`]).

pub(crate) mod arena;
pub mod figures;
mod in_memory;
pub(crate) mod libc;
pub(crate) mod mapped;
pub mod memory;
mod trim_site;
pub(crate) mod walk;

use std::collections::{BTreeMap, HashSet};
use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

use arena::{Arena, HeapInfo};
use figures::{ArenaFigures, HeapAnswer, HeapBytes, HeapFigures, NotReadable};
use libc::{ALIGNMENT, FLAGS, Found, Library, SIZE};
use memory::{Memory, Stop, Window};
use walk::{CacheKeys, Heap, KeyedBytes, Known, Steps, Walk};

pub(crate) use in_memory::InMemory;
pub use libc::{Region, RegionKind};
pub(crate) use memory::ProcessMemory;
pub(crate) use trim_site::of_process as trim_site;

/// A look at one process takes so long at most. What was not read by then is estimated from what was.
const LONGEST: Duration = Duration::from_secs(1);

/// Figures of the heaps of a process, or why they cannot be read, as a text that [`figures::HeapAnswer`] reads. All is
/// read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let answer = survey(pid, Instant::now() + LONGEST)?;
    HeapAnswer(answer).to_text().ok_or_else(|| ErrorKind::FileTooLarge.into())
}

/// Number of times that a walk through a heap may step back.
const TRIES: usize = 60;
/// `[heap]` may have grown by so much since its mapping was read.
pub(crate) const MOST_GROWN: u64 = 1 << 30;
/// Arenas that are listed one by one.
const LISTED: usize = 64;

/// Looks at a process from this one.
fn survey(pid: u32, until: Instant) -> Result<std::result::Result<HeapFigures, NotReadable>> {
    // Opened first: these stay with this memory if the process runs another program meanwhile.
    let memory = ProcessMemory::open(pid)?;
    let found = match Found::of(memory.maps()) {
        Ok(found) => found,
        Err(error) if error.raw_os_error().is_some() => return Err(error),
        Err(_) => return Ok(Err(NotReadable::because("its mappings make no sense"))),
    };
    let figures = found.regions().and_then(|regions| figures_in(&memory, regions, until));
    Ok(figures.map_err(|reason| found.with_other_malloc(reason)))
}

/// Looks at the heaps in a memory.
///
/// # Errors
/// When there are none that can be read, with the reason.
pub fn figures_in(
    memory: &dyn Memory,
    regions: &[Region],
    until: Instant,
) -> std::result::Result<HeapFigures, NotReadable> {
    let library = Library::of(memory, regions)?;
    let arenas = arena::all(memory, &library)?;
    let heaps = arena::heaps(memory, &library.layout, regions, &arenas);
    let survey = Survey { memory, regions, keys: CacheKeys::of(&library), library, until };
    let mut figures = survey.figures(&arenas, &heaps)?;
    // Where the time is over, the blocks stay among the rest of the memory.
    figures.mapped = mapped_bytes(memory, regions, &heaps, until).unwrap_or(0);
    Ok(figures)
}

fn mapped_bytes(
    memory: &dyn Memory,
    regions: &[Region],
    heaps: &BTreeMap<u64, Vec<HeapInfo>>,
    until: Instant,
) -> std::result::Result<u64, Stop> {
    let anonymous = regions.iter().filter(|region| region.kind == RegionKind::Anonymous);
    let anonymous: Vec<_> = anonymous.map(|region| region.begin..region.end).collect();
    let mut of_arenas: Vec<_> =
        heaps.values().flatten().map(|heap| heap.address..heap.address + heap.bytes).collect();
    of_arenas.sort_by_key(|heap| heap.start);
    let blocks = mapped::mapped_blocks(memory, &anonymous, &of_arenas, until)?;
    mapped::resident_bytes(memory, &blocks, until)
}

struct Survey<'m> {
    memory: &'m dyn Memory,
    regions: &'m [Region],
    library: Library,
    keys: CacheKeys,
    until: Instant,
}

/// Counts of an arena.
#[derive(Default)]
struct Counted {
    figures: ArenaFigures,
    keyed: KeyedBytes,
    held: u64,
    read: u64,
    /// Why something was not read.
    stop: Option<Stop>,
}

impl Survey<'_> {
    fn figures(
        &self,
        arenas: &[Arena],
        heaps: &BTreeMap<u64, Vec<HeapInfo>>,
    ) -> std::result::Result<HeapFigures, NotReadable> {
        // Half of the time is for the first arena, which may be all.
        let now = Instant::now();
        let half = now + self.until.saturating_duration_since(now) / 2;
        let mut counted: Vec<Counted> = vec![];
        for arena in sampled(arenas) {
            let until = if arena.is_main && arenas.len() > 1 { half } else { self.until };
            counted.push(match arena.is_main {
                true => self.main(arena, until),
                false => self.other(arena, heaps.get(&arena.address).map_or(&[], Vec::as_slice), until),
            });
        }
        let mut keyed = KeyedBytes::default();
        counted.iter().for_each(|one| keyed.add_all(&one.keyed));
        for one in &mut counted {
            one.figures.bytes.set_cached(self.keys.bytes(&one.keyed, &keyed));
        }
        self.sum(counted)
    }

    fn sum(&self, counted: Vec<Counted>) -> std::result::Result<HeapFigures, NotReadable> {
        let mut sum = HeapFigures {
            glibc: self.library.version.clone(),
            arenas: counted.len() as u64,
            ..HeapFigures::default()
        };
        for is_main in [true, false] {
            let group = || counted.iter().filter(move |one| one.figures.is_main == is_main);
            let (held, read) = (group().map(|one| one.held).sum(), group().map(|one| one.read).sum());
            let mut bytes = HeapBytes::default();
            group().for_each(|one| bytes += one.figures.bytes);
            sum.bytes += bytes.scaled(held, read);
            if read == 0 {
                sum.unread = sum.unread.saturating_add(held);
            }
            sum.held = sum.held.saturating_add(held);
            sum.read += read;
        }
        if sum.read == 0 {
            let stop = counted.into_iter().find_map(|one| one.stop);
            return Err(
                stop.map_or_else(|| NotReadable::because("its arenas are empty"), |stop| reason(&stop))
            );
        }
        let mut listed: Vec<ArenaFigures> = counted.into_iter().map(|one| one.figures).collect();
        listed.sort_by_key(|one| std::cmp::Reverse(one.bytes.live.saturating_add(one.bytes.all_free())));
        listed.truncate(LISTED);
        sum.largest = listed;
        Ok(sum)
    }

    fn main(&self, arena: &Arena, until: Instant) -> Counted {
        let main_heap = self.regions.iter().find(|region| region.kind == RegionKind::MainHeap);
        let figures = ArenaFigures { is_main: true, heaps: 1, ..ArenaFigures::default() };
        // A record of an enemy may claim more than can be mapped.
        let held = if arena.system_mem <= self.most_mapped() { arena.system_mem } else { 0 };
        let mut counted = Counted { figures, held, ..Counted::default() };
        let heap = |arena: &Arena, window: &mut Window<'_>| {
            let end = top_end(arena, window)?;
            let region = main_heap.ok_or(Stop::Torn)?;
            let begin = region.begin.next_multiple_of(ALIGNMENT);
            let is_whole = end.checked_sub(arena.system_mem) == Some(begin)
                && end <= region.end.saturating_add(MOST_GROWN);
            let heap = Heap { start: begin, begin, end, top: Some(arena.top), returns_top: true };
            if is_whole { Ok(heap) } else { Err(Stop::Torn) }
        };
        let fast = self.fast(arena, until);
        if let Some(part) = self.walk(arena, &heap, &fast, until, &mut counted)
            && !self.by_lists(arena, &fast, until, &mut counted)
        {
            counted.add(part);
        }
        counted
    }

    /// The first arena by its lists, where it is in several parts; whether that was possible.
    fn by_lists(&self, arena: &Arena, fast: &HashSet<u64>, until: Instant, counted: &mut Counted) -> bool {
        for _ in 0..TRIES {
            if Instant::now() > until {
                counted.stop = Some(Stop::Late);
                break;
            }
            let now = Arena::read(self.memory, &self.library.layout, arena.address, true);
            let Some(arena) = now.filter(|arena| arena.system_mem <= self.most_mapped()) else {
                return false;
            };
            let mut window = Window::new(self.memory, until);
            match walk::bytes_by_lists(&arena, &self.library.layout, fast, &mut window) {
                Ok(bytes) => {
                    counted.figures.bytes = bytes;
                    (counted.held, counted.read) = (arena.system_mem, arena.system_mem);
                    return true;
                }
                Err(Stop::Torn) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Most bytes where heaps may lie by now.
    fn most_mapped(&self) -> u64 {
        let heaps = self
            .regions
            .iter()
            .filter(|region| matches!(region.kind, RegionKind::MainHeap | RegionKind::Anonymous));
        heaps.map(|region| region.end - region.begin).fold(MOST_GROWN, u64::saturating_add)
    }

    fn other(&self, arena: &Arena, heaps: &[HeapInfo], until: Instant) -> Counted {
        let mut counted = Counted::default();
        counted.figures.heaps = heaps.len() as u64;
        let (layout, fast) = (&self.library.layout, self.fast(arena, until));
        for info in heaps {
            counted.held += info.bytes;
            let heap = |arena: &Arena, _: &mut Window<'_>| {
                let info = HeapInfo::read(self.memory, layout, info.address).ok_or(Stop::Torn)?;
                let (begin, end) = (info.first_chunk(arena, layout), info.address + info.bytes);
                let top = Some(arena.top).filter(|top| (begin..end).contains(top));
                Ok(Heap { start: info.address, begin, end, top, returns_top: false })
            };
            if let Some(part) = self.walk(arena, &heap, &fast, until, &mut counted) {
                counted.add(part);
            }
        }
        counted
    }

    fn fast(&self, arena: &Arena, until: Instant) -> HashSet<u64> {
        walk::fast_blocks(arena, &self.library.layout, &mut Window::new(self.memory, until))
    }

    /// Walks through a heap, stepping back where it was torn, and adds what was counted. A part that ends where the heap
    /// was torn again and again is given back.
    fn walk(
        &self,
        arena: &Arena,
        heap: &dyn Fn(&Arena, &mut Window<'_>) -> std::result::Result<Heap, Stop>,
        fast: &HashSet<u64>,
        until: Instant,
        counted: &mut Counted,
    ) -> Option<Walk> {
        let known = Known { fast, keys: &self.keys };
        let mut steps = Steps::default();
        for _ in 0..TRIES {
            let now = Arena::read(self.memory, &self.library.layout, arena.address, arena.is_main);
            let Some(arena) = now else {
                counted.stop = Some(Stop::Absent);
                break;
            };
            let mut window = Window::new(self.memory, until);
            let walked = heap(&arena, &mut window).and_then(|heap| steps.go_on(&heap, &known, &mut window));
            let Err(Stop::Torn) = walked else {
                counted.stop = walked.err().or_else(|| counted.stop.take());
                counted.add(steps.walk);
                return None;
            };
            counted.stop = Some(Stop::Torn);
            steps.back();
        }
        Some(steps.walk)
    }
}

impl Counted {
    fn add(&mut self, walk: Walk) {
        self.figures.bytes += walk.bytes;
        self.read = (self.read + walk.passed).min(self.held);
        self.keyed.add_all(&walk.keyed);
    }
}

/// Where the top ends.
fn top_end(arena: &Arena, window: &mut Window<'_>) -> std::result::Result<u64, Stop> {
    let bytes = window.word(arena.top.wrapping_add(SIZE))? & !FLAGS;
    arena.top.checked_add(bytes).ok_or(Stop::Torn)
}

/// The arenas in an order that has nothing to do with their age, the first one first.
fn sampled(arenas: &[Arena]) -> Vec<&Arena> {
    let mut arenas: Vec<&Arena> = arenas.iter().collect();
    arenas.sort_by_key(|arena| (!arena.is_main, arena.address.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    arenas
}

pub(crate) fn reason(stop: &Stop) -> NotReadable {
    match stop {
        Stop::Torn => NotReadable::because("its heaps change too fast"),
        Stop::Absent => NotReadable::because("its heaps are swapped out"),
        Stop::Late => NotReadable::because("reading them took too long"),
        Stop::Unreadable(error) => NotReadable::of(error),
    }
}
