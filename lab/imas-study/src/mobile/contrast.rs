// SPDX-License-Identifier: Apache-2.0
//! Compares one candidate with another, round by round.

use imas_core::stats::{Interval, bootstrap, mad, median};
use statrs::statistics::Statistics;

use super::sample::Samples;
use crate::verdict::Reproduction;

const RESAMPLES: usize = 2_000;
const SEED: u64 = 1;
/// Fewest rounds with which the percentile interval of a median can reach 95 %.
pub(crate) const FEWEST_ROUNDS: usize = 6;

/// A figure of one candidate compared with another's: the 95 % interval, and the value that means no
/// difference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Contrast {
    pub(crate) interval: Interval,
    pub(crate) neutral: f64,
    pub(crate) rounds: usize,
}

/// The side of no difference on which a contrast lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Below,
    Above,
    /// The interval includes no difference, or there are too few rounds for one.
    Open,
}

impl Contrast {
    pub(crate) fn side(&self) -> Side {
        match self.interval {
            _ if self.rounds < FEWEST_ROUNDS => Side::Open,
            i if i.hi < self.neutral => Side::Below,
            i if i.lo > self.neutral => Side::Above,
            _ => Side::Open,
        }
    }

    /// Median and interval as text, with a note if there are too few rounds.
    pub(crate) fn text(&self, decimals: usize, unit: &str) -> String {
        let Interval { lo, mid, hi } = self.interval;
        let signed = self.neutral == 0.0;
        let one = |value: f64| {
            if signed { format!("{value:+.decimals$}") } else { format!("{value:.decimals$}") }
        };
        let few = if self.rounds < FEWEST_ROUNDS { ", too few rounds" } else { "" };
        format!("{}{unit} [{}, {}{few}]", one(mid), one(lo), one(hi))
    }
}

impl Samples {
    fn pairs(&self, test: &str, figure: &str, a: &str, b: &str) -> Vec<(f64, f64)> {
        let base = self.by_round(test, b, figure);
        let ours = self.by_round(test, a, figure);
        ours.into_iter().filter_map(|(round, value)| Some((value, *base.get(&round)?))).collect()
    }

    /// Median of the ratios of `a` to `b` in the same round.
    pub(crate) fn ratio(&self, test: &str, figure: &str, a: &str, b: &str) -> Option<Contrast> {
        let pairs = self.pairs(test, figure, a, b);
        let ratios: Vec<f64> = pairs.iter().filter(|(_, base)| *base > 0.0).map(|(a, b)| a / b).collect();
        let interval = bootstrap(&ratios, RESAMPLES, SEED, median)?;
        Some(Contrast { interval, neutral: 1.0, rounds: ratios.len() })
    }

    /// Median of the differences of `a` and `b` in the same round. The median is hardly affected by a single
    /// round in which the machine did other work, which may take hundreds of megabytes.
    pub(crate) fn difference(&self, test: &str, figure: &str, a: &str, b: &str) -> Option<Contrast> {
        let pairs = self.pairs(test, figure, a, b);
        let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
        let interval = bootstrap(&differences, RESAMPLES, SEED, median)?;
        Some(Contrast { interval, neutral: 0.0, rounds: differences.len() })
    }

    /// Ratio of the median absolute deviations over the rounds. A standard deviation would be several times
    /// as large after one disturbed round, and Fisher's interval would not show it.
    pub(crate) fn deviation_ratio(&self, test: &str, figure: &str, a: &str, b: &str) -> Option<Contrast> {
        let pairs = self.pairs(test, figure, a, b);
        let interval = bootstrap(&pairs, RESAMPLES, SEED, |rounds| {
            let of = |value: fn(&(f64, f64)) -> f64| mad(&rounds.iter().map(value).collect::<Vec<_>>());
            Some(of(|round| round.0)? / of(|round| round.1).filter(|base| *base > 0.0)?)
        })?;
        Some(Contrast { interval, neutral: 1.0, rounds: pairs.len() })
    }
}

/// Standard deviation of a sample; None for fewer than two values.
pub(crate) fn deviation(values: &[f64]) -> Option<f64> {
    Some(values.iter().std_dev()).filter(|deviation| deviation.is_finite())
}

