// SPDX-License-Identifier: Apache-2.0
//! An estimated difference, and what it proves.

use serde::{Deserialize, Serialize};

use crate::stats::{Interval, t_quantile, t_tail};

/// The result of a comparison of a figure with the reference's.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Proven better.
    Better,
    /// Proven worse.
    Worse,
    /// Proven neither better nor worse.
    NotShown,
}

impl Answer {
    /// The answer of one ratio for itself: below 1 is better. Its interval must exclude 1, and its estimate must
    /// lie beyond the margin. Where a candidate was chosen among several, that is not enough ([`super::Demand`]).
    pub fn by_interval(ratio: Interval, margin: f64) -> Self {
        match ratio {
            Interval { mid, hi, .. } if hi < 1.0 && mid < 1.0 - margin => Self::Better,
            Interval { lo, mid, .. } if lo > 1.0 && mid > 1.0 + margin => Self::Worse,
            _ => Self::NotShown,
        }
    }
}

/// An estimated gain, a difference of logarithms: above 0 is better.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The gain.
    pub gain: f64,
    /// Standard error of the gain.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: f64,
}

impl Estimate {
    /// Probability of at least this gain by chance alone. 1 where nothing is known of the error.
    pub fn chance(&self) -> f64 {
        t_tail(self.gain / self.error, self.freedom)
    }

    /// The loss as a gain.
    pub(super) fn reversed(self) -> Self {
        Self { gain: -self.gain, ..self }
    }

    /// Whether a gain is proven that is at least `margin`; `tail` is the probability of an error.
    pub(super) fn proves(&self, margin: f64, tail: f64) -> bool {
        self.gain >= margin && self.chance() <= tail
    }
}

/// Spread of one difference, a standard deviation of logarithms.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Spread {
    /// Standard deviation of one difference.
    pub sigma: f64,
    /// Degrees of freedom of the standard deviation.
    pub freedom: f64,
}

/// Degrees of freedom of the common variance against a candidate's own variance.
const COMMON_FREEDOM: f64 = 20.0;

impl Spread {
    /// The spread that all candidates have in common; `squares` is the sum of squared differences. 0 where nothing is
    /// known: no bound follows from it, for the degrees of freedom are 0 as well.
    pub fn common(squares: f64, freedom: f64) -> Self {
        Self { sigma: if freedom > 0.0 { (squares / freedom).sqrt() } else { 0.0 }, freedom }
    }

    /// A candidate's own spread, moderated towards the common one (G. K. Smyth, "Linear models and empirical Bayes
    /// methods", SAGMB 3, 2004). `squares` is the sum of squared deviations of its `count` differences. The degrees
    /// of freedom are right for a spread in which candidates differ.
    #[must_use]
    pub fn moderated(self, squares: f64, count: u32) -> Self {
        let weight = self.freedom.min(COMMON_FREEDOM);
        let own = f64::from(count.saturating_sub(1));
        Self::common(weight * self.sigma.powi(2) + squares, weight + own)
    }

    /// Estimate of a gain that is the mean of `count` differences.
    pub fn estimate(&self, gain: f64, count: u32) -> Estimate {
        let error = if count == 0 { f64::INFINITY } else { self.sigma / f64::from(count).sqrt() };
        Estimate { gain, error, freedom: self.freedom }
    }

    /// One-sided bound of the error of the mean of `count` differences, with error probability `tail`.
    pub fn bound(&self, tail: f64, count: u32) -> f64 {
        if count == 0 {
            return f64::INFINITY;
        }
        t_quantile(tail, self.freedom) * self.sigma / f64::from(count).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_needs_both_the_interval_and_the_margin() {
        let of = |lo, mid, hi| Answer::by_interval(Interval { lo, mid, hi }, 0.02);
        assert_eq!(of(0.90, 0.95, 0.99), Answer::Better);
        assert_eq!(of(0.90, 0.95, 1.00), Answer::NotShown, "touches 1");
        assert_eq!(of(0.97, 0.985, 0.99), Answer::NotShown, "inside the margin");
        assert_eq!(of(1.01, 1.05, 1.20), Answer::Worse);
        assert_eq!(of(0.99, 1.05, 1.20), Answer::NotShown);
        assert_eq!(of(1.005, 1.01, 1.20), Answer::NotShown);
    }

    /// t = 2.132 with four degrees of freedom is exceeded with a probability of 0.05.
    #[test]
    fn a_proof_needs_both_the_margin_and_the_certainty() {
        let estimate = Estimate { gain: 0.2133, error: 0.1, freedom: 4.0 };
        assert!((estimate.chance() - 0.05).abs() < 1e-4);
        assert!(estimate.proves(0.2, 0.05) && !estimate.proves(0.22, 0.05) && !estimate.proves(0.2, 0.04));
        let unknown = Spread::default().estimate(0.5, 0);
        assert_eq!(unknown.chance(), 1.0, "nothing is known");
    }

    #[test]
    fn few_differences_of_its_own_hardly_move_the_common_spread() {
        let common = Spread::common(0.04, 4.0); // sigma 0.1
        let own = common.moderated(0.09, 2); // one degree of freedom, 0.3
        assert!((own.sigma - (0.13_f64 / 5.0).sqrt()).abs() < 1e-12 && own.freedom == 5.0);
        assert_eq!(Spread::default().moderated(0.0, 1), Spread::default());
    }
}
