// SPDX-License-Identifier: Apache-2.0
//! One figure over many seeds: median, quartiles and the central nine tenths.

use statrs::statistics::{Data, OrderStatistics};

/// Quantiles of one figure over the runs, in its unit: 5 %, 25 %, 50 %, 75 %, 95 %.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    pub(crate) low: f64,
    pub(crate) lower_quartile: f64,
    pub(crate) median: f64,
    pub(crate) upper_quartile: f64,
    pub(crate) high: f64,
}

impl Band {
    /// Band of these values; None when there is no value. The quantiles are the median-unbiased ones (Hyndman
    /// and Fan 1996, type 8).
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut data = Data::new(values.to_vec());
        Some(Self {
            low: data.quantile(0.05),
            lower_quartile: data.quantile(0.25),
            median: data.quantile(0.5),
            upper_quartile: data.quantile(0.75),
            high: data.quantile(0.95),
        })
    }

    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            lower_quartile: self.lower_quartile * factor,
            median: self.median * factor,
            upper_quartile: self.upper_quartile * factor,
            high: self.high * factor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Band;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_band() {
        assert_eq!(Band::of(&[]), None);
    }

    #[test]
    fn quantiles_of_one_to_hundred() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let band = Band::of(&values).unwrap();
        assert!((band.median - 50.5).abs() < 1e-9);
        assert!((band.low - 5.35).abs() < 0.1 && (band.high - 95.65).abs() < 0.1);
    }

    proptest! {
        #[test]
        fn the_quantiles_rise(values in prop::collection::vec(-1e6..1e6f64, 1..50)) {
            let b = Band::of(&values).unwrap();
            prop_assert!(b.low <= b.lower_quartile && b.lower_quartile <= b.median);
            prop_assert!(b.median <= b.upper_quartile && b.upper_quartile <= b.high);
        }
    }
}
