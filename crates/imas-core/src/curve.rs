// SPDX-License-Identifier: Apache-2.0
//! Memory of a process tree through one counted run.

use serde::{Deserialize, Serialize};

use crate::stats::significant;

/// What each look at the tree found: one entry a look in every list, in order of time. KiB, milliseconds.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Curve {
    /// Time of the look since the tree's first process was seen, milliseconds.
    pub ms: Vec<u64>,
    /// `Pss_Anon - LazyFree + SwapPss` of its processes, the hook's tables left out.
    pub resident_kib: Vec<u64>,
    /// rw-p anonymous and `[heap]` mappings, thread stacks and the hook's tables left out: the paper's heap,
    /// virtual.
    pub heap_kib: Vec<u64>,
    /// Usable bytes in live blocks, as the hook estimates them; zeros where forked children went on with
    /// their parent's.
    pub live_kib: Vec<u64>,
}

/// One look at a process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemorySnapshot {
    /// Time of the look, as [`Curve::ms`].
    pub ms: u64,
    /// Resident memory, as [`Curve::resident_kib`].
    pub resident_kib: u64,
    /// Heap, as [`Curve::heap_kib`].
    pub heap_kib: u64,
    /// Live bytes, as [`Curve::live_kib`].
    pub live_kib: u64,
}

impl Curve {
    /// Looks that are kept of a run.
    pub const MOST: usize = 64;

    /// A curve through these looks.
    #[must_use]
    pub fn through(looks: &[MemorySnapshot]) -> Self {
        let list = |of: fn(&MemorySnapshot) -> u64| looks.iter().map(of).collect();
        Self {
            ms: list(|look| look.ms),
            resident_kib: list(|look| look.resident_kib),
            heap_kib: list(|look| look.heap_kib),
            live_kib: list(|look| look.live_kib),
        }
    }

    /// Looks of the curve. Where its lists differ in length, as many as the shortest has.
    #[must_use]
    pub fn looks(&self) -> Vec<MemorySnapshot> {
        let lists = self.ms.iter().zip(&self.resident_kib).zip(&self.heap_kib).zip(&self.live_kib);
        lists
            .map(|(((&ms, &resident_kib), &heap_kib), &live_kib)| MemorySnapshot {
                ms,
                resident_kib,
                heap_kib,
                live_kib,
            })
            .collect()
    }

    /// Curve of at most `most` looks of this one, evenly chosen, the first and the last among them, rounded
    /// to three digits.
    #[must_use]
    pub fn thinned(&self, most: usize) -> Self {
        const DIGITS: u32 = 3;
        let rounded = |look: MemorySnapshot| MemorySnapshot {
            ms: significant(look.ms, DIGITS),
            resident_kib: significant(look.resident_kib, DIGITS),
            heap_kib: significant(look.heap_kib, DIGITS),
            live_kib: significant(look.live_kib, DIGITS),
        };
        let looks: Vec<MemorySnapshot> = evenly(&self.looks(), most).into_iter().map(rounded).collect();
        Self::through(&looks)
    }
}

/// At most `most` of the items, evenly chosen, the first and the last among them.
pub fn evenly<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    if all.len() <= most {
        return all.to_vec();
    }
    let last = most.saturating_sub(1).max(1);
    (0..most).map(|i| all[i * (all.len() - 1) / last]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(len: u64) -> Curve {
        let look = |i| MemorySnapshot { ms: i, resident_kib: 123_456 + i, heap_kib: 2 * i, live_kib: i };
        Curve::through(&(0..len).map(look).collect::<Vec<_>>())
    }

    #[test]
    fn a_thin_curve_keeps_its_ends() {
        let thin = curve(100).thinned(8);
        assert_eq!((thin.ms.len(), thin.ms.first(), thin.ms.last()), (8, Some(&0), Some(&99)));
        assert!(thin.ms.windows(2).all(|pair| pair[0] < pair[1]), "{thin:?}");
        assert_eq!(thin.resident_kib[0], 123_000);
        assert_eq!(curve(8).thinned(8).ms, curve(8).ms);
        assert_eq!(curve(0).thinned(8), Curve::default());
        assert_eq!(curve(9).thinned(1).ms, [0]);
        assert_eq!(curve(9).thinned(0).ms, [0u64; 0]);
    }

    #[test]
    fn lists_of_different_lengths_do_no_harm() {
        let torn = Curve { live_kib: vec![7], ..curve(5) };
        assert_eq!(torn.looks().len(), 1);
        assert_eq!(Curve { ms: vec![], ..curve(5) }.thinned(3), Curve::default());
    }
}
