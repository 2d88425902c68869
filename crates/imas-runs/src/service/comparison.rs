// SPDX-License-Identifier: Apache-2.0
//! Compares the runs of all candidates, paired by round.

mod rail_figures;

use std::collections::{BTreeMap, BTreeSet};

use imas_core::SYSTEM;
use imas_core::bench::{CandidateRuns, prepare};
use imas_core::compare::{Answer, Demand, Looks, NoiseFloor, PairedRatio, PairedRuns, Resampling, Spread};
use imas_core::stats::{Interval, RESAMPLES, attainable_confidence, bootstrap, geometric_mean, median};
use serde::{Deserialize, Serialize};

use self::rail_figures::RailFigures;
use crate::service::candidate_figures::{CandidateFigures, ComparedFigure, margin};
use crate::service::guard_rail::GuardRail;
use crate::service::verdict;
use imas_core::run::RawRun;

/// The figure that the pick is chosen by.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
#[serde(rename_all = "lowercase")]
pub enum ServiceGoal {
    /// Least memory: the usual reason to change a service's allocator.
    #[default]
    Memory,
    /// Least CPU time for the same load.
    Cpu,
    /// Least latency at p99.
    Latency,
    /// CPU time and memory with equal weight.
    Balanced,
}

/// The result of the comparison.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ServiceComparison {
    /// The candidates, in the order given.
    pub candidates: Vec<CandidateFigures>,
    /// The pick. It is `system` if no candidate is proven better within the guard rails.
    pub pick: String,
    /// The answer as a sentence.
    pub sentence: String,
    /// The highest confidence that an interval of so few rounds can have.
    pub confidence: f64,
    /// CPU time is not comparable, because some lines of the load run for a fixed time.
    pub by_clock: bool,
    /// How far two runs under `system` in one round differ, by figure. Empty where there is one such run a round.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub noise: BTreeMap<String, NoiseFloor>,
    /// More rounds would hardly change the answer.
    #[serde(default)]
    pub is_settled: bool,
}

/// How services are compared.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServiceOptions {
    /// The figure that the pick is chosen by.
    pub goal: ServiceGoal,
    /// What the pick may cost.
    pub rails: Vec<GuardRail>,
    /// Seed of the resampling.
    pub seed: u64,
    /// The runs are looked at after each round, and end when they are settled; None: their number is fixed.
    pub looks: Option<Looks>,
}

/// Compares the runs of one service. `names` gives the order and includes `system`, which may have several runs in a
/// round.
#[must_use]
pub fn compare_services(names: &[String], runs: &[RawRun], options: &ServiceOptions) -> ServiceComparison {
    let (goal, seed, looks) = (options.goal, options.seed, options.looks);
    let even = even_cpu(names, &runs.iter().collect::<Vec<_>>());
    let by_clock = runs.iter().any(|run| run.of_server().by_clock);
    let rails = &limits_of(&options.rails, by_clock);
    let of =
        |name: &str| -> Vec<&RawRun> { runs.iter().filter(|run| run.candidate == name && run.ok).collect() };
    let system = of(SYSTEM);
    let valid = ValidRuns { names, runs, even: &even, by_clock };
    let goal_figures = GoalFigures::new(goal, &valid, (seed, looks));
    let limits = RailFigures::of(rails, &valid, looks);
    let mut candidates: Vec<CandidateFigures> = Vec::new();
    for name in names {
        let failures = runs
            .iter()
            .filter(|run| run.candidate == *name)
            .filter_map(|run| run.of_server().failure.clone());
        let own = of(name);
        let mut figures = figures(&own, &system, &even, seed);
        for (_, cpu) in figures.iter_mut().filter(|(name, _)| by_clock && is_cpu(name)) {
            cpu.ratio = None;
        }
        let goal_ratio = goal_figures.ratio(&own, &system);
        let mut one = CandidateFigures {
            name: name.clone(),
            rounds: rounds_of(&own),
            runs: own.len(),
            failures: failures.collect(),
            is_better: name != SYSTEM && goal_figures.answer(goal_ratio) == Answer::Better,
            goal: goal_ratio.map(|ratio| ratio.interval).filter(|_| name != SYSTEM),
            is_open: name != SYSTEM && goal_figures.may_be_better(goal_ratio),
            figures,
            verdict: String::new(),
            exceeds: Vec::new(),
            unproven: Vec::new(),
        };
        if name != SYSTEM {
            limits.judge(&mut one, &own, &system);
        }
        one.verdict = verdict::of(&one, by_clock);
        candidates.push(one);
    }
    let noise = valid.noise(&system);
    let pick = pick(&candidates);
    let sentence = verdict::sentence(&candidates, &pick, rails);
    let confidence = attainable_confidence(rounds_of(&system));
    let is_settled = is_settled(&candidates, &pick, confidence);
    ServiceComparison { candidates, pick, sentence, confidence, by_clock, noise, is_settled }
}

