// SPDX-License-Identifier: Apache-2.0
//! Compares the runs of a server under all candidates, paired by round, and ends in the same value as a bench of a
//! command: a [`BenchJudgement`].
//!
//! A server has many figures, and one goal ([`Goal`]) by which it is picked. What a pick may cost is limited by
//! [`GuardRail`]s: a candidate breaks one when that is proven. Below the limits CPU time has a price in memory.
//!
//! - [`course`]: which runs are made next, and when they end

pub mod course;
mod limits;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use self::limits::{GuardRail, KnownCost, OpenLimit, usual_rails};
use self::limits::{RailFigures, limits_of};
use crate::SYSTEM;
use crate::bench::{CandidateRuns, prepare};
use crate::compare::{
    Demand, FEWEST_ROUNDS, Looks, NoiseFloor, PairedRatio, PairedRuns, Resampling, Spread,
    smallest_difference,
};
use crate::judgement::{
    BenchJudgement, Claim, FigureAnswer, Goal, GoalClaims, JudgedCandidate, JudgedFigure, RoundsSoFar,
    conclude,
};
use crate::run::RawRun;
use crate::server_run::{Better, Failure};
use crate::stats::{Interval, RESAMPLES, attainable_confidence, bootstrap, geometric_mean, median};

/// The result of the comparison.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ServiceComparison {
    /// The candidates, in the order given.
    pub candidates: Vec<CandidateFigures>,
    /// The figure that the pick is chosen by.
    pub goal: Goal,
    /// Answers, pick and ending.
    pub judgement: BenchJudgement,
    /// The highest confidence that an interval of so few rounds can have.
    pub confidence: f64,
    /// CPU time is not comparable, because some lines of the load run for a fixed time.
    pub by_clock: bool,
    /// How far two runs under `system` in one round differ, by figure. Empty where there is one such run a round.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noise: BTreeMap<String, NoiseFloor>,
    /// The smallest difference, by figure, that these rounds would have proven of a candidate that ran in all of them, as
    /// a part of 1. Empty with too few rounds.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub visible: BTreeMap<String, f64>,
    /// Limits that could not be tested: no run has their figure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub untested: Vec<GuardRail>,
    /// Candidate with nearly all of the pick's gain by one variable ([`Self::look_for_one_variable`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub one_variable: Option<OneVariable>,
}

/// A candidate that is one variable of the environment, and gives nearly all of the pick's gain.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct OneVariable {
    /// Name of the candidate.
    pub candidate: String,
    /// The variable as it is set, `NAME=value`.
    pub variable: String,
    /// Its ratio to `system` by the figure of the goal.
    pub ratio: f64,
}

/// The part of the pick's gain that is nearly all of it.
const NEARLY_ALL: f64 = 0.9;

impl ServiceComparison {
    /// Notes the best of the candidates that are one variable each (name and variable), where it gives nine tenths of the
    /// pick's gain.
    pub fn look_for_one_variable(&mut self, all: &[(String, String)]) {
        let gain = |one: &CandidateFigures| one.goal.map(|ratio| 1.0 - ratio.mid);
        let picked = self.named(self.pick()).filter(|one| one.name != SYSTEM);
        let Some(most) = picked.and_then(gain).filter(|most| *most > 0.0) else { return };
        if all.iter().any(|(name, _)| name == self.pick()) {
            return;
        }
        let found = all.iter().filter_map(|(name, variable)| {
            let one = self.named(name).filter(|one| one.is_better() && one.exceeds.is_empty())?;
            let ratio = one.goal?.mid;
            let is_enough = !one.has_failed() && 1.0 - ratio >= NEARLY_ALL * most;
            is_enough.then(|| OneVariable { candidate: name.clone(), variable: variable.clone(), ratio })
        });
        self.one_variable = found.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    }

    /// The pick; `system` where no candidate is proven better within the guard rails.
    #[must_use]
    pub fn pick(&self) -> &str {
        self.judgement.best().unwrap_or(SYSTEM)
    }

    /// The candidate called `name`.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&CandidateFigures> {
        self.candidates.iter().find(|one| one.name == name)
    }
}

/// Usual worth of 1 % of CPU time in per cent of memory: docs/decisions/0059 reasons it from prices of clouds.
pub const WORTH_OF_CPU: f64 = 2.0;

/// Memory with CPU time at its worth. Both are ratios to `system`: below 1 is better.
#[must_use]
pub fn at_worth(memory: f64, cpu: f64, worth: f64) -> f64 {
    memory * cpu.powf(worth)
}

