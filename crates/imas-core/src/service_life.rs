// SPDX-License-Identifier: Apache-2.0
//! Memory of a process that lives for hours: how high it stays, its peak, and whether it grows.
//!
//! A life is divided into windows by age. Each begins at half of the age at which it ends, and ends at twice
//! the age of the one before. So a window's mean is of the later half of a life, without its start, and
//! two lives of different length have the windows of the shorter one in common.

use serde::{Deserialize, Serialize};

use crate::stats::Moments;

/// The windows of one process, in order of age.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct ServiceLife {
    /// Windows that were seen to their end; one may be missing where nobody looked.
    pub windows: Vec<LifeWindow>,
}

/// One window of a life.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct LifeWindow {
    /// Age at which the window ends, seconds. It begins at half of that.
    pub until_s: f64,
    /// Number of looks at the process.
    pub looks: u32,
    /// Mean over time of resident anonymous memory, bytes; children that were forked without exec are
    /// included.
    pub mean_bytes: u64,
    /// Largest of the looks, bytes.
    pub peak_bytes: u64,
    /// Growth by a least squares line through the looks, bytes an hour; below 0 it shrinks.
    pub slope_bytes_per_h: f64,
    /// Mean of the bytes in live blocks, by the hook's estimate; 0 where it is not known.
    pub live_bytes: u64,
    /// malloc calls of all classes since the start; 0 where they are not counted.
    pub calls: u64,
    /// User and system CPU time since the start, seconds.
    pub cpu_s: f64,
    /// Work done, by the counter that the user named, from the first reading to the end of the window; None
    /// without a counter, or where it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
}

/// Work, and the CPU time it took.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Number of units of work: the growth of the program's counter.
    pub units: f64,
    /// CPU time meanwhile, seconds.
    pub cpu_s: f64,
}

impl Work {
    /// CPU seconds of one unit; None where nothing was done, or no CPU time is known.
    #[must_use]
    pub fn cpu_of_a_unit(&self) -> Option<f64> {
        Some(self.cpu_s / self.units).filter(|cpu_s| cpu_s.is_finite() && *cpu_s > 0.0)
    }
}

/// One look at the memory of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MemoryLook {
    /// Age of the process, seconds.
    pub age_s: f64,
    /// Resident anonymous memory, bytes.
    pub bytes: u64,
    /// Bytes in live blocks; 0 where it is not known.
    pub live_bytes: u64,
}

const HOUR_S: f64 = 3600.0;
/// Least number of looks in a window.
const LEAST_LOOKS: usize = 5;
/// Least share of a window that its looks must span: imasd may have begun to look in its midst.
const LEAST_SPAN: f64 = 0.6;

impl LifeWindow {
    /// Memory of the window that ends at the age `until_s`, from looks in order of age. CPU time, calls and
    /// work are left for the caller. None where the looks are too few, or do not cover the window.
    #[must_use]
    pub fn of(until_s: f64, looks: &[MemoryLook]) -> Option<Self> {
        let span_s = looks.last()?.age_s - looks.first()?.age_s;
        if looks.len() < LEAST_LOOKS || span_s < LEAST_SPAN * until_s / 2.0 {
            return None;
        }
        // Without its unit of hours the sums of squares would lose digits.
        let line: Moments = looks.iter().map(|look| (look.age_s / HOUR_S, look.bytes as f64)).collect();
        let is_live_known = looks.iter().all(|look| look.live_bytes > 0);
        Some(Self {
            until_s,
            looks: u32::try_from(looks.len()).unwrap_or(u32::MAX),
            mean_bytes: mean_over_time(looks, |look| look.bytes),
            peak_bytes: looks.iter().map(|look| look.bytes).max()?,
            slope_bytes_per_h: if line.xx > 0.0 { line.xy / line.xx } else { 0.0 },
            live_bytes: if is_live_known { mean_over_time(looks, |look| look.live_bytes) } else { 0 },
            ..Self::default()
        })
    }
}

/// Trapezoids under the curve, by its length.
fn mean_over_time(looks: &[MemoryLook], figure: impl Fn(&MemoryLook) -> u64) -> u64 {
    let (mut area, mut span_s) = (0.0, 0.0);
    for pair in looks.windows(2) {
        let [one, next] = pair else { continue };
        let took_s = (next.age_s - one.age_s).max(0.0);
        area += took_s * (figure(one) as f64 + figure(next) as f64) / 2.0;
        span_s += took_s;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of u64 is in range")]
    if span_s > 0.0 { (area / span_s) as u64 } else { looks.first().map_or(0, figure) }
}

impl ServiceLife {
    /// The window that ends at that age.
    #[must_use]
    pub fn window(&self, until_s: f64) -> Option<&LifeWindow> {
        self.windows.iter().find(|window| window.until_s == until_s)
    }

    /// The newest window: the steady memory of the process as far as it is known.
    #[must_use]
    pub fn latest(&self) -> Option<&LifeWindow> {
        self.windows.last()
    }

    /// Largest memory of all looks, bytes; 0 without windows.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.windows.iter().map(|window| window.peak_bytes).max().unwrap_or(0)
    }
}

