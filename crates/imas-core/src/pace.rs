// SPDX-License-Identifier: Apache-2.0
//! Normalised CPU time: what a run would have cost, had the CPU been as fast as it was on average.
//!
//! The speed of a CPU that is shared with other guests varies by half from one second to the next. A constant
//! small workload, repeated beside each run, measures how fast the CPU was meanwhile (its *pace*). Regression
//! on the pace takes out of a run's CPU time what the pace explains. This is the method of control variates
//! (Lavenberg and Welch, A perspective on the use of control variables to increase the efficiency of Monte
//! Carlo simulations, Management Science 27, 1981). The slope is pooled over the candidates of one program
//! and shrunk towards a known one while runs are few.

use serde::{Deserialize, Serialize};

use crate::stats::median;

/// CPU time of two kinds of work at one instant, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PaceReading {
    /// Arithmetic in chains that do not wait for each other.
    pub arithmetic_ns: u64,
    /// A small interpreter: branches that cannot be predicted.
    pub branches_ns: u64,
}

/// How slow the CPU was during a run: means over the looks, ns.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Pace {
    /// Time of the arithmetic work, as in [`PaceReading`].
    pub arithmetic_ns: f64,
    /// Time of the work with branches, as in [`PaceReading`].
    pub branches_ns: f64,
    /// Number of looks.
    pub looks: u32,
}

/// A reading this many times as slow as the median was interrupted by the kernel and is discarded.
const INTERRUPTED: f64 = 4.0;

impl Pace {
    /// Means over looks, kind by kind, without those that were interrupted; None without any look.
    #[must_use]
    pub fn of(looks: &[PaceReading]) -> Option<Self> {
        Some(Self {
            arithmetic_ns: mean(looks, |look| look.arithmetic_ns)?,
            branches_ns: mean(looks, |look| look.branches_ns)?,
            looks: u32::try_from(looks.len()).unwrap_or(u32::MAX),
        })
    }

    /// Logarithm of the geometric mean of both; None when one is 0.
    #[must_use]
    pub fn slowness(&self) -> Option<f64> {
        let sum = self.arithmetic_ns.ln() + self.branches_ns.ln();
        sum.is_finite().then_some(sum / 2.0)
    }
}

fn mean(looks: &[PaceReading], kind: fn(&PaceReading) -> u64) -> Option<f64> {
    let all: Vec<f64> = looks.iter().map(|look| kind(look) as f64).collect();
    let limit = median(&all)? * INTERRUPTED;
    let (sum, count) =
        all.iter().filter(|&&ns| ns <= limit).fold((0.0, 0.0), |(sum, count), ns| (sum + ns, count + 1.0));
    Some((sum / count).round()) // a thousandth of what is measured
}

/// A run's CPU seconds and the pace meanwhile.
pub type Paced = (f64, Option<Pace>);

/// Takes the pace out of the CPU time of the runs of one program.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PaceCorrection {
    /// Per cent of CPU time for one per cent of slowness.
    slope: f64,
    /// Mean slowness, logarithm.
    middle: f64,
}

/// The slope while nothing else is known: the median of five real programs, 25 runs each; theirs were 1.3 to
/// 2.2 (docs/decisions/0012).
const USUAL_SLOPE: f64 = 1.6;
/// Weight of that prior against the runs: the variance of a normalised run (0.07 squared) divided by the
/// variance of the slope between programs (0.25 squared).
const WORTH: f64 = 0.08;
/// A slope beyond this is taken for chance.
const STEEPEST: f64 = 3.0;
/// Normalising must reduce the variance to at most this share, else it is not applied: on a quiet machine it
/// would only add noise of its own.
const WORTHWHILE: f64 = 0.9;

/// No figure is corrected by more than a factor of e squared.
const MOST: f64 = 2.0;

impl PaceCorrection {
    /// Learns from the runs of one program. Each group holds the runs of one candidate, because candidates
    /// differ in CPU time.
    #[must_use]
    pub fn fit(groups: &[Vec<Paced>]) -> Self {
        let groups: Vec<Vec<(f64, f64)>> = groups.iter().map(|group| points(group)).collect();
        let Some(middle) = average(groups.iter().flatten().map(|point| point.0)) else {
            return Self::default();
        };
        let deviations: Vec<(f64, f64)> = groups.iter().flat_map(|group| deviations(group)).collect();
        let sum = |of: fn(&(f64, f64)) -> f64| deviations.iter().map(of).sum::<f64>();
        let (xx, xy, yy) = (sum(|(x, _)| x * x), sum(|(x, y)| x * y), sum(|(_, y)| y * y));
        let slope = ((xy + WORTH * USUAL_SLOPE) / (xx + WORTH)).clamp(0.0, STEEPEST);
        let left = yy - 2.0 * slope * xy + slope * slope * xx;
        let helps = yy > 0.0 && left <= WORTHWHILE * yy;
        Self { slope: if helps { slope } else { 0.0 }, middle }
    }