/// How services are compared.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceOptions {
    /// The figure that the pick is chosen by.
    pub goal: Goal,
    /// Limits on the costs of the pick.
    pub rails: Vec<GuardRail>,
    /// Worth of 1 % of CPU time in per cent of memory, where memory is the goal; 0: none.
    pub worth: f64,
    /// Seed of the resampling.
    pub seed: u64,
    /// Resamples of an interval.
    pub resamples: usize,
    /// The runs are looked at after each round, and end when they are settled; None: their number is fixed.
    pub looks: Option<Looks>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        let (goal, rails) = (Goal::Memory, vec![]);
        Self { goal, rails, worth: 0.0, seed: 0, resamples: RESAMPLES, looks: None }
    }
}

impl ServiceOptions {
    fn resampling(&self) -> Resampling {
        Resampling { seed: self.seed, resamples: self.resamples }
    }

    /// Cost of a candidate: its ratio by the goal, and its CPU time at its worth. One round says as much of a
    /// candidate's CPU time as was known before, so its change counts half, after two rounds two thirds, and
    /// so on.
    fn cost(&self, goal: f64, cpu: Option<&ComparedFigure>, rounds: usize) -> f64 {
        let known = rounds as f64 / (rounds as f64 + 1.0);
        let cpu = cpu.filter(|_| course::weighs_cpu(self.goal)).and_then(|cpu| cpu.ratio);
        cpu.map_or(goal, |cpu| at_worth(goal, cpu.mid, self.worth * known))
    }

    /// The limit that a candidate breaks whose gain is less than its CPU time is worth.
    fn too_dear(&self, one: &CandidateFigures, margin: f64) -> Option<String> {
        let gains = one.goal.is_some_and(|goal| goal.mid < 1.0 - margin);
        (gains && one.cost.is_some_and(|cost| cost >= 1.0)).then(|| format!("--worth cpu={}", self.worth))
    }
}

/// Compares the runs of one service. `names` gives the order and includes `system`, which may have several runs in a
/// round.
#[must_use]
pub fn compare_services(names: &[String], runs: &[RawRun], options: &ServiceOptions) -> ServiceComparison {
    let (goal, how, looks) = (options.goal, options.resampling(), options.looks);
    let even = even_cpu(names, &runs.iter().collect::<Vec<_>>());
    let by_clock = runs.iter().any(|run| run.of_server().by_clock);
    let is_measured = |figure: &str| runs.iter().any(|run| run.ok && run.value(figure).is_some());
    let rails = &limits_of(&options.rails, by_clock, is_measured);
    let of =
        |name: &str| -> Vec<&RawRun> { runs.iter().filter(|run| run.candidate == name && run.ok).collect() };
    let system = of(SYSTEM);
    let valid = ValidRuns { names, runs, even: &even, by_clock };
    let goal_figures = GoalFigures::new(goal, &valid, how, looks);
    let limits = RailFigures::of(rails, &valid, looks);
    let mut claims = GoalClaims { goal, is_figure: true, margin: goal_figures.margin(), claims: vec![] };
    let (mut candidates, mut judged) = (vec![], vec![]);
    for name in names {
        let failures = runs
            .iter()
            .filter(|run| run.candidate == *name)
            .filter_map(|run| run.of_server().failure.clone());
        let own = of(name);
        let mut figures = figures(&own, &system, &even, how);
        for (_, cpu) in figures.iter_mut().filter(|(name, _)| by_clock && is_cpu(name)) {
            cpu.ratio = None;
        }
        let ratio = goal_figures.ratio(&own, &system).filter(|_| name != SYSTEM);
        let cost = ratio.map(|ratio| options.cost(ratio.interval.mid, figures.get("cpu"), rounds_of(&own)));
        let mut one = CandidateFigures {
            name: name.clone(),
            rounds: rounds_of(&own),
            runs: own.len(),
            failures: failures.collect(),
            goal: ratio.map(|ratio| ratio.interval),
            cost,
            looks_better: false,
            more_rounds: None,
            answer: FigureAnswer::Unknown,
            figures,
            exceeds: Vec::new(),
            unproven: Vec::new(),
        };
        let mut figures = BTreeMap::new();
        if name != SYSTEM {
            limits.judge(&mut one, &own, &system);
            one.exceeds.extend(options.too_dear(&one, claims.margin));
        }
        if let Some(ratio) = ratio.filter(|_| !one.has_failed()) {
            let mut claim = Claim::of(name, &ratio, claims.margin, &goal_figures.demand, one.exceeds.clone());
            claim.rank = cost.unwrap_or(claim.rank);
            one.answer = claim.answer;
            (one.looks_better, one.more_rounds) = (claim.looks_better, claim.more_rounds);
            figures = valid.judged(&own, &system, how, &goal_figures.demand);
            claims.claims.push(claim);
        } else if let Some(ratio) = ratio {
            one.answer = FigureAnswer::of(&ratio, claims.margin, &goal_figures.demand);
        }
        judged.push(JudgedCandidate { name: name.clone(), figures, breaks: one.exceeds.clone() });
        candidates.push(one);
    }
    let rounds = rounds_of(&system);
    let so_far = RoundsSoFar { made: rounds, least: FEWEST_ROUNDS, looks };
    let (picks, ending, course) = conclude(&[claims], so_far, |_, fit, _| {
        let best = fit.iter().enumerate().min_by(|a, b| a.1.rank.total_cmp(&b.1.rank));
        best.map_or(0, |(at, _)| at)
    });
    ServiceComparison {
        candidates,
        goal,
        judgement: BenchJudgement { rounds, candidates: judged, picks, ending, course },
        confidence: attainable_confidence(rounds),
        by_clock,
        noise: valid.noise(&system),
        visible: valid.visible(&goal_figures.demand, rounds),
        untested: rails.iter().filter(|rail| !is_measured(&rail.figure)).cloned().collect(),
        one_variable: None,
    }
}

