// SPDX-License-Identifier: Apache-2.0
//! The result of a bench as one value.
//!
//! Commands and servers end in a [`BenchJudgement`]: for each candidate and figure the answer, for each goal the pick
//! or the reason why there is none, and how the bench ended. Tables, sentences, pages, JSON and exit statuses are
//! renderings of it, and none of them decides anything (docs/decisions/0038).
//!
//! - A [`Claim`] is what the runs say of one candidate for one goal; `bench` and `server_bench` make them
//! - [`conclude`] makes picks and the ending of all claims
//!
//! Facts that the renderings may rely on: a pick is proven better and breaks no limit; a candidate that ranks
//! before the pick is named beside it as tied, one with a better figure that breaks a limit as too costly; a
//! number of further rounds is named only if that many can still be made; a bound is named only up to
//! [`LARGEST_BOUND`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::compare::{Answer, Demand, KnownFigure, LARGEST_BOUND, Looks, PairedRatio, judge};
use crate::stats::{Interval, runs_to_settle};

/// Most rounds that anybody is asked to make.
pub const MOST_ROUNDS: u32 = 30;
/// Rounds whose interval can reach 95 %.
const FULL_CONFIDENCE: usize = 6;
/// The least number of rounds from which the number of further rounds can be estimated well enough to stop.
const KNOWN: u32 = 10;
/// The rounds end early if the estimate exceeds the rounds that are left by this factor.
const FAR_TOO_MANY: u32 = 3;

/// Aim of a pick.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// CPU time and memory with equal weight.
    Balanced,
    /// Least CPU time for the same work.
    Cpu,
    /// Least memory: the usual reason to change a service's allocator.
    #[default]
    Memory,
    /// Least latency at p99.
    Latency,
}

/// Answer of a bench about one figure of a candidate.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FigureAnswer {
    /// Proven better than `system`, as one of all candidates.
    Better,
    /// Proven worse than `system`, as one of all candidates.
    Worse,
    /// No gain beyond the margin is possible by these runs.
    NoGain,
    /// A gain is neither proven nor excluded.
    Open {
        /// The bound of a gain by these runs, as a part of 1.
        gain_below: f64,
    },
    /// Too few rounds, or the figure was not measured.
    Unknown,
}

/// One figure of a candidate against `system`.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
pub struct JudgedFigure {
    /// Ratio to `system`, median over the rounds with its 95 % interval.
    pub ratio: Interval,
    /// Answer that the runs prove.
    pub answer: FigureAnswer,
    /// Tendency of the figure beyond the margin: better by its own interval, worse by its estimate. It
    /// decides no pick.
    pub looks: Answer,
}

impl FigureAnswer {
    /// Answer of the rounds of a candidate, where values below 1 are better.
    pub fn of(ratio: &PairedRatio, margin: f64, demand: &Demand) -> Self {
        let least = 1.0 - margin;
        let is_excluded = ratio.is_above(least, &Demand { candidates: 1, ..*demand });
        match judge(KnownFigure::Rounds(ratio, demand), margin) {
            Answer::Better => Self::Better,
            Answer::Worse => Self::Worse,
            Answer::NotShown if ratio.rounds < demand.fewest => {
                // An interval from the lowest to the highest of so few means little.
                if is_excluded && ratio.is_above_alone(least) { Self::NoGain } else { Self::Unknown }
            }
            Answer::NotShown if is_excluded => Self::NoGain,
            Answer::NotShown => Self::Open { gain_below: (1.0 - ratio.interval.lo).max(margin) },
        }
    }
}

impl JudgedFigure {
    /// A figure of these rounds, where values below 1 are better.
    pub fn of(ratio: &PairedRatio, margin: f64, demand: &Demand) -> Self {
        let looks = match judge(KnownFigure::Interval(ratio.interval), margin) {
            Answer::Better => Answer::Better,
            _ => match judge(KnownFigure::Ratio(ratio.interval.mid), margin) {
                Answer::Worse => Answer::Worse,
                _ => Answer::NotShown,
            },
        };
        Self { ratio: ratio.interval, answer: FigureAnswer::of(ratio, margin, demand), looks }
    }
}

