// SPDX-License-Identifier: Apache-2.0
//! Percentile bootstrap: B. Efron and R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter
//! 13.
//!
//! Rounds are resampled: the candidates of one round ran next to each other, so drift of the
//! machine (heat, neighbours) is in both and cancels in the ratio. Assumption: rounds are exchangeable, which
//! the random order within each round is there for.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use super::median;

/// Resamples per interval; its ends then vary by about a hundredth of its width from seed to seed.
pub const RESAMPLES: usize = 10_000;

/// Nominal confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// A point estimate between the ends of its interval: `lo <= mid <= hi`. Serialised as `[lo, mid, hi]`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(from = "[f64; 3]", into = "[f64; 3]")]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Point estimate.
    pub mid: f64,
    /// Upper end.
    pub hi: f64,
}

impl From<[f64; 3]> for Interval {
    fn from([lo, mid, hi]: [f64; 3]) -> Self {
        Self { lo, mid, hi }
    }
}

impl From<Interval> for [f64; 3] {
    fn from(interval: Interval) -> Self {
        [interval.lo, interval.mid, interval.hi]
    }
}

impl Interval {
    /// The ratio of a reference to itself.
    pub const ONE: Self = Self { lo: 1.0, mid: 1.0, hi: 1.0 };

    /// True when `x` lies within, the ends included.
    pub fn contains(&self, x: f64) -> bool {
        self.lo <= x && x <= self.hi
    }
}

/// Highest confidence that any interval between medians of `runs` values can have: 1 - 2^(1 - runs), the
/// chance that the values do not all fall on one side of the true median. Three runs reach 75 %, five 93.75
/// %, six exceed 95 %: below six runs [`CONFIDENCE`] is a promise that no bootstrap can keep.
pub fn attainable_confidence(runs: usize) -> f64 {
    let runs = i32::try_from(runs).unwrap_or(i32::MAX);
    (1.0 - 2f64.powi(1_i32.saturating_sub(runs))).clamp(0.0, CONFIDENCE)
}

/// Interval of `statistic` over `rounds`, resampled with replacement. The same seed gives the same interval.
///
/// `statistic` is given a resample of as many rounds and returns None where it has no value there (a median
/// of 0 as divisor). The point estimate is the statistic of the rounds themselves, and the interval is
/// widened to contain it, which the percentile method does not promise for skewed data. None when the
/// estimate or more than half of the resamples have no finite value.
pub fn bootstrap<T: Copy>(
    rounds: &[T],
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<Interval> {
    let mid = statistic(rounds).filter(|x| x.is_finite())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut drawn = rounds.to_vec();
    let mut values: Vec<f64> = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        for slot in &mut drawn {
            *slot = rounds[random.random_range(0..rounds.len())];
        }
        values.extend(statistic(&drawn).filter(|x| x.is_finite()));
    }
    if values.is_empty() || values.len() < resamples / 2 {
        return None;
    }
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let (lo, hi) = (quantile(&values, tail), quantile(&values, 1.0 - tail));
    Some(Interval { lo: lo.min(mid), mid, hi: hi.max(mid) })
}

/// Quantile of sorted values, linear between neighbours (type 7 of Hyndman and Fan, 1996).
fn quantile(sorted: &[f64], p: f64) -> f64 {
    let last = sorted.len() - 1;
    let at = p * last as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 <= at <= last")]
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    let share = at - below as f64;
    sorted[below] * (1.0 - share) + sorted[above] * share
}

/// Half the width of the interval of the median, relative to the median: how well one series alone is known.
/// None without values or when the median is not positive.
pub fn relative_spread(values: &[f64], resamples: usize, seed: u64) -> Option<f64> {
    let interval = bootstrap(values, resamples, seed, median)?;
    (interval.mid > 0.0).then(|| (interval.hi - interval.lo) / 2.0 / interval.mid)
}

// Student's t distribution (Gosset, "The probable error of a mean", Biometrika 6, 1908).

/// Mean, and standard deviation of a sample; 0 of fewer than two figures.
pub fn mean_and_deviation(figures: &[f64]) -> (f64, f64) {
    let n = figures.len() as f64;
    let mean = if figures.is_empty() { 0.0 } else { figures.iter().sum::<f64>() / n };
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (mean, if figures.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() })
}

/// Geometric mean of the figures that are above 0; None without any.
pub fn geometric_mean(figures: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = figures.iter().filter(|one| **one > 0.0).map(|one| one.ln()).collect();
    (!logs.is_empty()).then(|| mean_and_deviation(&logs).0.exp())
}

