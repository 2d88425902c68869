// SPDX-License-Identifier: Apache-2.0
//! Whole numbers with fewer digits.

/// Rounded to that number of significant digits; at least one is kept.
#[must_use]
pub fn significant(n: u64, digits: u32) -> u64 {
    let surplus = (n.checked_ilog10().unwrap_or(0) + 1).saturating_sub(digits.max(1));
    let unit = 10u64.pow(surplus);
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digits_are_kept() {
        let rounded = [0, 7, 999, 1004, 1005, 99_950, 123_456].map(|n| significant(n, 3));
        assert_eq!(rounded, [0, 7, 999, 1000, 1010, 100_000, 123_000]);
        assert_eq!([0, 1, 3, 20].map(|digits| significant(1_267, digits)), [1000, 1000, 1270, 1267]);
        assert!(significant(u64::MAX, 3) > u64::MAX / 1000 * 995);
    }
}
