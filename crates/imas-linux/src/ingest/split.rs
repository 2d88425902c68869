// SPDX-License-Identifier: Apache-2.0
//! Where the resident bytes were.

use imas_abi::PageHeader;
use imas_core::split::{AllocatorReport, Split};

use crate::ingest::error::PageError;
use crate::ingest::range::{bytes, counter};

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

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn header() -> PageHeader {
        let mut h = PageHeader::new_zeroed();
        (h.split_moments, h.split_reported, h.split_time) = (3, 3, 10);
        (h.split_resident_kib_time, h.split_usable_kib_time, h.split_requested_kib_time) = (1000, 600, 500);
        (h.split_in_use_kib_time, h.split_cached_kib_time) = (610, 100);
        (h.split_dirty_kib_time, h.split_own_kib_time) = (60, 40);
        h
    }

    #[test]
    fn sums_over_time_become_means() {
        let split = split(&header()).unwrap().unwrap();
        assert_eq!((split.moments, split.resident, split.live), (3, 100 << 10, 60 << 10));
        assert_eq!(split.requested, 50 << 10);
        let reported = AllocatorReport { in_use: 61 << 10, cached: 10 << 10, dirty: 6 << 10, own: 4 << 10 };
        assert_eq!(split.reported, Some(reported));
    }

    #[test]
    fn a_figure_that_was_not_always_reported_is_unknown() {
        assert_eq!(split(&PageHeader { split_reported: 2, ..header() }).unwrap().unwrap().reported, None);
    }

    #[test]
    fn a_page_of_an_earlier_version_has_no_split() {
        assert_eq!(split(&PageHeader::new_zeroed()).unwrap(), None);
        assert_eq!(split(&PageHeader { split_time: 0, ..header() }).unwrap(), None);
    }

    #[test]
    fn absurd_figures_are_refused() {
        assert!(split(&PageHeader { split_reported: 4, ..header() }).is_err());
        assert!(split(&PageHeader { split_moments: u64::MAX, ..header() }).is_err());
        assert!(split(&PageHeader { split_time: 1, split_own_kib_time: u64::MAX, ..header() }).is_err());
    }
}
