// SPDX-License-Identifier: Apache-2.0
//! Compares the runs of all candidates, paired by round.

use std::collections::{BTreeMap, BTreeSet};

use imas_core::SYSTEM;
use imas_core::bench::{CandidateRuns, prepare};
use imas_core::compare::{Answer, Demand, PairedRatio, PairedRuns, Resampling, Spread};
use imas_core::stats::{Interval, RESAMPLES, attainable_confidence, bootstrap, median};
use serde::{Deserialize, Serialize};

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
}

/// Compares the runs of one service. `names` gives the order and includes `system`.
#[must_use]
pub fn compare_services(
    names: &[String],
    runs: &[RawRun],
    goal: ServiceGoal,
    rails: &[GuardRail],
    seed: u64,
) -> ServiceComparison {
    let even = even_cpu(names, &runs.iter().collect::<Vec<_>>());
    let by_clock = runs.iter().any(|run| run.of_server().by_clock);
    let of =
        |name: &str| -> Vec<&RawRun> { runs.iter().filter(|run| run.candidate == name && run.ok).collect() };
    let system = of(SYSTEM);
    let goal_figures = GoalFigures::new((goal, by_clock), names, runs, &even, seed);
    let mut candidates: Vec<CandidateFigures> = Vec::new();
    for name in names {
        let failures = runs
            .iter()
            .filter(|run| run.candidate == *name)
            .filter_map(|run| run.of_server().failure.clone());
        let own = of(name);
        let mut figures = figures(&own, &system, &even, seed);
        if by_clock && let Some(cpu) = figures.get_mut("cpu") {
            cpu.ratio = None;
        }
        let one = CandidateFigures {
            name: name.clone(),
            rounds: own.len(),
            failures: failures.collect(),
            is_better: name != SYSTEM && goal_figures.answer(&own, &system) == Answer::Better,
            figures,
            verdict: String::new(),
            exceeds: Vec::new(),
        };
        candidates.push(one);
    }
    for one in &mut candidates {
        one.exceeds = rails
            .iter()
            .filter(|rail| one.worse(&rail.figure).is_some_and(|ratio| !rail.allows(ratio.mid)))
            .map(ToString::to_string)
            .collect();
        one.verdict = verdict::of(one, by_clock);
    }
    let rounds = system.len();
    let pick = pick(&candidates, goal);
    let sentence = verdict::sentence(&candidates, &pick, rails);
    ServiceComparison { candidates, pick, sentence, confidence: attainable_confidence(rounds), by_clock }
}

/// Normalised CPU seconds by candidate and round.
pub type EvenCpu = BTreeMap<(String, u32), f64>;

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
            .map(move |run| ((name.clone(), run.round), run.compared_cpu_s()))
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
        let figure = ComparedFigure {
            median: median(&values)?,
            unit: first.unit.clone(),
            better: first.better,
            ratio: ratio(&pairs, seed),
        };
        Some((name.clone(), figure))
    };
    names.into_iter().filter_map(one).collect()
}

/// The value for the comparison: normalised CPU time, all else as measured.
pub fn compared(run: &RawRun, name: &str, even: &EvenCpu) -> Option<f64> {
    match name {
        "cpu" => even.get(&(run.candidate.clone(), run.round)).copied(),
        _ => run.value(name),
    }
}

fn pairs(own: &[&RawRun], system: &[&RawRun], value: impl Fn(&RawRun) -> Option<f64>) -> Vec<(f64, f64)> {
    let of_round = |round: u32| system.iter().find(|run| run.round == round);
    let pair = |run: &&RawRun| Some((value(run)?, value(of_round(run.round)?)?));
    own.iter().filter_map(pair).filter(|(one, other)| *one > 0.0 && *other > 0.0).collect()
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

/// The figure by which a candidate is picked, of all candidates.
struct GoalFigures<'a> {
    goal: ServiceGoal,
    /// CPU time is not comparable.
    by_clock: bool,
    even: &'a EvenCpu,
    seed: u64,
    /// Conditions of a proof.
    demand: Demand,
    /// How far one difference scatters, by the runs of all candidates.
    spread: Spread,
}

impl<'a> GoalFigures<'a> {
    fn new(
        (goal, by_clock): (ServiceGoal, bool),
        names: &[String],
        runs: &[RawRun],
        even: &'a EvenCpu,
        seed: u64,
    ) -> Self {
        let ran = |name: &&String| runs.iter().any(|run| run.candidate == **name && run.ok);
        let candidates: Vec<&String> = names.iter().filter(ran).collect();
        let demand = Demand::of(candidates.len().saturating_sub(1));
        let mut found = Self { goal, by_clock, even, seed, demand, spread: Spread::default() };
        let mut all = PairedRuns::default();
        for run in runs.iter().filter(|run| run.ok) {
            let candidate = candidates.iter().position(|name| **name == run.candidate);
            let figure = candidate.zip(found.value(run));
            figure.into_iter().for_each(|(candidate, value)| all.push(candidate, run.round as usize, value));
        }
        found.spread = all.spread();
        found
    }

    fn value(&self, run: &RawRun) -> Option<f64> {
        let of = |name| compared(run, name, self.even).filter(|_| !(self.by_clock && name == "cpu"));
        match self.goal {
            ServiceGoal::Balanced => Some((of("cpu")? * of("memory")?).sqrt()),
            goal => of(goal_figure(goal)),
        }
    }

    /// Whether these runs prove a candidate better.
    fn answer(&self, own: &[&RawRun], system: &[&RawRun]) -> Answer {
        let pairs = pairs(own, system, |run| self.value(run));
        let ratios: Vec<f64> = pairs.iter().map(|(one, other)| one / other).collect();
        let how = Resampling { seed: self.seed, resamples: RESAMPLES };
        let ratio = PairedRatio::of(&ratios, self.spread, how);
        ratio.map_or(Answer::NotShown, |ratio| ratio.answer(margin(goal_figure(self.goal)), &self.demand))
    }
}

fn pick(candidates: &[CandidateFigures], goal: ServiceGoal) -> String {
    let score = |one: &CandidateFigures| match goal {
        ServiceGoal::Balanced => Some((one.worse("cpu")?.mid * one.worse("memory")?.mid).sqrt()),
        other => one.worse(goal_figure(other)).map(|ratio| ratio.mid),
    };
    let fit =
        candidates.iter().filter(|one| one.is_better && one.exceeds.is_empty() && one.failures.is_empty());
    let best = fit.filter_map(|one| Some((score(one)?, one))).min_by(|a, b| a.0.total_cmp(&b.0));
    best.map_or_else(|| SYSTEM.to_owned(), |(_, one)| one.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::figure::Figure;
    use imas_core::server_run::{Failure, ServerRun, Stage};

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
        compare_services(&names, runs, goal, &rails, 1)
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
    fn a_failed_candidate_is_not_picked_and_a_clock_hides_the_cpu() {
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
        let mut all = runs();
        all[0].server.as_mut().unwrap().by_clock = true;
        let found = compare(&all, ServiceGoal::Memory, &["cpu+2%"]);
        assert_eq!((found.pick.as_str(), found.candidates[1].exceeds.len()), ("lean", 0));
    }
}
