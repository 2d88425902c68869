// SPDX-License-Identifier: Apache-2.0
//! Judging picks on runs that did not choose them.
//!
//! The rounds of a program are split at random, again and again: one half for the policy, of the other half one part names the oracle and one part judges
//! both, then the parts change places. An oracle that was chosen on the runs that judge it would look better than any candidate is (winner's curse), and every
//! policy worse. Where the truth is known it judges instead.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::contender::Contender;
use super::program::Program;
use crate::adaptive::{Point, Settings};
use crate::stats::{Interval, bootstrap, median};

/// How the laboratory works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Splits of each program's rounds.
    pub splits: u32,
    /// Seed of everything.
    pub seed: u64,
    /// Weight of CPU.
    pub w: f64,
    /// Bootstrap resamples per interval, programs being resampled.
    pub resamples: usize,
}

impl Default for Plan {
    fn default() -> Self {
        Self { splits: 40, seed: 1, w: 0.5, resamples: 2000 }
    }
}

/// What became of one program under one policy, means over the splits. Costs are differences of logarithms, so 0.01 is about 1 %.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ProgramResult {
    /// Its name.
    pub program: String,
    /// Trials spent.
    pub trials: f64,
    /// Score of the pick over that of the best candidate.
    pub regret: f64,
    /// Score of the pick over `system`; below 0 is better.
    pub score: f64,
    /// ln CPU of the pick over `system`.
    pub cpu: f64,
    /// ln memory of the pick over `system`.
    pub memory: f64,
    /// Share of splits by candidate that was picked.
    pub picks: Vec<(String, f64)>,
}

/// What became of all programs under one policy.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct PolicyResult {
    /// Its name.
    pub policy: String,
    /// Programs judged.
    pub programs: usize,
    /// Mean number of trials for a program.
    pub trials: f64,
    /// Mean regret, a fraction.
    pub regret: f64,
    /// Its interval.
    pub regret_interval: Option<Interval>,
    /// Mean gain in score over `system`, a fraction; higher is better.
    pub gain: f64,
    /// Its interval.
    pub gain_interval: Option<Interval>,
    /// Mean gain in CPU.
    pub gain_cpu: f64,
    /// Mean gain in memory.
    pub gain_memory: f64,
    /// Programs whose regret is above the margin.
    pub wrong: usize,
    /// Programs left worse than `system` by more than the margin.
    pub harmed: usize,
    /// Share of programs whose regret is at most 3 %.
    pub within_3_pct: f64,
    /// Program by program.
    pub details: Vec<ProgramResult>,
}

/// Runs one policy over all programs; those that have not what it looks at are left out of its result.
pub fn assess(contender: &Contender, programs: &[Program], plan: &Plan) -> PolicyResult {
    let details: Vec<ProgramResult> =
        programs.iter().enumerate().filter_map(|(i, p)| one_program(contender, p, plan, i as u64)).collect();
    summary(contender.name(), details, plan)
}

