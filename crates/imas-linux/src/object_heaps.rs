// SPDX-License-Identifier: Apache-2.0
//! Objects of CPython and Ruby in a running process, read from outside without symbols: pools and heap pages are known
//! by their heads, which must be consistent. Constants differ by version; memory that does not fit is not counted.
//!
//! Every byte is untrusted. A look takes a second at most and reads resident pages alone.

use std::io::{Error, Result};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding};
use crate::heap::ProcessMemory;
use crate::heap::memory::{Memory, PageState};
use crate::mapping_text::{file_name, living_thread};
use crate::runtime::Runtime;

/// A look takes so long at most.
const LONGEST: Duration = Duration::from_secs(1);
/// Regions that are looked at.
const MOST_REGIONS: usize = 1 << 16;
/// Places whose pages are asked for at once.
const PLACES: u64 = 256;
/// Fewer pools or pages may be there by chance.
const LEAST_UNITS: u64 = 8;

/// Heap of a runtime's objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectHeap {
    /// The runtime.
    pub runtime: String,
    /// Pools of CPython, or heap pages of Ruby.
    pub units: u64,
    /// Bytes of these that are resident.
    pub resident: u64,
    /// Bytes in objects that the runtime holds.
    pub live: u64,
    /// Bytes in free places between such objects.
    pub free: u64,
    /// Bytes in pools or pages without any object.
    pub empty: u64,
    /// Whether the time was over before all was read.
    pub is_cut: bool,
}

/// Object heaps of a process; empty where none is known, or it is not ours to look at.
#[must_use]
pub fn of(pid: u32) -> Vec<ObjectHeap> {
    let text = foreign_process::find_out(pid, Finding::ObjectHeaps, text_of).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Object heaps as a text for [`of`]. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let memory = ProcessMemory::open(living_thread(pid))?;
    let mut regions = vec![];
    let (mut has_python, mut has_ruby) = (false, false);
    for map in memory.maps() {
        let map = map?;
        if let MMapPath::Path(path) = &map.pathname {
            has_python |= of_file(path) == Some(Runtime::Cpython);
            has_ruby |= of_file(path) == Some(Runtime::Ruby);
        } else if is_private(&map) && regions.len() < MOST_REGIONS {
            regions.push(map.address.0..map.address.1);
        }
    }
    let until = Instant::now() + LONGEST;
    let kinds: [(bool, Look); 2] = [(has_python, python_in), (has_ruby, ruby_in)];
    let heaps =
        kinds.into_iter().filter(|(has, _)| *has).filter_map(|(_, look)| look(&memory, &regions, until));
    serde_json::to_vec(&heaps.collect::<Vec<_>>()).map_err(Error::other)
}

/// The runtime with pools of objects that a file may have.
pub(crate) fn of_file(file: &Path) -> Option<Runtime> {
    let has = |begins: [&str; 2]| begins.iter().any(|begin| file_name(file).starts_with(begin));
    let python = has(["python3", "libpython3"]).then_some(Runtime::Cpython);
    python.or_else(|| has(["ruby", "libruby"]).then_some(Runtime::Ruby))
}

type Look = fn(&dyn Memory, &[Range<u64>], Instant) -> Option<ObjectHeap>;

fn is_private(map: &MemoryMap) -> bool {
    let is_kind = matches!(map.pathname, MMapPath::Anonymous | MMapPath::Other(_) | MMapPath::Heap);
    is_kind && map.perms == MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE
}

/// Bytes of a pool, since 3.10 and before.
const POOLS: [u64; 2] = [16 << 10, 4 << 10];
/// Bytes of a pool's head (`pool_header`), and of the step between two sizes of blocks.
const POOL_HEAD: u64 = 48;
const STEP: u64 = 16;
/// Number of such sizes.
const SIZES: u64 = 32;
/// An arena is known by its number, which is not greater.
const MOST_ARENAS: u64 = 1 << 20;

/// CPython's pools (`obmalloc.c`), as `sys._debugmallocstats` counts them.
pub fn python_in(memory: &dyn Memory, regions: &[Range<u64>], until: Instant) -> Option<ObjectHeap> {
    POOLS.into_iter().find_map(|pool_bytes| {
        let mut heap = ObjectHeap { runtime: "CPython".to_owned(), ..ObjectHeap::default() };
        heap.is_cut = !each(memory, regions, pool_bytes, until, &mut |at, resident| {
            let mut head = [0; 48];
            let got = memory.read(at, &mut head).unwrap_or(0);
            let Some(pool) = Pool::of(&head[..got], at, pool_bytes) else { return };
            heap.units += 1;
            heap.resident += resident;
            heap.live += pool.live * pool.block_bytes;
            match pool.live {
                0 => heap.empty += pool_bytes,
                _ => heap.free += (pool.room - pool.live) * pool.block_bytes,
            }
        });
        (heap.units >= LEAST_UNITS).then_some(heap)
    })
}

/// Head of a pool.
struct Pool {
    block_bytes: u64,
    live: u64,
    /// Number of blocks that it has room for.
    room: u64,
}

