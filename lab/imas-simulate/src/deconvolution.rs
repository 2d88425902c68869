// SPDX-License-Identifier: Apache-2.0
//! Distribution of true values when each is only known with an error.

/// Steps of the EM algorithm.
const STEPS: usize = 200;
/// Change of the likelihood at which it stops, by value.
const ENOUGH: f64 = 1e-6;

/// A value, how far it may be off, and how well that is known.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MeasuredValue {
    /// The value as measured.
    pub value: f64,
    /// Standard error of the value.
    pub error: f64,
    /// Degrees of freedom of the standard error.
    pub freedom: f64,
}

/// Share of the true values that are at most `bound`; errors below `least` count as that. None without
/// values.
///
/// The distribution of the true values is the nonparametric maximum likelihood estimate (J. Kiefer and J.
/// Wolfowitz, "Consistency of the maximum likelihood estimator in the presence of infinitely many incidental
/// parameters", Annals of Mathematical Statistics 27, 1956), found by EM (N. Laird, "Nonparametric maximum
/// likelihood estimation of a mixing distribution", JASA 73, 1978) on the measured values as the points where
/// true ones may lie; the errors are Student's.
pub fn true_share_at_most(values: &[MeasuredValue], bound: f64, least: f64) -> Option<f64> {
    if values.is_empty() || values.iter().any(|one| !one.value.is_finite() || !one.error.is_finite()) {
        return None;
    }
    let of = |one: &MeasuredValue| values.iter().map(|truth| density(one, truth.value, least)).collect();
    let likelihood: Vec<Vec<f64>> = values.iter().map(of).collect();
    let weights = mixture(&likelihood, values.len());
    Some(
        values.iter().zip(&weights).filter(|(truth, _)| truth.value <= bound).map(|(_, weight)| weight).sum(),
    )
}

/// Density of the measured value if `truth` is the true one, by Student's t. A constant factor that is the
/// same for every truth is left out.
fn density(one: &MeasuredValue, truth: f64, least: f64) -> f64 {
    let z = (one.value - truth) / one.error.max(least);
    let freedom = one.freedom.max(1.0);
    (1.0 + z * z / freedom).powf(-(freedom + 1.0) / 2.0)
}

/// Weights of the points, by EM from even ones.
fn mixture(likelihood: &[Vec<f64>], points: usize) -> Vec<f64> {
    let mut weights = vec![1.0 / points as f64; points];
    let mut before = f64::NEG_INFINITY;
    for _ in 0..STEPS {
        let mut next = vec![0.0; points];
        let mut fit = 0.0;
        for row in likelihood {
            let sum: f64 = row.iter().zip(&weights).map(|(l, w)| l * w).sum();
            let sum = sum.max(f64::MIN_POSITIVE);
            fit += sum.ln();
            for ((next, l), w) in next.iter_mut().zip(row).zip(&weights) {
                *next += l * w / sum;
            }
        }
        let n = likelihood.len() as f64;
        weights = next.into_iter().map(|sum| sum / n).collect();
        if (fit - before) / n < ENOUGH {
            break;
        }
        before = fit;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::ChaCha8Rng;
    use rand::{RngExt, SeedableRng};
    use statrs::distribution::{ContinuousCDF, Normal};

    /// Nine in ten are 0 and one in ten is 0.1; measured with an error of 0.03 two in ten are above the bound
    /// between them.
    #[test]
    fn noise_is_taken_out() {
        let mut random = ChaCha8Rng::seed_from_u64(5);
        let mut normal = || Normal::standard().inverse_cdf(random.random::<f64>().clamp(1e-12, 1.0 - 1e-12));
        let value =
            |truth: f64, off: f64| MeasuredValue { value: truth + 0.03 * off, error: 0.03, freedom: 30.0 };
        let values: Vec<MeasuredValue> =
            (0..400).map(|i| value(if i % 10 == 0 { 0.1 } else { 0.0 }, normal())).collect();
        let raw = values.iter().filter(|one| one.value <= 0.03).count() as f64 / 400.0;
        let share = true_share_at_most(&values, 0.03, 0.002).unwrap();
        assert!(raw < 0.80, "{raw}");
        assert!((0.86..0.94).contains(&share), "{share}");
    }

    #[test]
    fn measurements_without_error_are_counted() {
        let of = |value| MeasuredValue { value, error: 0.0, freedom: 5.0 };
        let values = [0.0, 0.0, 0.01, 0.05].map(of);
        assert!((true_share_at_most(&values, 0.03, 0.001).unwrap() - 0.75).abs() < 0.01);
        assert_eq!(true_share_at_most(&[], 0.03, 0.001), None);
        assert_eq!(true_share_at_most(&[of(f64::NAN)], 0.03, 0.001), None);
        assert_eq!(true_share_at_most(&[of(0.03); 3], 0.03, 0.001), Some(1.0));
    }
}