pub(super) fn summary(policy: String, details: Vec<ProgramResult>, plan: &Plan) -> PolicyResult {
    let of = |figure: fn(&ProgramResult) -> f64| details.iter().map(figure).collect::<Vec<f64>>();
    let interval = |values: &[f64]| bootstrap(values, plan.resamples, plan.seed, mean);
    let margin = Settings::default().margin(plan.w);
    let count = |is: &dyn Fn(&ProgramResult) -> bool| details.iter().filter(|one| is(one)).count();
    let gains = of(|one| -one.score);
    PolicyResult {
        policy,
        programs: details.len(),
        trials: average(&of(|one| one.trials)),
        regret: average(&of(|one| one.regret)),
        regret_interval: interval(&of(|one| one.regret)),
        gain: average(&gains),
        gain_interval: interval(&gains),
        gain_cpu: average(&of(|one| -one.cpu)),
        gain_memory: average(&of(|one| -one.memory)),
        wrong: count(&|one| one.regret > margin),
        harmed: count(&|one| one.score > margin),
        within_3_pct: count(&|one| one.regret <= 0.03) as f64 / details.len().max(1) as f64,
        details,
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn average(values: &[f64]) -> f64 {
    mean(values).unwrap_or(0.0)
}

pub(super) fn one_program(
    contender: &Contender,
    program: &Program,
    plan: &Plan,
    number: u64,
) -> Option<ProgramResult> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    random.set_stream(number);
    let mut sum = Sum::new(program.candidates.len());
    for _ in 0..plan.splits {
        let mut rounds: Vec<usize> = (0..program.rounds.len()).collect();
        rounds.shuffle(&mut random);
        let (seen, held_out) = rounds.split_at(rounds.len().div_ceil(2));
        let outcome = contender.settle(program, seen, plan.w, random.random())?;
        sum.add(&Verdict::new(program, held_out, outcome.pick, plan.w)?, outcome.trials, outcome.pick);
    }
    Some(sum.result(program, f64::from(plan.splits)))
}

/// A pick on runs that did not choose it.
struct Verdict {
    regret: f64,
    point: Point,
    score: f64,
}

impl Verdict {
    fn new(program: &Program, held_out: &[usize], pick: usize, w: f64) -> Option<Self> {
        if let Some(truth) = &program.truth {
            let best = truth.iter().map(|point| point.score(w)).fold(f64::INFINITY, f64::min);
            let score = truth[pick].score(w);
            return Some(Self { regret: score - best, point: truth[pick], score });
        }
        let (one, other) = held_out.split_at(held_out.len() / 2);
        let regret = (regret(program, one, other, pick, w)? + regret(program, other, one, pick, w)?) / 2.0;
        let point = cost(program, held_out, pick)?;
        Some(Self { regret, point, score: point.score(w) })
    }
}

/// Of the pick against the candidate that `naming` rounds call best, on `judging` rounds.
fn regret(program: &Program, naming: &[usize], judging: &[usize], pick: usize, w: f64) -> Option<f64> {
    let scores = (0..program.candidates.len()).filter_map(|i| Some((i, cost(program, naming, i)?.score(w))));
    let (best, _) = scores.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(cost(program, judging, pick)?.score(w) - cost(program, judging, best)?.score(w))
}

/// Excess of a candidate over `system`: median over the rounds, axis by axis. None when it has no run in them.
pub(super) fn cost(program: &Program, rounds: &[usize], candidate: usize) -> Option<Point> {
    let excess = |&round: &usize| Some(program.rounds[round][candidate]?.over(program.rounds[round][0]?));
    let points: Vec<Point> = rounds.iter().filter_map(excess).collect();
    let axis = |get: fn(&Point) -> f64| median(&points.iter().map(get).collect::<Vec<_>>());
    Some(Point { cpu: axis(|p| p.cpu)?, memory: axis(|p| p.memory)? })
}

/// Over the splits.
struct Sum {
    trials: f64,
    regret: f64,
    score: f64,
    point: Point,
    picks: Vec<f64>,
}

impl Sum {
    fn new(candidates: usize) -> Self {
        let point = Point { cpu: 0.0, memory: 0.0 };
        Self { trials: 0.0, regret: 0.0, score: 0.0, point, picks: vec![0.0; candidates] }
    }

    fn add(&mut self, verdict: &Verdict, trials: u32, pick: usize) {
        self.trials += f64::from(trials);
        self.regret += verdict.regret;
        self.score += verdict.score;
        self.point.cpu += verdict.point.cpu;
        self.point.memory += verdict.point.memory;
        self.picks[pick] += 1.0;
    }

    fn result(self, program: &Program, splits: f64) -> ProgramResult {
        let shares = program.candidates.iter().cloned().zip(self.picks.iter().map(|count| count / splits));
        ProgramResult {
            program: program.name.clone(),
            trials: self.trials / splits,
            regret: self.regret / splits,
            score: self.score / splits,
            cpu: self.point.cpu / splits,
            memory: self.point.memory / splits,
            picks: shares.filter(|(_, share)| *share > 0.0).collect(),
        }
    }
}
