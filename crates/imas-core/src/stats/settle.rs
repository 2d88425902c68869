// SPDX-License-Identifier: Apache-2.0
//! How many more runs an undecided comparison needs.

use super::Interval;

/// More runs than this are not worth naming: the answer would be "too close to call".
const MOST_RUNS: f64 = 1000.0;

/// Rough number of further runs until `ratio`, known from `runs` runs, would be settled: either its estimate
/// differs from 1 by more than `margin` (0.02 = 2 %) and its interval excludes 1, or its interval lies within
/// the margin as a whole. 0 when it is settled already; None when it would take over a thousand, which is as
/// good as never.
///
/// Assumption: the interval shrinks about the present estimate with the square root of the number of runs.
/// The estimate itself will move, so the figure is a hint, not a promise.
pub fn runs_to_settle(ratio: Interval, runs: usize, margin: f64) -> Option<u32> {
    let (lo, mid, hi) = (ratio.lo.ln(), ratio.mid.ln(), ratio.hi.ln());
    let (lower, upper) = ((1.0 - margin).ln(), (1.0 + margin).ln());
    let excess = if mid < lower {
        (hi - mid) / -mid
    } else if mid > upper {
        (mid - lo) / mid
    } else {
        ((hi - mid) / (upper - mid)).max((mid - lo) / (mid - lower))
    };
    if !excess.is_finite() {
        return None;
    }
    let wanted = runs as f64 * excess * excess;
    let more = (wanted - runs as f64).max(0.0).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= more <= 1000")]
    (more <= MOST_RUNS).then_some(more as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(mid: f64, half_width: f64) -> Interval {
        Interval { lo: mid * (-half_width).exp(), mid, hi: mid * half_width.exp() }
    }

    #[test]
    fn a_clear_difference_needs_no_more() {
        assert_eq!(runs_to_settle(about(0.8, 0.1), 10, 0.02), Some(0));
        assert_eq!(runs_to_settle(about(1.3, 0.1), 10, 0.02), Some(0));
        assert_eq!(runs_to_settle(about(1.0, 0.01), 10, 0.02), Some(0));
    }

    /// The half width is 1.99 times the distance of ln 0.9 from 0: 1.99^2 = 3.96 times the runs, 29.6 more.
    #[test]
    fn twice_the_width_needs_four_times_the_runs() {
        assert_eq!(runs_to_settle(about(0.9, 1.99 * -(0.9f64.ln())), 10, 0.02), Some(30));
    }

    #[test]
    fn within_the_margin_the_whole_interval_must_come_in() {
        // upper = ln 1.02 = 0.0198, lower = ln 0.98 = -0.0202; the half width of 0.04 must shrink to 0.0198.
        assert_eq!(runs_to_settle(about(1.0, 0.04), 10, 0.02), Some(31));
    }

    #[test]
    fn on_the_edge_it_never_settles() {
        assert_eq!(runs_to_settle(about(0.9801, 0.1), 10, 0.02), None);
    }
}
