// SPDX-License-Identifier: Apache-2.0
//! Counters of jemalloc's arenas: blocks by size, small ones in slabs, large ones by class.

use std::time::Instant;

use super::{OwnCounters, not_known, too_late, word};
use crate::heap::memory::{Memory, Window};

/// Places in the record of an arena (`arena_t`).
#[derive(Debug, Clone, Copy)]
struct ArenaLayout {
    /// Offset of the statistics of the first bin.
    bins: u64,
    /// Offset of the statistics of the first class of large blocks.
    large: u64,
    /// Bytes of the statistics of one such class (`arena_stats_large_t`).
    large_step: u64,
}

/// Layouts of 5.3.1 and 5.3.0.
const LAYOUTS: [ArenaLayout; 2] = [
    ArenaLayout { bins: 80_816, large: 992, large_step: 56 },
    ArenaLayout { bins: 79_064, large: 976, large_step: 48 },
];
/// Bytes of a bin (`bin_t`), and of its description (`bin_info_t`).
const BIN_STEP: u64 = 224;
const INFO_STEP: u64 = 40;
/// Sizes of small blocks, and of all.
const BINS: u64 = 36;
const SIZES: u64 = 232;
/// Most arenas (`MALLOCX_ARENA_LIMIT`).
const MOST_ARENAS: u64 = 4095;
/// Counters are read while they change: tries for one arena, and what they may be off.
const TRIES: usize = 20;
const SLACK: u64 = 64;

/// Description of a bin.
#[derive(Debug, Clone, Copy, Default)]
struct BinInfo {
    block: u64,
    slab: u64,
    blocks: u64,
}

/// Counters of all arenas. `places`: of `arenas`, `bin_infos` and `sz_index2size_tab`.
pub(super) fn counters(
    memory: &dyn Memory,
    [arenas, infos, sizes]: [u64; 3],
    until: Instant,
) -> Result<OwnCounters, String> {
    let mut window = Window::new(memory, until);
    let sizes: Vec<u64> = read(&mut window, sizes, SIZES, 8)?;
    let infos = bin_infos(&mut window, infos, &sizes)?;
    let arenas: Vec<u64> = read(&mut window, arenas, MOST_ARENAS, 8)?;
    let mut layout: Option<ArenaLayout> = None;
    // Blocks in the caches of its threads count as given.
    let mut sum = OwnCounters { has_caches: true, ..OwnCounters::default() };
    for arena in arenas.into_iter().filter(|arena| *arena != 0) {
        let known = layout.as_ref().map_or(&LAYOUTS[..], std::slice::from_ref);
        let mut found = None;
        for _ in 0..TRIES {
            let mut one =
                |layout: &ArenaLayout| Some((*layout, of_arena(&mut window, arena, layout, &infos, &sizes)?));
            found = known.iter().find_map(&mut one);
            if found.is_some() {
                break;
            }
            window = Window::new(memory, until);
        }
        let late = || if Instant::now() > until { too_late() } else { not_known() };
        let (fits, counters) = found.ok_or_else(late)?;
        // An arena without any block fits every layout.
        if layout.is_none() && counters.live > 0 {
            layout = Some(fits);
        }
        sum.live = sum.live.saturating_add(counters.live);
        sum.free = sum.free.saturating_add(counters.free);
    }
    Ok(sum)
}

fn read(window: &mut Window<'_>, begin: u64, count: u64, step: u64) -> Result<Vec<u64>, String> {
    (0..count).map(|at| word(window, begin.saturating_add(at * step))).collect()
}

/// Descriptions of the bins, which agree with the table of sizes; none where nothing was allocated yet.
fn bin_infos(window: &mut Window<'_>, begin: u64, sizes: &[u64]) -> Result<Vec<BinInfo>, String> {
    let mut infos = vec![];
    for (bin, size) in (0..BINS).zip(sizes) {
        let words = read(window, begin.saturating_add(bin * INFO_STEP), 3, 8)?;
        let [block, slab, counts] = words[..] else { return Err(not_known()) };
        let blocks = counts & 0xffff_ffff;
        let is_one = block == *size && block > 0 && slab.is_multiple_of(4096) && blocks == slab / block;
        if !is_one {
            return Err(not_known());
        }
        infos.push(BinInfo { block, slab, blocks });
    }
    Ok(infos)
}

