// SPDX-License-Identifier: Apache-2.0
//! Layouts of glibc's malloc, by its version. Offsets are for machines of 64 bits.

/// `HEAP_MAX_SIZE`: heaps of arenas beside the first begin at its multiples.
pub(super) const HEAP_BYTES: u64 = 64 << 20;
/// Chunks begin at multiples of this.
pub(super) const ALIGNMENT: u64 = 16;
/// `MINSIZE`: no chunk is smaller, but for fences.
pub(super) const LEAST_CHUNK: u64 = 32;
/// A chunk's fields in front of the first page that a trim returns of it.
pub(super) const CHUNK_RECORD: u64 = 48;
/// Chunks at the end of a heap that nothing is joined with.
pub(super) const FENCE: u64 = 16;
/// Offset of a chunk's size and flags.
pub(super) const SIZE: u64 = 8;
/// Offset of the program's bytes, of a free chunk's next in its list, and of that one's previous.
pub(super) const USER: u64 = 16;
/// Offset of the word by which a freed block in a thread's cache is known (`tcache_entry.key`).
pub(super) const CACHE_KEY: u64 = 24;
/// Flags in the size: the chunk before is in use; this one was mapped for itself.
pub(super) const PREVIOUS_IN_USE: u64 = 1;
pub(super) const MAPPED: u64 = 2;
/// All flags.
pub(super) const FLAGS: u64 = 7;

/// Sizes and offsets of glibc's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of `heap_info`.
    pub(super) heap_info: u64,
    /// Whether `heap_info` has `pagesize`.
    pub(super) has_page_size: bool,
    /// Bytes of `malloc_state`.
    pub(super) state: u64,
    /// Offset of `fastbinsY`, and number of its lists: none since 2.43.
    pub(super) fastbins: (u64, u64),
    /// Offset of `top`.
    pub(super) top: u64,
    /// Offset of `bins`, and number of its lists.
    pub(super) bins: (u64, u64),
    /// Offset of `next`.
    pub(super) next: u64,
    /// Offset of `system_mem`.
    pub(super) system_mem: u64,
    /// Whether lists of small free blocks hide their pointers (`PROTECT_PTR`).
    pub(super) hides_pointers: bool,
    /// How a block in a thread's cache is known.
    pub(super) cache_key: CacheKey,
}

/// Word of a free block in a thread's cache (`tcache_entry.key`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheKey {
    /// The block has none: it counts as live.
    None,
    /// The address of the cache's record.
    Record(CacheRecord),
    /// A number that the process chose at random.
    Random,
}

/// Record of a thread's cache (`tcache_perthread_struct`): for each size a number of blocks, then the first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CacheRecord {
    /// Bytes of one of the numbers.
    pub(super) count: u64,
}

impl CacheRecord {
    /// Number of sizes.
    pub(super) const SIZES: u64 = 64;

    /// Offset of the first blocks.
    pub(super) fn blocks(self) -> u64 {
        self.count * Self::SIZES
    }

    /// Bytes of the chunk that has the record.
    pub(super) fn chunk(self) -> u64 {
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
    pub(super) fn of(minor: u32) -> Option<Self> {
        LAYOUTS.iter().find(|(first, last, _)| (first..=last).contains(&&minor)).map(|(.., layout)| *layout)
    }

    /// Address of a list's head, as if it were a chunk.
    pub(super) fn bin(&self, state: u64, list: u64) -> u64 {
        state.wrapping_add(self.bins.0 + list * 16).wrapping_sub(USER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