/// One figure of a candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ComparedFigure {
    /// Median over its runs.
    pub median: f64,
    /// Unit of the median.
    pub unit: String,
    /// Direction.
    pub better: Better,
    /// Ratio to `system`: median over the common rounds, with its 95 % interval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<Interval>,
}

impl ComparedFigure {
    /// The ratio, inverted if necessary so that a value above 1 is worse.
    #[must_use]
    pub fn worse(&self) -> Option<Interval> {
        let turned =
            |ratio: Interval| Interval { lo: 1.0 / ratio.hi, mid: 1.0 / ratio.mid, hi: 1.0 / ratio.lo };
        self.ratio.map(|ratio| if self.better == Better::Lower { ratio } else { turned(ratio) })
    }
}

/// Figures of one candidate.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct CandidateFigures {
    /// Name of the candidate.
    pub name: String,
    /// Number of rounds with a valid run.
    pub rounds: usize,
    /// Number of valid runs: `system` has several in a round.
    #[serde(default)]
    pub runs: usize,
    /// Runs of the candidate that failed.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub failures: Vec<Failure>,
    /// Compared figures by name, as in [`crate::server_run::ServerRun::figures`].
    pub figures: BTreeMap<String, ComparedFigure>,
    /// The guard rails that it is proven to break.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub exceeds: Vec<String>,
    /// The guard rails that it is neither proven to break nor shown to keep.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unproven: Vec<OpenLimit>,
    /// Ratio to `system` by the figure of the goal: below 1 is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub goal: Option<Interval>,
    /// The ratio of the goal with its CPU time at its worth ([`ServiceOptions::worth`]): below 1 is better.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cost: Option<f64>,
    /// Better at the goal by its own interval.
    #[serde(skip)]
    pub looks_better: bool,
    /// Rough number of further rounds that would prove or settle it; None where none would.
    #[serde(skip)]
    pub more_rounds: Option<u32>,
    /// Answer that the runs prove at the goal.
    pub answer: FigureAnswer,
}

impl CandidateFigures {
    /// Proven better than `system` at the goal, as one of all candidates.
    #[must_use]
    pub fn is_better(&self) -> bool {
        self.answer == FigureAnswer::Better
    }

    /// It is left open whether it gains more than the margin at the goal.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.answer, FigureAnswer::Open { .. } | FigureAnswer::Unknown)
    }

    /// Whether the server failed under it.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failures.iter().any(|failure| failure.stage.is_of_the_server())
    }

    pub(crate) fn worse(&self, name: &str) -> Option<Interval> {
        self.figures.get(name)?.worse()
    }
}

/// Number of rounds in which these runs were made.
fn rounds_of(runs: &[&RawRun]) -> usize {
    runs.iter().map(|run| run.round).collect::<BTreeSet<u32>>().len()
}

/// Normalised CPU seconds by candidate, round and instant of the run.
pub type EvenCpu = BTreeMap<(String, u32, u64), f64>;

