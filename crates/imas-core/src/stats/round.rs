// SPDX-License-Identifier: Apache-2.0
//! Whole numbers with fewer digits.

/// Rounded to three significant digits, which is closer than any of the figures so shortened is known.
#[must_use]
pub fn significant(n: u64) -> u64 {
    let unit = 10u64.pow(n.checked_ilog10().unwrap_or(0).saturating_sub(2));
    n.saturating_add(unit / 2) / unit * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_kept() {
        let rounded = [0, 7, 999, 1004, 1005, 99_950, 123_456].map(significant);
        assert_eq!(rounded, [0, 7, 999, 1000, 1010, 100_000, 123_000]);
        assert!(significant(u64::MAX) > u64::MAX / 1000 * 995);
    }
}
