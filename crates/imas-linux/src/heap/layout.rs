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
};

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
const LAYOUTS: [(u32, u32, Layout); 3] = [
    (34, 34, Layout { heap_info: 0x20, has_page_size: false, ..SINCE_2_35 }),
    (35, 42, SINCE_2_35),
    (43, 43, SINCE_2_43),
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
        assert_eq!((Layout::of(33), Layout::of(44)), (None, None), "nobody has looked at them");
    }
}
