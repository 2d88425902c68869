// SPDX-License-Identifier: Apache-2.0
//! What a quick benchmark is to find, and what was predicted of it.
//!
//! A prediction proves no gain: that takes the rounds. But it helps to show that there is none. It is one
//! estimate of a candidate's score, the rounds are another, and both together are surer than either. A quick
//! benchmark ends when no candidate is likely to gain [`WORTHWHILE`] by both.

use statrs::distribution::{ContinuousCDF, Normal};

use super::look_outcome::LookOutcome;
use super::options::Options;
use super::outlook::rounds_to_be_sure;
use super::pairs::Criterion;
use super::picks::{BenchPicks, Entrant};
use super::promising::{PredictedRatios, WORTHWHILE};
use crate::compare::PairedRatio;
use crate::reliability::{COVERAGE, LEAST};
use crate::stats::t_quantile;

/// A gain of [`WORTHWHILE`] or more that is less probable than this is not looked for.
const UNLIKELY: f64 = 0.05;

/// The pick that a benchmark is to find, and the predictions of it.
#[derive(Clone, PartialEq, Debug)]
pub struct QuickGoal {
    criterion: Criterion,
    predicted: Vec<(String, Estimate)>,
}

/// An estimate of a candidate's score, the logarithm of a ratio to `system`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Estimate {
    mean: f64,
    deviation: f64,
}

