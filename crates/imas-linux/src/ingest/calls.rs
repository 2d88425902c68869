// SPDX-License-Identifier: Apache-2.0
//! Exact and sampled figures of the operations.
//!
//! From ticks to nanoseconds, by the two clocks that a page holds at its start and at its latest snapshot.

use imas_abi::{OPS, PageHeader, SLOTS, Sampled, SampledOp, Slot, WEIGHT_ONE};
use imas_core::sample::{MemoryFigures, OpFigures, Usage};
use imas_core::split::{AllocatorReport, Split};

use crate::ingest::PageError;

/// Longest mean call believed, ns.
const LONGEST_CALL_NS: f64 = 1e10;

/// Names of the classes' call counts in messages.
const CALLS: [&str; OPS] = ["calls[malloc]", "calls[realloc]", "calls[memalign]", "calls[free]"];

/// Contents of the area after the header; the default for a flight page, which has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Calls {
    pub(crate) op: [OpFigures; OPS],
    pub(crate) bytes_requested: u64,
    pub(crate) refused: u64,
    pub(crate) rounding_bytes: u64,
    pub(crate) size_histogram: Vec<u64>,
    pub(crate) live_dropped: u64,
    /// Not held to any bound but that it is not negative: it is looked at, not stored.
    pub(crate) live_bytes: u64,
}

impl Calls {
    /// `threads` is the number of allocating threads in the header. Each may have timed one call that it has
    /// not counted yet.
    pub(crate) fn of(
        sampled: &Sampled,
        slots: &[Slot; SLOTS],
        clock: &Clock,
        threads: u32,
    ) -> Result<Self, PageError> {
        let slack = u64::from(threads) + SLOTS as u64;
        let mut op: [OpFigures; OPS] = Default::default();
        for (i, figures) in op.iter_mut().enumerate() {
            let calls = total(CALLS[i], slots, |slot| slot.calls[i])?;
            *figures = figures_of(&sampled.op[i], calls, clock, slack)?;
        }
        let usable = sampled.usable_bytes_256.saturating_sub(sampled.requested_bytes_256);
        Ok(Self {
            op,
            bytes_requested: total("bytes_requested", slots, |slot| slot.bytes_requested)?,
            refused: total("refused", slots, |slot| slot.refused)?,
            rounding_bytes: unweighted(usable),
            size_histogram: sampled.size_histogram.iter().copied().map(unweighted).collect(),
            live_dropped: counter("live_dropped", sampled.live_dropped)?,
            live_bytes: u64::try_from(sampled.live_bytes).unwrap_or(0),
        })
    }
}

/// A counter over all slots. A slot whose thread has ended keeps its counts, so free ones count too.
fn total(field: &'static str, slots: &[Slot; SLOTS], of: impl Fn(&Slot) -> u64) -> Result<u64, PageError> {
    let sum = slots.iter().try_fold(0u64, |sum, slot| sum.checked_add(of(slot)));
    counter(field, sum.ok_or(PageError::Range { field, value: u64::MAX })?)
}

/// The estimate that a sum of weights stands for.
fn unweighted(weight: u64) -> u64 {
    weight / WEIGHT_ONE
}

fn figures_of(op: &SampledOp, calls: u64, clock: &Clock, slack: u64) -> Result<OpFigures, PageError> {
    let sampled = counter("sampled", op.sampled)?;
    if sampled > calls.saturating_add(slack) {
        return Err(PageError::Contradiction("more calls timed than made"));
    }
    let mean_ns = mean_ns(op, clock);
    if mean_ns.is_some_and(|ns| ns > LONGEST_CALL_NS) {
        return Err(PageError::Contradiction("a mean call of over ten seconds"));
    }
    Ok(OpFigures {
        calls,
        sampled: if mean_ns.is_some() { sampled } else { 0 },
        mean_ns: mean_ns.unwrap_or(0.0),
        histogram_ticks: op.histogram.iter().copied().map(unweighted).collect(),
        ns_per_tick: if mean_ns.is_some() { clock.ns_per_tick.unwrap_or(0.0) } else { 0.0 },
    })
}

