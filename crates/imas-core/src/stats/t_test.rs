// SPDX-License-Identifier: Apache-2.0
//! Student's paired t test, one-sided (Gosset, "The probable error of a mean", Biometrika 6, 1908).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Probability of differences at least so far below 0 if their mean were 0. 1 with fewer than two
/// differences; of differences that are all the same, 0 when they are below 0 and 1 when they are not.
pub fn p_below_zero(differences: &[f64]) -> f64 {
    let n = differences.len() as f64;
    if differences.len() < 2 {
        return 1.0;
    }
    let mean = differences.iter().sum::<f64>() / n;
    let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1.0);
    if variance == 0.0 {
        return if mean < 0.0 { 0.0 } else { 1.0 };
    }
    let t = mean / (variance / n).sqrt();
    // Of a finite t and n >= 2 there is always a distribution; figures that are not numbers prove nothing.
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(1.0, |student| student.cdf(t))
}

/// Mean, and standard deviation of a sample; 0 of fewer than two figures.
pub fn mean_and_deviation(figures: &[f64]) -> (f64, f64) {
    let n = figures.len() as f64;
    let mean = if figures.is_empty() { 0.0 } else { figures.iter().sum::<f64>() / n };
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (mean, if figures.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() })
}

/// More rounds than this are not worth naming.
const MOST_ROUNDS: u32 = 1000;

/// Rough number of further rounds until differences with that mean and standard deviation, known from
/// `rounds`, are below 0 with an error of at most `chance` ([`p_below_zero`]); None where that takes more
/// than a thousand. It assumes that neither changes.
pub fn rounds_to_prove((mean, deviation): (f64, f64), rounds: usize, chance: f64) -> Option<u32> {
    if mean >= 0.0 || deviation == 0.0 {
        return None;
    }
    let is_proven = |more: &u32| {
        let n = rounds as f64 + f64::from(*more);
        let t = mean / (deviation / n.sqrt());
        StudentsT::new(0.0, 1.0, n - 1.0).is_ok_and(|student| student.cdf(t) < chance)
    };
    (0..=MOST_ROUNDS).find(is_proven)
}

/// Quantile of Student's t: the value that is exceeded with probability `tail` (0 to 0.5), with `freedom`
/// degrees of freedom (any positive number). Infinite where there is no such distribution, so that nothing is
/// ever concluded from it.
pub fn t_quantile(tail: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom).map_or(f64::INFINITY, |student| -student.inverse_cdf(tail))
}

/// Probability that Student's t with `freedom` degrees of freedom (any positive number) is at least `t`. 1 where there
/// is no such distribution, or `t` is not a number, so that nothing is ever concluded from it.
pub fn t_tail(t: f64, freedom: f64) -> f64 {
    let student = StudentsT::new(0.0, 1.0, freedom).ok().filter(|_| !t.is_nan());
    student.map_or(1.0, |student| student.sf(t))
}

#[cfg(test)]
mod tests {
    use super::{mean_and_deviation, p_below_zero, rounds_to_prove, t_quantile, t_tail};

    #[test]
    fn rounds_that_would_prove_it() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 2_f64.sqrt()));
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
        let log = mean_and_deviation(&[-0.1, -0.2, -0.3]);
        let more = rounds_to_prove(log, 3, 0.05 / 4.0).unwrap();
        assert!((1..10).contains(&more), "{more}");
        assert_eq!(rounds_to_prove(log, 3, 0.05), Some(0), "t = -3.46 with two degrees of freedom");
        assert_eq!(rounds_to_prove((0.1, 0.1), 3, 0.05), None);
    }

    /// Tabulated values.
    #[test]
    fn quantiles_of_the_table() {
        for (tail, freedom, want) in [(0.05, 4.0, 2.132), (0.025, 10.0, 2.228), (0.005, 2.0, 9.925)] {
            assert!((t_quantile(tail, freedom) - want).abs() < 1e-3, "{tail} {freedom}");
        }
        assert_eq!(t_quantile(0.05, 0.0), f64::INFINITY);
        assert!((t_tail(2.132, 4.0) - 0.05).abs() < 1e-4 && (t_tail(-2.132, 4.0) - 0.95).abs() < 1e-4);
        assert_eq!([t_tail(9.0, 0.0), t_tail(f64::NAN, 4.0)], [1.0, 1.0]);
    }

    /// -1, -2, -3: mean -2, standard error 1/sqrt(3), t = -3.4641 with 2 degrees of freedom; p = 0.5 - 0.5 t
    /// / sqrt(2 + t^2) there.
    #[test]
    fn worked_by_hand() {
        let t = 12_f64.sqrt();
        let want = 0.5 - 0.5 * t / (2.0 + t * t).sqrt();
        assert!((p_below_zero(&[-1.0, -2.0, -3.0]) - want).abs() < 1e-9);
        assert!((p_below_zero(&[1.0, 2.0, 3.0]) - (1.0 - want)).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_proven_by_one_and_everything_by_equals() {
        assert_eq!(p_below_zero(&[]), 1.0);
        assert_eq!(p_below_zero(&[-5.0]), 1.0);
        assert_eq!(p_below_zero(&[-0.5, -0.5]), 0.0);
        assert_eq!(p_below_zero(&[0.5, 0.5]), 1.0);
    }
}
