// SPDX-License-Identifier: Apache-2.0
//! What the kernel tells of processes, remembered for those whose page comes later.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What the kernel told of processes in the last seconds: for those that were gone before their page was seen.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// The signal that ended it, 0 for none.
    pub(crate) signals: Recent<u32>,
    /// Its last exec, by `CLOCK_MONOTONIC`, ns.
    pub(crate) execs: Recent<u64>,
}

/// What the kernel told is remembered so long.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Processes remembered at most.
const MOST_REMEMBERED: usize = 16_384;

/// Something told of processes, by their id.
#[derive(Debug, Default)]
pub(crate) struct Recent<T> {
    told: HashMap<u32, (T, Instant)>,
    /// When what is old was last forgotten: that takes a while where there is much.
    cleared: Option<Instant>,
}

impl<T: Copy> Recent<T> {
    pub(crate) fn note(&mut self, pid: u32, what: T, now: Instant) {
        let rested = self.cleared.is_none_or(|at| now.duration_since(at) >= REMEMBERED / 5);
        if self.told.len() >= MOST_REMEMBERED && rested {
            self.told.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
            self.cleared = Some(now);
        }
        if self.told.len() < MOST_REMEMBERED {
            self.told.insert(pid, (what, now));
        }
    }

    /// What was told of the process, unless that is too long ago: the id may be another's by now.
    pub(crate) fn of(&self, pid: u32, now: Instant) -> Option<T> {
        let (what, at) = self.told.get(&pid)?;
        (now.duration_since(*at) < REMEMBERED).then_some(*what)
    }

    /// The process lives on: nothing that was told of it holds.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.told.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_told_is_remembered_for_a_while() {
        let mut recent = Recent::default();
        let now = Instant::now();
        recent.note(7, 11_u32, now);
        assert_eq!((recent.of(7, now), recent.of(8, now)), (Some(11), None));
        assert_eq!(recent.of(7, now + REMEMBERED), None, "the id may be another's by then");
        (0..100_000).for_each(|pid| recent.note(pid, 0, now));
        assert!(recent.told.len() <= MOST_REMEMBERED);
        recent.note(8, 6, now + REMEMBERED);
        assert_eq!(recent.of(8, now + REMEMBERED), Some(6), "there is room again");
    }
}
