// SPDX-License-Identifier: Apache-2.0
//! The C library of a process: its version, and its variables. Both are read from the process's memory, so that
//! containers and files that were replaced by an upgrade need no further thought.
//!
//! Mappings of a process in which its C library and its heaps lie.
//!
//! Layouts of glibc's malloc, by its version. Offsets are for machines of 64 bits.

use std::io;

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use super::figures::NotReadable;
use super::memory::{Memory, PageState};
use crate::mapping_text::{self, CLibrary};

/// Version of a C library of glibc, from the bytes of its file.
pub(crate) fn version_of_file(bytes: &[u8]) -> Option<String> {
    let found = bytes.windows(BANNER.len()).position(|part| part == BANNER)?;
    version_in(&bytes[found..bytes.len().min(found + LINE)])
}

/// Beginning of glibc's line about itself.
const BANNER: &[u8] = b"GNU C Library (";
/// Text in front of the version of the C library.
const RELEASE: &str = "release version ";
/// Most bytes of that line.
const LINE: usize = 256;
/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// Mappings of each kind that are read; more of them are no C library.
const MOST_MAPPINGS: usize = 8;
/// Most bytes of a mapping that are searched, and most bytes of variables in one.
const MOST_TEXT: u64 = 4 << 20;
const MOST_DATA: u64 = 1 << 20;
/// Header of an ELF file of 64 bits.
const ELF_64: &[u8] = b"\x7fELF\x02";

/// The C library of a process.
pub(crate) struct Library {
    pub(crate) version: String,
    pub(crate) layout: Layout,
    /// Its variables, mapping by mapping: address, words.
    pub(crate) data: Vec<(u64, Vec<u64>)>,
}

impl Library {
    pub(crate) fn of(memory: &dyn Memory, regions: &[Region]) -> Result<Self, NotReadable> {
        let of_kind = |kind| regions.iter().filter(move |region| region.kind == kind).take(MOST_MAPPINGS);
        let texts: Vec<&Region> = of_kind(RegionKind::LibraryText).collect();
        let first = texts.first();
        let mut header = [0; ELF_64.len()];
        let read = first.map(|first| memory.read(first.begin, &mut header));
        if let Some(Err(error)) = &read {
            return Err(NotReadable::of(error));
        }
        if header != ELF_64 {
            return Err(NotReadable::because("it is not a process of 64 bits"));
        }
        let line = texts.iter().rev().find_map(|region| banner(memory, region));
        let version = line.as_deref().and_then(version_in).unwrap_or_default();
        let layout = minor(&version).and_then(Layout::of);
        let layout = layout.ok_or_else(|| match version.is_empty() {
            true => NotReadable::because("its C library does not say which version it is"),
            false => NotReadable::because(format!("the layout of glibc {version} is not known")),
        })?;
        let data = of_kind(RegionKind::LibraryData).map(|region| (region.begin, words(memory, region)));
        Ok(Self { version, layout, data: data.collect() })
    }
}

/// glibc's line about itself, with what follows.
fn banner(memory: &dyn Memory, region: &Region) -> Option<Vec<u8>> {
    let end = region.end.min(region.begin + MOST_TEXT);
    let mut bytes = vec![0; PIECE + LINE];
    for at in (region.begin..end).step_by(PIECE) {
        let room = usize::try_from(end - at).unwrap_or(usize::MAX).min(bytes.len());
        let got = memory.read(at, &mut bytes[..room]).unwrap_or(0);
        if let Some(found) = bytes[..got].windows(BANNER.len()).position(|part| part == BANNER) {
            return Some(bytes[found..got.min(found + LINE)].to_vec());
        }
    }
    None
}

/// The version in glibc's line about itself: two numbers.
fn version_in(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let (_, rest) = line.split_once(RELEASE)?;
    let version: String = rest.chars().take_while(|char| char.is_ascii_digit() || *char == '.').collect();
    Some(version.trim_end_matches('.').to_owned())
}