/// One candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct JudgedCandidate {
    /// Name in the catalogue.
    pub name: String,
    /// Answers by figure (`cpu`, `memory`, ...). Empty for `system`, and for a candidate that cannot be picked.
    pub figures: BTreeMap<String, JudgedFigure>,
    /// The limits that it breaks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub breaks: Vec<String>,
}

/// A candidate that is proven better and costs too much.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct TooDear {
    /// Name of the candidate.
    pub candidate: String,
    /// The limits that it breaks.
    pub breaks: Vec<String>,
}

/// Why a goal has no pick.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum WhyNoPick {
    /// No candidate can be better by more than the margin.
    NotBetter,
    /// A candidate may be better, and none is proven to be.
    NotProven,
    /// A candidate is proven better and costs more than a pick may.
    CostsTooMuch,
    /// The figure was not measured, or in too few rounds.
    NoData,
}

/// The pick of one goal.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct GoalPick {
    /// Name of the candidate; None where `system` stays.
    pub candidate: Option<String>,
    /// Candidates with a better figure, from which the runs cannot tell the pick.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tied: Vec<String>,
    /// The best of those that would be better than the pick and cost too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_dear: Option<TooDear>,
    /// Reason why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_none: Option<WhyNoPick>,
}

/// How a bench ended.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum BenchEnding {
    /// Nothing was measured that can be compared.
    #[default]
    NothingToCompare,
    /// No allocator could save more than this of a server's memory: a look into its heaps said so.
    NothingToSave {
        /// Share of the resident memory, as a part of 1.
        share: f64,
    },
    /// No candidate of a server looks better, in so few rounds that nothing is proven.
    NoneLooksBetter,
    /// Too few rounds to prove anything.
    TooFewRounds {
        /// Fewest rounds for a proof.
        least: usize,
    },
    /// A candidate is better than `system`: the picks name it.
    Picked,
    /// A candidate is better in these runs, which do not prove it, and further rounds would.
    LooksBetter {
        /// Name of the candidate.
        candidate: String,
        /// Rough number of further rounds that would prove it.
        more_rounds: u32,
    },
    /// Some candidates may be better, and further rounds would show it.
    NotSettled {
        /// Rough number of further rounds.
        more_rounds: u32,
    },
    /// Some candidates may be better by no more than this.
    TooClose {
        /// The bound of a gain, as a part of 1.
        gain_below: f64,
    },
    /// Some candidates may be better, by more than is worth a bound.
    TooNoisy,
    /// A candidate is proven better and costs more than a pick may, and no other can be better.
    NoneWithinLimits,
    /// The runs show that none is better by more than the margin.
    NoneBetter,
}

/// The result of a bench.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
pub struct BenchJudgement {
    /// Rounds that were compared.
    pub rounds: usize,
    /// The candidates, in the order given, `system` among them.
    pub candidates: Vec<JudgedCandidate>,
    /// Picks by goal.
    pub picks: BTreeMap<Goal, GoalPick>,
    /// How the bench ended.
    pub ending: BenchEnding,
    /// Whether more rounds would change this.
    pub course: BenchCourse,
}

/// Whether further rounds are needed.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "kebab-case")]
pub enum BenchCourse {
    /// The answer will not change by more rounds, or there is nothing to compare.
    #[default]
    Settled,
    /// The rounds that are left are far too few to settle it.
    Hopeless,
    /// More rounds may settle it.
    Open,
}

impl BenchJudgement {
    /// The pick of a goal; None where `system` stays.
    pub fn pick(&self, goal: Goal) -> Option<&str> {
        self.picks.get(&goal)?.candidate.as_deref()
    }

