// SPDX-License-Identifier: Apache-2.0
//! Mean and spread of pairs of figures, kept so that summaries of two machines can be merged: T. F. Chan, G.
//! H. Golub and R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances"
//! (1979), extended to the co-moment.

use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::Moments;
    use proptest::prelude::*;

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
}
