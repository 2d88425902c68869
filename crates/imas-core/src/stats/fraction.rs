// SPDX-License-Identifier: Apache-2.0
//! Differences of logarithms as the fractions that people read: the logarithm of 1.5 is 0.41, but it is 50 %
//! more.

/// Fraction by which a figure is more, from a difference of logarithms. Below 0 it is less.
pub fn more(difference: f64) -> f64 {
    difference.exp_m1()
}

/// Fraction that a gain in logarithms saves; below 0 it is more.
pub fn saved(gain: f64) -> f64 {
    -(-gain).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ratios_become_changes() {
        assert!((more(1.5_f64.ln()) - 0.5).abs() < 1e-12);
        assert!((saved(2_f64.ln()) - 0.5).abs() < 1e-12);
        assert!((saved(-(1.5_f64.ln())) + 0.5).abs() < 1e-12);
        assert!(more(0.0) == 0.0 && saved(0.0) == 0.0);
    }
}
