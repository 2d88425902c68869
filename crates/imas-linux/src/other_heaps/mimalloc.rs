// SPDX-License-Identifier: Apache-2.0
//! Pages of mimalloc 3, by its map from addresses to them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use super::{OwnCounters, not_known, word};
use crate::heap::memory::{Memory, Window};

/// Versions whose pages are known, as `mi_version` has them.
const KNOWN: Range<u64> = 30_300..30_500;
/// Bytes for which the map has an entry, and those for which a part of the map has them.
const SLICE: u64 = 16;
const PART: u64 = 29;
/// Entries of a part of the map.
const ENTRIES: u64 = 1 << (PART - SLICE);
/// Most pages, and share of pages that may change while they are read.
const MOST_PAGES: usize = 1 << 20;
const TORN: usize = 32;

/// Counters of all pages in the regions. A linker may have left out `mi_version`: then pages must fit the map all the same.
pub(super) fn counters(
    memory: &dyn Memory,
    (version, map): (Option<u64>, u64),
    regions: &[Range<u64>],
    until: Instant,
) -> Result<OwnCounters, String> {
    let version = version.map(|version| version_at(memory, version).ok_or_else(not_known)).transpose()?;
    if let Some(other) = version.filter(|version| !KNOWN.contains(version)) {
        return Err(format!("the layout of version {} is not known", words(other)));
    }
    let mut window = Window::new(memory, until);
    let map = word(&mut window, map)?;
    let pages = if map == 0 { BTreeMap::new() } else { pages(memory, map, regions, until)? };
    let (mut sum, mut torn) = (OwnCounters::default(), 0);
    for (page, slices) in &pages {
        match of_page(&mut window, *page, *slices)? {
            Some((live, free)) => {
                sum.live = sum.live.saturating_add(live);
                sum.free = sum.free.saturating_add(free);
            }
            None => torn += 1,
        }
    }
    if torn > pages.len() / TORN { Err(not_known()) } else { Ok(sum) }
}

fn words(version: u64) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

/// The version, which is a constant in the code of a function.
fn version_at(memory: &dyn Memory, code: u64) -> Option<u64> {
    let mut bytes = [0; 16];
    memory.read(code, &mut bytes).ok().filter(|got| *got == bytes.len())?;
    version_in(&bytes)
}

fn version_in(code: &[u8; 16]) -> Option<u64> {
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code); // endbr64
    match code {
        // mov eax, number; ret
        [0xb8, a, b, c, d, 0xc3, ..] => Some(u64::from(u32::from_le_bytes([*a, *b, *c, *d]))),
        // mov w0, number; ret
        [a, b, c, 0x52, 0xc0, 0x03, 0x5f, 0xd6, ..] => {
            let word = u32::from_le_bytes([*a, *b, *c, 0x52]);
            (word & 0xffe0_001f == 0x5280_0000).then_some(u64::from(word >> 5 & 0xffff))
        }
        _ => None,
    }
}

/// Pages to which the map leads from the regions, each with the number of its slices.
fn pages(
    memory: &dyn Memory,
    map: u64,
    regions: &[Range<u64>],
    until: Instant,
) -> Result<BTreeMap<u64, u64>, String> {
    let [mut parts, mut entries] = [Window::new(memory, until), Window::new(memory, until)];
    let mut pages = BTreeMap::new();
    for region in regions {
        let mut at = region.start >> SLICE;
        while at << SLICE < region.end && pages.len() < MOST_PAGES {
            let part = word(&mut parts, map.saturating_add((at / ENTRIES) * 8))?;
            if part == 0 || !part.is_multiple_of(8) {
                at = (at / ENTRIES + 1) * ENTRIES;
                continue;
            }
            let page = word(&mut entries, part.saturating_add(at % ENTRIES * 8))?;
            if page != 0 && page.is_multiple_of(8) {
                *pages.entry(page).or_default() += 1;
            }
            at += 1;
        }
    }
    Ok(pages)
}