/// Normalised CPU seconds of these runs, for the figures called `names`.
pub fn even_cpu(names: &[String], runs: &[&RawRun]) -> EvenCpu {
    let of = |name: &String| CandidateRuns {
        name: name.clone(),
        runs: runs.iter().filter(|run| run.candidate == *name && run.ok).map(|run| (*run).clone()).collect(),
    };
    let mut all: Vec<CandidateRuns> = names.iter().map(of).collect();
    prepare(&mut all);
    let pairs = all.into_iter().flat_map(|one| {
        let name = one.name;
        one.runs
            .into_iter()
            .map(move |run| ((name.clone(), run.round, run.at_s.to_bits()), run.compared_cpu_s()))
            .collect::<Vec<_>>()
    });
    pairs.collect()
}

fn figures(
    own: &[&RawRun],
    system: &[&RawRun],
    even: &EvenCpu,
    how: Resampling,
) -> BTreeMap<String, ComparedFigure> {
    let names: BTreeSet<&String> = own.iter().flat_map(|run| run.of_server().figures.keys()).collect();
    let one = |name: &String| {
        let first = own.iter().find_map(|run| run.of_server().figures.get(name))?;
        let values: Vec<f64> = own.iter().filter_map(|run| run.value(name)).collect();
        let pairs = pairs(own, system, |run| compared(run, name, even));
        let is_reference = own.first().is_some_and(|run| run.candidate == SYSTEM);
        let figure = ComparedFigure {
            median: median(&values)?,
            unit: first.unit.clone(),
            better: first.better,
            ratio: if is_reference { Some(Interval::ONE) } else { ratio(&pairs, how) },
        };
        Some((name.clone(), figure))
    };
    names.into_iter().filter_map(one).collect()
}

/// Whether it is CPU time, which is not comparable where the load ends by the clock.
pub fn is_cpu(figure: &str) -> bool {
    matches!(figure, "cpu" | "cpu_day")
}

/// The value for the comparison: normalised CPU time, all else as measured.
pub fn compared(run: &RawRun, name: &str, even: &EvenCpu) -> Option<f64> {
    match name {
        "cpu" => even.get(&(run.candidate.clone(), run.round, run.at_s.to_bits())).copied(),
        _ => run.value(name),
    }
}

fn pairs(own: &[&RawRun], system: &[&RawRun], value: impl Fn(&RawRun) -> Option<f64>) -> Vec<(f64, f64)> {
    let of_round = |round: u32| {
        let same = system.iter().filter(|run| run.round == round);
        geometric_mean(&same.filter_map(|run| value(run)).collect::<Vec<_>>())
    };
    let pair = |run: &&RawRun| Some((value(run)?, of_round(run.round)?));
    own.iter().filter_map(pair).filter(|(one, other)| *one > 0.0 && *other > 0.0).collect()
}

/// The figure of the goal `memory`: the memory of a day where there is one, else memory under load and after the pause with
/// the same weight, as a geometric mean. Most servers are idle most of the day, and what is given back then is what
/// the machine gets.
pub fn memory_goal(of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let load_and_pause = || {
        let load = of("memory")?;
        Some(of("memory_idle").map_or(load, |idle| (load * idle).sqrt()))
    };
    of("memory_day").or_else(load_and_pause)
}

/// Median over the rounds of the ratio of the first figure to the second.
fn ratio(pairs: &[(f64, f64)], how: Resampling) -> Option<Interval> {
    bootstrap(pairs, how.resamples, how.seed, |drawn| {
        median(&drawn.iter().map(|(one, other)| one / other).collect::<Vec<_>>())
    })
}

fn goal_figure(goal: Goal) -> &'static str {
    match goal {
        Goal::Memory => "memory",
        Goal::Cpu => "cpu",
        Goal::Latency => "p99",
        Goal::Balanced => "balance",
    }
}

/// The runs of a service: the valid ones are compared.
struct ValidRuns<'a> {
    names: &'a [String],
    runs: &'a [RawRun],
    even: &'a EvenCpu,
    /// CPU time is not comparable.
    by_clock: bool,
}

