// SPDX-License-Identifier: Apache-2.0
//! Settings of a comparison, how much a program must use to be compared, and the claims that follow: candidates beside
//! `system`, round by round, and what they may be picked for.

use std::collections::BTreeMap;

use super::eligibility::MedianRun;
use crate::compare::{
    Answer, CostLimits, Demand, FEWEST_ROUNDS, KnownFigure, Looks, Margins, PairedRatio, PairedRuns,
    Resampling, Spread, judge,
};
use crate::history::Conditions;
use crate::judgement::{Claim, FigureAnswer, Goal, GoalClaims, GoalPick, JudgedFigure};
use crate::run::RawRun;
use crate::stats::RESAMPLES;

/// Settings of a comparison.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// Seed of the bootstrap: the same runs and seed give the same answer.
    pub seed: u64,
    /// Bootstrap resamples per interval.
    pub resamples: usize,
    /// Smallest differences worth reporting.
    pub margins: Margins,
    /// Largest costs of a pick on the axis that it is not picked for.
    pub most_cost: CostLimits,
    /// How much a program must take for its candidates to be compared.
    pub floor: Floor,
    /// The runs are looked at while they are made, and end when they are settled; None: their number is
    /// fixed.
    pub looks: Option<Looks>,
    /// Elapsed time and peak memory are compared, too, for tables that show them.
    pub wall_and_peak: bool,
    /// Fewest common rounds for a word.
    pub min_runs: usize,
    /// Runs that are not compared showed that the output varies by itself.
    pub output_varies: bool,
    /// State of the machine before the first run, where known.
    pub conditions: Option<Conditions>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            resamples: RESAMPLES,
            margins: Margins::USUAL,
            most_cost: CostLimits::USUAL,
            floor: Floor::NONE,
            looks: None,
            wall_and_peak: false,
            min_runs: FEWEST_ROUNDS,
            output_varies: false,
            conditions: None,
        }
    }
}

/// A candidate may be picked for its CPU time, and for its memory; for both only where it is better in one of them.
const FIGURES: usize = 2;

impl Options {
    /// Conditions of a proof for one of `candidates` candidates.
    pub(super) fn demand(&self, candidates: usize) -> Demand {
        Demand { candidates, figures: FIGURES, looks: self.looks, fewest: self.min_runs }
    }

    pub(super) fn resampling(&self) -> Resampling {
        Resampling { seed: self.seed, resamples: self.resamples }
    }
}

/// The least that `system` must use. Below it, a ratio depends more on the start of a process than on the
/// allocator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Floor {
    /// CPU time, seconds.
    pub cpu_s: f64,
    /// Mean of resident anonymous memory, bytes.
    pub memory_bytes: u64,
}

impl Floor {
    /// Floor with which everything is compared that was measured: for summaries of many programs, which judge
    /// by all of them.
    pub const NONE: Self = Self { cpu_s: 0.0, memory_bytes: 1 };

    /// Floor for the verdict on one program: starting a process takes milliseconds and varies by as much, and
    /// a run with less memory ended before anybody could look.
    pub const BENCH: Self = Self { cpu_s: 0.005, memory_bytes: 64 << 10 };

    /// Whether these runs of `system` use enough CPU time, and enough memory.
    pub(super) fn reached(self, system: &[RawRun]) -> (bool, bool) {
        let median = MedianRun::of(system).unwrap_or_default();
        (median.cpu_s >= self.cpu_s, median.mean_bytes >= self.memory_bytes)
    }
}

/// Figures on which candidates are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Criterion {
    /// User and system CPU time.
    Cpu,
    /// Mean of resident anonymous memory.
    Memory,
    /// Elapsed time. Nothing is decided by it.
    Wall,
    /// Peak of resident anonymous memory. Nothing is decided by it.
    Peak,
    /// Geometric mean of CPU and memory ratios, which is exp(0.5 ln cpu + 0.5 ln memory).
    Balance,
}

