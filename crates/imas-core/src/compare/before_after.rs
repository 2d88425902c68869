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
    ratio_within(&[[before.to_vec(), after.to_vec()]], checks)
}

/// The later figures by the earlier ones, each compared with the earlier ones of its own group: groups may differ from the start.
/// Groups with fewer than three of either are left out; None if no group is left. Figures are logarithms.
///
/// A group weighs as much as its number of figures tells. The interval is Welch's, of the weighted mean of the groups'
/// differences.
pub fn ratio_within(groups: &[[Vec<f64>; 2]], checks: usize) -> Option<Interval> {
    let (mut weights, mut difference, mut variance, mut squares) = (0.0, 0.0, 0.0_f64, 0.0);
    for group in groups.iter().filter(|group| group.iter().all(|part| part.len() >= FEWEST_ROUNDS)) {
        let [before, after] = group.each_ref().map(|part| (mean_and_deviation(part), part.len() as f64));
        let weight = before.1 * after.1 / (before.1 + after.1);
        weights += weight;
        difference += weight * (after.0.0 - before.0.0);
        for ((_, deviation), n) in [before, after] {
            let part = (weight * deviation).powi(2) / n;
            variance += part;
            squares += part.powi(2) / (n - 1.0);
        }
    }
    if weights <= 0.0 {
        return None;
    }
    let (difference, error) = (difference / weights, variance.sqrt() / weights);
    let tail = (1.0 - CONFIDENCE) / 2.0 / checks.max(1) as f64;
    let half = if error > 0.0 { t_quantile(tail, variance.powi(2) / squares) * error } else { 0.0 };
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

    /// Twice as much in the second group, which most of the earlier figures are in: together it looks like a gain.
    #[test]
    fn groups_that_differ_from_the_start_make_no_difference() {
        let group = |level: f64, counts: [usize; 2], gain: f64| {
            let noise = |n: usize| n as f64 / 100.0;
            let figures = |count: usize, level: f64| (0..count).map(|n| level + noise(n)).collect::<Vec<_>>();
            [figures(counts[0], level), figures(counts[1], level - gain)]
        };
        let groups = |gain| [group(0.0, [4, 8], gain), group(2.0_f64.ln(), [8, 4], gain)];
        let [[a, b], [c, d]] = groups(0.0);
        assert!(ratio_after(&[a, c].concat(), &[b, d].concat(), 1).unwrap().mid < 0.85);
        assert!(ratio_within(&groups(0.0), 1).unwrap().contains(1.0));
        let gain = ratio_within(&groups(0.3), 1).unwrap();
        assert!(gain.hi < 0.8 && gain.contains((-0.3_f64).exp()), "{gain:?}");
        let few = group(5.0, [2, 9], 4.0);
        assert_eq!(ratio_within(std::slice::from_ref(&few), 1), None);
        let [first, second] = groups(0.3);
        assert_eq!(ratio_within(&[first, few, second], 1), Some(gain));
    }
}