/// The age at which the newest window ends that all of these lives have; None where they have none in common.
pub fn common_age_s<'a>(lives: impl IntoIterator<Item = &'a ServiceLife>) -> Option<f64> {
    let mut lives = lives.into_iter();
    let first = lives.next()?;
    let others: Vec<_> = lives.collect();
    let is_common = |until_s: &f64| others.iter().all(|life| life.window(*until_s).is_some());
    first.windows.iter().rev().map(|window| window.until_s).find(is_common)
}

/// A process of a program with replicas that IMAS left untouched, as it lived.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct UntouchedLife {
    /// Time when the process began, seconds since the epoch.
    pub begun_s: f64,
    /// Windows of the process.
    pub life: ServiceLife,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn looks(bytes: &[u64]) -> Vec<MemoryLook> {
        let look = |(at, bytes): (usize, &u64)| MemoryLook {
            age_s: 1800.0 + 360.0 * at as f64,
            bytes: *bytes,
            live_bytes: bytes / 2,
        };
        bytes.iter().enumerate().map(look).collect()
    }

    #[test]
    fn a_window_worked_by_hand() {
        // Half an hour in six looks: 100 more each, 1000 an hour.
        let window = LifeWindow::of(3600.0, &looks(&[1000, 1100, 1200, 1300, 1400, 1500])).unwrap();
        assert_eq!((window.mean_bytes, window.peak_bytes, window.looks), (1250, 1500, 6));
        assert!((window.slope_bytes_per_h - 1000.0).abs() < 1e-6, "{window:?}");
        assert_eq!(window.live_bytes, 625);
    }

    #[test]
    fn the_mean_is_weighted_with_time() {
        let mut uneven = looks(&[0, 0, 0, 0, 600, 600]);
        uneven[4].age_s = uneven[3].age_s + 1.0; // it grew at once, and was looked at late again
        let mean = LifeWindow::of(3600.0, &uneven).unwrap().mean_bytes;
        assert!((230..250).contains(&mean), "719 s of 1800 at 600: {mean}");
    }

    #[test]
    fn what_was_hardly_looked_at_is_no_window() {
        assert_eq!(LifeWindow::of(3600.0, &looks(&[1; 4])), None, "too few");
        assert_eq!(LifeWindow::of(36_000.0, &looks(&[1; 6])), None, "a tenth of it");
        assert_eq!(LifeWindow::of(3600.0, &[]), None);
        let mut unknown = looks(&[9; 6]);
        unknown[2].live_bytes = 0;
        assert_eq!(LifeWindow::of(3600.0, &unknown).unwrap().live_bytes, 0, "not known in all");
    }

    #[test]
    fn lives_are_compared_at_the_age_that_all_have_reached() {
        let life = |ages: &[f64]| ServiceLife {
            windows: ages.iter().map(|&until_s| LifeWindow { until_s, ..LifeWindow::default() }).collect(),
        };
        let (old, young) = (life(&[600.0, 1200.0, 2400.0]), life(&[600.0, 1200.0]));
        assert_eq!(common_age_s([&old, &young]), Some(1200.0));
        assert_eq!(common_age_s([&old, &life(&[300.0])]), None);
        assert_eq!(common_age_s([&old]), Some(2400.0));
        assert_eq!(common_age_s([]), None);
    }

    #[test]
    fn work_without_a_figure_is_no_cost() {
        assert_eq!(Work { units: 4.0, cpu_s: 2.0 }.cpu_of_a_unit(), Some(0.5));
        assert_eq!(Work { units: 0.0, cpu_s: 2.0 }.cpu_of_a_unit(), None);
        assert_eq!(Work { units: 3.0, cpu_s: 0.0 }.cpu_of_a_unit(), None);
    }

    proptest! {
        #[test]
        fn the_mean_lies_between_least_and_most(bytes in prop::collection::vec(0..1u64 << 40, 6..40)) {
            let looks = looks(&bytes);
            let until_s = looks.last().unwrap().age_s;
            if let Some(window) = LifeWindow::of(until_s, &looks) {
                let (least, most) = (bytes.iter().min().unwrap(), bytes.iter().max().unwrap());
                prop_assert!(window.mean_bytes + 1 >= *least && window.mean_bytes <= *most);
            }
        }
    }
}