    /// The pick to use: the balanced one, else the first of the others.
    pub fn best(&self) -> Option<&str> {
        self.picks.values().find_map(|pick| pick.candidate.as_deref())
    }

    /// The goals that a candidate is the pick of, and whether it is tied there.
    pub fn goals_of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (Goal, bool)> + 'a {
        let is_it = move |pick: &GoalPick| pick.candidate.as_deref() == Some(name);
        self.picks
            .iter()
            .filter(move |(_, pick)| is_it(pick))
            .map(|(goal, pick)| (*goal, !pick.tied.is_empty()))
    }

    /// The candidate called `name`.
    pub fn candidate(&self, name: &str) -> Option<&JudgedCandidate> {
        self.candidates.iter().find(|one| one.name == name)
    }

    /// Whether something is proven better and costs more than a pick may.
    pub fn has_too_dear(&self) -> bool {
        self.picks.values().any(|pick| pick.too_dear.is_some())
    }
}

/// Result of the runs about one candidate for one goal.
#[derive(Clone, PartialEq, Debug)]
pub struct Claim {
    /// Name of the candidate.
    pub name: String,
    /// Rounds that it was compared in.
    pub rounds: usize,
    /// Ratio to `system` by the figure of the goal.
    pub ratio: Interval,
    /// Order among the claims, the least first: the ratio, and what the candidate costs beside.
    pub rank: f64,
    /// Answer that the runs prove.
    pub answer: FigureAnswer,
    /// Better by its own interval.
    pub looks_better: bool,
    /// Limits that forbid it as this pick.
    pub breaks: Vec<String>,
    /// Rough number of further rounds that would prove it or settle it; None where none would.
    pub more_rounds: Option<u32>,
}

impl Claim {
    /// Claim of a candidate by its rounds.
    pub fn of(name: &str, ratio: &PairedRatio, margin: f64, demand: &Demand, breaks: Vec<String>) -> Self {
        let looks_better = judge(KnownFigure::Interval(ratio.interval), margin) == Answer::Better;
        let missing = |least: usize| u32::try_from(least.saturating_sub(ratio.rounds)).unwrap_or(u32::MAX);
        let more_rounds = match looks_better {
            // Nothing is known of the noise yet.
            true if ratio.rounds < 2 => Some(missing(FULL_CONFIDENCE.max(demand.fewest))),
            true => ratio
                .rounds_to_prove(demand)
                .map(|more| more.max(missing(FULL_CONFIDENCE.max(demand.fewest))).max(1)),
            false => runs_to_settle(ratio.interval, ratio.rounds, margin)
                .map(|more| more.max(missing(demand.fewest))),
        };
        Self {
            name: name.to_owned(),
            rounds: ratio.rounds,
            ratio: ratio.interval,
            rank: ratio.interval.mid,
            answer: FigureAnswer::of(ratio, margin, demand),
            looks_better,
            breaks,
            more_rounds,
        }
    }

    /// Whether it is proven better and may be picked.
    fn qualifies(&self) -> bool {
        self.answer == FigureAnswer::Better && self.breaks.is_empty()
    }

    /// The bound of its gain if it may be picked once a gain is proven.
    fn open_gain(&self) -> Option<f64> {
        let gain = match self.answer {
            FigureAnswer::Open { gain_below } => Some(gain_below),
            FigureAnswer::Unknown => Some(f64::INFINITY),
            _ => None,
        };
        gain.filter(|_| self.breaks.is_empty())
    }
}

/// All claims for one goal.
#[derive(Clone, PartialEq, Debug)]
pub struct GoalClaims {
    /// The goal.
    pub goal: Goal,
    /// Whether the goal is a figure of its own; the balance of two figures is settled when these are.
    pub is_figure: bool,
    /// Smallest gain that counts.
    pub margin: f64,
    /// One claim for each candidate that ran as it should and has the figure.
    pub claims: Vec<Claim>,
}

