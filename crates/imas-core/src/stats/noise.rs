// SPDX-License-Identifier: Apache-2.0
//! How steady a measure is, from pairs of runs of one and the same thing.

use serde::Serialize;

use super::t_quantile;

/// Steadiness of one measure.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Steadiness {
    /// Standard deviation of single runs by their mean.
    pub variation: f64,
    /// Standard deviation of the difference of logarithms within a pair.
    pub paired: f64,
    /// Pairs with which a true difference is found nine times in ten, at 5 % error, one-sided.
    pub pairs_needed: u32,
}

/// Steadiness by pairs of figures, both of the same program under the same candidate, for a true difference
/// of logarithms of `difference`. None with fewer than three pairs or figures that are not positive.
pub fn steadiness(pairs: &[(f64, f64)], difference: f64) -> Option<Steadiness> {
    let all: Vec<f64> = pairs.iter().flat_map(|pair| [pair.0, pair.1]).collect();
    if pairs.len() < 3 || all.iter().any(|&x| !(x.is_finite() && x > 0.0)) {
        return None;
    }
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let paired = deviation(&logs);
    Some(Steadiness {
        variation: deviation(&all) / (all.iter().sum::<f64>() / all.len() as f64),
        paired,
        pairs_needed: pairs_needed(paired / difference),
    })
}

fn deviation(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt()
}

/// Smallest n with n >= ((t(0.05) + t(0.10)) * noise)^2 at n - 1 degrees of freedom; `noise` in units of the
/// difference.
fn pairs_needed(noise: f64) -> u32 {
    const MOST: u32 = 10_000;
    let is_enough = |n: u32| {
        let freedom = f64::from(n - 1);
        f64::from(n) >= ((t_quantile(0.05, freedom) + t_quantile(0.10, freedom)) * noise).powi(2)
    };
    (2..MOST).find(|&n| is_enough(n)).unwrap_or(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_by_hand() {
        let s = steadiness(&[(1.0, 1.0), (2.0, 1.0), (1.0, 2.0)], 0.03).unwrap();
        assert!((s.paired - 2f64.ln()).abs() < 1e-12);
        // 1, 1, 2, 1, 1, 2: mean 4/3, deviation sqrt(4/3 / 5).
        assert!((s.variation - (4.0 / 15.0_f64).sqrt() / (4.0 / 3.0)).abs() < 1e-12);
        assert_eq!(steadiness(&[(1.0, 1.0); 2], 0.03), None);
        assert_eq!(steadiness(&[(0.0, 1.0); 4], 0.03), None);
    }

    #[test]
    fn twice_the_noise_needs_four_times_the_pairs() {
        assert_eq!(pairs_needed(0.0), 2);
        let (one, two) = (pairs_needed(2.0), pairs_needed(4.0));
        assert!((35..=38).contains(&one) && (137..=142).contains(&two), "{one} {two}");
    }
}
