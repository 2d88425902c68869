// SPDX-License-Identifier: Apache-2.0
//! A page that waits: for its process to be seen, or for the kernel's event of how it ended.

use std::time::{Duration, Instant};

use crate::folders::PageName;

/// A process that could not be seen is looked at again after this time, then at growing distances. During
/// its exec a process has no command line, and it may crash right after.
const SOON: Duration = Duration::from_millis(2);
/// Longest time between two looks.
const SELDOM: Duration = Duration::from_secs(1);

/// Time to wait for the kernel's event of how a process ended. The descriptor of the process becomes
/// readable first, and on a busy machine much may happen between the two.
pub(crate) const EXIT_EVENT_TIMEOUT: Duration = Duration::from_millis(500);

/// A page that waits to be looked at again.
#[derive(Debug)]
pub(crate) struct PendingPage {
    pub(crate) page: PageName,
    /// Time of the first look.
    pub(crate) since: Instant,
    /// Time when the page's process was first found to be gone.
    pub(crate) gone: Option<Instant>,
    /// Time of the next look.
    pub(crate) next: Instant,
}

impl PendingPage {
    pub(crate) fn new(page: PageName) -> Self {
        let now = Instant::now();
        Self { page, since: now, gone: None, next: now + SOON }
    }

    /// This page, to be looked at again after as long as it has waited already, within [`SOON`] and
    /// [`SELDOM`].
    pub(crate) fn again(self) -> Self {
        let now = Instant::now();
        let next = now + now.duration_since(self.since).clamp(SOON, SELDOM);
        Self { next, ..self }
    }

    /// Takes out the pages that are to be looked at by now.
    pub(crate) fn take_due(waiting: &mut Vec<Self>, now: Instant) -> Vec<Self> {
        let (due, later) = std::mem::take(waiting).into_iter().partition(|page| page.next <= now);
        *waiting = later;
        due
    }
}
