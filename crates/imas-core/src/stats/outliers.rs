// SPDX-License-Identifier: Apache-2.0
//! Outliers by modified z-score: B. Iglewicz and D. C. Hoaglin, "How to Detect and Handle Outliers" (ASQC
//! Basic References in Quality Control, volume 16, 1993). Median and MAD stay put when up to half of the
//! values are wild, where mean and standard deviation follow the outlier they are to find.

use super::median::{mad, median};

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

#[cfg(test)]
mod tests {
    use super::{modified_z_scores, outliers};

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
}
