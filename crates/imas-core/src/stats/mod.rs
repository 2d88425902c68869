// SPDX-License-Identifier: Apache-2.0
//! Textbook statistics that no crate gives in the form needed: robust spread and outliers, and the bootstrap
//! interval of a figure of paired rounds.
//!
//! Differences of logarithms as the fractions that people read: the logarithm of 1.5 is 0.41, but it is 50 % more.
//!
//! Outliers by modified z-score: B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle Outliers" (ASQC Basic
//! References in Quality Control, volume 16, 1993). Median and MAD stay put when up to half of the values are wild,
//! where mean and standard deviation follow the outlier they are to find.

mod bootstrap;
mod paired;

pub use bootstrap::{
    CONFIDENCE, Interval, RESAMPLES, attainable_confidence, bootstrap, geometric_mean, mean_and_deviation,
    mean_interval, relative_spread, t_quantile, t_tail,
};
pub use paired::{Moments, Steadiness, look_share, runs_to_settle, steadiness};

/// Median of `values` in any order; of an even number the mean of the two in the middle. None when empty.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of(&mut values.to_vec())
}

/// Median of `values` in any order, which are reordered instead of copied; of an even number the mean of the
/// two in the middle. None when empty.
pub(super) fn median_of(values: &mut [f64]) -> Option<f64> {
    let len = values.len();
    if len == 0 {
        return None;
    }
    let (below, &mut upper, _) = values.select_nth_unstable_by(len / 2, f64::total_cmp);
    if len % 2 == 1 {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(lower / 2.0 + upper / 2.0)
}

/// Median of the absolute deviations from the median, unscaled. None when empty.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    median_of(&mut values.iter().map(|x| (x - centre).abs()).collect::<Vec<_>>())
}

/// Values whose modified z-score is beyond this, either way, are outliers (the book's recommendation).
pub const OUTLIER_SCORE: f64 = 3.5;

/// 0.75 quantile of the standard normal: makes MAD comparable to a standard deviation.
const MAD_TO_SIGMA: f64 = 0.6745;

/// sqrt(pi / 2), which does the same for the mean absolute deviation.
const MEAN_AD_TO_SIGMA: f64 = 1.253_314;

/// Modified z-scores: 0.6745 (x - median) / MAD. Where more than half of the values are equal MAD is 0, and
/// the mean absolute deviation about the median takes its place: (x - median) / (1.2533 meanAD). All 0 when
/// the values are all equal.
pub fn modified_z_scores(values: &[f64]) -> Vec<f64> {
    let (Some(centre), Some(mad)) = (median(values), mad(values)) else {
        return vec![];
    };
    let mean_ad = values.iter().map(|x| (x - centre).abs()).sum::<f64>() / values.len() as f64;
    let score = |x: &f64| match (mad > 0.0, mean_ad > 0.0) {
        (true, _) => MAD_TO_SIGMA * (x - centre) / mad,
        (false, true) => (x - centre) / (MEAN_AD_TO_SIGMA * mean_ad),
        (false, false) => 0.0,
    };
    values.iter().map(score).collect()
}

/// Whether each value is an outlier. Three values or fewer have none: there is no telling which one is odd.
pub fn outliers(values: &[f64]) -> Vec<bool> {
    let is_one = |score: f64| values.len() > 3 && score.abs() > OUTLIER_SCORE;
    modified_z_scores(values).into_iter().map(is_one).collect()
}

/// Fraction by which a figure is more, from a difference of logarithms. Below 0 it is less.
pub fn more(difference: f64) -> f64 {
    difference.exp_m1()
}

/// Fraction that a gain in logarithms saves; below 0 it is more.
pub fn saved(gain: f64) -> f64 {
    -(-gain).exp_m1()
}

/// Rounded to that number of significant digits; at least one is kept.
#[must_use]
pub fn significant(n: u64, digits: u32) -> u64 {
    let surplus = (n.checked_ilog10().unwrap_or(0) + 1).saturating_sub(digits.max(1));
    let unit = 10u64.pow(surplus);
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{mad, median, modified_z_scores, outliers, *};

    #[test]
    fn worked_by_hand() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 5.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 5.0, 7.0]), Some(6.0));
        assert_eq!(mad(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(mad(&[]), None);
    }

    proptest! {
        #[test]
        fn half_lies_on_either_side(values in prop::collection::vec(-1e9..1e9f64, 1..60)) {
            let m = median(&values).unwrap();
            let below = values.iter().filter(|&&x| x < m).count();
            let above = values.iter().filter(|&&x| x > m).count();
            prop_assert!(2 * below <= values.len() && 2 * above <= values.len());
        }

        #[test]
        fn mad_ignores_a_shift(values in prop::collection::vec(-1e6..1e6f64, 1..40), shift in -1e6..1e6f64) {
            let shifted: Vec<f64> = values.iter().map(|x| x + shift).collect();
            prop_assert!((mad(&values).unwrap() - mad(&shifted).unwrap()).abs() < 1e-6);
        }
    }

    #[test]
    fn scores_worked_by_hand() {
        // Median 3, deviations 2 1 0 1 97, MAD 1.
        let scores = modified_z_scores(&[1.0, 2.0, 3.0, 4.0, 100.0]);
        let expected = [-1.349, -0.6745, 0.0, 0.6745, 65.4265];
        for (score, expected) in scores.iter().zip(expected) {
            assert!((score - expected).abs() < 1e-9, "{score} {expected}");
        }
    }

    #[test]
    fn mostly_equal_values_fall_back_to_the_mean_deviation() {
        // Median 1, MAD 0, meanAD 9/10: score of 10 is 9 / (1.253314 * 0.9) = 7.979.
        let mut values = vec![1.0; 9];
        values.push(10.0);
        let scores = modified_z_scores(&values);
        assert!((scores[9] - 7.978_848).abs() < 1e-5, "{}", scores[9]);
        assert_eq!(outliers(&values).iter().filter(|&&o| o).count(), 1);
    }

    #[test]
    fn equal_values_have_no_outlier() {
        assert_eq!(modified_z_scores(&[2.0; 4]), [0.0; 4]);
        assert_eq!(outliers(&[2.0; 4]), [false; 4]);
        assert!(modified_z_scores(&[]).is_empty());
    }

    #[test]
    fn three_values_have_no_outlier() {
        assert_eq!(outliers(&[1.0, 1.1, 1000.0]), [false; 3]);
        assert_eq!(outliers(&[1.0, 1.1, 1.2, 1000.0]), [false, false, false, true]);
    }

    #[test]
    fn log_ratios_become_changes() {
        assert!((more(1.5_f64.ln()) - 0.5).abs() < 1e-12);
        assert!((saved(2_f64.ln()) - 0.5).abs() < 1e-12);
        assert!((saved(-(1.5_f64.ln())) + 0.5).abs() < 1e-12);
        assert!(more(0.0) == 0.0 && saved(0.0) == 0.0);
    }

    #[test]
    fn the_first_digits_are_kept() {
        let rounded = [0, 7, 999, 1004, 1005, 99_950, 123_456].map(|n| significant(n, 3));
        assert_eq!(rounded, [0, 7, 999, 1000, 1010, 100_000, 123_000]);
        assert_eq!([0, 1, 3, 20].map(|digits| significant(1_267, digits)), [1000, 1000, 1270, 1267]);
        assert!(significant(u64::MAX, 3) > u64::MAX / 1000 * 995);
    }
}