impl Pool {
    fn of(head: &[u8], at: u64, pool_bytes: u64) -> Option<Self> {
        let word = |offset: usize| Some(u64::from_ne_bytes(head.get(offset..offset + 8)?.try_into().ok()?));
        let half = |offset: usize| {
            let four = head.get(offset..offset + 4)?.try_into().ok()?;
            Some(u64::from(u32::from_ne_bytes(four)))
        };
        let (live, free, next) = (half(0)?, word(8)?, word(16)?);
        let (arena, size, offset, most) = (half(32)?, half(36)?, half(40)?, half(44)?);
        let block_bytes = (size.checked_add(1)?) * STEP;
        let room = pool_bytes.checked_sub(POOL_HEAD)? / block_bytes;
        let is_offset =
            (POOL_HEAD..=pool_bytes).contains(&offset) && (offset - POOL_HEAD).is_multiple_of(block_bytes);
        let is_free = free == 0 || (at + POOL_HEAD..at + pool_bytes).contains(&free);
        let is_pool = size < SIZES && most == pool_bytes - block_bytes && is_offset && is_free;
        let is_linked = live == 0 || next != 0;
        (is_pool && is_linked && live <= room && arena < MOST_ARENAS).then_some(Self {
            block_bytes,
            live,
            room,
        })
    }
}

/// Bytes of a heap page, since 3.2 and before.
const HEAP_PAGES: [u64; 2] = [64 << 10, 16 << 10];
/// Sizes of Ruby's slots.
const SLOTS: [u64; 5] = [40, 80, 160, 320, 640];
/// Kind of object in the flags of a slot; 0 is a free one.
const KIND: u64 = 0x1f;

/// Ruby's heap pages (`gc.c`), as `GC.stat` counts them.
pub fn ruby_in(memory: &dyn Memory, regions: &[Range<u64>], until: Instant) -> Option<ObjectHeap> {
    HEAP_PAGES.into_iter().find_map(|page_bytes| {
        let mut heap = ObjectHeap { runtime: "Ruby".to_owned(), ..ObjectHeap::default() };
        let mut bytes = vec![0; usize::try_from(page_bytes).unwrap_or(0)];
        heap.is_cut = !each(memory, regions, page_bytes, until, &mut |at, resident| {
            let Some(page) = RubyPage::of(memory, at, page_bytes) else { return };
            // The rest of a page that is not resident was never used, or is swapped out.
            let got = if resident == page_bytes { memory.read(at, &mut bytes).unwrap_or(0) } else { 0 };
            let live = page.live(&bytes[..got], at).min(page.slots);
            heap.units += 1;
            heap.resident += resident;
            heap.live += live * page.slot_bytes;
            match live {
                0 => heap.empty += page_bytes,
                _ => heap.free += (page.slots - live) * page.slot_bytes,
            }
        });
        (heap.units >= LEAST_UNITS).then_some(heap)
    })
}

/// A heap page of Ruby, by the record to which its first word leads (`struct heap_page`).
struct RubyPage {
    slot_bytes: u64,
    slots: u64,
    start: u64,
}

impl RubyPage {
    fn of(memory: &dyn Memory, at: u64, page_bytes: u64) -> Option<Self> {
        let mut word = [0; 8];
        memory.read(at, &mut word).ok().filter(|got| *got == 8)?;
        let record = u64::from_ne_bytes(word);
        if record < 4096 || !record.is_multiple_of(8) || record >> 47 != 0 || !is_resident(memory, record) {
            return None;
        }
        let mut bytes = [0; 48];
        memory.read(record, &mut bytes).ok().filter(|got| *got == 48)?;
        let short = |offset: usize| u64::from(u16::from_ne_bytes([bytes[offset], bytes[offset + 1]]));
        let (slot_bytes, slots) = (short(0), short(2));
        let starts = bytes.as_chunks::<8>().0[2..].iter().map(|word| u64::from_ne_bytes(*word));
        let start = starts.into_iter().find(|start| (at + 8..at + 1024).contains(start))?;
        let filled = slot_bytes * slots;
        let is_page = SLOTS.contains(&slot_bytes) && filled <= page_bytes && filled > page_bytes / 2;
        is_page.then_some(Self { slot_bytes, slots, start })
    }

    fn live(&self, bytes: &[u8], at: u64) -> u64 {
        let flags = |slot: u64| {
            let offset = usize::try_from(self.start - at + slot * self.slot_bytes).ok()?;
            Some(u64::from_ne_bytes(bytes.get(offset..offset + 8)?.try_into().ok()?))
        };
        (0..self.slots).filter(|slot| flags(*slot).is_some_and(|flags| flags & KIND != 0)).count() as u64
    }
}

fn is_resident(memory: &dyn Memory, address: u64) -> bool {
    let mut state = [PageState::Absent];
    memory.pages(address / memory.page_bytes(), &mut state).is_ok() && state[0] != PageState::Absent
}

/// Shows each place of this size in the regions whose first page is resident, with its resident bytes. Returns
/// whether it came to the end.
fn each(
    memory: &dyn Memory,
    regions: &[Range<u64>],
    bytes: u64,
    until: Instant,
    see: &mut dyn FnMut(u64, u64),
) -> bool {
    let page_bytes = memory.page_bytes();
    let pages = bytes.div_ceil(page_bytes);
    let mut states = vec![PageState::Absent; usize::try_from(PLACES * pages).unwrap_or(0)];
    for region in regions {
        let mut at = region.start.next_multiple_of(bytes);
        while at.checked_add(bytes).is_some_and(|end| end <= region.end) {
            if Instant::now() > until {
                return false;
            }
            let places = ((region.end - at) / bytes).min(PLACES);
            let states = &mut states[..usize::try_from(places * pages).unwrap_or(0)];
            if memory.pages(at / page_bytes, states).is_err() {
                break;
            }
            for (place, states) in states.chunks(usize::try_from(pages).unwrap_or(1)).enumerate() {
                let present = states.iter().filter(|state| **state != PageState::Absent).count() as u64;
                if states[0] != PageState::Absent {
                    see(at + place as u64 * bytes, present * page_bytes);
                }
            }
            at += places * bytes;
        }
    }
    true
}
