// SPDX-License-Identifier: Apache-2.0
//! Figures of a round whose processes lived on after their samples were taken.
//!
//! A sample of ten minutes says little about a service that grows for hours. Where all trials of a round have
//! lived on, each counts by its steady memory at the age that all of them have reached, and by the CPU time
//! until then: for a unit of work where the user names a counter.

use super::Point;
use crate::service_life::{LifeWindow, ServiceLife, UntouchedLife, common_age_s};

/// In which unit the trials of a round are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MemoryUnit {
    /// Bytes: all had the same load.
    Bytes,
    /// Bytes for each live byte: their loads differed.
    OfLiveBytes,
}

/// The points of the trials, in their order, by these lives; None where one has no life, or they have no age
/// in common.
pub(super) fn points(
    lives: &[Option<&ServiceLife>],
    memory: MemoryUnit,
    per_call: bool,
) -> Option<Vec<Option<Point>>> {
    let lives: Vec<&ServiceLife> = lives.iter().copied().collect::<Option<_>>()?;
    let age_s = common_age_s(lives.iter().copied())?;
    let windows: Vec<&LifeWindow> = lives.iter().filter_map(|life| life.window(age_s)).collect();
    let bytes = bytes(&windows, memory);
    let cpu = cpu(&windows, per_call);
    Some(cpu.into_iter().zip(bytes).map(|(cpu, bytes)| Point::new(cpu, bytes)).collect())
}

/// Memory of the windows, all in one unit: live bytes count only where all of them are known.
fn bytes(windows: &[&LifeWindow], unit: MemoryUnit) -> Vec<f64> {
    let is_known = windows.iter().all(|window| window.live_bytes > 0);
    let of = |window: &&LifeWindow| match unit {
        MemoryUnit::OfLiveBytes if is_known => window.mean_bytes as f64 / window.live_bytes as f64,
        _ => window.mean_bytes as f64,
    };
    windows.iter().map(of).collect()
}

/// CPU time of each window, seconds: for a unit of work, else for a call, else as it is, whichever is known
/// of all.
fn cpu(windows: &[&LifeWindow], per_call: bool) -> Vec<f64> {
    let of_work = windows.iter().map(|window| window.work.and_then(|work| work.cpu_of_a_unit()));
    if let Some(cpu) = of_work.collect::<Option<Vec<f64>>>() {
        return cpu;
    }
    let is_counted = windows.iter().all(|window| window.calls > 0);
    let of = |window: &&LifeWindow| match per_call && is_counted {
        true => window.cpu_s / window.calls as f64,
        false => window.cpu_s,
    };
    windows.iter().map(of).collect()
}

// How much the memory of replicas differs where all have the same allocator.
//
// A proof needs the noise between two processes under one candidate. Trials show it only where a candidate
// is tried twice. Replicas that IMAS left untouched show it before any trial (a uniformity trial): the same
// program, the same load, the same allocator. With four of them the first deployment of trials can prove a
// difference (docs/decisions/0030).
//
// This holds for memory alone. The CPU time of a process depends on how the requests were shared out.

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
    use crate::service_life::{LifeWindow, Work};

    fn life(windows: &[(f64, u64, f64)]) -> ServiceLife {
        let window = |&(until_s, mean_bytes, cpu_s): &(f64, u64, f64)| LifeWindow {
            until_s,
            mean_bytes,
            cpu_s,
            live_bytes: 50,
            calls: 1000,
            ..LifeWindow::default()
        };
        ServiceLife { windows: windows.iter().map(window).collect() }
    }

    fn logs(points: Option<Vec<Option<Point>>>) -> Vec<[f64; 2]> {
        points
            .unwrap()
            .into_iter()
            .map(|point| point.map(|p| [p.cpu.exp(), p.memory.exp()]).unwrap())
            .collect()
    }

    fn near(found: &[[f64; 2]], expected: &[[f64; 2]]) {
        let is_near =
            |(a, b): (&[f64; 2], &[f64; 2])| (a[0] / b[0] - 1.0).abs() + (a[1] / b[1] - 1.0).abs() < 1e-9;
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_near), "{found:?}");
    }

    #[test]
    fn trials_are_compared_at_the_age_that_all_have_reached() {
        let (old, young) = (life(&[(600.0, 100, 6.0), (1200.0, 300, 12.0)]), life(&[(600.0, 80, 5.0)]));
        let of = |memory, per_call| logs(points(&[Some(&old), Some(&young)], memory, per_call));
        near(&of(MemoryUnit::Bytes, false), &[[6.0, 100.0], [5.0, 80.0]]);
        near(&of(MemoryUnit::OfLiveBytes, true), &[[0.006, 2.0], [0.005, 1.6]]);
        assert_eq!(points(&[Some(&old), None], MemoryUnit::Bytes, false), None);
    }

    #[test]
    fn work_is_the_unit_where_all_have_a_counter() {
        let (one, mut other) = (life(&[(600.0, 100, 6.0)]), life(&[(600.0, 100, 6.0)]));
        let mut counted = one.clone();
        counted.windows[0].work = Some(Work { units: 100.0, cpu_s: 5.0 });
        other.windows[0].work = Some(Work { units: 200.0, cpu_s: 5.0 });
        let of = |a, b| logs(points(&[Some(a), Some(b)], MemoryUnit::Bytes, true));
        near(&of(&counted, &other), &[[0.05, 100.0], [0.025, 100.0]]);
        near(&of(&one, &other), &[[0.006, 100.0], [0.006, 100.0]]);
    }

    #[test]
    fn what_is_not_known_of_all_is_no_unit() {
        let (one, mut other) = (life(&[(600.0, 100, 6.0)]), life(&[(600.0, 100, 6.0)]));
        (other.windows[0].live_bytes, other.windows[0].calls) = (0, 0); // it has forked
        let found = logs(points(&[Some(&one), Some(&other)], MemoryUnit::OfLiveBytes, true));
        near(&found, &[[6.0, 100.0], [6.0, 100.0]]);
    }

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
