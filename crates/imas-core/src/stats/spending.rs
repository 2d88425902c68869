// SPDX-License-Identifier: Apache-2.0
//! The allowed error, spread over repeated looks at a growing set of rounds.
//!
//! A test after every round that stops at the first success errs far more often than a single test. The error
//! spending function of K. Kim and D. L. DeMets ("Design and analysis of group sequential tests based on the
//! type I error spending rate function", Biometrika 74, 1987) gives each look a share. The shares of all
//! looks sum to 1, so by the union bound all looks together err as often as one test without looks.

/// Exponent of the spending function: the first rounds can prove little.
const EXPONENT: f64 = 2.0;

/// The share of the error that the look after `rounds` rounds may spend, where there is a look after each
/// round from `first` to `most`.
pub fn look_share(rounds: u32, first: u32, most: u32) -> f64 {
    let most = most.max(1);
    let rounds = rounds.min(most);
    let spent = |rounds: u32| (f64::from(rounds) / f64::from(most)).powf(EXPONENT);
    let before = if rounds <= first { 0.0 } else { spent(rounds - 1) };
    spent(rounds) - before
}

#[cfg(test)]
mod tests {
    use super::look_share;

    #[test]
    fn all_interim_tests_together_spend_the_error_once() {
        let all: f64 = (5..=30).map(|rounds| look_share(rounds, 5, 30)).sum();
        assert!((all - 1.0).abs() < 1e-12, "{all}");
        assert!(look_share(5, 5, 30) < look_share(30, 5, 30), "little at first");
        assert!((look_share(5, 5, 30) - 25.0 / 900.0).abs() < 1e-12);
        assert_eq!(look_share(40, 5, 30), look_share(30, 5, 30));
    }
}
