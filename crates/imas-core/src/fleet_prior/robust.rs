// SPDX-License-Identifier: Apache-2.0
//! A median over groups of hosts, and how far it can be trusted.

use serde::{Deserialize, Serialize};

use crate::compare::Estimate;
use crate::stats::{mad, mean_and_deviation, median};

/// The error of a median is this many times the error of a mean, for normal noise: sqrt(pi / 2).
const OF_MEDIAN: f64 = 1.2533;
/// Factor from the median absolute deviation to the standard deviation, for normal noise.
const TO_SIGMA: f64 = 1.4826;
/// With fewer groups than this, the spread is their standard deviation if that is greater.
const FEW_GROUPS: usize = 10;
/// Least error that is assumed, as a difference of logarithms.
pub(super) const LEAST_ERROR: f64 = 0.001;

/// A median over groups.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct RobustFigure {
    /// The median.
    pub value: f64,
    /// Standard error of the median, by the spread between the groups.
    pub error: f64,
    /// Number of groups.
    pub groups: usize,
}

impl RobustFigure {
    /// Figure from the values of the groups, one of each. None without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let (value, spread) = median(values).zip(mad(values))?;
        let sigma = OF_MEDIAN * TO_SIGMA * spread;
        // The median deviation of three values is the smaller gap between them: it is often far too small by chance.
        let sigma = if values.len() < FEW_GROUPS { sigma.max(mean_and_deviation(values).1) } else { sigma };
        let error = (sigma / (values.len() as f64).sqrt()).max(LEAST_ERROR);
        Some(Self { value, error, groups: values.len() })
    }

    /// Probability of at least this value if the true one were 0; 1 for a single group.
    pub fn chance(&self) -> f64 {
        self.estimate().chance()
    }

    /// Converts the figure to an estimate of a gain.
    pub fn estimate(&self) -> Estimate {
        Estimate { gain: self.value, error: self.error, freedom: self.groups as f64 - 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_groups_its_error_and_its_chance() {
        let figure = RobustFigure::of(&[0.10, 0.12, 0.08, 0.11, 0.09]).unwrap();
        assert!((figure.value - 0.10).abs() < 1e-12 && figure.groups == 5);
        assert!((figure.error - OF_MEDIAN * TO_SIGMA * 0.01 / 5_f64.sqrt()).abs() < 1e-9, "{figure:?}");
        assert!(RobustFigure::of(&[]).is_none());
        // t = 2.132 with four degrees of freedom is exceeded with a probability of 0.05.
        let chance = RobustFigure { value: 0.2132, error: 0.1, groups: 5 }.chance();
        assert!((chance - 0.05).abs() < 1e-4, "{chance}");
        assert_eq!(
            RobustFigure { value: 1.0, error: 0.1, groups: 1 }.chance(),
            1.0,
            "one group proves nothing"
        );
    }
}
