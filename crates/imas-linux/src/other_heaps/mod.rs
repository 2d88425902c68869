// SPDX-License-Identifier: Apache-2.0
//! Allocators of a running process beside glibc's: preloaded, linked, or inside of a library, several at once. Where the
//! symbols of the mapped file lead to their own counters, these are read from outside.
//!
//! A file is known by the names that it defines, or by its own name. Counters differ by version: each must be consistent,
//! else the allocator has a name and no figures. Every byte is untrusted; a look takes a second at most.

mod jemalloc;
mod mimalloc;
mod symbols;
mod tcmalloc;

use std::collections::BTreeSet;
use std::io::{Error, Result};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::printable;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding};
use crate::heap::ProcessMemory;
use crate::heap::memory::{Memory, Stop, Window};
use crate::mapping_text::{self, file_name, living_thread};
use symbols::{AllocatorKind, AllocatorSymbols};

/// A look takes so long at most.
const LONGEST: Duration = Duration::from_secs(1);
/// Files that are looked at, regions, and allocators that are named.
const MOST_FILES: usize = 4096;
const MOST_REGIONS: usize = 1 << 16;
const MOST_NAMED: usize = 16;

/// Heaps of one allocator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OtherHeap {
    /// Name of the allocator.
    pub name: String,
    /// The file that has it.
    pub file: String,
    /// Bytes in live blocks, by its own counters.
    pub live: Option<u64>,
    /// Bytes of free blocks, as far as these are counted.
    pub free: Option<u64>,
    /// Whether its caches of free blocks count as live.
    pub has_caches: bool,
    /// Why there are no figures.
    pub unknown: Option<String>,
}

impl OtherHeap {
    /// The allocator as people read it: `jemalloc in libarrow.so`.
    #[must_use]
    pub fn words(&self) -> String {
        if self.name == self.file { self.name.clone() } else { format!("{} in {}", self.name, self.file) }
    }
}

/// Figures of an allocator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OwnCounters {
    pub(crate) live: u64,
    pub(crate) free: u64,
    pub(crate) has_caches: bool,
}

/// Allocators of a process; none where it has ended, or is not ours to look at.
#[must_use]
pub fn of(pid: u32) -> Vec<OtherHeap> {
    let text = foreign_process::find_out(pid, Finding::OtherHeaps, text_of).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// A mapped file.
struct MappedImage {
    /// Addresses of the mapping with its begin.
    first: Range<u64>,
    path: std::path::PathBuf,
}

/// Allocators as a text for [`of`]. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let (task, until) = (living_thread(pid), Instant::now() + LONGEST);
    let memory = ProcessMemory::open(task)?;
    let (mut images, mut regions) = (vec![], vec![]);
    for map in memory.maps() {
        let map = map?;
        match &map.pathname {
            MMapPath::Path(path) if map.offset == 0 && images.len() < MOST_FILES => {
                images.push(MappedImage { first: map.address.0..map.address.1, path: path.clone() });
            }
            _ if is_private(&map) && regions.len() < MOST_REGIONS => {
                regions.push(map.address.0..map.address.1);
            }
            _ => {}
        }
    }
    // Files that have an allocator by their names come first: the time may be over before all others.
    images.sort_by_key(|image| mapping_text::allocator(&image.path).is_none());
    let mut heaps: Vec<OtherHeap> = vec![];
    for image in &images {
        let found = heaps_in(&memory, task, image, &regions, until);
        heaps.extend(found);
        if Instant::now() > until || heaps.len() >= MOST_NAMED {
            break;
        }
    }
    // A file may be mapped twice from its begin on; the heaps are of one of both.
    let counted: BTreeSet<String> =
        heaps.iter().filter(|heap| heap.live.is_some()).map(OtherHeap::words).collect();
    heaps.retain(|heap| heap.live.is_some() || !counted.contains(&heap.words()));
    heaps.truncate(MOST_NAMED);
    serde_json::to_vec(&heaps).map_err(Error::other)
}

fn is_private(map: &MemoryMap) -> bool {
    let is_kind = matches!(map.pathname, MMapPath::Anonymous | MMapPath::Other(_) | MMapPath::Heap);
    is_kind && map.perms == MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE
}

