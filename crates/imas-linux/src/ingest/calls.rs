// SPDX-License-Identifier: Apache-2.0
//! Exact and sampled figures of the operations.

use imas_abi::{OPS, SLOTS, Sampled, SampledOp, Slot, WEIGHT_ONE};
use imas_core::sample::OpFigures;

use crate::ingest::clock::Clock;
use crate::ingest::error::PageError;
use crate::ingest::range::counter;

/// Longest mean call believed, ns.
const LONGEST_CALL_NS: f64 = 1e10;

/// Names of the classes' call counts in messages.
const CALLS: [&str; OPS] = ["calls[malloc]", "calls[realloc]", "calls[memalign]", "calls[free]"];

/// What the area after the header holds; the default for a flight page, which has none.
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

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

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
}
