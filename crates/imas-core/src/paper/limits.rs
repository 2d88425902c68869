// SPDX-License-Identifier: Apache-2.0
//! How often and how soon a candidate is tested.

use serde::{Deserialize, Serialize};

/// The two constants of Algorithms 8 and 10.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(default)]
pub struct Limits {
    /// `MAX_TEST_AMOUNT`: tests per candidate.
    pub max_tests: u32,
    /// `MIN_TIME_TO_RETEST`: seconds between two tests of one candidate; 0 is allowed.
    pub retest_s: f64,
}

impl Default for Limits {
    /// The paper's five tests; one hour.
    fn default() -> Self {
        Self { max_tests: 5, retest_s: 3600.0 }
    }
}

impl Limits {
    /// True when `now_s` is at least the waiting time after `last_s`; None has no wait. A last test in the
    /// future (a clock set back) is as good as none, else it would hold up the tests until the clock caught
    /// up.
    pub fn wait_is_over(&self, last_s: Option<f64>, now_s: f64) -> bool {
        last_s.is_none_or(|last_s| last_s > now_s || now_s - last_s >= self.retest_s)
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn the_wait_is_over_exactly_at_its_end() {
        let limits = Limits::default();
        assert!(limits.wait_is_over(None, 0.0));
        assert!(!limits.wait_is_over(Some(100.0), 3699.0));
        assert!(limits.wait_is_over(Some(100.0), 3700.0));
        assert!(limits.wait_is_over(Some(9e9), 3700.0));
    }

    #[test]
    fn no_wait_is_allowed() {
        assert!(Limits { retest_s: 0.0, ..Limits::default() }.wait_is_over(Some(100.0), 100.0));
    }
}
