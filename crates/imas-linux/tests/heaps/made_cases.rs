// SPDX-License-Identifier: Apache-2.0
//! Made-up heaps are read to the byte; changed ones are read or refused. `fuzz/fuzz_targets/heaps.rs` makes the same
//! check with guided changes.

use std::cell::Cell;
use std::io::Result;
use std::time::{Duration, Instant};

use imas_linux::heap::figures::HeapFigures;
use imas_linux::heap::memory::{Memory, PageState};
use imas_linux::heap::{RegionKind, figures_in};
use proptest::prelude::*;

use crate::hostile::{check, chunks};
use crate::made_memory::{Chunk, Expected, HEAP, Kind, MAIN, MadeMemory};

fn far() -> Instant {
    Instant::now() + Duration::from_secs(600)
}

fn found(figures: &HeapFigures) -> Expected {
    let bytes = &figures.bytes;
    let (live, cached, fast, free) = (bytes.live, bytes.cached, bytes.fast, bytes.free);
    Expected { live, cached, fast, free, returnable: bytes.returnable }
}

fn layouts() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..600)
}

/// A word that may do harm: small, an address of a heap, or anything.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..100_u64,
        0x5555_0000_0000..0x5555_0010_0000_u64,
        0x7e00_0000_0000..0x7e00_0810_0000_u64,
        Just(u64::MAX - 15),
        Just(1 << 46),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_honest_heap_is_read_to_the_byte(
        minor in prop_oneof![Just(36_u32), Just(43)],
        main in layouts(),
        others in prop::collection::vec(layouts(), 0..4),
    ) {
        let others: Vec<_> = others.iter().map(|other| chunks(other)).collect();
        let (memory, expected) = MadeMemory::of_glibc(minor, &chunks(&main), &others);
        let figures = figures_in(&memory, &memory.regions, far()).unwrap();
        prop_assert_eq!(found(&figures), expected);
        prop_assert!(!figures.is_estimate() || !others.is_empty(), "{:?}", figures);
        prop_assert_eq!((figures.read, figures.arenas), (figures.held, others.len() as u64 + 1));
    }

    #[test]
    fn a_changed_heap_is_read_or_refused(
        layout in layouts(),
        changes in prop::collection::vec((any::<u32>(), word()), 1..20),
    ) {
        let bytes: Vec<u8> = changes
            .iter()
            .flat_map(|(place, word)| [place.to_ne_bytes().as_slice(), word.to_ne_bytes().as_slice()].concat())
            .collect();
        let _ = check(&layout, &bytes);
    }
}

/// Two hundred chunks: live, cached, fast and free by turns.
fn many() -> Vec<Chunk> {
    let kinds = [Kind::Live, Kind::Cached, Kind::Free, Kind::Fast];
    (0..200).map(|at| Chunk { units: 300, kind: kinds[at % 4] }).collect()
}

#[test]
fn an_impossible_size_is_refused() {
    for size in [0, 1, 9, 17, 25, 1 << 20, 1 << 40, u64::MAX] {
        let (mut memory, _) = MadeMemory::of(&many(), &[]);
        let heap = memory.regions.iter().find(|region| region.kind == RegionKind::MainHeap).unwrap().begin;
        memory.word(heap + 8, size);
        let found = figures_in(&memory, &memory.regions, far());
        // The lists of the first arena are empty here: all counts as live then.
        assert!(found.is_err() || found.as_ref().unwrap().bytes.free == 0, "{size}: {found:?}");
    }
}

#[test]
fn a_ring_of_arenas_without_an_end_is_refused() {
    let (mut memory, _) = MadeMemory::of(&many(), &[many(), many()]);
    let second = memory.regions[3].begin + 0x30;
    memory.word(second + 0x870, second);
    let refused = figures_in(&memory, &memory.regions, far()).unwrap_err();
    assert_eq!(refused.0, "the first arena of glibc's malloc was not found");
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let refused = |place: u64, bytes: &[u8]| {
        let (mut memory, _) = MadeMemory::of(&many(), &[]);
        let text = memory.regions[0].begin;
        memory.write(text + place, bytes);
        figures_in(&memory, &memory.regions, far()).unwrap_err().0
    };
    let line = b"GNU C Library (made up) stable release version 2.99.\n";
    assert_eq!(refused(0x100, line), "the layout of glibc 2.99 is not known");
    assert_eq!(
        refused(0x100, b"GNU C Library (a) of unknown age, with no word about itself.\n"),
        "its C library does not say which version it is"
    );
    assert_eq!(refused(0, b"\x7fELF\x01"), "it is not a process of 64 bits");
}