/// The rounds of a bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundsSoFar {
    /// Rounds that were made.
    pub made: usize,
    /// Fewest rounds for a proof.
    pub least: usize,
    /// Looks at the rounds while they are made; None: their number is fixed.
    pub looks: Option<Looks>,
}

impl RoundsSoFar {
    fn count(self) -> u32 {
        u32::try_from(self.made).unwrap_or(u32::MAX)
    }

    /// The number, if that many further rounds can be made.
    fn possible(self, more: Option<u32>) -> Option<u32> {
        let most = self.looks.map_or(MOST_ROUNDS, |looks| looks.most.min(MOST_ROUNDS));
        more.filter(|more| (1..=most.saturating_sub(self.count())).contains(more))
    }

    /// Open, or hopeless where far fewer rounds are left than it takes. None: any number is too few.
    fn course(self, more: Option<u32>) -> BenchCourse {
        let left = self.looks.map_or(u32::MAX, |looks| looks.most).saturating_sub(self.count());
        let is_too_many = |more: u32| more > left.saturating_mul(FAR_TOO_MANY);
        match more {
            _ if self.count() < KNOWN => BenchCourse::Open,
            Some(more) if !is_too_many(more) => BenchCourse::Open,
            _ => BenchCourse::Hopeless,
        }
    }
}

/// Picks and ending of all claims. `choose` takes one of several claims that are proven better and break no limit: it
/// has the picks of the goals before.
pub fn conclude(
    goals: &[GoalClaims],
    rounds: RoundsSoFar,
    choose: impl Fn(&GoalClaims, &[&Claim], &BTreeMap<Goal, GoalPick>) -> usize,
) -> (BTreeMap<Goal, GoalPick>, BenchEnding, BenchCourse) {
    let mut picks: BTreeMap<Goal, GoalPick> = BTreeMap::new();
    for of in goals {
        let fit: Vec<&Claim> = of.claims.iter().filter(|claim| claim.qualifies()).collect();
        let chosen = (!fit.is_empty()).then(|| fit[choose(of, &fit, &picks)]);
        picks.insert(of.goal, pick(of, chosen));
    }
    let ending = ending(goals, &picks, rounds);
    let course = course(goals, &ending, rounds);
    (picks, ending, course)
}

fn pick(of: &GoalClaims, chosen: Option<&Claim>) -> GoalPick {
    let least = chosen.map_or(1.0, |chosen| chosen.rank);
    let is_ahead = |claim: &&Claim| claim.rank < least;
    let tied = of.claims.iter().filter(|claim| chosen.is_some() && claim.breaks.is_empty()).filter(is_ahead);
    let is_too_dear = |claim: &&Claim| claim.answer == FigureAnswer::Better && !claim.breaks.is_empty();
    let best = chosen.map_or(1.0, |chosen| chosen.ratio.mid);
    let dear = of.claims.iter().filter(is_too_dear).filter(|claim| claim.ratio.mid < best);
    let dear = dear.min_by(|a, b| a.ratio.mid.total_cmp(&b.ratio.mid));
    let why = match () {
        () if of.claims.iter().all(|claim| claim.answer == FigureAnswer::Unknown) => WhyNoPick::NoData,
        () if dear.is_some() => WhyNoPick::CostsTooMuch,
        () if of.claims.iter().any(|claim| claim.open_gain().is_some()) => WhyNoPick::NotProven,
        () => WhyNoPick::NotBetter,
    };
    GoalPick {
        candidate: chosen.map(|chosen| chosen.name.clone()),
        tied: tied.map(|claim| claim.name.clone()).collect(),
        too_dear: dear.map(|claim| TooDear { candidate: claim.name.clone(), breaks: claim.breaks.clone() }),
        why_none: chosen.is_none().then_some(why),
    }
}