impl ValidRuns<'_> {
    /// A figure as it is compared.
    fn value(&self, run: &RawRun, figure: &str) -> Option<f64> {
        compared(run, figure, self.even).filter(|_| !(self.by_clock && is_cpu(figure)))
    }

    /// The candidates that ran.
    fn candidates(&self) -> Vec<&String> {
        let ran = |name: &&String| self.runs.iter().any(|run| run.candidate == **name && run.ok);
        self.names.iter().filter(ran).collect()
    }

    /// All runs by a figure of theirs.
    fn paired(&self, value: impl Fn(&RawRun) -> Option<f64>) -> PairedRuns {
        let candidates = self.candidates();
        let mut all = PairedRuns::default();
        for run in self.runs.iter().filter(|run| run.ok) {
            let candidate = candidates.iter().position(|name| **name == run.candidate);
            let figure = candidate.zip(value(run));
            figure.into_iter().for_each(|(candidate, value)| all.push(candidate, run.round as usize, value));
        }
        all
    }

    /// How far one difference to `system` scatters.
    fn spread(&self, value: impl Fn(&RawRun) -> Option<f64>) -> Spread {
        let system = self.candidates().iter().position(|name| *name == SYSTEM);
        self.paired(value).spread(system.unwrap_or(0))
    }

    /// Answers about the figures that people ask about.
    fn judged(
        &self,
        own: &[&RawRun],
        system: &[&RawRun],
        how: Resampling,
        demand: &Demand,
    ) -> BTreeMap<String, JudgedFigure> {
        let of = |figure: &&str| {
            let is_higher =
                own.iter().find_map(|run| run.of_server().figures.get(*figure))?.better == Better::Higher;
            let ratio = |(one, other): (f64, f64)| if is_higher { other / one } else { one / other };
            let pairs = pairs(own, system, |run| self.value(run, figure));
            let ratios: Vec<f64> = pairs.into_iter().map(ratio).collect();
            let spread = self.spread(|run| self.value(run, figure));
            let ratio = PairedRatio::of(&ratios, spread, how)?;
            Some(((*figure).to_owned(), JudgedFigure::of(&ratio, smallest_difference(figure), demand)))
        };
        JUDGED.iter().filter_map(of).collect()
    }

    /// The smallest differences that this number of rounds would have proven.
    fn visible(&self, demand: &Demand, rounds: usize) -> BTreeMap<String, f64> {
        let of = |figure: &str| {
            let spread = self.spread(|run| self.value(run, figure));
            let log = demand.visible(spread, rounds)?;
            Some((figure.to_owned(), log.exp_m1()))
        };
        VISIBLE.into_iter().filter_map(of).collect()
    }

    /// How far two runs under `system` in one round differ.
    fn noise(&self, system: &[&RawRun]) -> BTreeMap<String, NoiseFloor> {
        let of = |figure: &str| {
            let mut all = PairedRuns::default();
            for run in system {
                let value = self.value(run, figure);
                value.into_iter().for_each(|value| all.push(0, run.round as usize, value));
            }
            Some((figure.to_owned(), all.floor(0)?))
        };
        NOISE_OF.into_iter().filter_map(of).collect()
    }
}

/// The figures that are judged beside the goal. Ratios are turned so that values below 1 are better.
pub const JUDGED: [&str; 8] = ["memory_day", "memory", "memory_idle", "cpu", "p99", "p95", "mean", "rate"];

/// The figures whose smallest visible difference is reported.
const VISIBLE: [&str; 5] = ["memory", "memory_idle", "memory_day", "cpu", "p99"];

/// The figures whose noise is reported.
const NOISE_OF: [&str; 6] = ["memory", "memory_idle", "memory_day", "cpu", "p99", "open_p99"];

/// The figure by which a candidate is picked, of all candidates.
struct GoalFigures<'a> {
    goal: Goal,
    valid: &'a ValidRuns<'a>,
    how: Resampling,
    /// Conditions of a proof.
    demand: Demand,
    /// How far one difference scatters, by the runs of all candidates.
    spread: Spread,
}

impl<'a> GoalFigures<'a> {
    fn new(goal: Goal, valid: &'a ValidRuns<'a>, how: Resampling, looks: Option<Looks>) -> Self {
        let demand = Demand { looks, ..Demand::of(valid.candidates().len().saturating_sub(1)) };
        let mut found = Self { goal, valid, how, demand, spread: Spread::default() };
        found.spread = valid.spread(|run| found.value(run));
        found
    }

    fn value(&self, run: &RawRun) -> Option<f64> {
        let of = |name: &str| self.valid.value(run, name);
        match self.goal {
            Goal::Memory => memory_goal(of),
            Goal::Balanced => Some((of("cpu")? * memory_goal(of)?).sqrt()),
            goal => of(goal_figure(goal)),
        }
    }

    /// Ratio of these runs to `system`.
    fn ratio(&self, own: &[&RawRun], system: &[&RawRun]) -> Option<PairedRatio> {
        let pairs = pairs(own, system, |run| self.value(run));
        let ratios: Vec<f64> = pairs.iter().map(|(one, other)| one / other).collect();
        PairedRatio::of(&ratios, self.spread, self.how)
    }

    /// Smallest gain that counts.
    fn margin(&self) -> f64 {
        smallest_difference(goal_figure(self.goal))
    }
}
