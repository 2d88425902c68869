// SPDX-License-Identifier: Apache-2.0
//! The processes of pages, as they were seen.
//!
//! Two clocks side by side: the kernel stamps its process events by `CLOCK_MONOTONIC`, pages go by
//! `CLOCK_MONOTONIC_RAW`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use imas_core::hang::ProcessActivity;
use imas_linux::index::Executable;
use imas_linux::ingest::ParsedPage;
use imas_store::RowId;
use imas_store::daemon::Witness;
use nix::time::{ClockId, clock_gettime};

use crate::folders::PageName;
use crate::process_info::Identity;

/// Executable that the process of a page ran when the page was made; the file at the program's path may be
/// another one by now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// The file; `None` when it is not known.
    pub(crate) executable: Option<Executable>,
    /// Build-id, hexadecimal; empty when there is none, or it is not known.
    pub(crate) build_id: String,
}

/// The process of a page.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) witness: Witness,
    pub(crate) image: Image,
    /// Name of the offer, where the page is of a trial.
    pub(crate) token: Option<String>,
    /// Signal that ended the process, where the kernel has reported it.
    pub(crate) signal: Option<u32>,
    /// Last exec of the process by `CLOCK_MONOTONIC`, where the kernel has reported it.
    pub(crate) exec_ns: Option<u64>,
    /// Time when the process was seen first, in this process of the daemon.
    pub(crate) since: Instant,
    /// The sample of its trial is stored, though the process lives.
    pub(crate) sampled: bool,
    /// Activity that was seen of the process as long as it lived, under another allocator.
    pub(crate) activity: Option<ProcessActivity>,
    /// Age of the process when a look at it was last tried, seconds.
    pub(crate) looked_s: f64,
    /// The process has ended, and its page waits for the store.
    pub(crate) ended: bool,
}

impl Watch {
    pub(crate) fn identity(&self) -> Identity {
        Identity { pid: self.witness.pid, start_ticks: self.witness.start_ticks }
    }

    /// Whether the process has run another image, or the same once more, since it began its page.
    pub(crate) fn has_exec_after(&self, content: &ParsedPage) -> bool {
        let moment = self.exec_ns.and_then(|exec_ns| Some((exec_ns, Moment::now()?)));
        moment.is_some_and(|(exec_ns, now)| now.is_later(exec_ns, content.begun_raw_ns()))
    }
}

/// All pages that are watched.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) watches: HashMap<PageName, Watch>,
    by_pid: HashMap<u32, PageName>,
}

impl Watched {
    pub(crate) fn add(&mut self, page: PageName, watch: Watch) {
        self.by_pid.insert(watch.witness.pid, page.clone());
        self.watches.insert(page, watch);
    }

    pub(crate) fn remove(&mut self, page: &PageName) -> Option<Watch> {
        let watch = self.watches.remove(page)?;
        if self.by_pid.get(&watch.witness.pid) == Some(page) {
            self.by_pid.remove(&watch.witness.pid);
        }
        Some(watch)
    }

    /// Whether a process of the program has a page.
    pub(crate) fn has_program(&self, program: RowId) -> bool {
        self.watches.values().any(|watch| watch.witness.program == program)
    }

    /// Page of the process of that id.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<&PageName> {
        self.by_pid.get(&pid)
    }

    /// Pages whose process has ended but that could not be stored yet.
    pub(crate) fn left_over(&self) -> Vec<PageName> {
        let ended = self.watches.iter().filter(|(_, watch)| watch.ended);
        ended.map(|(page, _)| page.clone()).collect()
    }

    /// Pages that are watched.
    pub(crate) fn pages(&self) -> Vec<PageName> {
        self.watches.keys().cloned().collect()
    }

    pub(crate) fn trials(&self) -> usize {
        self.watches.values().filter(|watch| watch.token.is_some()).count()
    }
}

/// Limit for the drift between the clocks, as one part in this many: twice the largest slew of the kernel.
const DRIFT: u64 = 1000;
/// An exec is later than a page's beginning only by more than this.
const MARGIN_NS: u64 = 1_000_000;

/// Readings of both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    monotonic_ns: u64,
    raw_ns: u64,
}

impl Moment {
    /// `None` where there are no such clocks.
    pub(super) fn now() -> Option<Self> {
        Some(Self {
            monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?,
            raw_ns: read(ClockId::CLOCK_MONOTONIC_RAW)?,
        })
    }

    /// Whether the exec, reported before this moment, came after a page had begun (0: it has not). Where that
    /// is uncertain it did not: a page begins right after the exec that is its own.
    fn is_later(&self, exec_ns: u64, begun_raw_ns: u64) -> bool {
        let age_ns = self.monotonic_ns.saturating_sub(exec_ns);
        let exec_raw_ns = self.raw_ns.saturating_sub(age_ns);
        begun_raw_ns != 0 && exec_raw_ns > begun_raw_ns.saturating_add(MARGIN_NS + age_ns / DRIFT)
    }
}

fn read(clock: ClockId) -> Option<u64> {
    u64::try_from(Duration::from(clock_gettime(clock).ok()?).as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_exec_is_later_only_where_that_is_certain() {
        // The raw clock is two hours slower.
        let moment = Moment { monotonic_ns: 10_000 * S, raw_ns: 2_800 * S };
        let begun = 2_700 * S; // 9,900 s by the other
        assert!(!moment.is_later(9_900 * S - 300_000, begun), "its own exec, 0.3 ms before");
        assert!(
            !moment.is_later(9_900 * S + 50_000_000, begun),
            "100 s later the clocks may have drifted so far"
        );
        assert!(moment.is_later(9_901 * S, begun));
        assert!(!moment.is_later(9_999 * S, 0), "the page has not begun");
        let just_now = Moment { monotonic_ns: 9_900 * S + 20_000_000, raw_ns: 2_700 * S + 20_000_000 };
        assert!(just_now.is_later(9_900 * S + 5_000_000, begun), "5 ms after, reported 15 ms ago");
    }

    #[test]
    fn both_clocks_are_there() {
        let moment = Moment::now().unwrap();
        assert!(moment.monotonic_ns > 0 && moment.raw_ns > 0);
    }
}