/// The verdict on the claim that every contrast lies on the side `claimed`.
pub(crate) fn judged(contrasts: &[Option<Contrast>], claimed: Side) -> Reproduction {
    let sides: Vec<Side> = contrasts.iter().map(|c| c.map_or(Side::Open, |c| c.side())).collect();
    let holds = sides.iter().filter(|side| **side == claimed).count();
    let against = sides.iter().filter(|side| **side != claimed && **side != Side::Open).count();
    match (holds, against) {
        (0, 0) => Reproduction::Undecided,
        (all, 0) if all == sides.len() => Reproduction::Reproduced,
        (0, _) => Reproduction::NotReproduced,
        _ => Reproduction::Differs,
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{MobileSample, Samples};
    use super::*;

    fn samples(of: &[(&str, &[f64])]) -> Samples {
        let mut samples = Samples::default();
        for (candidate, values) in of {
            for (round, value) in (0u32..).zip(*values) {
                samples.samples.push(MobileSample {
                    test: "t".into(),
                    candidate: (*candidate).to_owned(),
                    round,
                    figures: [("f".to_owned(), *value)].into(),
                    ..MobileSample::default()
                });
            }
        }
        samples
    }

    #[test]
    fn a_clear_difference_has_a_side_and_noise_has_none() {
        let all = samples(&[
            ("a", &[10.0, 11.0, 12.0, 10.5, 11.5, 10.0, 12.0]),
            ("b", &[20.0, 21.0, 25.0, 20.0, 22.0, 21.0, 23.0]),
            ("c", &[9.0, 12.0, 11.0, 12.5, 10.0, 11.0, 11.0]),
        ]);
        let side = |a, b| all.ratio("t", "f", a, b).unwrap().side();
        assert_eq!((side("a", "b"), side("b", "a"), side("a", "c")), (Side::Below, Side::Above, Side::Open));
        assert_eq!(all.difference("t", "f", "b", "a").unwrap().side(), Side::Above);
        assert_eq!(all.difference("t", "f", "a", "a").unwrap().side(), Side::Open);
    }

    #[test]
    fn two_rounds_prove_nothing() {
        let all = samples(&[("a", &[1.0, 1.0]), ("b", &[2.0, 2.0])]);
        let contrast = all.ratio("t", "f", "a", "b").unwrap();
        assert_eq!(contrast.side(), Side::Open);
        assert!(contrast.text(2, "").contains("too few rounds"));
        assert!(all.ratio("t", "f", "a", "absent").is_none());
    }

    #[test]
    fn a_claim_needs_all_of_its_contrasts() {
        let at =
            |mid| Some(Contrast { interval: Interval { lo: mid, mid, hi: mid }, neutral: 1.0, rounds: 9 });
        assert_eq!(judged(&[at(0.5), at(0.9)], Side::Below), Reproduction::Reproduced);
        assert_eq!(judged(&[at(0.5), at(1.1)], Side::Below), Reproduction::Differs);
        assert_eq!(judged(&[at(1.0), at(1.1)], Side::Below), Reproduction::NotReproduced);
        assert_eq!(judged(&[at(0.5), None], Side::Below), Reproduction::Differs);
        assert_eq!(judged(&[at(1.0), None], Side::Below), Reproduction::Undecided);
        assert_eq!(judged(&[], Side::Below), Reproduction::Undecided);
    }

    /// Noise of a percent.
    const CALM: [f64; 12] = [50.0, 51.0, 50.5, 50.0, 51.0, 50.2, 50.8, 50.1, 50.4, 50.9, 50.6, 50.3];

    #[test]
    fn deviations_are_compared() {
        let wild: Vec<f64> = CALM.iter().map(|value| (value - 50.0) * 100.0).collect();
        let mut once = CALM;
        once[4] = -900.0;
        let all = samples(&[("wild", &wild), ("calm", &CALM), ("once", &once)]);
        let ratio = |a, b| all.deviation_ratio("t", "f", a, b).unwrap();
        assert_eq!(ratio("wild", "calm").side(), Side::Above);
        assert!((ratio("wild", "calm").interval.mid - 100.0).abs() < 1e-6);
        assert_eq!(ratio("once", "calm").side(), Side::Open, "one round must not decide");
        let same = samples(&[("a", &CALM), ("b", &[50.0; 12])]);
        assert!(same.deviation_ratio("t", "f", "a", "b").is_none(), "without deviation there is no ratio");
        assert_eq!(deviation(&[1.0]), None);
    }

    #[test]
    fn one_round_of_something_else_hides_no_difference() {
        let mut more = CALM.map(|value| value + 3.0);
        more[7] = -900.0;
        let all = samples(&[("more", &more), ("calm", &CALM)]);
        let contrast = all.difference("t", "f", "more", "calm").unwrap();
        assert_eq!(contrast.side(), Side::Above);
        assert!((contrast.interval.mid - 3.0).abs() < 1e-9);
    }
}
