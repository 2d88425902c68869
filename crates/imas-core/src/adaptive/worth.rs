// SPDX-License-Identifier: Apache-2.0
//! What further trials of a candidate are worth: the gain in score that is expected to be lost without them.
//!
//! The prior of a candidate's true gain is normal. It is centred on the mean of its rounds, shrunk towards
//! the gain that is usual for allocators. A trial is worth making while the expected loss without it exceeds
//! the trial's price. Expected opportunity cost: S. E. Chick and K. Inoue, "New two-stage and sequential
//! procedures for selecting the best simulated system", Operations Research 49, 2001. Whether a proof will
//! still come is a predictive power: D. J. Spiegelhalter, L. S. Freedman and P. R. Blackburn, "Monitoring
//! clinical trials: conditional or predictive power?", Controlled Clinical Trials 7, 1986.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

/// Posterior distribution of a true difference: normal.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Belief {
    /// Mean.
    pub mean: f64,
    /// Variance.
    pub variance: f64,
}

impl Belief {
    /// Belief in no difference, but for the usual spread: standard deviation `usual`.
    pub fn usual(usual: f64) -> Self {
        Self { mean: 0.0, variance: usual.powi(2) }
    }

    /// This belief after `rounds` differences with mean `seen` and standard deviation `sigma` each.
    #[must_use]
    pub fn after(self, rounds: u32, seen: f64, sigma: f64) -> Self {
        let precision = f64::from(rounds) / sigma.powi(2);
        let variance = 1.0 / (1.0 / self.variance + precision);
        Self { mean: variance * (self.mean / self.variance + precision * seen), variance }
    }

    /// Belief about the difference of this and `other`; the two are independent.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self { mean: self.mean - other.mean, variance: self.variance + other.variance }
    }

    /// Expected value of the positive part: the expected loss when a candidate with this lead over the best
    /// is eliminated.
    pub fn upside(&self) -> f64 {
        let deviation = self.variance.sqrt();
        let z = self.mean / deviation;
        let normal = Normal::standard();
        deviation * (normal.pdf(z) + z * normal.cdf(z))
    }

    /// Expected gain from continuing. `rounds` rounds have shown `seen` and `more` rounds follow. Counted is
    /// the true difference where the mean of all rounds comes out above `needed`, and 0 otherwise.
    pub fn gain_if_proven(&self, rounds: u32, seen: f64, more: u32, sigma: f64, needed: f64) -> f64 {
        let (before, after) = (f64::from(rounds), f64::from(more));
        let share = after / (before + after);
        let normal = Normal::standard();
        let middle = (1.0 - share) * seen + share * self.mean;
        let deviation = share * (self.variance + sigma.powi(2) / after.max(1.0)).sqrt();
        if deviation <= 0.0 {
            return if seen > needed { self.mean } else { 0.0 };
        }
        let z = (middle - needed) / deviation;
        self.mean * normal.cdf(z) + share * self.variance / deviation * normal.pdf(z)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rounds_outweigh_the_prior() {
        let usual = Belief::usual(0.05);
        let one = usual.after(1, 0.10, 0.05);
        assert!((one.mean - 0.05).abs() < 1e-12 && (one.variance - 0.00125).abs() < 1e-12);
        assert!(usual.after(100, 0.10, 0.05).mean > 0.098);
        assert_eq!(usual.after(0, 0.0, 0.05).variance, 0.05f64.powi(2));
    }

    /// The upside at a mean of 0 is the standard deviation over the root of 2 pi. Far from 0 it is nothing,
    /// or the mean itself.
    #[test]
    fn upside_worked_by_hand() {
        let of = |mean: f64| Belief { mean, variance: 0.01 }.upside();
        assert!((of(0.0) - 0.1 * 0.398_942_280_4).abs() < 1e-9);
        assert!(of(-1.0) < 1e-12 && (of(1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_that_cannot_be_proven_is_worth_nothing() {
        let belief = Belief::usual(0.08).after(4, 0.01, 0.08);
        assert!(belief.gain_if_proven(4, 0.01, 4, 0.08, 10.0) < 1e-12);
        let sure = belief.gain_if_proven(4, 0.01, 4, 0.08, -10.0);
        assert!((sure - belief.mean).abs() < 1e-9);
        assert_eq!(belief.gain_if_proven(4, 0.01, 0, 0.08, 0.02), 0.0);
    }
}
