// SPDX-License-Identifier: Apache-2.0
//! Mean and spread of pairs of figures, kept so that summaries of two machines can be merged: T. F. Chan, G.
//! H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
//! (1979), extended to the co-moment.

use serde::{Deserialize, Serialize};

use super::{Interval, t_quantile};

/// Sums over points (x, y): count, means, and sums of squared and mixed deviations from the means. Merging is
/// associative and commutative up to rounding, so neither order nor grouping of the points matters.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Moments {
    /// Number of points.
    pub count: u32,
    /// Mean of x.
    pub mean_x: f64,
    /// Mean of y.
    pub mean_y: f64,
    /// Sum of (x - mean)^2.
    pub xx: f64,
    /// Sum of (y - mean)^2.
    pub yy: f64,
    /// Sum of (x - mean) (y - mean).
    pub xy: f64,
}

impl Moments {
    /// Moments of one point.
    pub fn of(x: f64, y: f64) -> Self {
        Self { count: 1, mean_x: x, mean_y: y, ..Self::default() }
    }

    /// Moments of the points of both together.
    pub fn merge(self, other: Self) -> Self {
        if self.count == 0 {
            return other;
        }
        if other.count == 0 {
            return self;
        }
        let (n, m) = (f64::from(self.count), f64::from(other.count));
        let all = n + m;
        let (dx, dy) = (other.mean_x - self.mean_x, other.mean_y - self.mean_y);
        let share = n * m / all;
        Self {
            count: self.count + other.count,
            mean_x: self.mean_x + dx * m / all,
            mean_y: self.mean_y + dy * m / all,
            xx: self.xx + other.xx + dx * dx * share,
            yy: self.yy + other.yy + dy * dy * share,
            xy: self.xy + other.xy + dx * dy * share,
        }
    }

    /// Mean of a x + b y.
    pub fn mean(&self, a: f64, b: f64) -> f64 {
        a * self.mean_x + b * self.mean_y
    }

    /// Sum of squared deviations of a x + b y from its mean.
    pub fn squares(&self, a: f64, b: f64) -> f64 {
        (a * a * self.xx + b * b * self.yy + 2.0 * a * b * self.xy).max(0.0)
    }
}

impl FromIterator<(f64, f64)> for Moments {
    fn from_iter<I: IntoIterator<Item = (f64, f64)>>(points: I) -> Self {
        points.into_iter().fold(Self::default(), |all, (x, y)| all.merge(Self::of(x, y)))
    }
}

// How steady a measure is, from pairs of runs of one and the same thing.

/// Steadiness of one measure.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Steadiness {
    /// Standard deviation of single runs by their mean.
    pub variation: f64,
    /// Standard deviation of the difference of logarithms within a pair.
    pub paired: f64,
    /// Pairs with which a true difference is found nine times in ten, at 5 % error, one-sided.
    pub pairs_needed: u32,
}

