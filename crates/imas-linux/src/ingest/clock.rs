// SPDX-License-Identifier: Apache-2.0
//! From ticks to nanoseconds, by the two clocks that a page holds at its start and at its latest snapshot.

use imas_abi::PageHeader;

use crate::ingest::error::PageError;

/// Longest life believed: a century, ns.
const CENTURY_NS: u64 = 100 * 366 * 24 * 3600 * 1_000_000_000;

/// Shortest stretch between the two readings that gives a rate, ns: the readings of one pair lie some
/// tens of ns apart, which a shorter stretch would turn into per cents.
const SHORTEST_STRETCH_NS: u64 = 10_000;

/// Tick rates believed, in ticks per ns: 1 MHz (slow timers of ARM boards) to 20 GHz.
const TICKS_PER_NS: std::ops::RangeInclusive<f64> = 0.001..=20.0;

/// Dearest pair of clock reads believed, ticks; a trapped rdtsc costs some thousands.
const DEAREST_PAIR_TICKS: u64 = 1_000_000;

/// The clocks of one page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Clock {
    /// `CLOCK_MONOTONIC_RAW` at the start and at the latest snapshot; equal when there was none.
    pub(crate) start_ns: u64,
    pub(crate) last_ns: u64,
    /// Nanoseconds of a clock tick; None when the page was left before a usable second reading.
    pub(crate) ns_per_tick: Option<f64>,
    /// Cost of two clock reads with nothing between.
    pub(crate) empty_pair_ticks: f64,
}

impl Clock {
    pub(crate) fn of(header: &PageHeader) -> Result<Self, PageError> {
        let pair_256 = header.empty_pair_ticks_256;
        if pair_256 > DEAREST_PAIR_TICKS * 256 {
            return Err(PageError::Range { field: "empty_pair_ticks_256", value: pair_256 });
        }
        // A second reading that is missing or older than the first makes a life of 0, not an error: the
        // process was killed before its first snapshot.
        let (start_ns, last_ns) = (header.ns_start, header.ns_last.max(header.ns_start));
        let life_ns = last_ns - start_ns;
        if life_ns > CENTURY_NS {
            return Err(PageError::Range { field: "ns_last", value: last_ns });
        }
        let ns_per_tick = ns_per_tick(life_ns, header.ticks_start, header.ticks_last);
        Ok(Self { start_ns, last_ns, ns_per_tick, empty_pair_ticks: pair_256 as f64 / 256.0 })
    }

    pub(crate) fn wall_s(&self) -> f64 {
        (self.last_ns - self.start_ns) as f64 / 1e9
    }

    /// Mean time of a call from its mean ticks, the empty pair subtracted, never below 0.
    pub(crate) fn call_ns(&self, mean_ticks: f64) -> Option<f64> {
        self.ns_per_tick.map(|ns_per_tick| (mean_ticks - self.empty_pair_ticks).max(0.0) * ns_per_tick)
    }
}

fn ns_per_tick(stretch_ns: u64, ticks_start: u64, ticks_last: u64) -> Option<f64> {
    let ticks = ticks_last.checked_sub(ticks_start)?;
    let is_usable =
        stretch_ns >= SHORTEST_STRETCH_NS && TICKS_PER_NS.contains(&(ticks as f64 / stretch_ns as f64));
    is_usable.then(|| stretch_ns as f64 / ticks as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn clock(ns: (u64, u64), ticks: (u64, u64)) -> Result<Clock, PageError> {
        let mut header = PageHeader::new_zeroed();
        (header.ns_start, header.ns_last) = ns;
        (header.ticks_start, header.ticks_last) = ticks;
        header.empty_pair_ticks_256 = 20 * 256 + 128;
        Clock::of(&header)
    }

    #[test]
    fn ticks_of_a_two_gigahertz_machine() {
        let clock = clock((1_000_000, 2_000_000), (500, 2_000_500)).unwrap();
        assert_eq!(clock.ns_per_tick, Some(0.5));
        assert_eq!(clock.wall_s(), 0.001);
        assert_eq!(clock.call_ns(120.5), Some(50.0));
        assert_eq!(clock.call_ns(10.0), Some(0.0), "cheaper than the empty pair");
    }

    #[test]
    fn readings_that_give_no_rate() {
        let cases = [
            ((1_000_000, 1_000_000), (500, 500)),
            ((1_000_000, 0), (500, 0)),
            ((1_000_000, 1_009_999), (500, 20_500)),
            ((1_000_000, 2_000_000), (500, 499)),
            ((1_000_000, 2_000_000), (500, 500)),
            ((1_000_000, 2_000_000), (0, u64::MAX)),
        ];
        for (ns, ticks) in cases {
            let clock = clock(ns, ticks).unwrap();
            assert_eq!(clock.call_ns(100.0), None, "{ns:?} {ticks:?}");
            assert!(clock.wall_s() >= 0.0);
        }
    }
}
