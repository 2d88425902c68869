// SPDX-License-Identifier: Apache-2.0
//! One thing before a change and after it: the runs were not made side by side, so they cannot be paired.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::stats::{CONFIDENCE, Interval, mean_and_deviation, t_quantile};

use super::paired::FEWEST_ROUNDS;

/// The later figures by the earlier ones; None with fewer than three of either. Figures are logarithms.
///
/// The interval is Welch's, of the difference of the means (B. L. Welch, "The generalization of 'Student's' problem
/// when several different population variances are involved", Biometrika 34, 1947). `checks` intervals share the
/// error of one (Bonferroni).
pub fn ratio_after(before: &[f64], after: &[f64], checks: usize) -> Option<Interval> {
    if before.len().min(after.len()) < FEWEST_ROUNDS {
        return None;
    }
    let part = |values: &[f64]| {
        let ((mean, deviation), n) = (mean_and_deviation(values), values.len() as f64);
        (mean, deviation * deviation / n, n)
    };
    let ((mean_0, error_0, n_0), (mean_1, error_1, n_1)) = (part(before), part(after));
    let (difference, variance) = (mean_1 - mean_0, error_0 + error_1);
    let freedom = variance.powi(2) / (error_0.powi(2) / (n_0 - 1.0) + error_1.powi(2) / (n_1 - 1.0));
    let tail = (1.0 - CONFIDENCE) / 2.0 / checks.max(1) as f64;
    let half = if variance > 0.0 { t_quantile(tail, freedom) * variance.sqrt() } else { 0.0 };
    Some(Interval { lo: (difference - half).exp(), mid: difference.exp(), hi: (difference + half).exp() })
}

/// Events within a time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct EventCount {
    /// Number of events.
    pub events: u32,
    /// The time, seconds.
    pub seconds: f64,
}

/// The probability of as many events or more after a change, if they are as frequent as before. Given the sum of both
/// counts, the later count has a binomial distribution.
pub fn chance_of_events(before: EventCount, after: EventCount) -> f64 {
    if after.events == 0 {
        return 1.0;
    }
    let seconds = |count: EventCount| count.seconds.max(1.0);
    let share = seconds(after) / (seconds(after) + seconds(before));
    let all = u64::from(after.events) + u64::from(before.events);
    Binomial::new(share, all).map_or(1.0, |count| count.sf(u64::from(after.events) - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_those_of_the_binomial() {
        let of = |events, seconds, before, before_s| {
            let count = |events, seconds| EventCount { events, seconds };
            chance_of_events(count(before, before_s), count(events, seconds))
        };
        assert!((of(1, 10.0, 0, 90.0) - 0.1).abs() < 1e-9);
        assert!((of(2, 50.0, 0, 50.0) - 0.25).abs() < 1e-9);
        assert!((of(1, 50.0, 1, 50.0) - 0.75).abs() < 1e-9);
        assert_eq!(of(0, 50.0, 7, 50.0), 1.0);
        assert!(of(3000, 60.0, 2, 86400.0) < 1e-9);
    }

    #[test]
    fn the_ratio_needs_three_of_each() {
        let steady = [0.0, 0.01, -0.01, 0.0];
        let ratio = ratio_after(&steady, &[0.2, 0.21, 0.19], 1).unwrap();
        assert!(ratio.lo > 1.17 && ratio.hi < 1.28, "{ratio:?}");
        assert_eq!(ratio_after(&steady, &[0.2, 0.2], 1), None);
        let wider = ratio_after(&steady, &[0.2, 0.21, 0.19], 8).unwrap();
        assert!(wider.lo < ratio.lo && wider.hi > ratio.hi);
    }
}