/// `ticks` is sum(weight * ticks) / 256 and `weight` sum(weight), so the mean is 256 ticks / weight. None
/// when nothing was timed.
fn mean_ns(op: &SampledOp, clock: &Clock) -> Option<f64> {
    if op.sampled == 0 || op.weight == 0 {
        return None;
    }
    clock.call_ns(op.ticks as f64 * WEIGHT_ONE as f64 / op.weight as f64)
}

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
    fn call_ns(&self, mean_ticks: f64) -> Option<f64> {
        self.ns_per_tick.map(|ns_per_tick| (mean_ticks - self.empty_pair_ticks).max(0.0) * ns_per_tick)
    }
}

fn ns_per_tick(stretch_ns: u64, ticks_start: u64, ticks_last: u64) -> Option<f64> {
    let ticks = ticks_last.checked_sub(ticks_start)?;
    let is_usable =
        stretch_ns >= SHORTEST_STRETCH_NS && TICKS_PER_NS.contains(&(ticks as f64 / stretch_ns as f64));
    is_usable.then(|| stretch_ns as f64 / ticks as f64)
}

/// Means and peaks of the snapshots. A snapshot is written field by field, so a process killed inside one may
/// have added to a sum that it did not count; the mean is therefore held to the peak.
pub(crate) fn memory(header: &PageHeader) -> Result<MemoryFigures, PageError> {
    let snapshots = counter("snapshots", header.snapshots)?;
    let mean = |sum: u64, peak: u64| sum.checked_div(snapshots).unwrap_or(0).min(peak);
    let peak = |field, value| bytes(field, if snapshots == 0 { 0 } else { value });
    let heap_peak = peak("heap_bytes_peak", header.heap_bytes_peak)?;
    let live_peak = peak("live_bytes_peak", header.live_bytes_peak)?;
    let resident_peak = peak("resident_bytes_peak", header.resident_bytes_peak)?;
    Ok(MemoryFigures {
        snapshots,
        heap_mean: mean(header.heap_bytes_sum, heap_peak),
        heap_peak,
        live_mean: mean(header.live_bytes_sum, live_peak),
        live_peak,
        resident_mean: mean(header.resident_bytes_sum, resident_peak),
        resident_peak,
        resident_over_time: over_time(header).min(resident_peak),
        split: split(header)?,
    })
}

/// The integral over the time it was taken in; 0 when there is none. Bytes.
fn over_time(header: &PageHeader) -> u64 {
    let units = header.ns_last.saturating_sub(header.ns_start) >> 16;
    let kib = header.resident_kib_time.checked_div(units).unwrap_or(0);
    kib.saturating_mul(1024)
}

/// The account at exit; None when the process never came to write it, which leaves all of it 0.
pub(crate) fn usage(header: &PageHeader) -> Result<Option<Usage>, PageError> {
    let usage = Usage {
        user_s: counter("user_us", header.user_us)? as f64 / 1e6,
        system_s: counter("system_us", header.system_us)? as f64 / 1e6,
        minor_faults: counter("minor_faults", header.minor_faults)?,
        major_faults: counter("major_faults", header.major_faults)?,
        max_rss_bytes: bytes("max_rss_bytes", header.max_rss_bytes)?,
        voluntary_switches: counter("voluntary_switches", header.voluntary_switches)?,
        involuntary_switches: counter("involuntary_switches", header.involuntary_switches)?,
    };
    Ok((usage != Usage::default()).then_some(usage))
}

