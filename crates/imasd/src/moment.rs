// SPDX-License-Identifier: Apache-2.0
//! Two clocks side by side: the kernel stamps its process events by `CLOCK_MONOTONIC`, pages go by
//! `CLOCK_MONOTONIC_RAW`.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Limit for the drift between the clocks, as one part in this many: twice the largest slew of the kernel.
const DRIFT: u64 = 1000;
/// An exec is later than a page's beginning only by more than this.
const MARGIN_NS: u64 = 1_000_000;

/// Readings of both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    monotonic_ns: u64,
    raw_ns: u64,
}

impl Moment {
    /// `None` where there are no such clocks.
    pub(crate) fn now() -> Option<Self> {
        Some(Self {
            monotonic_ns: read(ClockId::CLOCK_MONOTONIC)?,
            raw_ns: read(ClockId::CLOCK_MONOTONIC_RAW)?,
        })
    }

    /// Whether the exec, reported before this moment, came after a page had begun (0: it has not). Where that
    /// is uncertain it did not: a page begins right after the exec that is its own.
    pub(crate) fn is_later(&self, exec_ns: u64, begun_raw_ns: u64) -> bool {
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
