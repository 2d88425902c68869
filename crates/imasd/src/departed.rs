// SPDX-License-Identifier: Apache-2.0
//! The kernel's last events of processes, kept for those whose page comes later.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The kernel's events of the last seconds: for processes that had ended before their page was seen.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// Signals that ended processes, 0 for none.
    pub(crate) signals: Recent<u32>,
    /// Last execs of processes, by `CLOCK_MONOTONIC`, ns.
    pub(crate) execs: Recent<u64>,
}

/// Events are kept for this time.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Limit for the number of processes kept.
const MOST_REMEMBERED: usize = 16_384;

/// The last event of one kind, by id of the process.
#[derive(Debug, Default)]
pub(crate) struct Recent<T> {
    reported: HashMap<u32, (T, Instant)>,
    /// Time when what is old was last forgotten: that takes a while where there is much.
    cleared: Option<Instant>,
}

impl<T: Copy> Recent<T> {
    pub(crate) fn note(&mut self, pid: u32, what: T, now: Instant) {
        let rested = self.cleared.is_none_or(|at| now.duration_since(at) >= REMEMBERED / 5);
        if self.reported.len() >= MOST_REMEMBERED && rested {
            self.reported.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
            self.cleared = Some(now);
        }
        if self.reported.len() < MOST_REMEMBERED {
            self.reported.insert(pid, (what, now));
        }
    }

    /// The event of the process, unless it is too old: the id may be another's by now.
    pub(crate) fn of(&self, pid: u32, now: Instant) -> Option<T> {
        let (what, at) = self.reported.get(&pid)?;
        (now.duration_since(*at) < REMEMBERED).then_some(*what)
    }

    /// The process still runs: its event means nothing any more.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.reported.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_for_a_while() {
        let mut recent = Recent::default();
        let now = Instant::now();
        recent.note(7, 11_u32, now);
        assert_eq!((recent.of(7, now), recent.of(8, now)), (Some(11), None));
        assert_eq!(recent.of(7, now + REMEMBERED), None, "the id may be another's by then");
        (0..100_000).for_each(|pid| recent.note(pid, 0, now));
        assert!(recent.reported.len() <= MOST_REMEMBERED);
        recent.note(8, 6, now + REMEMBERED);
        assert_eq!(recent.of(8, now + REMEMBERED), Some(6), "there is room again");
    }
}