/// Means over the moments; None when there was none, as in a page of an earlier version. A process killed
/// inside a look may have added to a sum what it did not add to the time; of many moments that is little.
pub(crate) fn split(header: &PageHeader) -> Result<Option<Split>, PageError> {
    let (moments, reported) = (counter("split_moments", header.split_moments)?, header.split_reported);
    if reported > moments {
        return Err(PageError::Contradiction("the allocator reported more often than it was asked"));
    }
    if moments == 0 || header.split_time == 0 {
        return Ok(None);
    }
    let mean = |field, sum: u64| bytes(field, (sum / header.split_time).saturating_mul(1024));
    Ok(Some(Split {
        moments,
        resident: mean("split_resident_kib_time", header.split_resident_kib_time)?,
        live: mean("split_usable_kib_time", header.split_usable_kib_time)?,
        requested: mean("split_requested_kib_time", header.split_requested_kib_time)?,
        reported: match reported == moments {
            true => Some(AllocatorReport {
                in_use: mean("split_in_use_kib_time", header.split_in_use_kib_time)?,
                cached: mean("split_cached_kib_time", header.split_cached_kib_time)?,
                dirty: mean("split_dirty_kib_time", header.split_dirty_kib_time)?,
                own: mean("split_own_kib_time", header.split_own_kib_time)?,
            }),
            false => None,
        },
    }))
}

/// Most memory believed, bytes: what five-level page tables can address.
pub(crate) const MOST_BYTES: u64 = 1 << 57;

/// A counter as it may be stored: at most `i64::MAX`.
pub(crate) fn counter(field: &'static str, value: u64) -> Result<u64, PageError> {
    if i64::try_from(value).is_ok() { Ok(value) } else { Err(PageError::Range { field, value }) }
}

