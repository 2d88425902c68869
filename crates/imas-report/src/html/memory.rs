// SPDX-License-Identifier: Apache-2.0
//! Memory through a counted run: what each candidate held from second to second, resident and in address space.

use imas_core::SYSTEM;
use imas_core::curve::Look;
use serde::Serialize;

use super::Memory;
use super::lines::{Frame, Lines};
use crate::format;

const HEIGHT: f64 = 190.0;
/// Pixels between two labels of time.
const TIMES_APART: f64 = 40.0;
const KIB_OF_MIB: f64 = 1024.0;
/// An allocator that reserves address space at its start would flatten all others: beyond so many times the least it is told, not drawn.
const FAR_OUT: u64 = 16;

/// One drawing, a line a candidate.
#[derive(Serialize)]
pub(super) struct Figure {
    title: &'static str,
    caption: String,
    #[serde(flatten)]
    drawing: Lines,
    /// Live blocks under `system`, beneath which nobody can come.
    live: Option<String>,
}

/// Resident memory and heap; those that have anything to draw. `names` gives each candidate its colour.
pub(super) fn figures(memories: &[Memory], names: &[&str]) -> Vec<Figure> {
    // A line needs two points.
    let drawn: Vec<&Memory> = memories.iter().filter(|memory| memory.looks.len() > 1).collect();
    let looks = drawn.iter().find(|memory| memory.candidate == SYSTEM).map(|memory| &memory.looks[..]);
    // It is 0 throughout where forked processes share their blocks: nothing is known then.
    let live = looks.filter(|looks| looks.iter().any(|look| look.live_kib > 0));
    let resident = Figure::of("Resident memory through one counted run, MiB", &drawn, names, live, |look| {
        look.resident_kib
    });
    let least = drawn.iter().map(|memory| peak(memory, heap)).min().unwrap_or(0);
    let (near, far): (Vec<&Memory>, Vec<&Memory>) =
        drawn.iter().partition(|memory| peak(memory, heap) <= least.saturating_mul(FAR_OUT));
    let space = Figure::of("Heap in address space, MiB", &near, names, live, heap);
    let mut figures: Vec<Figure> = [resident, space].into_iter().flatten().collect();
    if let Some(space) = figures.get_mut(1).filter(|_| !far.is_empty()) {
        let far: Vec<String> = far
            .iter()
            .map(|memory| {
                format!("{} ({} MiB)", memory.candidate, format::mib((peak(memory, heap) << 10) as f64))
            })
            .collect();
        space.caption += &format!(" Not drawn, because they reserve far more: {}.", far.join(", "));
    }
    figures
}

fn heap(look: &Look) -> u64 {
    look.heap_kib
}

fn peak(memory: &Memory, get: fn(&Look) -> u64) -> u64 {
    memory.looks.iter().map(get).max().unwrap_or(0)
}

impl Figure {
    fn of(
        title: &'static str,
        memories: &[&Memory],
        names: &[&str],
        live: Option<&[Look]>,
        get: fn(&Look) -> u64,
    ) -> Option<Self> {
        let top = memories.iter().map(|memory| peak(memory, get)).max().filter(|&top| top > 0)?;
        let last_ms = memories.iter().filter_map(|memory| memory.looks.last()).map(|look| look.ms).max()?;
        let frame = Frame::new(HEIGHT, (0.0, last_ms as f64 / 1000.0), top as f64 / KIB_OF_MIB);
        fn values(looks: &[Look], get: fn(&Look) -> u64) -> impl Iterator<Item = (f64, f64)> {
            looks.iter().map(move |look| (look.ms as f64 / 1000.0, get(look) as f64 / KIB_OF_MIB))
        }
        let line = |memory: &&Memory| frame.line(&memory.candidate, names, values(&memory.looks, get));
        let lines = memories.iter().map(line).collect();
        let live = live.map(|looks| frame.points(values(looks, |look| look.live_kib)));
        let dashed = if live.is_some() { " Dashed: bytes in live blocks under system." } else { "" };
        Some(Self {
            title,
            caption: format!("{title}, by seconds since its start.{dashed}"),
            live,
            drawing: {
                let ticks = frame.x.round_ticks(TIMES_APART);
                frame.with(lines, ticks)
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(candidate: &str, heap_kib: u64) -> Memory {
        let look = |ms| Look { ms, resident_kib: 1000 + ms, heap_kib, live_kib: 500 };
        Memory { candidate: candidate.to_owned(), looks: vec![look(0), look(1500)] }
    }

    #[test]
    fn one_that_reserves_far_more_is_told_and_not_drawn() {
        let drawn = figures(
            &[memory("system", 2000), memory("lean", 1500), memory("vast", 1 << 28)],
            &["system", "lean", "vast"],
        );
        let names =
            |at: usize| drawn[at].drawing.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>();
        assert_eq!((names(0), names(1)), (vec!["system", "lean", "vast"], vec!["system", "lean"]));
        assert!(drawn[1].caption.contains("vast (262144.0 MiB)"), "{}", drawn[1].caption);
        assert_eq!(drawn[0].drawing.lines[2].colour, 2);
        assert!(drawn[0].live.is_some());
    }

    #[test]
    fn a_single_look_is_no_curve() {
        let short = Memory { looks: vec![Look::default()], ..memory("system", 1) };
        assert!(figures(&[short], &["system"]).is_empty());
        assert!(figures(&[Memory { looks: vec![Look::default(); 2], ..memory("a", 1) }], &["a"]).is_empty());
    }
}
