// SPDX-License-Identifier: Apache-2.0
//! Why a program's resident memory is larger than what it asked for: the causes of fragmentation, as far as
//! the hook's samples and the allocator report them.

use serde::{Deserialize, Serialize};

use crate::stats::significant;

/// Means over the time of a trial, in bytes. The moments looked at are spread over it (abi/imas_abi.h), the
/// end is none.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct Split {
    /// Moments the means are of.
    pub moments: u64,
    /// Resident memory of the process, as in [`crate::sample::MemoryFigures::resident_mean`].
    pub resident: u64,
    /// Usable bytes in live blocks, estimated from samples.
    pub live: u64,
    /// Bytes of the live blocks that were asked for, estimated from the same samples.
    pub requested: u64,
    /// The allocator's own account; None when it reported nothing, which is not the same as zero.
    #[serde(rename = "told")]
    pub reported: Option<AllocatorReport>,
}

/// Figures that an allocator reports about its memory, in bytes.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(default)]
pub struct AllocatorReport {
    /// Bytes in live blocks, the allocator's headers included: to be compared with [`Split::live`].
    pub in_use: u64,
    /// Free blocks that the allocator keeps: thread caches, bins, holes in pages in use.
    pub cached: u64,
    /// Pages that hold nothing live and were not given back.
    pub dirty: u64,
    /// Bytes of the allocator's bookkeeping, where it reports them.
    pub own: u64,
}

/// A split in parts of its resident memory, each 0 to 1 as a rule; `other` makes up the sum of 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shares {
    /// Memory that the program asked for and has not freed.
    pub requested: f64,
    /// Rounding up to the allocator's sizes.
    pub rounding: f64,
    /// Free blocks, free pages and bookkeeping; None when it is not reported. In this order each is at most
    /// what is left of the resident memory: allocators report address space, and may never have
    /// touched a part.
    pub reported: Option<[f64; 3]>,
    /// All else: memory that the program or its libraries map past malloc, headers of blocks, and all that is
    /// not reported. Below 0 where blocks were asked for and never touched.
    pub other: f64,
}

impl Split {
    /// Bytes in live blocks beyond those asked for.
    pub fn rounding(&self) -> u64 {
        self.live.saturating_sub(self.requested)
    }

    /// This split with all bytes rounded to three digits.
    #[must_use]
    pub fn rounded(&self) -> Self {
        let short = |bytes| significant(bytes, 3);
        Self {
            moments: self.moments,
            resident: short(self.resident),
            live: short(self.live),
            requested: short(self.requested),
            reported: self.reported.map(|reported| AllocatorReport {
                in_use: short(reported.in_use),
                cached: short(reported.cached),
                dirty: short(reported.dirty),
                own: short(reported.own),
            }),
        }
    }

    /// None without resident memory.
    pub fn shares(&self) -> Option<Shares> {
        if self.resident == 0 {
            return None;
        }
        let share = |bytes: u64| bytes as f64 / self.resident as f64;
        let (requested, rounding) = (share(self.live.min(self.requested)), share(self.rounding()));
        let mut left = 1.0 - requested - rounding;
        let mut of_the_rest = |bytes| {
            let part = share(bytes).min(left.max(0.0));
            left -= part;
            part
        };
        let reported = self
            .reported
            .map(|reported| [reported.cached, reported.dirty, reported.own].map(&mut of_the_rest));
        Some(Shares { requested, rounding, reported, other: left })
    }

    /// The mean of several trials, each counting alike. AllocatorReport only if all were. None of none.
    pub fn mean(splits: &[Self]) -> Option<Self> {
        let count = splits.len() as u128;
        let mean = |of: &dyn Fn(&Self) -> u64| {
            let sum: u128 = splits.iter().map(|split| u128::from(of(split))).sum();
            sum.checked_div(count).and_then(|mean| u64::try_from(mean).ok())
        };
        Self::combined(splits, |of| mean(of).ok_or(())).ok()
    }

