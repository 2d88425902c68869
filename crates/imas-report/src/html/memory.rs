// SPDX-License-Identifier: Apache-2.0
//! Memory through a counted run: what each candidate held from second to second, resident and in address
//! space.

use imas_core::SYSTEM;
use imas_core::run::MemorySnapshot;

use super::MemorySection;
use crate::chart::{Axis, Chart, CurveLine, Curves};
use imas_cli::format;

const KIB_OF_MIB: f64 = 1024.0;
/// An allocator that reserves address space at its start would flatten all others. One that exceeds
/// the least by more than this factor is named in the caption and not drawn.
const FAR_OUT: u64 = 16;

/// Resident memory and heap; those that have anything to draw.
pub(super) fn charts(memories: &[MemorySection]) -> Vec<Chart> {
    // A line needs two points.
    let drawn: Vec<&MemorySection> = memories.iter().filter(|memory| memory.looks.len() > 1).collect();
    let looks = drawn.iter().find(|memory| memory.candidate == SYSTEM).map(|memory| &memory.looks[..]);
    // It is 0 throughout where forked processes share their blocks: nothing is known then.
    let live = looks.filter(|looks| looks.iter().any(|look| look.live_kib > 0));
    let resident =
        chart("Resident memory through one counted run", &drawn, &[], live, |look| look.resident_kib);
    let least = drawn.iter().map(|memory| peak(memory, heap)).min().unwrap_or(0);
    let (near, far): (Vec<&MemorySection>, Vec<&MemorySection>) =
        drawn.iter().partition(|memory| peak(memory, heap) <= least.saturating_mul(FAR_OUT));
    let space = chart("Heap in address space", &near, &far, live, heap);
    [resident, space].into_iter().flatten().collect()
}

fn heap(look: &MemorySnapshot) -> u64 {
    look.heap_kib
}

fn peak(memory: &MemorySection, get: fn(&MemorySnapshot) -> u64) -> u64 {
    memory.looks.iter().map(get).max().unwrap_or(0)
}

fn chart(
    title: &str,
    memories: &[&MemorySection],
    far: &[&MemorySection],
    live: Option<&[MemorySnapshot]>,
    get: fn(&MemorySnapshot) -> u64,
) -> Option<Chart> {
    memories.iter().map(|memory| peak(memory, get)).max().filter(|&top| top > 0)?;
    let points = |looks: &[MemorySnapshot], get: fn(&MemorySnapshot) -> u64| -> Vec<(f64, f64)> {
        looks.iter().map(|look| (look.ms as f64 / 1000.0, get(look) as f64 / KIB_OF_MIB)).collect()
    };
    let line = |memory: &&MemorySection| CurveLine::new(&memory.candidate, points(&memory.looks, get));
    Curves {
        title: format!("{title}, MiB"),
        caption: caption(live.is_some(), far),
        x: Axis::new("seconds since the start"),
        y: Axis::new("MiB").from_zero(),
        lines: memories.iter().map(line).collect(),
        floor: live.map(|looks| CurveLine::new("live blocks", points(looks, |look| look.live_kib))),
        ..Curves::default()
    }
    .draw()
}

fn caption(has_live: bool, far: &[&MemorySection]) -> String {
    let mut text = if has_live { "Dashed: bytes in live blocks under system." } else { "" }.to_owned();
    if !far.is_empty() {
        let one = |memory: &&MemorySection| {
            format!("{} ({} MiB)", memory.candidate, format::mib((peak(memory, heap) << 10) as f64))
        };
        let far: Vec<String> = far.iter().map(one).collect();
        text += &format!(" Not drawn, because they reserve far more: {}.", far.join(", "));
    }
    text.trim_start().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(candidate: &str, heap_kib: u64) -> MemorySection {
        let look = |ms| MemorySnapshot { ms, resident_kib: 1000 + ms, heap_kib, live_kib: 500 };
        MemorySection { candidate: candidate.to_owned(), looks: vec![look(0), look(1500)] }
    }

    #[test]
    fn one_that_reserves_far_more_is_named_and_not_drawn() {
        let drawn = charts(&[memory("system", 2000), memory("lean", 1500), memory("vast", 1 << 28)]);
        let has =
            |at: usize, name: &str| drawn[at].document().contains(&format!("data-candidate=\"{name}\""));
        assert!(has(0, "vast") && has(0, "lean") && has(1, "system") && !has(1, "vast"));
        assert!(drawn[1].caption().contains("vast (262144.0 MiB)"), "{}", drawn[1].caption());
        assert!(drawn.iter().all(|chart| chart.document().contains("class=\"live\"")));
    }

    #[test]
    fn a_single_look_is_no_curve() {
        let of =
            |looks: usize| MemorySection { looks: vec![MemorySnapshot::default(); looks], ..memory("a", 1) };
        assert!(charts(&[of(1)]).is_empty());
        assert!(charts(&[of(2)]).is_empty(), "nothing was held");
    }
}
