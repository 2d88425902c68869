// SPDX-License-Identifier: Apache-2.0
//! Running average.

/// Average of `count + 1` values, given the `average` of the first `count` and the next one, `x` (Eq. 2). It
/// keeps no sum, so nothing overflows however large the values.
pub fn average(average: f64, count: u32, x: f64) -> f64 {
    let count = f64::from(count);
    average * (count / (count + 1.0)) + x / (count + 1.0)
}

#[cfg(test)]
mod tests {
    use super::average;

    #[test]
    fn worked_by_hand() {
        for (avg, count, x, expected) in [
            (0.0, 0, 7.0, 7.0),
            (123.0, 0, 7.0, 7.0),
            (4.0, 1, 8.0, 6.0),
            (6.0, 2, 12.0, 8.0),
            (8.0, 3, 0.0, 6.0),
        ] {
            assert_eq!(average(avg, count, x), expected, "{avg} {count} {x}");
        }
    }

    #[test]
    fn huge_values_do_not_overflow() {
        assert_eq!(average(f64::MAX, 1, f64::MAX), f64::MAX);
    }
}