pub(crate) fn bytes(field: &'static str, value: u64) -> Result<u64, PageError> {
    if value <= MOST_BYTES { Ok(value) } else { Err(PageError::Range { field, value }) }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn clock() -> Clock {
        Clock { start_ns: 0, last_ns: 1_000_000, ns_per_tick: Some(0.5), empty_pair_ticks: 20.0 }
    }

    fn op(sampled: u64, weight: u64, ticks: u64) -> SampledOp {
        SampledOp { sampled, weight, ticks, ..SampledOp::new_zeroed() }
    }

    #[test]
    fn without_a_rate_nothing_was_timed() {
        let clock = Clock { ns_per_tick: None, ..clock() };
        let figures = figures_of(&op(2, 512, 240), 130, &clock, 0).unwrap();
        assert_eq!((figures.calls, figures.sampled, figures.mean_ns), (130, 0, 0.0));
    }

    #[test]
    fn a_weightless_sample_is_none() {
        assert_eq!(figures_of(&op(1, 0, 500), 1, &clock(), 0).unwrap().sampled, 0);
    }

    #[test]
    fn contradictions_are_refused() {
        let both = figures_of(&op(9, 9 * 256, 900), 7, &clock(), 1);
        assert!(matches!(both, Err(PageError::Contradiction(_))));
        assert!(figures_of(&op(8, 8 * 256, 900), 7, &clock(), 1).is_ok());
        let slow = figures_of(&op(1, 256, u64::MAX), 1, &clock(), 0);
        assert!(matches!(slow, Err(PageError::Contradiction(_))));
    }

    #[test]
    fn sums_over_slots_do_not_wrap() {
        let mut slots = [Slot::new_zeroed(); SLOTS];
        slots[0].refused = 3;
        slots[127].refused = 4;
        assert_eq!(total("refused", &slots, |s| s.refused), Ok(7));
        slots[5].refused = u64::MAX;
        assert!(total("refused", &slots, |s| s.refused).is_err());
        slots[5].refused = i64::MAX as u64;
        assert!(total("refused", &slots, |s| s.refused).is_err());
    }

    fn clock_of(ns: (u64, u64), ticks: (u64, u64)) -> Result<Clock, PageError> {
        let mut header = PageHeader::new_zeroed();
        (header.ns_start, header.ns_last) = ns;
        (header.ticks_start, header.ticks_last) = ticks;
        header.empty_pair_ticks_256 = 20 * 256 + 128;
        Clock::of(&header)
    }

    #[test]
    fn ticks_of_a_two_gigahertz_machine() {
        let clock = clock_of((1_000_000, 2_000_000), (500, 2_000_500)).unwrap();
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
            let clock = clock_of(ns, ticks).unwrap();
            assert_eq!(clock.call_ns(100.0), None, "{ns:?} {ticks:?}");
            assert!(clock.wall_s() >= 0.0);
        }
    }

    fn header(change: impl FnOnce(&mut PageHeader)) -> PageHeader {
        let mut header = PageHeader::new_zeroed();
        change(&mut header);
        header
    }

    #[test]
    fn a_mean_is_never_above_its_peak() {
        let m = memory(&header(|h| {
            h.snapshots = 1;
            (h.heap_bytes_sum, h.heap_bytes_peak) = (3000, 1500);
        }));
        assert_eq!(m.unwrap().heap_mean, 1500);
    }

    #[test]
    fn without_snapshots_all_is_zero() {
        let m = memory(&header(|h| (h.heap_bytes_sum, h.heap_bytes_peak) = (5, u64::MAX)));
        assert_eq!(m.unwrap(), MemoryFigures::default());
    }

    #[test]
    fn resident_memory_is_weighted_with_time() {
        let m = |integral, peak| {
            memory(&header(|h| {
                h.snapshots = 1;
                (h.ns_start, h.ns_last) = (1 << 16, 11 << 16);
                (h.resident_kib_time, h.resident_bytes_peak) = (integral, peak);
            }))
            .unwrap()
            .resident_over_time
        };
        assert_eq!(m(10 * 300, 1 << 20), 300 << 10);
        assert_eq!(m(u64::MAX, 1 << 20), 1 << 20, "never above the peak");
    }

    #[test]
    fn no_account_is_none() {
        assert_eq!(usage(&header(|_| ())).unwrap(), None);
        let usage = usage(&header(|h| h.user_us = 1_500_000)).unwrap().unwrap();
        assert_eq!(usage.user_s, 1.5);
    }

    fn split_header() -> PageHeader {
        let mut h = PageHeader::new_zeroed();
        (h.split_moments, h.split_reported, h.split_time) = (3, 3, 10);
        (h.split_resident_kib_time, h.split_usable_kib_time, h.split_requested_kib_time) = (1000, 600, 500);
        (h.split_in_use_kib_time, h.split_cached_kib_time) = (610, 100);
        (h.split_dirty_kib_time, h.split_own_kib_time) = (60, 40);
        h
    }

    #[test]
    fn sums_over_time_become_means() {
        let split = split(&split_header()).unwrap().unwrap();
        assert_eq!((split.moments, split.resident, split.live), (3, 100 << 10, 60 << 10));
        assert_eq!(split.requested, 50 << 10);
        let reported = AllocatorReport { in_use: 61 << 10, cached: 10 << 10, dirty: 6 << 10, own: 4 << 10 };
        assert_eq!(split.reported, Some(reported));
    }

    #[test]
    fn a_figure_that_was_not_always_reported_is_unknown() {
        assert_eq!(
            split(&PageHeader { split_reported: 2, ..split_header() }).unwrap().unwrap().reported,
            None
        );
    }

    #[test]
    fn a_page_of_an_earlier_version_has_no_split() {
        assert_eq!(split(&PageHeader::new_zeroed()).unwrap(), None);
        assert_eq!(split(&PageHeader { split_time: 0, ..split_header() }).unwrap(), None);
    }

    #[test]
    fn absurd_figures_are_refused() {
        assert!(split(&PageHeader { split_reported: 4, ..split_header() }).is_err());
        assert!(split(&PageHeader { split_moments: u64::MAX, ..split_header() }).is_err());
        assert!(
            split(&PageHeader { split_time: 1, split_own_kib_time: u64::MAX, ..split_header() }).is_err()
        );
    }
}