fn minor(version: &str) -> Option<u32> {
    let mut numbers = version.split('.');
    let is_two = numbers.next() == Some("2");
    numbers.next().filter(|_| is_two)?.parse().ok()
}

/// Words of a mapping; 0 where nothing is resident.
fn words(memory: &dyn Memory, region: &Region) -> Vec<u64> {
    let end = region.end.min(region.begin + MOST_DATA);
    let page_bytes = memory.page_bytes();
    let mut words = vec![];
    let mut page = vec![0; usize::try_from(page_bytes).unwrap_or(0)];
    for at in (region.begin..end).step_by(page.len()) {
        let mut state = [PageState::Absent];
        let known = memory.pages(at / page_bytes, &mut state);
        page.fill(0);
        if known.is_ok() && state[0] != PageState::Absent {
            let _ = memory.read(at, &mut page); // what cannot be read is 0
        }
        words.extend(page.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
    }
    words
}

/// `HEAP_MAX_SIZE`: heaps of arenas beside the first begin at its multiples.
pub(crate) const HEAP_BYTES: u64 = 64 << 20;
/// Chunks begin at multiples of this.
pub(crate) const ALIGNMENT: u64 = 16;
/// `MINSIZE`: no chunk is smaller, but for fences.
pub(crate) const LEAST_CHUNK: u64 = 32;
/// A chunk's fields in front of the first page that a trim returns of it.
pub(crate) const CHUNK_RECORD: u64 = 48;
/// Chunks at the end of a heap that nothing is joined with.
pub(crate) const FENCE: u64 = 16;
/// Offset of a chunk's size and flags.
pub(crate) const SIZE: u64 = 8;
/// Offset of the program's bytes, of a free chunk's next in its list, and of that one's previous.
pub(crate) const USER: u64 = 16;
/// Offset of the word by which a freed block in a thread's cache is known (`tcache_entry.key`).
pub(crate) const CACHE_KEY: u64 = 24;
/// Flags in the size: the chunk before is in use; this one was mapped for itself.
pub(crate) const PREVIOUS_IN_USE: u64 = 1;
pub(crate) const MAPPED: u64 = 2;
/// All flags.
pub(crate) const FLAGS: u64 = 7;

/// Sizes and offsets of glibc's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of `heap_info`.
    pub(crate) heap_info: u64,
    /// Whether `heap_info` has `pagesize`.
    pub(crate) has_page_size: bool,
    /// Bytes of `malloc_state`.
    pub(crate) state: u64,
    /// Offset of `fastbinsY`, and number of its lists: none since 2.43.
    pub(crate) fastbins: (u64, u64),
    /// Offset of `top`.
    pub(crate) top: u64,
    /// Offset of `bins`, and number of its lists.
    pub(crate) bins: (u64, u64),
    /// Offset of `next`.
    pub(crate) next: u64,
    /// Offset of `system_mem`.
    pub(crate) system_mem: u64,
    /// Whether lists of small free blocks hide their pointers (`PROTECT_PTR`).
    pub(crate) hides_pointers: bool,
    /// How a block in a thread's cache is known.
    pub(crate) cache_key: CacheKey,
}

/// Word of a free block in a thread's cache (`tcache_entry.key`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CacheKey {
    /// The block has none: it counts as live.
    #[default]
    None,
    /// The address of the cache's record.
    Record(CacheRecord),
    /// A number that the process chose at random.
    Random,
}

/// Record of a thread's cache (`tcache_perthread_struct`): for each size a number of blocks, then the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheRecord {
    /// Bytes of one of the numbers.
    pub(crate) count: u64,
}

impl CacheRecord {
    /// Number of sizes.
    pub(crate) const SIZES: u64 = 64;

    /// Offset of the first blocks.
    pub(crate) fn blocks(self) -> u64 {
        self.count * Self::SIZES
    }

    /// Bytes of the chunk that has the record.
    pub(crate) fn chunk(self) -> u64 {
        self.blocks() + 8 * Self::SIZES + USER
    }
}