impl Criterion {
    /// The figure of a run.
    fn figure(self, run: &RawRun) -> f64 {
        let (cpu, memory) = (run.compared_cpu_s(), run.mean_bytes as f64);
        match self {
            Self::Cpu => cpu,
            Self::Memory => memory,
            Self::Wall => run.wall_s,
            Self::Peak => run.peak_bytes as f64,
            Self::Balance => (cpu * memory).sqrt(),
        }
    }

    /// Difference worth reporting. For the balance: what the smaller of both margins alone would make of it.
    pub(super) fn margin(self, options: &Options) -> f64 {
        match self {
            Self::Cpu | Self::Wall => options.margins.cpu,
            Self::Memory | Self::Peak => options.margins.memory,
            Self::Balance => 1.0 - (1.0 - options.margins.cpu.min(options.margins.memory)).sqrt(),
        }
    }
}

/// Two runs of one round. The ratio is the first's to the second's.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Pair<'a>(&'a RawRun, &'a RawRun);

impl Pair<'_> {
    fn ratio(&self, criterion: Criterion) -> f64 {
        criterion.figure(self.0) / criterion.figure(self.1)
    }

    /// A figure of 0 was not measured: the run was too short for it.
    fn has(&self, criterion: Criterion) -> bool {
        [self.0, self.1].into_iter().all(|run| criterion.figure(run) > 0.0)
    }
}

/// Pairs of the rounds in which both have a run.
pub(super) fn pairs<'a>(
    one: impl Iterator<Item = &'a RawRun>,
    other: impl Iterator<Item = &'a RawRun>,
) -> Vec<Pair<'a>> {
    let others: BTreeMap<u32, &RawRun> = other.map(|run| (run.round, run)).collect();
    one.filter_map(|run| others.get(&run.round).map(|other| Pair(run, other))).collect()
}

/// The ratio of these pairs; None when the criterion was measured in no round. `common` is the spread of one
/// difference by the runs of all candidates.
pub(super) fn ratio(
    pairs: &[Pair<'_>],
    criterion: Criterion,
    common: Spread,
    options: &Options,
) -> Option<PairedRatio> {
    let measured = pairs.iter().filter(|pair| pair.has(criterion));
    let ratios: Vec<f64> = measured.map(|pair| pair.ratio(criterion)).collect();
    PairedRatio::of(&ratios, common, options.resampling())
}

/// The spread by the runs of all these candidates.
pub(super) fn common_spread<'a>(
    candidates: impl Iterator<Item = impl Iterator<Item = &'a RawRun>>,
    criterion: Criterion,
) -> Spread {
    let mut all = PairedRuns::default();
    for (candidate, runs) in candidates.enumerate() {
        runs.for_each(|run| all.push(candidate, run.round as usize, criterion.figure(run)));
    }
    all.spread(0)
}

/// A candidate that may be picked, in the catalogue's order.
#[derive(Debug)]
pub(super) struct Entrant<'a> {
    pub(super) name: &'a str,
    pub(super) runs: Vec<&'a RawRun>,
    pub(super) cpu: Option<PairedRatio>,
    pub(super) memory: Option<PairedRatio>,
    pub(super) balance: Option<PairedRatio>,
}

/// All that may be picked, and how they are compared.
pub(super) struct Field<'a> {
    pub(super) entrants: Vec<Entrant<'a>>,
    pub(super) options: &'a Options,
}

impl Entrant<'_> {
    fn ratio(&self, criterion: Criterion) -> Option<&PairedRatio> {
        match criterion {
            Criterion::Cpu => self.cpu.as_ref(),
            Criterion::Memory => self.memory.as_ref(),
            Criterion::Balance => self.balance.as_ref(),
            // These have no pick.
            Criterion::Wall | Criterion::Peak => None,
        }
    }
}

/// The goals of a command. The balanced pick comes first: the others give way to it where they are tied.
const GOALS: [(Goal, Criterion); 3] =
    [(Goal::Balanced, Criterion::Balance), (Goal::Cpu, Criterion::Cpu), (Goal::Memory, Criterion::Memory)];

