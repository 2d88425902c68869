// SPDX-License-Identifier: Apache-2.0
//! Student's t distribution (Gosset, "The probable error of a mean", Biometrika 6, 1908).

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::bootstrap::{CONFIDENCE, Interval};

/// Mean, and standard deviation of a sample; 0 of fewer than two figures.
pub fn mean_and_deviation(figures: &[f64]) -> (f64, f64) {
    let n = figures.len() as f64;
    let mean = if figures.is_empty() { 0.0 } else { figures.iter().sum::<f64>() / n };
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    (mean, if figures.len() < 2 { 0.0 } else { (squares / (n - 1.0)).sqrt() })
}

/// Geometric mean of the figures that are above 0; None without any.
pub fn geometric_mean(figures: &[f64]) -> Option<f64> {
    let logs: Vec<f64> = figures.iter().filter(|one| **one > 0.0).map(|one| one.ln()).collect();
    (!logs.is_empty()).then(|| mean_and_deviation(&logs).0.exp())
}

/// Mean with its interval of [`CONFIDENCE`], of figures that scatter like a normal distribution. A bootstrap of so few
/// (of ten: 90 % in place of 95 %) is too narrow. One figure is an interval without width; None without any.
pub fn mean_interval(figures: &[f64]) -> Option<Interval> {
    let (mid, deviation) = mean_and_deviation(figures);
    let width = match figures.len() {
        0 => return None,
        1 => 0.0,
        n => t_quantile((1.0 - CONFIDENCE) / 2.0, (n - 1) as f64) * deviation / (n as f64).sqrt(),
    };
    Some(Interval { lo: mid - width, mid, hi: mid + width })
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
    use super::{mean_and_deviation, mean_interval, t_quantile, t_tail};

    #[test]
    fn mean_and_deviation_worked_by_hand() {
        assert_eq!(mean_and_deviation(&[1.0, 3.0]), (2.0, 2_f64.sqrt()));
        assert_eq!(mean_and_deviation(&[]), (0.0, 0.0));
    }

    /// Two figures 2 apart have a standard error of 1, and one degree of freedom: 12.706 in the tables.
    #[test]
    fn intervals_of_means_worked_by_hand() {
        let two = mean_interval(&[1.0, 3.0]).unwrap();
        assert!(
            (two.lo + 10.706).abs() < 1e-3 && two.mid == 2.0 && (two.hi - 14.706).abs() < 1e-3,
            "{two:?}"
        );
        assert_eq!(mean_interval(&[5.0]).map(<[f64; 3]>::from), Some([5.0, 5.0, 5.0]));
        assert_eq!(mean_interval(&[]), None);
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
}