/// Counters of an arena; `None` where they are not consistent.
fn of_arena(
    window: &mut Window<'_>,
    arena: u64,
    layout: &ArenaLayout,
    infos: &[BinInfo],
    sizes: &[u64],
) -> Option<OwnCounters> {
    let mut sum = OwnCounters::default();
    for (bin, info) in (0..BINS).zip(infos) {
        let begin = arena.checked_add(layout.bins + bin * BIN_STEP)?;
        let words = read(window, begin, 10, 8).ok()?;
        let [given, taken, _, now, _, _, all_slabs, _, slabs, part_full] = words[..] else { return None };
        let counted = given.checked_sub(taken)?;
        let is_one = counted.abs_diff(now) <= SLACK
            && now <= slabs.checked_mul(info.blocks)?
            && slabs <= all_slabs
            && part_full <= slabs
            && (all_slabs == 0) == (given == 0);
        if !is_one {
            return None;
        }
        let live = now.checked_mul(info.block)?;
        sum.live = sum.live.checked_add(live)?;
        sum.free = sum.free.checked_add(slabs.checked_mul(info.slab)?.saturating_sub(live))?;
    }
    for (class, size) in (0..).zip(sizes.iter().skip(infos.len())) {
        let begin = arena.checked_add(layout.large + class * layout.large_step)?;
        let words = read(window, begin, 2, 8).ok()?;
        let live = words[0].checked_sub(words[1])?.checked_mul(*size)?;
        sum.live = sum.live.checked_add(live)?;
    }
    // No process has more.
    (sum.live >> 47 == 0).then_some(sum)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::made::{BASE, Bytes};
    use super::*;

    const ARENAS: u64 = BASE;
    const INFOS: u64 = BASE + 0x10_000;
    const TABLE: u64 = BASE + 0x20_000;
    const ARENA: u64 = BASE + 0x30_000;

    /// Sizes of jemalloc's classes.
    fn sizes() -> Vec<u64> {
        let steps = (4_u32..).flat_map(|shift| (0..4_u64).map(move |at| (4 + at) << shift));
        let mut sizes = vec![8, 16, 32, 48];
        sizes.extend(steps.take(228));
        sizes
    }

    fn process(layout: &ArenaLayout) -> Bytes {
        let mut memory = Bytes::default();
        memory.set(ARENAS, &[ARENA]);
        let sizes = sizes();
        memory.set(TABLE, &sizes);
        for (bin, size) in (0..BINS).zip(&sizes) {
            let slab = (size * 8).next_multiple_of(4096);
            memory.set(INFOS + bin * INFO_STEP, &[*size, slab, (slab / size) | (1 << 32)]);
            memory.set(ARENA + layout.bins + bin * BIN_STEP, &[9, 4, 0, 5, 0, 0, 6, 0, 5, 1]);
        }
        memory.set(ARENA + layout.large + 3 * layout.large_step, &[10, 3]);
        memory
    }

    fn counted(memory: &Bytes) -> Result<OwnCounters, String> {
        counters(memory, [ARENAS, INFOS, TABLE], Instant::now() + Duration::from_secs(60))
    }

    #[test]
    fn small_and_large_blocks_are_added_up_in_each_layout() {
        let sizes = sizes();
        let small: u64 = sizes[..36].iter().map(|size| 5 * size).sum();
        for layout in &LAYOUTS {
            let found = counted(&process(layout)).unwrap();
            assert_eq!(found.live, small + 7 * sizes[39], "{layout:?}");
            assert!(found.free > 0);
        }
    }

    #[test]
    fn whatever_is_in_the_arenas_ends_the_reading() {
        let layout = &LAYOUTS[0];
        for (address, value) in [
            (ARENA + layout.bins, 1_000_000),  // given and held blocks differ
            (ARENA + layout.bins + 24, 9_000), // more than the slabs have room for
            (ARENA + layout.large, u64::MAX),
            (INFOS, 7),
            (ARENAS, 1),
        ] {
            let mut memory = process(layout);
            memory.set(address, &[value]);
            assert!(counted(&memory).is_err(), "{address:x} {value}");
        }
        let mut many = process(layout);
        many.set(ARENAS, &[ARENA; 100]);
        assert_eq!(counted(&many).unwrap().live, counted(&process(layout)).unwrap().live * 100);
    }
}