impl Field<'_> {
    /// The claims for each goal.
    pub(super) fn claims(&self) -> Vec<GoalClaims> {
        let of = |(goal, criterion): (Goal, Criterion)| GoalClaims {
            goal,
            is_figure: criterion != Criterion::Balance,
            margin: criterion.margin(self.options),
            claims: self.entrants.iter().filter_map(|one| self.claim(one, criterion)).collect(),
        };
        GOALS.into_iter().map(of).collect()
    }

    fn claim(&self, one: &Entrant<'_>, criterion: Criterion) -> Option<Claim> {
        let ratio = one.ratio(criterion)?;
        let is_balance = criterion == Criterion::Balance;
        if is_balance && !self.is_nowhere_worse(one) {
            return None;
        }
        let (demand, margin) = (self.options.demand(self.entrants.len()), criterion.margin(self.options));
        let mut claim = Claim::of(one.name, ratio, margin, &demand, self.breaks(one, criterion));
        if is_balance {
            // Two gains within the noise do not add up to one outside it.
            claim.looks_better &=
                self.gains(one, |ratio, margin| judge(KnownFigure::Interval(ratio.interval), margin));
            let is_gain = self.gains(one, |ratio, margin| judge(KnownFigure::Rounds(ratio, &demand), margin));
            if claim.answer == FigureAnswer::Better && !is_gain {
                claim.answer = FigureAnswer::Open { gain_below: 1.0 - ratio.interval.lo };
            }
        }
        Some(claim)
    }

    /// Answers about the figures of a candidate.
    pub(super) fn figures(&self, one: &Entrant<'_>) -> BTreeMap<String, JudgedFigure> {
        let demand = self.options.demand(self.entrants.len());
        let of = |(name, criterion): (&str, Criterion)| {
            let judged = JudgedFigure::of(one.ratio(criterion)?, criterion.margin(self.options), &demand);
            Some((name.to_owned(), judged))
        };
        [("cpu", Criterion::Cpu), ("memory", Criterion::Memory)].into_iter().filter_map(of).collect()
    }

    /// The limits that forbid a candidate as a pick by this criterion.
    pub(super) fn breaks(&self, one: &Entrant<'_>, criterion: Criterion) -> Vec<String> {
        let most = self.options.most_cost;
        let limits = [
            (Criterion::Cpu, &one.memory, most.memory, "--max-memory"),
            (Criterion::Memory, &one.cpu, most.cpu, "--max-cpu"),
        ];
        let is_broken = |(of, other, most, _): &(Criterion, &Option<PairedRatio>, f64, &str)| {
            let is_asked = *of == criterion || criterion == Criterion::Balance;
            is_asked && other.as_ref().is_some_and(|ratio| looks_worse(ratio, *most))
        };
        limits.iter().filter(|limit| is_broken(limit)).map(|limit| limit.3.to_owned()).collect()
    }

    /// Worse by more than the margin in neither CPU time nor memory.
    fn is_nowhere_worse(&self, one: &Entrant<'_>) -> bool {
        let margins = self.options.margins;
        let within = |ratio: &Option<PairedRatio>, margin| {
            ratio.as_ref().is_some_and(|ratio| !looks_worse(ratio, margin))
        };
        within(&one.cpu, margins.cpu) && within(&one.memory, margins.memory)
    }

    /// Whether one of both figures is better by this judgement.
    fn gains(&self, one: &Entrant<'_>, judged: impl Fn(&PairedRatio, f64) -> Answer) -> bool {
        [Criterion::Cpu, Criterion::Memory].into_iter().any(|criterion| {
            let ratio = one.ratio(criterion);
            ratio.is_some_and(|ratio| judged(ratio, criterion.margin(self.options)) == Answer::Better)
        })
    }

    /// One of these claims, which all qualify.
    pub(super) fn choose(&self, of: &GoalClaims, fit: &[&Claim], picks: &BTreeMap<Goal, GoalPick>) -> usize {
        let entrant = |claim: &&Claim| self.entrants.iter().find(|one| one.name == claim.name);
        let winners: Vec<&Entrant<'_>> = fit.iter().filter_map(entrant).collect();
        let criterion = match of.goal {
            Goal::Cpu => Criterion::Cpu,
            Goal::Balanced => Criterion::Balance,
            Goal::Memory | Goal::Latency => Criterion::Memory,
        };
        let tied = self.near_best(&winners, criterion);
        let balanced = picks.get(&Goal::Balanced).and_then(|pick| pick.candidate.as_deref());
        let other = match criterion {
            Criterion::Cpu => self.near_best(&tied, Criterion::Memory),
            Criterion::Memory => self.near_best(&tied, Criterion::Cpu),
            _ => tied.clone(),
        };
        let chosen = tied.iter().find(|one| Some(one.name) == balanced).or_else(|| other.first());
        let name = chosen.map_or("", |one| one.name);
        fit.iter().position(|claim| claim.name == name).unwrap_or(0)
    }

    /// The candidate with the lowest ratio and those whose difference to it is not proven, in the order given.
    /// All of them when none has a ratio on this criterion.
    fn near_best<'b, 'c>(&self, those: &[&'b Entrant<'c>], criterion: Criterion) -> Vec<&'b Entrant<'c>> {
        let measured = those.iter().filter_map(|one| Some((one, one.ratio(criterion)?.interval.mid)));
        let Some((best, _)) = measured.min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return those.to_vec();
        };
        those.iter().copied().filter(|one| self.is_tied(one, best, criterion)).collect()
    }

    /// True when the difference between the two is not proven: they are the same, its interval against `best` reaches
    /// down to 1, or it is worse by no more than the margin.
    fn is_tied(&self, one: &Entrant<'_>, best: &Entrant<'_>, criterion: Criterion) -> bool {
        let against = pairs(one.runs.iter().copied(), best.runs.iter().copied());
        std::ptr::eq(one, best)
            || ratio(&against, criterion, Spread::default(), self.options).is_some_and(|ratio| {
                judge(KnownFigure::Interval(ratio.interval), criterion.margin(self.options)) != Answer::Worse
            })
    }
}