/// Steadiness by pairs of figures, both of the same program under the same candidate, for a true difference
/// of logarithms of `difference`. None with fewer than three pairs or figures that are not positive.
pub fn steadiness(pairs: &[(f64, f64)], difference: f64) -> Option<Steadiness> {
    let all: Vec<f64> = pairs.iter().flat_map(|pair| [pair.0, pair.1]).collect();
    if pairs.len() < 3 || all.iter().any(|&x| !(x.is_finite() && x > 0.0)) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let paired = deviation(&logs);
    Some(Steadiness {
        variation: deviation(&all) / (all.iter().sum::<f64>() / all.len() as f64),
        paired,
        pairs_needed: pairs_needed(paired / difference),
    })
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// Smallest n with n >= ((t(0.05) + t(0.10)) * noise)^2 at n - 1 degrees of freedom; `noise` in units of the
/// difference.
fn pairs_needed(noise: f64) -> u32 {
    const MOST: u32 = 10_000;
    let is_enough = |n: u32| {
        let freedom = f64::from(n - 1);
        f64::from(n) >= ((t_quantile(0.05, freedom) + t_quantile(0.10, freedom)) * noise).powi(2)
    };
    (2..MOST).find(|&n| is_enough(n)).unwrap_or(MOST)
}

// How many more runs an undecided comparison needs.

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

// The allowed error, spread over repeated looks at a growing set of rounds.
//
// A test after every round that stops at the first success errs far more often than a single test. The error
// spending function of K. Kim and D. L. DeMets ("Design and analysis of group sequential tests based on the
// type I error spending rate function", Biometrika 74, 1987) gives each look a share. The shares of all
// looks sum to 1, so by the union bound all looks together err as often as one test without looks.

/// Exponent of the spending function: the first rounds can prove little.
const EXPONENT: f64 = 2.0;

/// The share of the error that the look after `rounds` rounds may spend, where there is a look after each
/// round from `first` to `most`.
pub fn look_share(rounds: u32, first: u32, most: u32) -> f64 {
    let most = most.max(1);
    let rounds = rounds.min(most);
    let spent = |rounds: u32| (f64::from(rounds) / f64::from(most)).powf(EXPONENT);
    let before = if rounds <= first { 0.0 } else { spent(rounds - 1) };
    spent(rounds) - before
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Moments, look_share, *};

    #[test]
    fn worked_by_hand() {
        let m: Moments = [(1.0, 2.0), (3.0, 6.0)].into_iter().collect();
        assert_eq!((m.count, m.mean_x, m.mean_y, m.xx, m.yy, m.xy), (2, 2.0, 4.0, 2.0, 8.0, 4.0));
        assert_eq!((m.mean(0.5, 0.5), m.squares(0.5, 0.5)), (3.0, 4.5));
    }

    fn near(a: Moments, b: Moments) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()));
        a.count == b.count
            && near(a.mean_x, b.mean_x)
            && near(a.mean_y, b.mean_y)
            && near(a.xx, b.xx)
            && near(a.yy, b.yy)
            && near(a.xy, b.xy)
    }

    fn points() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((-3.0..3.0f64, -3.0..3.0f64), 0..20)
    }

    proptest! {
        #[test]
        fn merging_is_associative_and_commutative(a in points(), b in points(), c in points()) {
            let [a, b, c] = [a, b, c].map(|points| points.into_iter().collect::<Moments>());
            prop_assert!(near(a.merge(b).merge(c), a.merge(b.merge(c))));
            prop_assert!(near(a.merge(b), b.merge(a)));
        }

        #[test]
        fn grouping_does_not_matter(points in points(), at in 0..20usize) {
            let (left, right) = points.split_at(at.min(points.len()));
            let halves = left.iter().copied().collect::<Moments>().merge(right.iter().copied().collect());
            prop_assert!(near(halves, points.iter().copied().collect()));
        }
    }

    #[test]
    fn steadiness_worked_by_hand() {
        let s = steadiness(&[(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)], 0.03).unwrap();
        assert!((s.paired - 2f64.ln()).abs() < 1e-12);
        // 1, 1, 2, 1, 1, 2: mean 4/3, deviation sqrt(4/3 / 5).
        assert!((s.variation - (4.0 / 15.0_f64).sqrt() / (4.0 / 3.0)).abs() < 1e-12);
        assert_eq!(steadiness(&[(1.0, 1.0); 2], 0.03), None);
        assert_eq!(steadiness(&[(0.0, 1.0); 4], 0.03), None);
    }

    #[test]
    fn twice_the_noise_needs_four_times_the_pairs() {
        assert_eq!(pairs_needed(0.0), 2);
        let (one, two) = (pairs_needed(2.0), pairs_needed(4.0));
        assert!((35..=38).contains(&one) && (137..=142).contains(&two), "{one} {two}");
    }

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

    #[test]
    fn all_interim_tests_together_spend_the_error_once() {
        let all: f64 = (5..=30).map(|rounds| look_share(rounds, 5, 30)).sum();
        assert!((all - 1.0).abs() < 1e-12, "{all}");
        assert!(look_share(5, 5, 30) < look_share(30, 5, 30), "little at first");
        assert!((look_share(5, 5, 30) - 25.0 / 900.0).abs() < 1e-12);
        assert_eq!(look_share(40, 5, 30), look_share(30, 5, 30));
    }
}