/// Layout of `malloc_state` from 2.27 to 2.42.
const SINCE_2_35: Layout = Layout {
    heap_info: 0x30,
    has_page_size: true,
    state: 0x898,
    fastbins: (0x10, 10),
    top: 0x60,
    bins: (0x70, 127),
    next: 0x870,
    system_mem: 0x888,
    hides_pointers: true,
    cache_key: CacheKey::Random,
};

/// Layout with two bytes for each number of a thread's cache, and no `pagesize`.
const SINCE_2_32: Layout = Layout {
    heap_info: 0x20,
    has_page_size: false,
    cache_key: CacheKey::Record(CacheRecord { count: 2 }),
    ..SINCE_2_35
};

/// Layout with one byte for each.
const SINCE_2_29: Layout =
    Layout { hides_pointers: false, cache_key: CacheKey::Record(CacheRecord { count: 1 }), ..SINCE_2_32 };

/// Layout without `have_fastchunks` and `fastbinsY`.
const SINCE_2_43: Layout = Layout {
    state: 0x840,
    fastbins: (0x8, 0),
    top: 0x8,
    bins: (0x18, 127),
    next: 0x818,
    system_mem: 0x830,
    ..SINCE_2_35
};

/// First and last minor version of glibc 2 with a layout.
const LAYOUTS: [(u32, u32, Layout); 7] = [
    (28, 28, Layout { cache_key: CacheKey::None, ..SINCE_2_29 }),
    (29, 29, SINCE_2_29),
    (30, 31, Layout { hides_pointers: false, ..SINCE_2_32 }),
    (32, 33, SINCE_2_32),
    (34, 34, Layout { cache_key: CacheKey::Random, ..SINCE_2_32 }),
    (35, 42, SINCE_2_35),
    (43, 44, SINCE_2_43),
];

impl Layout {
    /// The layout of `2.minor`.
    pub(crate) fn of(minor: u32) -> Option<Self> {
        LAYOUTS.iter().find(|(first, last, _)| (first..=last).contains(&&minor)).map(|(.., layout)| *layout)
    }

    /// Address of a list's head, as if it were a chunk.
    pub(crate) fn bin(&self, state: u64, list: u64) -> u64 {
        state.wrapping_add(self.bins.0 + list * 16).wrapping_sub(USER)
    }
}

/// A mapping that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub begin: u64,
    /// Address after the last.
    pub end: u64,
    /// Kind of the region.
    pub kind: RegionKind,
}

/// Kind of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionKind {
    /// The C library's code and constants.
    LibraryText,
    /// The C library's variables.
    LibraryData,
    /// `[heap]`.
    MainHeap,
    /// Private memory of no file, where heaps may lie.
    Anonymous,
}

/// Most regions: more are not looked at.
const MOST_REGIONS: usize = 1 << 18;

/// Findings in the mappings of a process.
#[derive(Debug, Default)]
pub(crate) struct Found {
    regions: Vec<Region>,
    has_musl: bool,
    /// Library with another malloc.
    other_malloc: Option<String>,
}

impl Found {
    pub(crate) fn of(maps: impl Iterator<Item = io::Result<MemoryMap>>) -> io::Result<Self> {
        let mut found = Self::default();
        for map in maps {
            found.add(&map?);
        }
        Ok(found)
    }

    fn add(&mut self, map: &MemoryMap) {
        let last = self.regions.last();
        let follows_data =
            last.is_some_and(|last| last.kind == RegionKind::LibraryData && last.end == map.address.0);
        if let Some(kind) = kind(map, follows_data).filter(|_| self.regions.len() <= MOST_REGIONS) {
            self.regions.push(Region { begin: map.address.0, end: map.address.1, kind });
        }
        if let MMapPath::Path(file) = &map.pathname {
            self.has_musl |= CLibrary::of_file(file) == Some(CLibrary::Musl);
            if self.other_malloc.is_none() {
                self.other_malloc = mapping_text::allocator(file).map(str::to_owned);
            }
        }
    }