/// The limits by which picks are judged. Where the load ends by the clock, a slower server does less work in the
/// same CPU time, and takes less memory for it: the limit of CPU is one of the rate of requests.
#[must_use]
pub fn limits_of(rails: &[GuardRail], by_clock: bool) -> Vec<GuardRail> {
    let one = |rail: &GuardRail| match by_clock && is_cpu(&rail.figure) {
        true => GuardRail { figure: "rate".to_owned(), most: rail.most },
        false => rail.clone(),
    };
    rails.iter().map(one).collect()
}

/// Number of rounds in which these runs were made.
fn rounds_of(runs: &[&RawRun]) -> usize {
    runs.iter().map(|run| run.round).collect::<BTreeSet<u32>>().len()
}

/// Whether more rounds would hardly change the answer: a candidate is proven better and none that may be better looks
/// better than it, or none may be better.
fn is_settled(candidates: &[CandidateFigures], pick: &str, confidence: f64) -> bool {
    let gain = |one: &CandidateFigures| one.goal.map_or(1.0, |ratio| ratio.mid);
    let picked = candidates.iter().find(|one| one.name == pick && one.name != SYSTEM);
    let most = picked.map_or(1.0, gain);
    let is_rival = |one: &CandidateFigures| {
        one.is_open && one.exceeds.is_empty() && !one.has_failed() && (picked.is_none() || gain(one) < most)
    };
    confidence > 0.0 && !candidates.iter().any(|one| one.name != pick && !one.is_better && is_rival(one))
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
    seed: u64,
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
            ratio: if is_reference { Some(Interval::ONE) } else { ratio(&pairs, seed) },
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

/// The figure of the goal `memory`: that of a day where there is one, else memory under load and after the pause with
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
fn ratio(pairs: &[(f64, f64)], seed: u64) -> Option<Interval> {
    bootstrap(pairs, RESAMPLES, seed, |drawn| {
        median(&drawn.iter().map(|(one, other)| one / other).collect::<Vec<_>>())
    })
}

fn goal_figure(goal: ServiceGoal) -> &'static str {
    match goal {
        ServiceGoal::Memory => "memory",
        ServiceGoal::Cpu => "cpu",
        ServiceGoal::Latency => "p99",
        ServiceGoal::Balanced => "balance",
    }
}

/// The runs of a service, of which the valid ones are compared.
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

/// The figures whose noise is reported.
const NOISE_OF: [&str; 6] = ["memory", "memory_idle", "memory_day", "cpu", "p99", "open_p99"];

/// The figure by which a candidate is picked, of all candidates.
struct GoalFigures<'a> {
    goal: ServiceGoal,
    valid: &'a ValidRuns<'a>,
    seed: u64,
    /// Conditions of a proof.
    demand: Demand,
    /// How far one difference scatters, by the runs of all candidates.
    spread: Spread,
}

impl<'a> GoalFigures<'a> {
    fn new(goal: ServiceGoal, valid: &'a ValidRuns<'a>, (seed, looks): (u64, Option<Looks>)) -> Self {
        let demand = Demand { looks, ..Demand::of(valid.candidates().len().saturating_sub(1)) };
        let mut found = Self { goal, valid, seed, demand, spread: Spread::default() };
        found.spread = valid.spread(|run| found.value(run));
        found
    }

    fn value(&self, run: &RawRun) -> Option<f64> {
        let of = |name: &str| self.valid.value(run, name);
        match self.goal {
            ServiceGoal::Memory => memory_goal(of),
            ServiceGoal::Balanced => Some((of("cpu")? * memory_goal(of)?).sqrt()),
            goal => of(goal_figure(goal)),
        }
    }

    /// Ratio of these runs to `system`.
    fn ratio(&self, own: &[&RawRun], system: &[&RawRun]) -> Option<PairedRatio> {
        let pairs = pairs(own, system, |run| self.value(run));
        let ratios: Vec<f64> = pairs.iter().map(|(one, other)| one / other).collect();
        PairedRatio::of(&ratios, self.spread, Resampling { seed: self.seed, resamples: RESAMPLES })
    }

    /// What the ratio proves.
    fn answer(&self, ratio: Option<PairedRatio>) -> Answer {
        ratio.map_or(Answer::NotShown, |ratio| ratio.answer(margin(goal_figure(self.goal)), &self.demand))
    }

