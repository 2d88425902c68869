// SPDX-License-Identifier: Apache-2.0
//! Figures over many seeds: median, quartiles and the central nine tenths, also as text; means and correlations.

use imas_core::stats::Moments;
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

/// 0 for no values.
pub(crate) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Correlation of x and y, from -1 to 1; None with fewer than three points, or where one of them does not
/// vary.
pub(crate) fn correlation(all: &Moments) -> Option<f64> {
    let spread = (all.xx * all.yy).sqrt();
    (all.count > 2 && spread > 0.0).then(|| (all.xy / spread).clamp(-1.0, 1.0))
}

fn worded(band: Option<Band>, factor: f64, decimals: usize, unit: &str) -> String {
    band.map(|b| b.scaled(factor)).map_or_else(
        || "no figure".to_owned(),
        |b| format!("{:.decimals$}{unit} ({:.decimals$} to {:.decimals$})", b.median, b.low, b.high),
    )
}

/// A band without decimals.
pub(crate) fn whole(band: Option<Band>) -> String {
    worded(band, 1.0, 0, "")
}

/// A band of ratios with two decimals.
pub(crate) fn ratio(band: Option<Band>) -> String {
    worded(band, 1.0, 2, "")
}

/// Parts per million as per cent, one decimal.
pub(crate) fn per_cent_of_ppm(band: Option<Band>) -> String {
    worded(band, 1e-4, 1, " %")
}

/// Nanoseconds as milliseconds, two decimals.
pub(crate) fn milliseconds(band: Option<Band>) -> String {
    worded(band, 1e-6, 2, " ms")
}

/// Microseconds as milliseconds, two decimals.
pub(crate) fn milliseconds_of_us(band: Option<Band>) -> String {
    worded(band, 1e-3, 2, " ms")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    #[test]
    fn the_median_is_printed_before_the_band() {
        let band = Band::of(&[2e6; 5]);
        assert_eq!(milliseconds(band), "2.00 ms (2.00 to 2.00)");
        assert_eq!(whole(None), "no figure");
    }
}