/// Live and free bytes of a page (`mi_page_t`) with this number of slices; `None` where it is none.
fn of_page(window: &mut Window<'_>, page: u64, slices: u64) -> Result<Option<(u64, u64)>, String> {
    let counts = word(window, page.saturating_add(16))?;
    let block = word(window, page.saturating_add(40))?;
    let [used, room, most] = [counts & 0xffff, counts >> 16 & 0xffff, counts >> 32 & 0xffff];
    // Of a page with one large block not all slices are in the map.
    let is_in = |bytes: u64| most == 1 || (bytes <= slices << SLICE && bytes >= (slices << SLICE) / 8);
    let is_one = used <= room
        && room <= most
        && most > 0
        && block.is_multiple_of(8)
        && (8..1 << 40).contains(&block)
        && is_in(most * block);
    Ok(is_one.then(|| (used * block, (room - used) * block)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::made::{BASE, Bytes};
    use super::*;

    #[test]
    fn the_version_is_in_the_code() {
        let with = |begin: &[u8]| {
            let mut code = [0x90; 16];
            code[..begin.len()].copy_from_slice(begin);
            version_in(&code)
        };
        assert_eq!(with(&[0xb8, 0xc1, 0x76, 0, 0, 0xc3]), Some(30_401));
        assert_eq!(with(&[0xf3, 0x0f, 0x1e, 0xfa, 0xb8, 0xc1, 0x76, 0, 0, 0xc3]), Some(30_401));
        let [a, b, c, d] = (0x5280_0000_u32 | 30_302 << 5).to_le_bytes();
        assert_eq!(with(&[a, b, c, d, 0xc0, 0x03, 0x5f, 0xd6]), Some(30_302));
        assert_eq!(with(&[0xc3]), None);
        assert_eq!(words(30_401), "3.4.1");
    }
    const MAP: u64 = BASE + 0x100;
    const PARTS: u64 = BASE + 0x1000;
    const ENTRIES_OF: u64 = BASE + 0x10_000;
    const PAGES: u64 = BASE + 0x8000;
    /// Where the program's blocks lie: two slices of one page, then one of another.
    const REGION: Range<u64> = (1 << PART)..(1 << PART) + (3 << SLICE);

    /// A map with one part and two pages: 10 of 100 blocks of 1,000 bytes are used, and 3 of 60 of 1,024.
    fn process() -> Bytes {
        let mut memory = Bytes::default();
        memory.set(MAP, &[PARTS]);
        memory.set(PARTS + 8, &[ENTRIES_OF]);
        memory.set(ENTRIES_OF, &[PAGES, PAGES, PAGES + 0x100]);
        memory.set(PAGES + 16, &[counts(10, 100, 100), 0, 0, 1000]);
        memory.set(PAGES + 0x100 + 16, &[counts(3, 60, 60), 0, 0, 1024]);
        memory
    }

    fn counts(used: u64, room: u64, most: u64) -> u64 {
        used | room << 16 | most << 32
    }

    fn counted(memory: &Bytes) -> Result<(u64, u64), String> {
        let until = Instant::now() + std::time::Duration::from_secs(60);
        counters(memory, (None, MAP), &[REGION], until).map(|sum| (sum.live, sum.free))
    }

    #[test]
    fn pages_of_the_map_are_added_up() {
        assert_eq!(counted(&process()), Ok((10 * 1000 + 3 * 1024, 90 * 1000 + 57 * 1024)));
        let mut none = process();
        none.set(MAP, &[0]);
        assert_eq!(counted(&none), Ok((0, 0)), "nothing was allocated yet");
    }

    #[test]
    fn whatever_is_in_a_page_or_in_the_map_ends_the_reading() {
        let first = PAGES + 16;
        for (address, value) in [
            (first, counts(101, 100, 100)), // more used than there is room for
            (first, counts(10, 101, 100)),  // more room than there can be
            (first, 0),                     // no block at all
            (first + 24, 7),                // no size of a block
            (first + 24, u64::MAX - 7),     // a size whose sums are too large
            (first + 24, 1 << 20),          // more than its slices hold
            (first + 24, 8),                // far less than they hold
            (ENTRIES_OF, PARTS),            // a map that leads to itself
            (ENTRIES_OF, u64::MAX - 7),     // a page at the end of all addresses
        ] {
            let mut memory = process();
            memory.set(address, &[value]);
            assert!(counted(&memory).is_err(), "{address:x} {value:x}");
        }
        // What is no pointer leads to no page.
        for (address, value) in [(MAP, u64::MAX - 7), (PARTS + 8, 3), (PARTS + 8, u64::MAX - 7)] {
            let mut memory = process();
            memory.set(address, &[value]);
            assert!(matches!(counted(&memory), Ok((0, 0)) | Err(_)), "{address:x} {value:x}");
        }
    }

    proptest! {
        #[test]
        fn any_words_have_an_answer_that_the_regions_can_hold(
            words in prop::collection::vec((0u64..0x2000, any::<u64>()), 0..20),
        ) {
            let mut memory = process();
            words.iter().for_each(|(at, word)| memory.set(PAGES + at * 8 % 0x200, &[*word]));
            if let Ok((live, free)) = counted(&memory) {
                prop_assert!(live.saturating_add(free) < 1 << 41);
            }
        }
    }
}