    /// Each figure by `mean`; what the allocators report only where all of them do.
    ///
    /// # Errors
    /// The errors of `mean`.
    pub fn combined<E>(
        splits: &[Self],
        mean: impl Fn(&dyn Fn(&Self) -> u64) -> Result<u64, E>,
    ) -> Result<Self, E> {
        let reported = |of: fn(&AllocatorReport) -> u64| mean(&|split| split.reported.as_ref().map_or(0, of));
        let all_reported = splits.iter().all(|split| split.reported.is_some());
        Ok(Self {
            moments: splits.iter().fold(0, |sum, split| sum.saturating_add(split.moments)),
            resident: mean(&|split| split.resident)?,
            live: mean(&|split| split.live)?,
            requested: mean(&|split| split.requested)?,
            reported: match all_reported {
                true => Some(AllocatorReport {
                    in_use: reported(|t| t.in_use)?,
                    cached: reported(|t| t.cached)?,
                    dirty: reported(|t| t.dirty)?,
                    own: reported(|t| t.own)?,
                }),
                false => None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split() -> Split {
        let reported = AllocatorReport { in_use: 620, cached: 100, dirty: 60, own: 40 };
        Split { moments: 3, resident: 1000, live: 600, requested: 500, reported: Some(reported) }
    }

    #[test]
    fn shares_sum_up_to_the_resident_memory() {
        let shares = split().shares().unwrap();
        assert_eq!((shares.requested, shares.rounding), (0.5, 0.1));
        assert_eq!(shares.reported, Some([0.1, 0.06, 0.04]));
        assert!((shares.other - 0.2).abs() < 1e-12, "{shares:?}");
        assert_eq!(Split::default().shares(), None);
    }

    #[test]
    fn unreported_memory_is_other_and_not_zero() {
        let shares = Split { reported: None, ..split() }.shares().unwrap();
        assert_eq!(shares.reported, None);
        assert!((shares.other - 0.4).abs() < 1e-12);
    }

    #[test]
    fn reported_memory_is_never_more_than_resident_memory() {
        let of = |cached, dirty, own| {
            let reported = AllocatorReport { in_use: 0, cached, dirty, own };
            Split { reported: Some(reported), ..split() }.shares().unwrap()
        };
        let shares = of(100, 60, 4000);
        let [cached, dirty, own] = shares.reported.unwrap();
        assert!((cached - 0.1).abs() < 1e-12 && (dirty - 0.06).abs() < 1e-12 && (own - 0.24).abs() < 1e-12);
        assert!(shares.other.abs() < 1e-12, "{shares:?}");
        let [cached, dirty, own] = of(300, 200, 10).reported.unwrap();
        assert!((cached - 0.3).abs() < 1e-12 && (dirty - 0.1).abs() < 1e-12 && own.abs() < 1e-12);
        // Memory that was asked for and never touched stays visible.
        let untouched = Split { live: 3000, requested: 3000, ..split() }.shares().unwrap();
        assert_eq!((untouched.reported, untouched.other), (Some([0.0; 3]), -2.0));
    }

    #[test]
    fn a_mean_is_reported_only_if_all_were() {
        let more =
            Split { resident: 2000, requested: 600, reported: Some(AllocatorReport::default()), ..split() };
        let mean = Split::mean(&[split(), more]).unwrap();
        assert_eq!((mean.moments, mean.resident, mean.requested, mean.live), (6, 1500, 550, 600));
        assert_eq!(mean.reported, Some(AllocatorReport { in_use: 310, cached: 50, dirty: 30, own: 20 }));
        assert_eq!(Split::mean(&[split(), Split { reported: None, ..split() }]).unwrap().reported, None);
        assert_eq!(Split::mean(&[]), None);
    }

    #[test]
    fn requested_is_never_above_live() {
        let shares = Split { requested: 700, ..split() }.shares().unwrap();
        assert_eq!((shares.requested, shares.rounding), (0.6, 0.0));
    }
}
