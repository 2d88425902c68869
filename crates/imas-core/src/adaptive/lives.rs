// SPDX-License-Identifier: Apache-2.0
//! Figures of a round whose processes lived on after their samples were taken.
//!
//! A sample of ten minutes says little about a service that grows for hours. Where all trials of a round have
//! lived on, each counts by its steady memory at the age that all of them have reached, and by the CPU time
//! until then: for a unit of work where the user names a counter.

use crate::service_life::{LifeWindow, ServiceLife, common_age_s};

use super::Point;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service_life::Work;

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
}
