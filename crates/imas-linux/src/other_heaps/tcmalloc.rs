// SPDX-License-Identifier: Apache-2.0
//! Counters of gperftools' page heap: memory of the system, and free pages. Small free blocks in its caches are not counted
//! apart.

use std::ops::Range;
use std::time::Instant;

use super::{OwnCounters, not_known, word};
use crate::heap::memory::{Memory, Window};

/// The counters lie near the end of the page heap, bytes before it.
const NEAR_END: u64 = 0x400;
/// Counters are read while they change.
const TRIES: usize = 20;

/// Counters of the page heap at these addresses.
pub(super) fn counters(memory: &dyn Memory, heap: Range<u64>, until: Instant) -> Result<OwnCounters, String> {
    let begin = heap.start.max(heap.end.saturating_sub(NEAR_END)).checked_next_multiple_of(8);
    let begin = begin.ok_or_else(not_known)?;
    for _ in 0..TRIES {
        let mut window = Window::new(memory, until);
        let words = (begin..heap.end).step_by(8).map(|at| word(&mut window, at));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        if let Some(found) = words.windows(11).find_map(|words| stats(words.try_into().ok()?)) {
            return Ok(found);
        }
    }
    Err(not_known())
}

/// Counters in their order (`PageHeap::Stats`): of the system, free, given back, committed, scavenges, commits, bytes of
/// these, decommits, bytes of these, reserves, bytes of these.
fn stats(words: [u64; 11]) -> Option<OwnCounters> {
    let [system, free, unmapped, committed, _, commits, in_all, _, back, reserves, reserved] = words;
    let is_one = system > 0
        && system == reserved
        && system.checked_sub(unmapped) == Some(committed)
        && in_all.checked_sub(back) == Some(committed)
        && commits > 0
        && reserves > 0
        && [system, free, unmapped].iter().all(|bytes| bytes.is_multiple_of(4096));
    let live = committed.checked_sub(free).filter(|_| is_one)?;
    Some(OwnCounters { live, free, has_caches: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_that_agree_are_some() {
        const MIB: u64 = 1 << 20;
        let words = [92 * MIB, MIB, 2 * MIB, 90 * MIB, 3, 92, 95 * MIB, 4, 5 * MIB, 92, 92 * MIB];
        let expected = OwnCounters { live: 89 * MIB, free: MIB, has_caches: true };
        assert_eq!(stats(words), Some(expected));
        for at in [0, 1, 2, 3, 6, 8, 10] {
            let mut other = words;
            other[at] = other[at].wrapping_add(8);
            assert_eq!(stats(other), None, "{at}");
        }
        assert_eq!(stats([0; 11]), None);
    }
}