/// Whether the estimate alone is worse beyond the margin, proven or not.
fn looks_worse(ratio: &PairedRatio, margin: f64) -> bool {
    judge(KnownFigure::Ratio(ratio.interval.mid), margin) == Answer::Worse
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(round: u32, user_s: f64, mean_bytes: u64) -> RawRun {
        RawRun { round, user_s, mean_bytes, ..RawRun::default() }
    }

    #[test]
    fn only_common_rounds_are_paired() {
        let one = [run(1, 1.0, 0), run(2, 2.0, 0), run(4, 4.0, 0)];
        let other = [run(4, 40.0, 0), run(1, 10.0, 0), run(3, 30.0, 0)];
        let pairs = pairs(one.iter(), other.iter());
        assert_eq!(
            pairs.iter().map(|pair| (pair.0.user_s, pair.1.user_s)).collect::<Vec<_>>(),
            [(1.0, 10.0), (4.0, 40.0)]
        );
    }

    #[test]
    fn an_unmeasured_figure_has_no_ratio() {
        let one = [run(1, 1.0, 0), run(2, 3.0, 50)];
        let other = [run(1, 2.0, 100), run(2, 6.0, 100)];
        let pairs = pairs(one.iter(), other.iter());
        let options = Options::default();
        let ratio = |pairs: &[Pair<'_>], criterion| ratio(pairs, criterion, Spread::default(), &options);
        assert_eq!(ratio(&pairs, Criterion::Cpu).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 2)));
        assert_eq!(ratio(&pairs, Criterion::Memory).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 1)));
        assert_eq!(ratio(&pairs, Criterion::Balance).map(|r| (r.interval.mid, r.rounds)), Some((0.5, 1)));
        assert_eq!(ratio(&[], Criterion::Cpu), None);
    }
}
