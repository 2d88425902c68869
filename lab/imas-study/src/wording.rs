// SPDX-License-Identifier: Apache-2.0
//! Bands as text: median, and in brackets the central nine tenths.

use crate::band::Band;

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
    use super::{milliseconds, whole};
    use crate::band::Band;

    #[test]
    fn the_median_is_printed_before_the_band() {
        let band = Band::of(&[2e6; 5]);
        assert_eq!(milliseconds(band), "2.00 ms (2.00 to 2.00)");
        assert_eq!(whole(None), "no figure");
    }
}