/// Allocators that a file has.
fn heaps_in(
    memory: &dyn Memory,
    task: u32,
    image: &MappedImage,
    regions: &[Range<u64>],
    until: Instant,
) -> Vec<OtherHeap> {
    let named = mapping_text::allocator(&image.path);
    let found = symbols::of_mapped(task, &image.first, &image.path);
    let mut heaps: Vec<OtherHeap> = found
        .iter()
        .map(|one| {
            let counters = counters(memory, one, image.first.start, regions, until);
            heap(one.kind.name(), &image.path, counters)
        })
        .collect();
    if let Some(name) = named.filter(|_| heaps.is_empty()) {
        heaps.push(heap(name, &image.path, Err("its counters cannot be found".to_owned())));
    }
    heaps
}

fn heap(name: &str, file: &Path, counters: std::result::Result<OwnCounters, String>) -> OtherHeap {
    let printed = |name: &str| printable::name(name).into_owned();
    let figures = counters.as_ref().ok();
    OtherHeap {
        name: printed(name),
        file: printed(file_name(file)),
        live: figures.map(|one| one.live),
        free: figures.map(|one| one.free),
        has_caches: figures.is_some_and(|one| one.has_caches),
        unknown: counters.err(),
    }
}

/// Counters of an allocator whose file begins at an address.
fn counters(
    memory: &dyn Memory,
    found: &AllocatorSymbols,
    begin: u64,
    regions: &[Range<u64>],
    until: Instant,
) -> std::result::Result<OwnCounters, String> {
    let at = |name: &str| found.address(name, begin).ok_or_else(|| "its file has no symbols".to_owned());
    match found.kind {
        AllocatorKind::Jemalloc => {
            let places = [at("arenas")?, at("bin_infos")?, at("sz_index2size_tab")?];
            jemalloc::counters(memory, places, until)
        }
        AllocatorKind::Mimalloc => {
            mimalloc::counters(memory, (at("mi_version").ok(), at("_mi_page_map")?), regions, until)
        }
        AllocatorKind::Tcmalloc => {
            let (heap, bytes) = (at("pageheap_")?, found.bytes("pageheap_"));
            tcmalloc::counters(memory, heap..heap.saturating_add(bytes), until)
        }
        AllocatorKind::GoogleTcmalloc => Err("its counters are not known".to_owned()),
    }
}

/// The word at an address; 0 where the page is not in memory.
pub(crate) fn word(window: &mut Window<'_>, address: u64) -> std::result::Result<u64, String> {
    match window.word(address) {
        Ok(word) => Ok(word),
        Err(Stop::Absent) => Ok(0),
        Err(Stop::Late) => Err(too_late()),
        Err(Stop::Torn | Stop::Unreadable(_)) => Err("they cannot be read".to_owned()),
    }
}

/// Reason for an allocator whose counters do not fit any layout.
pub(crate) fn too_late() -> String {
    "reading them took too long".to_owned()
}

pub(crate) fn not_known() -> String {
    "the layout of its version is not known".to_owned()
}

/// Memory of a process for tests of the allocators.
#[cfg(test)]
mod made {
    use crate::heap::memory::{Memory, PageState};

    pub(super) const BASE: u64 = 0x7000_0000_0000;

    /// Memory that begins at [`BASE`].
    pub(super) struct Bytes(Vec<u8>);

    impl Default for Bytes {
        fn default() -> Self {
            Self(vec![0; 0x5_0000])
        }
    }

    impl Bytes {
        pub(super) fn set(&mut self, address: u64, words: &[u64]) {
            let at = usize::try_from(address - BASE).unwrap();
            for (word, place) in words.iter().zip(self.0[at..].as_chunks_mut::<8>().0) {
                *place = word.to_ne_bytes();
            }
        }
    }

    impl Memory for Bytes {
        fn page_bytes(&self) -> u64 {
            4096
        }

        fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<usize> {
            let begin = usize::try_from(address - BASE).unwrap().min(self.0.len());
            let got = into.len().min(self.0.len() - begin);
            into[..got].copy_from_slice(&self.0[begin..begin + got]);
            Ok(got)
        }

        fn pages(&self, first: u64, pages: &mut [PageState]) -> std::io::Result<()> {
            for (page, at) in pages.iter_mut().zip(first..) {
                let is_there = (BASE / 4096..BASE / 4096 + 80).contains(&at);
                *page = if is_there { PageState::Own } else { PageState::Absent };
            }
            Ok(())
        }
    }
}