    /// Normalised CPU seconds; unchanged where the pace is not known.
    #[must_use]
    pub fn cpu_s(&self, (cpu_s, pace): Paced) -> f64 {
        let slowness = pace.and_then(|pace| pace.slowness());
        let by = |slowness: f64| (self.slope * (self.middle - slowness)).clamp(-MOST, MOST).exp();
        slowness.map_or(cpu_s, |slowness| cpu_s * by(slowness))
    }
}

/// Slowness and logarithm of the CPU time of the runs that have both.
fn points(group: &[Paced]) -> Vec<(f64, f64)> {
    let point = |&(cpu_s, pace): &Paced| Some((pace?.slowness()?, (cpu_s > 0.0).then(|| cpu_s.ln())?));
    group.iter().filter_map(point).collect()
}

/// Deviations of the points from the mean of the group.
fn deviations(group: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (Some(x), Some(y)) =
        (average(group.iter().map(|point| point.0)), average(group.iter().map(|point| point.1)))
    else {
        return vec![];
    };
    group.iter().map(|point| (point.0 - x, point.1 - y)).collect()
}

fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pace(slowness: f64) -> Option<Pace> {
        let ns = |base: f64| base * slowness;
        Some(Pace { arithmetic_ns: ns(8e3), branches_ns: ns(3e4), looks: 60 })
    }

    fn spread(values: &[f64]) -> f64 {
        values.iter().copied().fold(0.0, f64::max) / values.iter().copied().fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn the_change_of_pace_is_taken_out() {
        let group = |cpu_s: f64| -> Vec<Paced> {
            (0..8u32)
                .map(|i| 1.0 + f64::from(i % 4) / 10.0)
                .map(|slow: f64| (cpu_s * slow.powf(1.5), pace(slow)))
                .collect()
        };
        let groups = [group(1.0), group(2.0)];
        let even = PaceCorrection::fit(&groups);
        let of = |group: &[Paced]| group.iter().map(|&run| even.cpu_s(run)).collect::<Vec<f64>>();
        let (one, two) = (of(&groups[0]), of(&groups[1]));
        assert!(spread(&one) < 1.02 && spread(&two) < 1.02, "{one:?}");
        assert!((two[3] / one[3] - 2.0).abs() < 1e-9, "{one:?} {two:?}");
    }

    #[test]
    fn a_pace_that_explains_nothing_changes_nothing() {
        let group: Vec<Paced> = (0..8u32)
            .map(|i| (1.0 + f64::from(i % 2) / 10.0, pace(1.0 + f64::from(i / 2 % 2) / 10.0)))
            .collect();
        let even = PaceCorrection::fit(std::slice::from_ref(&group));
        assert!(group.iter().all(|&run| (even.cpu_s(run) - run.0).abs() < 1e-12));
        let [one, other] = [[(1.0, pace(1.0))], [(1.0, pace(1.5))]].map(Vec::from);
        let single = PaceCorrection::fit(&[one, other.clone()]);
        assert_eq!(single.cpu_s(other[0]), 1.0, "one run of each candidate shows no slope");
        let none: Vec<Paced> = vec![(1.0, None), (2.0, None)];
        assert_eq!(PaceCorrection::fit(std::slice::from_ref(&none)).cpu_s(none[1]), 2.0);
        assert_eq!(PaceCorrection::fit(&[]).cpu_s((3.0, pace(1.0))), 3.0);
    }

    #[test]
    fn an_interrupted_observation_does_not_count() {
        let look = |ns| PaceReading { arithmetic_ns: ns, branches_ns: ns };
        let pace = Pace::of(&[look(10), look(12), look(11), look(1000)]).unwrap();
        assert_eq!((pace.arithmetic_ns, pace.looks), (11.0, 4));
        assert_eq!(Pace::of(&[]), None);
    }

    proptest! {
        #[test]
        fn any_figures_give_figures(runs in prop::collection::vec((0.0..1e9f64, any::<f64>(), any::<f64>()), 0..20)) {
            let groups: Vec<Vec<Paced>> = runs
                .chunks(3)
                .map(|some| {
                    some.iter()
                        .map(|&(cpu_s, a, b)| (cpu_s, Some(Pace { arithmetic_ns: a, branches_ns: b, looks: 1 })))
                        .collect()
                })
                .collect();
            let even = PaceCorrection::fit(&groups);
            prop_assert!(groups.iter().flatten().all(|&run| even.cpu_s(run).is_finite()));
        }
    }
}
