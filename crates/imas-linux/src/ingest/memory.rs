// SPDX-License-Identifier: Apache-2.0
//! Memory figures and the kernel's account at exit.

use imas_abi::PageHeader;
use imas_core::sample::{MemoryFigures, Usage};

use crate::ingest::error::PageError;
use crate::ingest::range::{bytes, counter};
use crate::ingest::split::split;

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

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

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
}