/// Mean with its interval of [`CONFIDENCE`], of figures that scatter like a normal distribution. A bootstrap of so few
/// (of ten: 90 % in place of 95 %) is too narrow. One figure is an interval without width; None without any.
pub fn mean_interval(figures: &[f64]) -> Option<Interval> {
    let (mid, deviation) = mean_and_deviation(figures);
    let width = match figures.len() {
        0 => return None,
        1 => 0.0,
        n => t_quantile((1.0 - CONFIDENCE) / 2.0, (n - 1) as f64) * deviation / (n as f64).sqrt(),
    };
    Some(Interval { lo: mid - width, mid, hi: mid + width })
}

/// Quantile of Student's t: the value that is exceeded with probability `tail` (0 to 0.5), with `freedom`
/// degrees of freedom (any positive number). Infinite where there is no such distribution, so that nothing is
/// ever concluded from it.
pub fn t_quantile(tail: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| -student.inverse_cdf(tail))
}

/// Probability that Student's t with `freedom` degrees of freedom (any positive number) is at least `t`. 1 where there
/// is no such distribution, or `t` is not a number, so that nothing is ever concluded from it.
pub fn t_tail(t: f64, freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| !t.is_nan());
    student.map_or(1.0, |student| student.sf(t))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::median_of;
    use super::{mean_and_deviation, mean_interval, t_quantile, t_tail, *};

    /// Interval of median(a) / median(b) over pairs (a, b), one pair per round. None without rounds or when
    /// b's median is 0.
    fn ratio_of_medians(pairs: &[(f64, f64)], resamples: usize, seed: u64) -> Option<Interval> {
        bootstrap(pairs, resamples, seed, |drawn| {
            let a = median_of(&mut drawn.iter().map(|pair| pair.0).collect::<Vec<_>>())?;
            let b = median_of(&mut drawn.iter().map(|pair| pair.1).collect::<Vec<_>>())?;
            (b > 0.0).then(|| a / b)
        })
    }

    fn ratio(pairs: &[(f64, f64)], seed: u64) -> Interval {
        ratio_of_medians(pairs, 500, seed).unwrap()
    }

    #[test]
    fn one_round_is_its_own_ratio() {
        assert_eq!(ratio(&[(3.0, 4.0)], 1), Interval { lo: 0.75, mid: 0.75, hi: 0.75 });
        assert_eq!(ratio_of_medians(&[], 10, 1), None);
        assert_eq!(ratio_of_medians(&[(1.0, 0.0)], 10, 1), None);
    }

    /// With five distinct values the chance that a resample's median is the smallest is
    /// P(at least 3 of 5 draws are it) = 0.058 > 0.025, so the 95 % interval is exactly the range.
    #[test]
    fn five_runs_give_the_range() {
        let pairs = [(1.0, 1.0), (2.0, 1.0), (3.0, 1.0), (4.0, 1.0), (5.0, 1.0)];
        assert_eq!(ratio_of_medians(&pairs, RESAMPLES, 7), Some(Interval { lo: 1.0, mid: 3.0, hi: 5.0 }));
    }

    #[test]
    fn drift_that_hits_both_cancels() {
        let drift = [1.0, 1.5, 2.0, 4.0, 8.0, 9.0];
        let pairs: Vec<_> = drift.iter().map(|d| (0.9 * d, *d)).collect();
        let interval = ratio(&pairs, 3);
        assert!((interval.lo - 0.9).abs() < 1e-12 && (interval.hi - 0.9).abs() < 1e-12, "{interval:?}");
    }

    #[test]
    fn quantiles_worked_by_hand() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.5);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.0), 1.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 1.0), 4.0);
        assert_eq!(quantile(&[5.0], 0.975), 5.0);
    }

    /// One draw out of 0, 1, .. 999: 2.5 % lie below 25 and above 975. Of 10,000 draws the quantile's
    /// standard error is 1.6; the bounds are six of them.
    #[test]
    fn the_ends_cut_off_two_and_a_half_per_cent_each() {
        let values: Vec<f64> = (0..1000).map(f64::from).collect();
        let i = bootstrap(&values, RESAMPLES, 5, |drawn| drawn.first().copied()).unwrap();
        assert_eq!(i.lo, 0.0, "widened to contain its estimate, which here is the first value");
        let middle = |drawn: &[f64]| if drawn == values { Some(500.0) } else { drawn.first().copied() };
        let i = bootstrap(&values, RESAMPLES, 5, middle).unwrap();
        assert!((15.0..35.0).contains(&i.lo) && (965.0..985.0).contains(&i.hi), "{i:?}");
    }

    #[test]
    fn few_runs_cannot_reach_the_nominal_confidence() {
        let reached: Vec<_> = [0, 1, 2, 3, 5, 6, 100].map(attainable_confidence).to_vec();
        assert_eq!(reached, [0.0, 0.0, 0.5, 0.75, 0.9375, 0.95, 0.95]);
    }

    #[test]
    fn an_interval_is_three_numbers_in_json() {
        let text = serde_json::to_string(&Interval { lo: 0.5, mid: 1.0, hi: 2.0 }).unwrap();
        assert_eq!(text, "[0.5,1.0,2.0]");
        assert_eq!(serde_json::from_str::<Interval>(&text).unwrap().hi, 2.0);
    }

    /// The interval must cover the true ratio about as often as it says: 300 experiments of 15 rounds, true
    /// ratio 0.8, noise of 10 %. Binomial bounds: 95 % +- 5 standard errors.
    #[test]
    fn the_interval_covers_the_truth() {
        let mut random = ChaCha8Rng::seed_from_u64(42);
        let noisy = |random: &mut ChaCha8Rng, x: f64| {
            let sum: f64 = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            x * (1.0 + 0.1 * sum)
        };
        let covered = (0..300).filter(|&seed| {
            let pairs: Vec<_> = (0..15).map(|_| (noisy(&mut random, 0.8), noisy(&mut random, 1.0))).collect();
            ratio_of_medians(&pairs, 400, seed).unwrap().contains(0.8)
        });
        let share = covered.count() as f64 / 300.0;
        assert!((0.89..=1.0).contains(&share), "covered {share}");
    }

    fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((0.001..1000.0f64, 0.001..1000.0f64), 1..25)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_interval_contains_its_estimate(pairs in pairs(), seed: u64) {
            let i = ratio(&pairs, seed);
            prop_assert!(i.contains(i.mid));
        }

        #[test]
        fn a_series_against_itself_is_one(values in prop::collection::vec(0.001..1000.0f64, 1..25), seed: u64) {
            let pairs: Vec<_> = values.iter().map(|&x| (x, x)).collect();
            prop_assert_eq!(ratio(&pairs, seed), Interval { lo: 1.0, mid: 1.0, hi: 1.0 });
        }

        #[test]
        fn the_unit_does_not_matter(pairs in pairs(), seed: u64, exponent in -20..20i32) {
            let scale = 2f64.powi(exponent);
            let scaled: Vec<_> = pairs.iter().map(|(a, b)| (a * scale, b * scale)).collect();
            prop_assert_eq!(ratio(&pairs, seed), ratio(&scaled, seed));
        }

        #[test]
        fn the_same_seed_gives_the_same_interval(pairs in pairs(), seed: u64) {
            prop_assert_eq!(ratio(&pairs, seed), ratio(&pairs, seed));
        }

        #[test]
        fn swapping_the_sides_inverts_the_ratio(pairs in pairs(), seed: u64) {
            let (ab, ba) = (ratio(&pairs, seed), {
                let swapped: Vec<_> = pairs.iter().map(|&(a, b)| (b, a)).collect();
                ratio(&swapped, seed)
            });
            prop_assert!((ab.mid * ba.mid - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn mean_and_deviation_worked_by_hand() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 2_f64.sqrt()));
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
    }

    /// Two figures 2 apart have a standard error of 1, and one degree of freedom: 12.706 in the tables.
    #[test]
    fn intervals_of_means_worked_by_hand() {
        let two = mean_interval(&[1.0, 3.0]).unwrap();
        assert!(
            (two.lo + 10.706).abs() < 1e-3 && two.mid == 2.0 && (two.hi - 14.706).abs() < 1e-3,
            "{two:?}"
        );
        assert_eq!(mean_interval(&[5.0]).map(<[f64; 3]>::from), Some([5.0, 5.0, 5.0]));
        assert_eq!(mean_interval(&[]), None);
    }

    /// Tabulated values.
    #[test]
    fn quantiles_of_the_table() {
        for (tail, freedom, want) in [(0.05, 4.0, 2.132), (0.025, 10.0, 2.228), (0.005, 2.0, 9.925)] {
            assert!((t_quantile(tail, freedom) - want).abs() < 1e-3, "{tail} {freedom}");
        }
        assert_eq!(t_quantile(0.05, 0.0), f64::INFINITY);
        assert!((t_tail(2.132, 4.0) - 0.05).abs() < 1e-4 && (t_tail(-2.132, 4.0) - 0.95).abs() < 1e-4);
        assert_eq!([t_tail(9.0, 0.0), t_tail(f64::NAN, 4.0)], [1.0, 1.0]);
    }
}