    /// The regions; why there are none that can be looked at.
    pub(crate) fn regions(&self) -> std::result::Result<&[Region], NotReadable> {
        if self.regions.len() > MOST_REGIONS {
            return Err(NotReadable::because("it has too many mappings"));
        }
        if self.regions.iter().any(|region| region.kind == RegionKind::LibraryText) {
            return Ok(&self.regions);
        }
        Err(NotReadable::because(match self.has_musl {
            true => "its C library is musl",
            false => "it has no C library of glibc: it is linked statically, or its C library is another one",
        }))
    }

    /// The reason, with the library that has another malloc.
    pub(crate) fn with_other_malloc(&self, reason: NotReadable) -> NotReadable {
        match &self.other_malloc {
            Some(other) => NotReadable::because(format!("{reason} ({other} is loaded)")),
            None => reason,
        }
    }
}

/// `follows_data`: the mapping begins where the C library's variables end.
fn kind(map: &MemoryMap, follows_data: bool) -> Option<RegionKind> {
    let is_writable = map.perms.contains(MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE);
    match &map.pathname {
        MMapPath::Path(file) if CLibrary::of_file(file) == Some(CLibrary::Glibc) => {
            Some(if is_writable { RegionKind::LibraryData } else { RegionKind::LibraryText })
        }
        MMapPath::Heap if is_writable => Some(RegionKind::MainHeap),
        MMapPath::Anonymous | MMapPath::Other(_) if is_writable && follows_data => {
            Some(RegionKind::LibraryData)
        }
        MMapPath::Anonymous | MMapPath::Other(_) if is_writable => Some(RegionKind::Anonymous),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_the_lines_of_distributions() {
        for (line, version, number) in [
            (
                "GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable release version 2.36.\nCopy",
                "2.36",
                Some(36),
            ),
            ("GNU C Library (Ubuntu GLIBC 2.39-0ubuntu8) stable release version 2.39.\n", "2.39", Some(39)),
            ("GNU C Library (GNU libc) development release version 2.42.9000.\n", "2.42.9000", Some(42)),
            ("GNU C Library (x) stable release version 3.1.\n", "3.1", None),
        ] {
            assert_eq!(version_in(line.as_bytes()).as_deref(), Some(version));
            assert_eq!(minor(version), number);
        }
        assert_eq!(version_in(b"GNU C Library (x)"), None);
    }

    /// The sizes as the declarations give them: four numbers of 4 bytes with their padding (since 2.43 two), ten
    /// lists (none), `top` and `last_remainder`, 127 pairs, 128 bits, five words.
    #[test]
    fn the_offsets_are_those_of_the_declaration() {
        for (minor, top) in [(36, 16 + 10 * 8), (43, 8)] {
            let layout = Layout::of(minor).unwrap();
            assert_eq!((layout.top, layout.fastbins.0 + layout.fastbins.1 * 8), (top, top));
            assert_eq!(layout.bins.0, top + 16);
            assert_eq!(layout.next, layout.bins.0 + 127 * 16 + 16);
            assert_eq!((layout.system_mem, layout.state), (layout.next + 3 * 8, layout.next + 5 * 8));
            assert_eq!((Layout::of(34).unwrap().heap_info, layout.heap_info), (4 * 8, 5 * 8 + 8));
        }
        let chunks = |minor| match Layout::of(minor).unwrap().cache_key {
            CacheKey::Record(record) => record.chunk(),
            _ => 0,
        };
        assert_eq!([28, 29, 30, 33, 34].map(chunks), [0, 0x250, 0x290, 0x290, 0]);
        assert_eq!([31, 32].map(|minor| Layout::of(minor).unwrap().hides_pointers), [false, true]);
        assert_eq!((Layout::of(27), Layout::of(45)), (None, None), "nobody has looked at them");
    }
}
