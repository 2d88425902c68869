// SPDX-License-Identifier: Apache-2.0
//! Median and median absolute deviation.

/// Median of `values` in any order; of an even number the mean of the two in the middle. None when empty.
pub fn median(values: &[f64]) -> Option<f64> {
    median_of(&mut values.to_vec())
}

/// Median of `values` in any order, which are reordered instead of copied; of an even number the mean of the
/// two in the middle. None when empty.
pub(crate) fn median_of(values: &mut [f64]) -> Option<f64> {
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

#[cfg(test)]
mod tests {
    use super::{mad, median};
    use proptest::prelude::*;

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
}