    /// Whether the runs leave it open that a candidate gains more than the margin.
    fn may_be_better(&self, ratio: Option<PairedRatio>) -> bool {
        let least = 1.0 - margin(goal_figure(self.goal));
        let single = Demand { candidates: 1, ..self.demand };
        let is_excluded = |ratio: PairedRatio| {
            let is_enough = ratio.rounds >= self.demand.fewest || ratio.is_above_alone(least);
            is_enough && ratio.is_above(least, &single)
        };
        ratio.is_some_and(|ratio| !is_excluded(ratio))
    }
}

fn pick(candidates: &[CandidateFigures]) -> String {
    let fit = candidates.iter().filter(|one| one.is_better && one.exceeds.is_empty() && !one.has_failed());
    let best = fit.filter_map(|one| Some((one.goal?.mid, one))).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(|| SYSTEM.to_owned(), |(_, one)| one.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{Failure, Figure, ServerRun, Stage};

    fn run(candidate: &str, round: u32, memory: f64, cpu: f64, p99: f64) -> RawRun {
        // The machine's speed changes from round to round. Pairing must remove this.
        let drift = 1.0 + f64::from(round) / 4.0;
        let figures = [
            Figure::lower("memory", memory, "B"),
            Figure::lower("cpu", cpu * drift, "s"),
            Figure::lower("p99", p99 * drift, "ms"),
            Figure::higher("rate", 100.0 / cpu / drift, "1/s"),
        ];
        RawRun { candidate: candidate.into(), round, user_s: cpu * drift, ..RawRun::default() }
            .with_server(ServerRun::of(figures))
    }

    fn runs() -> Vec<RawRun> {
        (0..4)
            .flat_map(|round| {
                [
                    run("system", round, 100e6, 1.0, 5.0),
                    run("lean", round, 60e6, 1.3, 5.0),
                    run("two", round, 69e6, 1.01, 5.1),
                ]
            })
            .collect()
    }

    fn compare(runs: &[RawRun], goal: ServiceGoal, rails: &[&str]) -> ServiceComparison {
        let names = ["system", "lean", "two"].map(str::to_owned);
        let rails: Vec<GuardRail> = rails.iter().map(|rail| rail.parse().unwrap()).collect();
        compare_services(&names, runs, &ServiceOptions { goal, rails, seed: 1, looks: None })
    }

    #[test]
    fn the_leanest_within_the_guard_rails_is_picked() {
        let found = compare(&runs(), ServiceGoal::Memory, &["cpu+2%", "p99+5%"]);
        assert_eq!(found.pick, "two");
        assert_eq!(found.candidates[1].exceeds, ["cpu+2%"]);
        assert_eq!(found.candidates[2].verdict, "31 % less memory, same CPU, same p99");
        assert_eq!(compare(&runs(), ServiceGoal::Memory, &[]).pick, "lean");
        assert_eq!(
            compare(&runs(), ServiceGoal::Memory, &["rate+10%", "cpu+2%"]).candidates[1].exceeds.len(),
            2
        );
        assert_eq!(compare(&runs(), ServiceGoal::Cpu, &[]).pick, "system", "no candidate uses less CPU");
        assert_eq!(compare(&runs(), ServiceGoal::Balanced, &[]).pick, "two");
    }

    /// A noise of 5 % of CPU, the same in each round of a seed.
    fn noisy(cost: f64) -> Vec<RawRun> {
        let deviations = [0.05, -0.04, 0.03, -0.05, 0.06, -0.03];
        let of = |(round, deviation): (u32, f64)| {
            let two = run("two", round, 69e6, cost * (1.0 + deviation), 5.0);
            [
                run("system", round, 100e6, 1.0, 5.0),
                run("lean", round, 100e6, 1.0 - deviation / 2.0, 5.0),
                two,
            ]
        };
        (0..).zip(deviations).flat_map(of).collect()
    }

    #[test]
    fn a_cost_within_the_noise_is_said_and_a_proven_one_rejects() {
        let found = compare(&noisy(1.01), ServiceGoal::Memory, &["cpu+2%", "p99+5%"]);
        assert_eq!((found.pick.as_str(), found.candidates[2].exceeds.len()), ("two", 0));
        let said = &found.candidates[2].unproven;
        assert!(said.len() == 1 && said[0].contains("not shown to cost more than 2 %"), "{said:?}");
        assert!(found.sentence.ends_with("not shown to cost more than 2 %."), "{}", found.sentence);
        // The estimate is above the limit, and the noise allows that the cost is not.
        let found = compare(&noisy(1.03), ServiceGoal::Memory, &["cpu+2%", "p99+5%"]);
        let two = &found.candidates[2];
        assert_eq!((found.pick.as_str(), two.exceeds.len(), two.unproven.len()), ("two", 0, 1), "{two:?}");
        let found = compare(&noisy(1.15), ServiceGoal::Memory, &["cpu+2%", "p99+5%"]);
        assert_eq!(
            (found.pick.as_str(), found.candidates[2].exceeds.as_slice()),
            ("system", ["cpu+2%".to_owned()].as_slice())
        );
    }

    /// A load that prints no latency proves nothing about it, not even that no candidate is better.
    #[test]
    fn an_objective_that_was_not_measured_is_named() {
        let mut all = runs();
        for run in &mut all {
            run.server.as_mut().unwrap().figures.remove("p99");
        }
        let found = compare(&all, ServiceGoal::Latency, &["cpu+2%"]);
        assert_eq!(found.pick, "system");
        assert!(found.sentence.contains("has the figure of the objective"), "{}", found.sentence);
    }

    /// Requests that fail under a candidate alone have no ratio to those under `system`.
    #[test]
    fn a_cost_that_system_has_nothing_of_breaks_a_limit() {
        let judged = |errors: [f64; 4]| {
            let mut all = runs();
            for run in &mut all {
                let count = if run.candidate == "two" { errors[run.round as usize] } else { 0.0 };
                run.server.as_mut().unwrap().record(Figure::lower("errors", count, ""));
            }
            let found = compare(&all, ServiceGoal::Memory, &["cpu+2%", "errors+0%"]);
            let two = &found.candidates[2];
            (found.pick.clone(), two.exceeds.clone(), two.unproven.clone())
        };
        let (broken, open) = ("errors+0%", "errors in 1 of 4 runs, where system had none");
        let wanted = |pick: &str, exceeds: &[&str], unproven: &[&str]| {
            let [exceeds, unproven] =
                [exceeds, unproven].map(|all| all.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
            (pick.to_owned(), exceeds, unproven)
        };
        assert_eq!(judged([9.0, 1.0, 3.0, 2.0]), wanted("system", &[broken], &[]));
        assert_eq!(judged([0.0, 1.0, 0.0, 0.0]), wanted("two", &[], &[open]));
        assert_eq!(judged([0.0; 4]), wanted("two", &[], &[]));
    }

    /// Three runs under `system` in a round: their mean is the reference, and their pairs are the noise.
    #[test]
    fn several_runs_of_system_are_one_reference_and_the_noise() {
        let mut all = vec![];
        for round in 0..4 {
            let system = [90e6, 100e6, 1e8 / 0.9].map(|memory| run("system", round, memory, 1.0, 5.0));
            let system =
                system.into_iter().zip(0_u32..).map(|(run, at)| RawRun { at_s: f64::from(at), ..run });
            all.extend(system.chain([run("lean", round, 60e6, 1.0, 5.0)]));
        }
        let found = compare(&all, ServiceGoal::Memory, &[]);
        let ratio = found.candidates[1].figures["memory"].ratio.unwrap();
        assert!((ratio.mid - 0.6).abs() < 1e-9, "against the geometric mean: {ratio:?}");
        assert_eq!((found.candidates[0].rounds, found.pick.as_str()), (4, "lean"));
        assert_eq!((found.candidates[0].runs, found.candidates[1].runs), (12, 4));
        let mut failed = all.clone();
        let failure = Failure::new(Stage::Load, "x".into());
        let server = failed[0].of_server().clone();
        failed[0].set_server(ServerRun { failure: Some(failure), ..server });
        let system = &compare(&failed, ServiceGoal::Memory, &[]).candidates[0];
        assert_eq!(system.verdict, "reference; failed in 1 of 12 runs");
        let noise = found.noise["memory"];
        assert!((noise.deviation - 2.0_f64.sqrt() * 0.9_f64.ln().abs()).abs() < 1e-3, "{noise:?}");
        assert_eq!(noise.freedom, 8.0);
        assert!(compare(&runs(), ServiceGoal::Memory, &[]).noise.is_empty(), "one run a round shows none");
    }

    #[test]
    fn the_pause_counts_as_much_as_the_load_and_a_day_more_than_both() {
        let of = |figures: &[(&str, f64)]| {
            memory_goal(|name| figures.iter().find(|one| one.0 == name).map(|one| one.1))
        };
        assert_eq!(of(&[("memory", 4.0)]), Some(4.0));
        assert_eq!(of(&[("memory", 4.0), ("memory_idle", 1.0)]), Some(2.0));
        assert_eq!(of(&[("memory", 4.0), ("memory_idle", 1.0), ("memory_day", 7.0)]), Some(7.0));
        assert_eq!(of(&[("memory_idle", 1.0)]), None);
    }

    #[test]
    fn rounds_end_when_no_rival_is_left() {
        assert!(compare(&runs(), ServiceGoal::Memory, &[]).is_settled);
        let few: Vec<RawRun> = runs().into_iter().filter(|run| run.round < 1).collect();
        assert!(!compare(&few, ServiceGoal::Memory, &[]).is_settled, "two may be better than system");
        let mut wide = noisy(1.0);
        wide.retain(|run| run.candidate != "two");
        for (at, run) in wide.iter_mut().enumerate().filter(|(_, run)| run.candidate == "lean") {
            let memory = if at % 4 == 1 { 60e6 } else { 130e6 };
            run.set_server(ServerRun::of([Figure::lower("memory", memory, "B")]));
        }
        let found = compare(&wide, ServiceGoal::Memory, &[]);
        assert!(!found.is_settled && found.candidates[1].is_open, "{found:?}");
    }

    /// Two rounds that agree exclude a gain, two that differ do not, and one never does.
    #[test]
    fn two_rounds_exclude_a_gain_if_they_agree() {
        let is_open = |ratios: &[f64]| {
            let of = |(round, ratio): (u32, &f64)| {
                [run("system", round, 100e6, 1.0, 5.0), run("lean", round, 100e6 * ratio, 1.0, 5.0)]
            };
            let all: Vec<RawRun> = (0..).zip(ratios).flat_map(of).collect();
            compare(&all, ServiceGoal::Memory, &[]).candidates[1].is_open
        };
        assert!(!is_open(&[1.12, 1.13]) && !is_open(&[1.0, 1.001]));
        assert!(is_open(&[1.0, 1.12]) && is_open(&[0.96, 0.97]) && is_open(&[1.5]));
        assert!(!is_open(&[0.96, 0.97, 0.98]), "three lie above the margin");
    }

    #[test]
    fn one_round_proves_nothing() {
        let one: Vec<RawRun> = runs().into_iter().filter(|run| run.round == 0).collect();
        let found = compare(&one, ServiceGoal::Memory, &[]);
        assert_eq!(
            (found.pick.as_str(), found.candidates[1].verdict.as_str()),
            ("system", "too few rounds (1) to say")
        );
        assert!(found.candidates[1].figures["memory"].ratio.is_some());
    }

    #[test]
    fn a_failure_that_is_nobodys_fault_does_not_count_against_a_candidate() {
        let pick = |stage| {
            let failure = Some(Failure::new(stage, "x".into()));
            let mut all = runs();
            all.push(run("two", 4, 69e6, 1.01, 5.1));
            all.last_mut().unwrap().set_server(ServerRun { failure, ..ServerRun::default() });
            compare(&all, ServiceGoal::Memory, &["cpu+2%", "p99+5%"]).pick
        };
        assert_eq!([pick(Stage::Died), pick(Stage::Taken)], ["system", "two"]);
    }

    #[test]
    fn a_failed_candidate_is_not_picked() {
        let mut all = runs();
        let failure = Failure { signal: Some(11), ..Failure::new(Stage::Died, "x".into()) };
        let two = all.iter_mut().find(|run| run.candidate == "two").unwrap();
        two.set_server(ServerRun { failure: Some(failure), ..two.of_server().clone() });
        let found = compare(&all, ServiceGoal::Memory, &["cpu+2%"]);
        assert_eq!(found.pick, "system");
        assert!(
            found.candidates[2].verdict.contains("failed in 1 of 4 runs"),
            "{}",
            found.candidates[2].verdict
        );
    }

    #[test]
    fn a_load_by_the_clock_limits_the_rate_in_place_of_the_cpu() {
        let mut all = runs();
        all[0].server.as_mut().unwrap().by_clock = true;
        let found = compare(&all, ServiceGoal::Memory, &["cpu+2%"]);
        let lean = &found.candidates[1];
        assert_eq!((found.pick.as_str(), lean.exceeds.join(" ")), ("two", "rate+2%".to_owned()));
        assert!(lean.verdict.contains("CPU not comparable"), "{}", lean.verdict);
        let found = compare(&all, ServiceGoal::Memory, &[]);
        assert_eq!((found.pick.as_str(), found.candidates[1].exceeds.len()), ("lean", 0));
    }
}