impl QuickGoal {
    /// `cpu_weight` is 1 for CPU time, 0 for memory, and 0.5 for both alike. `predicted` has the candidates
    /// that are measured.
    #[must_use]
    pub fn new<'a>(cpu_weight: f64, predicted: impl IntoIterator<Item = (&'a str, PredictedRatios)>) -> Self {
        let criterion = match cpu_weight {
            weight if weight >= 1.0 => Criterion::Cpu,
            weight if weight <= 0.0 => Criterion::Memory,
            _ => Criterion::Balance,
        };
        let estimate = |ratios: PredictedRatios| Estimate {
            mean: ratios.score(cpu_weight),
            deviation: (ratios.width(cpu_weight) / 2.0 / normal_quantile(0.5 + COVERAGE / 2.0)).max(LEAST),
        };
        let predicted = predicted.into_iter().map(|(name, ratios)| (name.to_owned(), estimate(ratios)));
        Self { criterion, predicted: predicted.collect() }
    }

    /// Whether the goal is reached, or out of reach; else `general`, what the usual rule says.
    pub(super) fn outcome(
        &self,
        entrants: &[Entrant<'_>],
        picks: &BenchPicks,
        general: LookOutcome,
        options: &Options,
    ) -> LookOutcome {
        let best = self.best(entrants, options);
        // The rounds may have settled the other picks alone.
        let outcome = match (general, best) {
            (_, Some(best)) if self.is_found(best, entrants, picks, options) => return LookOutcome::Settled,
            (LookOutcome::Settled, Some(best)) => self.without_proof(best, entrants.len(), options),
            (general, _) => general,
        };
        let is_out = |entrant: &Entrant<'_>| self.chance(entrant) < UNLIKELY;
        match outcome {
            LookOutcome::Open if entrants.iter().all(is_out) => LookOutcome::Unlikely,
            outcome => outcome,
        }
    }

    /// The best in these rounds, proven or not, of those that the pick can be.
    fn best(&self, entrants: &[Entrant<'_>], options: &Options) -> Option<PairedRatio> {
        let may_be_picked =
            |one: &&Entrant<'_>| self.criterion != Criterion::Balance || one.is_nowhere_worse(options);
        let ratios = entrants.iter().filter(may_be_picked).filter_map(|one| one.ratio(self.criterion));
        ratios.min_by(|a, b| a.interval.mid.total_cmp(&b.interval.mid))
    }

    /// Whether a candidate is picked that is the best, to the margin.
    fn is_found(
        &self,
        best: PairedRatio,
        entrants: &[Entrant<'_>],
        picks: &BenchPicks,
        options: &Options,
    ) -> bool {
        let pick = match self.criterion {
            Criterion::Cpu => &picks.fastest,
            Criterion::Memory => &picks.leanest,
            _ => &picks.balanced,
        };
        let picked = entrants.iter().find(|one| one.name == pick.as_str());
        let ratio = picked.and_then(|one| one.ratio(self.criterion));
        let most = best.interval.mid * (1.0 + self.criterion.margin(options));
        ratio.is_some_and(|ratio| ratio.interval.mid <= most)
    }

    /// Outcome where the best of these rounds is not proven: settled only if it is no better than `system`.
    fn without_proof(&self, best: PairedRatio, of: usize, options: &Options) -> LookOutcome {
        if best.interval.mid >= 1.0 - self.criterion.margin(options) {
            return LookOutcome::Settled;
        }
        LookOutcome::unless_hopeless(rounds_to_be_sure(best, of, options), best.rounds, options)
    }

    /// Probability that the candidate gains [`WORTHWHILE`] or more, by its prediction and the rounds.
    fn chance(&self, entrant: &Entrant<'_>) -> f64 {
        let predicted = self.predicted.iter().find(|(name, _)| name == entrant.name).map(|(_, one)| *one);
        let measured = entrant.ratio(self.criterion).and_then(Estimate::measured);
        let both = match (predicted, measured) {
            (Some(predicted), Some(measured)) => predicted.with(measured),
            (None, Some(measured)) => measured,
            (_, None) => return 1.0, // never by a prediction alone
        };
        both.chance_below((1.0 - WORTHWHILE).ln())
    }
}

impl Estimate {
    /// Estimate from the rounds alone. None while nothing is known of their noise.
    fn measured(ratio: PairedRatio) -> Option<Self> {
        if ratio.rounds < 2 {
            return None;
        }
        let (mean, deviation) = ratio.log;
        let rounds = ratio.rounds as f64;
        // Of few rounds even the noise is not known well: as much wider as the t distribution is there.
        let wider = t_quantile(UNLIKELY, rounds - 1.0) / normal_quantile(1.0 - UNLIKELY);
        Some(Self { mean, deviation: deviation / rounds.sqrt() * wider })
    }

    /// Estimate from this one and `other` together, which are independent of each other.
    fn with(self, other: Self) -> Self {
        const ALIKE: f64 = 1e-6; // runs may be alike to the last byte
        let weight = |one: Self| one.deviation.max(ALIKE).powi(-2);
        let (mine, its) = (weight(self), weight(other));
        Self {
            mean: (self.mean * mine + other.mean * its) / (mine + its),
            deviation: (mine + its).powf(-0.5),
        }
    }

    fn chance_below(self, bound: f64) -> f64 {
        let below = Normal::new(self.mean, self.deviation.max(f64::MIN_POSITIVE));
        below.map_or(1.0, |normal| normal.cdf(bound))
    }
}

fn normal_quantile(share: f64) -> f64 {
    Normal::standard().inverse_cdf(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{CandidateRuns, Looks, Observed};
    use crate::candidate::SYSTEM;
    use crate::run::RawRun;
    use crate::stats::Interval;

    /// Ratios that are predicted to within this part.
    fn predicted(cpu: f64, memory: f64, part: f64) -> PredictedRatios {
        let around = |mid: f64| Interval { lo: mid * (1.0 - part), mid, hi: mid * (1.0 + part) };
        PredictedRatios { cpu: around(cpu), memory: around(memory), peak: around(memory) }
    }

    /// Runs of a candidate with this factor of CPU time, with some noise, and this part of the memory in per cent.
    fn runs(name: &str, rounds: u32, cpu: f64, percent: u64) -> CandidateRuns {
        let noise =
            |round: u32| 1.0 + f64::from((round * 7 + u32::try_from(name.len()).unwrap() * 3) % 5) * 0.004;
        let run = |round| RawRun {
            round,
            user_s: cpu * noise(round),
            wall_s: 1.0,
            mean_bytes: 1_000_000 * percent,
            ..RawRun::default()
        };
        CandidateRuns { name: name.to_owned(), runs: (1..=rounds).map(run).collect() }
    }

    fn look(rounds: u32, lean: (f64, u64), goal: Option<&QuickGoal>) -> LookOutcome {
        let runs = vec![runs(SYSTEM, rounds, 1.0, 100), runs("lean", rounds, lean.0, lean.1)];
        let options = Options { looks: Some(Looks::QUICK), ..Options::default() };
        Observed { runs, ..Observed::default() }.look(&options, goal).1
    }

    fn goal(cpu_weight: f64, ratios: PredictedRatios) -> QuickGoal {
        QuickGoal::new(cpu_weight, [("lean", ratios)])
    }

    #[test]
    fn a_prediction_of_no_gain_that_the_rounds_confirm_ends_them() {
        let none = goal(0.5, predicted(1.0, 1.0, 0.02));
        assert_eq!(look(3, (1.0, 100), Some(&none)), LookOutcome::Unlikely);
        assert_eq!(look(3, (1.0, 100), None), LookOutcome::Open, "the rounds alone are too few");
    }

    #[test]
    fn rounds_that_contradict_the_prediction_go_on() {
        let none = goal(0.5, predicted(1.0, 1.0, 0.05));
        assert_eq!(look(3, (0.93, 95), Some(&none)), LookOutcome::Open);
    }

    #[test]
    fn a_prediction_alone_ends_nothing() {
        let bad = goal(0.5, predicted(2.0, 2.0, 0.01));
        let unmeasured = Entrant { name: "lean", runs: vec![], cpu: None, memory: None, balance: None };
        assert_eq!(bad.chance(&unmeasured), 1.0);
    }

    #[test]
    fn rounds_end_when_the_pick_of_the_objective_is_proven() {
        // Less memory is proven at once; whether it is also faster by a little is not.
        let ratios = predicted(0.97, 0.5, 0.1);
        let ends = |weight| look(4, (0.97, 50), Some(&goal(weight, ratios)));
        assert_eq!(ends(0.0), LookOutcome::Settled);
        assert_ne!(ends(1.0), LookOutcome::Settled);
        assert_eq!(look(4, (0.97, 50), None), LookOutcome::Open);
    }

    #[test]
    fn other_picks_that_are_proven_end_nothing() {
        // The leanest is wanted. One candidate is proven to be faster; the other may be leaner, but its memory varies
        // too much for a proof.
        let fast = runs("fast", 6, 0.8, 100);
        let mut small = runs("small", 6, 1.0, 93);
        for run in &mut small.runs {
            run.mean_bytes = run.mean_bytes * [85, 115][run.round as usize % 2] / 100;
        }
        let both = [("fast", predicted(0.8, 1.0, 0.1)), ("small", predicted(1.0, 0.85, 0.1))];
        let runs = vec![runs(SYSTEM, 6, 1.0, 100), fast, small];
        let options = Options { looks: Some(Looks::QUICK), ..Options::default() };
        let look = |weight| {
            let all = Observed { runs: runs.clone(), ..Observed::default() };
            let goal = QuickGoal::new(weight, both);
            let (comparison, outcome) = all.look(&options, Some(&goal));
            (comparison.picks.fastest, outcome)
        };
        assert_eq!(look(1.0), ("fast".to_owned(), LookOutcome::Settled));
        assert_eq!(look(0.0), ("fast".to_owned(), LookOutcome::Open));
    }

    #[test]
    fn what_the_pick_cannot_be_delays_nothing() {
        // Two fifths of the CPU time for a third more memory: of both together the best, and not balanced.
        let (fat, small) = (runs("fat", 4, 0.4, 133), runs("small", 4, 0.9, 80));
        let both = [("fat", predicted(0.4, 1.33, 0.1)), ("small", predicted(0.9, 0.8, 0.1))];
        let all = Observed { runs: vec![runs(SYSTEM, 4, 1.0, 100), fat, small], ..Observed::default() };
        let options = Options { looks: Some(Looks::QUICK), ..Options::default() };
        let (comparison, outcome) = all.look(&options, Some(&QuickGoal::new(0.5, both)));
        assert_eq!((comparison.picks.balanced.as_str(), outcome), ("small", LookOutcome::Settled));
    }

    #[test]
    fn two_estimates_are_surer_than_one() {
        let one = Estimate { mean: 0.0, deviation: 0.02 };
        let both = one.with(Estimate { mean: 0.02, deviation: 0.02 });
        assert!((both.mean - 0.01).abs() < 1e-12 && (both.deviation - 0.02 / 2f64.sqrt()).abs() < 1e-12);
        assert!(both.chance_below(-0.03) < one.chance_below(-0.03));
    }
}
