// SPDX-License-Identifier: Apache-2.0
//! How much the memory of replicas differs where all have the same allocator.
//!
//! A proof needs the noise between two processes under one candidate. Trials show it only where a candidate
//! is tried twice. Replicas that IMAS left untouched show it before any trial (a uniformity trial): the same
//! program, the same load, the same allocator. With four of them the first deployment of trials can prove a
//! difference (docs/decisions/0030).
//!
//! This holds for memory alone. The CPU time of a process depends on how the requests were shared out.

use crate::service_life::{ServiceLife, UntouchedLife};

/// Processes that began within this time of the first are replicas of each other, seconds.
const TOGETHER_S: f64 = 3600.0;
/// Noise of fewer degrees of freedom says nothing.
const LEAST_FREEDOM: f64 = 3.0;
/// Replicas whose memory differs more, as a standard deviation of logarithms, are no measure: their loads
/// differ. Their trials are then compared by live bytes.
const MOST: f64 = 0.05;

/// Scatter of ln memory of untouched replicas.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Untouched {
    /// Sum of squared deviations from the mean of the replicas of the same time.
    pub squares: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

impl Untouched {
    /// Scatter of all lives of one program. None where there are too few, or they differ too much to be a
    /// measure.
    #[must_use]
    pub fn of(lives: &[UntouchedLife]) -> Option<Self> {
        let mut ordered: Vec<&UntouchedLife> = lives.iter().collect();
        ordered.sort_by(|a, b| a.begun_s.total_cmp(&b.begun_s));
        let mut all = Self { squares: 0.0, freedom: 0.0 };
        let mut rest = ordered.as_slice();
        while let Some(first) = rest.first() {
            let count = rest.partition_point(|life| life.begun_s - first.begun_s <= TOGETHER_S);
            let (group, later) = rest.split_at(count);
            let group: Vec<&ServiceLife> = group.iter().map(|one| &one.life).collect();
            let (squares, freedom) = scatter(&group);
            all = Self { squares: all.squares + squares, freedom: all.freedom + freedom };
            rest = later;
        }
        let is_measure = all.freedom >= LEAST_FREEDOM && all.squares <= MOST.powi(2) * all.freedom;
        is_measure.then_some(all)
    }
}

/// Squares and degrees of freedom at the age at which replicas differ most: at another age they may differ
/// less, and a proof must not rest on that.
fn scatter(group: &[&ServiceLife]) -> (f64, f64) {
    let ages = group.iter().flat_map(|life| life.windows.iter().map(|window| window.until_s));
    let at = |until_s: f64| {
        let known =
            group.iter().filter_map(|life| life.window(until_s)).filter(|window| window.mean_bytes > 0);
        let logs: Vec<f64> = known.map(|window| (window.mean_bytes as f64).ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        (logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>(), logs.len().saturating_sub(1) as f64)
    };
    let variance = |(squares, freedom): (f64, f64)| if freedom > 0.0 { squares / freedom } else { 0.0 };
    // A window that a single process has reached says nothing; one that few have, little.
    let most = ages.clone().map(at).map(|(_, freedom)| freedom).fold(0.0, f64::max);
    let full = ages.map(at).filter(|(_, freedom)| *freedom >= most);
    full.max_by(|a, b| variance(*a).total_cmp(&variance(*b))).unwrap_or((0.0, 0.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_life::LifeWindow;

    fn untouched(begun_s: f64, means: &[(f64, f64)]) -> UntouchedLife {
        let window = |&(until_s, mean): &(f64, f64)| {
            let mean_bytes = (1e9 * mean).round();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive size")]
            LifeWindow { until_s, mean_bytes: mean_bytes as u64, ..LifeWindow::default() }
        };
        UntouchedLife { begun_s, life: ServiceLife { windows: means.iter().map(window).collect() } }
    }

    #[test]
    fn four_replicas_have_three_degrees_of_freedom() {
        let of = |mean: f64| untouched(0.0, &[(600.0, mean)]);
        let found = Untouched::of(&[of(1.0), of(1.0), of(0.02f64.exp()), of(0.02f64.exp())]).unwrap();
        assert!((found.squares - 4.0 * 0.01f64.powi(2)).abs() < 1e-9 && found.freedom == 3.0, "{found:?}");
        assert_eq!(Untouched::of(&[of(1.0), of(1.01), of(1.0)]), None, "three are too few");
        assert_eq!(Untouched::of(&[of(1.0), of(1.2), of(1.0), of(0.9)]), None, "they have different loads");
    }

    #[test]
    fn deployments_are_compared_within_themselves_and_where_they_differ_most() {
        let deployment = |begun_s: f64, scale: f64| {
            [0.99, 1.01, 1.0].map(|mean| {
                untouched(begun_s, &[(600.0, scale), (1200.0, scale * mean), (2400.0, scale * 1.1)])
            })
        };
        let two = [deployment(0.0, 1.0), deployment(1e5, 3.0)].concat();
        let found = Untouched::of(&two).unwrap();
        assert_eq!(found.freedom, 4.0);
        assert!((found.squares / 4.0e-4 - 1.0).abs() < 0.02, "{found:?}");
    }
}