/// A memory that counts how often it is asked for the size of its pages: once at least for each free chunk of a list.
struct Counting(MadeMemory, Cell<u64>);

impl Memory for Counting {
    fn page_bytes(&self) -> u64 {
        self.1.set(self.1.get() + 1);
        self.0.page_bytes()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        self.0.read(address, into)
    }

    fn pages(&self, first: u64, pages: &mut [PageState]) -> Result<()> {
        self.0.pages(first, pages)
    }
}

/// A list of free chunks without an end is left once it has more bytes than the arena.
#[test]
fn a_free_chunk_that_points_to_itself_is_passed_a_few_times() {
    let chunks = [Chunk { units: 40_000, kind: Kind::Live }; 2];
    let (mut memory, _) = MadeMemory::of(&chunks, &[]);
    let first_list = MAIN + 0x70;
    memory.word(first_list, HEAP);
    memory.word(HEAP + 16, HEAP);
    // A size that does not fit the heap: the arena is read by its lists.
    memory.word(MAIN + 0x888, 1 << 20);
    let memory = Counting(memory, Cell::new(0));
    let refused = figures_in(&memory, &memory.0.regions, far()).unwrap_err();
    assert_eq!(refused.0, "its heaps change too fast");
    assert!(memory.1.get() < 10_000, "asked {} times", memory.1.get());
}

/// The other arenas say nothing of a first arena that cannot be read.
#[test]
fn a_first_arena_of_which_nothing_was_read_is_no_estimate() {
    let (_, expected) = MadeMemory::of(&[], &[many()]);
    let (mut memory, _) = MadeMemory::of(&many(), &[many()]);
    // No size of a chunk, and no address of a free chunk in the first list.
    memory.word(HEAP + 8, 0);
    memory.word(MAIN + 0x70, 3);
    let figures = figures_in(&memory, &memory.regions, far()).unwrap();
    let main = memory.regions.iter().find(|region| region.kind == RegionKind::MainHeap).unwrap();
    assert_eq!((figures.unread, figures.read + figures.unread), (main.end - main.begin, figures.held));
    assert_eq!(figures.bytes.free, expected.free, "of the other arena alone");
}

/// A first arena that claims more than is mapped holds nothing.
#[test]
fn a_first_arena_that_claims_all_addresses_holds_nothing() {
    let (mut memory, _) = MadeMemory::of(&many(), &[many()]);
    memory.word(MAIN + 0x888, u64::MAX);
    let figures = figures_in(&memory, &memory.regions, far()).unwrap();
    assert!(figures.held < memory.bytes() && figures.read == figures.held, "{figures:?}");
}

/// A memory whose reads each take a while.
struct Slow(MadeMemory);

impl Memory for Slow {
    fn page_bytes(&self) -> u64 {
        self.0.page_bytes()
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        if into.len() > 8192 {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.read(address, into)
    }

    fn pages(&self, first: u64, pages: &mut [PageState]) -> Result<()> {
        self.0.pages(first, pages)
    }
}

#[test]
fn arenas_that_the_time_does_not_allow_are_estimated() {
    let arenas = vec![many(); 40];
    let (memory, expected) = MadeMemory::of(&many(), &arenas);
    let slow = Slow(memory.clone());
    // Until enough was read for an estimate, however slow this machine is.
    let figures = (1..).find_map(|try_number| {
        let until = Instant::now() + Duration::from_millis(200 * try_number);
        let figures = figures_in(&slow, &memory.regions, until).ok()?;
        (figures.read * 10 > figures.held).then_some(figures)
    });
    let figures = figures.unwrap();
    assert!(figures.is_estimate(), "{figures:?}");
    for (found, expected) in [
        (figures.bytes.live + figures.bytes.cached, expected.live + expected.cached),
        (figures.bytes.free, expected.free),
        (figures.bytes.returnable, expected.returnable),
    ] {
        assert!(found.abs_diff(expected) < expected / 5, "{found} {expected} {figures:?}");
    }
}
