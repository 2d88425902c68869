// SPDX-License-Identifier: Apache-2.0
//! One figure over all programs, with its interval.

use imas_core::printable::counted;
use imas_core::stats::{Interval, bootstrap, more};

use super::judge::{Outcome, Outcomes};
use super::strategy::Strategy;

/// The metrics of gains. `Cpu`, `Memory` and `Balance` are ours; the others are the paper's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Metric {
    /// User and system CPU time.
    Cpu,
    /// Mean resident anonymous memory.
    Memory,
    /// Geometric mean of both.
    Balance,
    /// ns per operation.
    Time,
    /// Fragmentation over virtual sizes.
    Frag,
}

impl Metric {
    pub(crate) const OURS: [Self; 3] = [Self::Cpu, Self::Memory, Self::Balance];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Memory => "resident memory",
            Self::Balance => "CPU and memory (geometric mean)",
            Self::Time => "ns per operation",
            Self::Frag => "fragmentation (points)",
        }
    }

    /// The unit of a gain, as printed after the figure.
    pub(crate) fn unit(self) -> &'static str {
        if self == Self::Frag { " points" } else { " %" }
    }

    /// Logarithm of the ratio to `system`; for fragmentation, minus the gain in points.
    pub(crate) fn of(self, outcome: &Outcome) -> Option<f64> {
        match self {
            Self::Cpu => Some(outcome.cpu),
            Self::Memory => Some(outcome.memory),
            Self::Balance => Some((outcome.cpu + outcome.memory) / 2.0),
            Self::Time => outcome.paper.map(|paper| paper.time),
            Self::Frag => outcome.paper.map(|paper| -paper.frag),
        }
    }

    /// Gain of one program in per cent of `system`; for fragmentation, in percentage points.
    pub(crate) fn gain(self, value: f64) -> f64 {
        match self {
            Self::Frag => 0.0 - value * 100.0,
            _ => 0.0 - more(value) * 100.0,
        }
    }
}

/// Gains over all programs, per cent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Total {
    pub(crate) programs: usize,
    pub(crate) mean: Interval,
    /// The geometric mean of the ratios. None for fragmentation, which is a difference.
    pub(crate) geometric: Option<Interval>,
}

impl Total {
    /// The mean and the number of its programs.
    pub(crate) fn mean_and_count(&self) -> String {
        format!("{} ({})", with_interval(&self.mean), counted(self.programs, "program"))
    }
}

/// Number of resamples and seed of the intervals. The programs are resampled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resampling {
    pub(crate) resamples: usize,
    pub(crate) seed: u64,
}

/// The gains over the programs for which the strategy has an outcome. None without any.
pub(crate) fn total(
    outcomes: &Outcomes,
    strategy: &Strategy,
    metric: Metric,
    by: Resampling,
) -> Option<Total> {
    let values: Vec<f64> = outcomes.get(strategy)?.values().filter_map(|o| metric.of(o)).collect();
    let mean = bootstrap(&values, by.resamples, by.seed, |v| average(v.iter().map(|&x| metric.gain(x))))?;
    let geometric = (metric != Metric::Frag)
        .then(|| {
            bootstrap(&values, by.resamples, by.seed, |v| average(v.iter().copied()).map(|x| metric.gain(x)))
        })
        .flatten();
    Some(Total { programs: values.len(), mean, geometric })
}

/// The lead of `one` over `other`, paired by the programs that both have: in per cent of the other's
/// (geometric mean of the ratios), in points for fragmentation.
pub(crate) fn ahead(
    outcomes: &Outcomes,
    (one, other): (&Strategy, &Strategy),
    metric: Metric,
    by: Resampling,
) -> Option<(usize, Interval)> {
    let others = outcomes.get(other)?;
    let pair = |(program, outcome): (&usize, &Outcome)| {
        Some(metric.of(outcome)? - others.get(program).and_then(|o| metric.of(o))?)
    };
    let differences: Vec<f64> = outcomes.get(one)?.iter().filter_map(pair).collect();
    let lead = |v: &[f64]| average(v.iter().copied()).map(|x| metric.gain(x));
    Some((differences.len(), bootstrap(&differences, by.resamples, by.seed, lead)?))
}

pub(crate) fn average(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
    (count > 0.0).then_some(sum / count)
}

/// `+7.2`, and never `-0.0`.
pub(crate) fn signed(gain: f64) -> String {
    format!("{:+.1}", (gain * 10.0).round() / 10.0 + 0.0)
}

/// `+7.2 [+5.1, +9.0]`.
pub(crate) fn with_interval(interval: &Interval) -> String {
    format!("{:+.2} [{:+.2}, {:+.2}]", interval.mid, interval.lo, interval.hi)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn outcomes(cpu: &[f64]) -> Outcomes {
        let one = |(i, &cpu): (usize, &f64)| {
            (i, Outcome { cpu: cpu.ln(), memory: 0.0, paper: None, picks: vec![] })
        };
        BTreeMap::from([(Strategy::Always("a".into()), cpu.iter().enumerate().map(one).collect())])
    }

    #[test]
    fn a_gain_of_nothing_has_no_minus() {
        assert_eq!([-0.04, 0.0, -0.06, 7.24].map(signed), ["+0.0", "+0.0", "-0.1", "+7.2"]);
    }

    const BY: Resampling = Resampling { resamples: 200, seed: 1 };

    #[test]
    fn half_and_double_cancel_in_the_geometric_mean_only() {
        let total = total(&outcomes(&[0.5, 2.0]), &Strategy::Always("a".into()), Metric::Cpu, BY).unwrap();
        assert_eq!(total.programs, 2);
        assert!((total.mean.mid + 25.0).abs() < 1e-9, "{:?}", total.mean);
        assert!(total.geometric.unwrap().mid.abs() < 1e-9);
    }

    #[test]
    fn a_lead_is_counted_over_common_programs() {
        let mut all = outcomes(&[0.8, 0.9, 1.0]);
        all.extend(BTreeMap::from([(
            Strategy::Always("b".into()),
            outcomes(&[1.0, 1.0]).remove(&Strategy::Always("a".into())).unwrap(),
        )]));
        let pair = (&Strategy::Always("a".into()), &Strategy::Always("b".into()));
        let (programs, lead) = ahead(&all, pair, Metric::Cpu, BY).unwrap();
        assert_eq!(programs, 2);
        assert!((lead.mid - (1.0 - 0.72f64.sqrt()) * 100.0).abs() < 1e-9);
    }
}