/// The claims about figures.
fn of_figures(goals: &[GoalClaims]) -> impl Iterator<Item = &Claim> {
    goals.iter().filter(|of| of.is_figure).flat_map(|of| &of.claims)
}

fn ending(goals: &[GoalClaims], picks: &BTreeMap<Goal, GoalPick>, rounds: RoundsSoFar) -> BenchEnding {
    if picks.values().any(|pick| pick.candidate.is_some()) {
        return BenchEnding::Picked;
    }
    let Some(most) = of_figures(goals).map(|claim| claim.rounds).max() else {
        return BenchEnding::NothingToCompare;
    };
    if most < rounds.least {
        return BenchEnding::TooFewRounds { least: rounds.least };
    }
    if let Some((claim, more_rounds)) =
        leader(goals).and_then(|claim| Some((claim, rounds.possible(claim.more_rounds)?)))
    {
        return BenchEnding::LooksBetter { candidate: claim.name.clone(), more_rounds };
    }
    let open: Vec<(f64, Option<u32>)> =
        of_figures(goals).filter_map(|claim| Some((claim.open_gain()?, claim.more_rounds))).collect();
    let Some(gain_below) = open.iter().map(|(gain, _)| *gain).max_by(f64::total_cmp) else {
        let is_dear = picks.values().any(|pick| pick.too_dear.is_some());
        return if is_dear { BenchEnding::NoneWithinLimits } else { BenchEnding::NoneBetter };
    };
    // No number of rounds settles all claims where one of them can never be settled.
    let all = open.iter().map(|(_, more)| *more).collect::<Option<Vec<u32>>>();
    match rounds.possible(all.and_then(|all| all.into_iter().max())) {
        Some(more_rounds) => BenchEnding::NotSettled { more_rounds },
        None if gain_below <= LARGEST_BOUND => BenchEnding::TooClose { gain_below },
        None => BenchEnding::TooNoisy,
    }
}

/// The claim that looks best of those that may be picked: for both figures, else for one.
fn leader(goals: &[GoalClaims]) -> Option<&Claim> {
    goals.iter().find_map(best_looking)
}

fn best_looking(of: &GoalClaims) -> Option<&Claim> {
    let is_open =
        |claim: &&Claim| matches!(claim.answer, FigureAnswer::Open { .. }) && claim.breaks.is_empty();
    let looks_better = of.claims.iter().filter(is_open).filter(|claim| claim.looks_better);
    looks_better.min_by(|a, b| a.rank.total_cmp(&b.rank))
}

fn course(goals: &[GoalClaims], ending: &BenchEnding, rounds: RoundsSoFar) -> BenchCourse {
    let settled = |is: bool| if is { BenchCourse::Settled } else { BenchCourse::Open };
    match ending {
        BenchEnding::Picked => settled(!goals.iter().any(has_rival)),
        BenchEnding::NothingToCompare
        | BenchEnding::NothingToSave { .. }
        | BenchEnding::NoneLooksBetter
        | BenchEnding::NoneBetter
        | BenchEnding::NoneWithinLimits => BenchCourse::Settled,
        BenchEnding::TooFewRounds { .. } => rounds.course(None),
        _ => {
            let open = of_figures(goals).filter(|claim| claim.open_gain().is_some());
            let more = leader(goals).map_or_else(
                || open.filter_map(|claim| claim.more_rounds).max(),
                |leader| leader.more_rounds,
            );
            rounds.course(more)
        }
    }
}

/// Whether a candidate that may be better looks better than all that are proven, or where there is none, than `system`.
fn has_rival(of: &GoalClaims) -> bool {
    let proven = of.claims.iter().filter(|claim| claim.qualifies()).map(|claim| claim.rank);
    let least = proven.min_by(f64::total_cmp).unwrap_or(1.0 - of.margin);
    of.is_figure && of.claims.iter().any(|claim| claim.open_gain().is_some() && claim.rank < least)
}
