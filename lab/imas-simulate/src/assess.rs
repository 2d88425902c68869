// SPDX-License-Identifier: Apache-2.0
//! Judges picks on runs that did not choose them.
//!
//! A program's rounds are shuffled; a third of them, two at least, judges what was chosen on all the others, then
//! another third judges; and so again for each split. The best of several noisy figures looks better than it is on the
//! runs that made it the best. Half and half would judge no better and choose worse: of six rounds a policy would see
//! three.
//!
//! The pick is compared with the candidate that the other rounds call best when all of them are looked at, without margin
//! or proof: what could be known without the runs that judge. (Naming it on the runs that judge would make it look better
//! than any candidate is, and every policy worse.) Where the truth is known it judges instead.
//!
//! The runs that judge are noisy too. How far a program's regret may be off follows from how much its rounds
//! disagree, and the share of programs within 3 % is given three ways: as counted, with that noise taken out
//! ([`true_share_at_most`]), and the number of those that are shown to be beyond.

use imas_core::adaptive::{Point, Settings};
use imas_core::stats::{Interval, Moments, bootstrap, more, saved, t_quantile};
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::deconvolution::{MeasuredValue, true_share_at_most};
use crate::program::{SimulatedProgram, best, cost};

/// The regret that a program is to stay within.
const WITHIN: f64 = 0.03;
/// Least error that a program's regret is taken to have.
const LEAST_ERROR: f64 = 0.001;

/// How the laboratory works.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// Splits of each program's rounds, of two turns each.
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

/// Results of one program under one policy: geometric means over the splits, as fractions, as in
/// [`PolicyResult`].
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct ProgramResult {
    /// Name of the program.
    pub program: String,
    /// Trials spent, mean over the splits.
    pub trials: f64,
    /// Score lost against the best candidate's: 0.01 is 1 % more CPU and memory together.
    pub regret: f64,
    /// Standard error of that by the rounds that judged, and its degrees of freedom. None where the truth is
    /// known or fewer than two rounds judged.
    pub regret_error: Option<(f64, f64)>,
    /// Judged by the truth, without any error.
    pub by_truth: bool,
    /// How much more CPU and memory together than under `system`: -0.1 is 10 % less.
    pub score: f64,
    /// How much more CPU than under `system`.
    pub cpu: f64,
    /// How much more memory than under `system`.
    pub memory: f64,
    /// Share of splits by candidate that was picked.
    pub picks: Vec<(String, f64)>,
}

/// Result of one program under one policy in differences of logarithms, so that means can be taken.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Judged(ProgramResult);

impl Judged {
    fn in_fractions(self) -> ProgramResult {
        let one = self.0;
        // Turns a small error of a logarithm into the error of the number itself.
        let of_number = |(error, freedom): (f64, f64)| (one.regret.exp() * error, freedom);
        ProgramResult {
            regret: more(one.regret),
            regret_error: one.regret_error.map(of_number),
            score: more(one.score),
            cpu: more(one.cpu),
            memory: more(one.memory),
            ..one
        }
    }
}

/// Results of all programs under one policy: geometric means over the programs, as fractions. Means and
/// shares of no programs are NaN, which JSON has as null.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct PolicyResult {
    /// Name of the policy.
    pub policy: String,
    /// Programs judged.
    pub programs: usize,
    /// Mean number of trials for a program.
    pub trials: f64,
    /// Score lost against the best candidate's: 0.01 is 1 % more CPU and memory together.
    pub regret: f64,
    /// Interval of `regret`. None with fewer than two programs.
    pub regret_interval: Option<Interval>,
    /// Score saved against `system`'s: 0.1 is 10 % less CPU and memory together, below 0 is more.
    pub gain: f64,
    /// Interval of `gain`. None with fewer than two programs.
    pub gain_interval: Option<Interval>,
    /// CPU saved.
    pub gain_cpu: f64,
    /// Memory saved.
    pub gain_memory: f64,
    /// Programs whose regret is above the margin.
    pub wrong: usize,
    /// Programs left worse than `system` by more than the margin.
    pub harmed: usize,
    /// Share of programs whose regret is at most 3 %.
    pub within_3_pct: f64,
    /// Share of programs whose regret is at most 3 %, with the noise of the judgement taken out. None where
    /// the truth is known.
    pub within_3_pct_less_noise: Option<f64>,
    /// Programs whose regret is above 3 % with certainty (95 %, each for itself).
    pub beyond_3_pct: usize,
    /// Program by program.
    pub details: Vec<ProgramResult>,
}

/// Runs one policy over all programs; those that have not what it looks at are left out of its result.
pub fn assess(contender: &Contender, programs: &[SimulatedProgram], plan: &Plan) -> PolicyResult {
    let judged: Vec<Judged> =
        programs.iter().enumerate().filter_map(|(i, p)| one_program(contender, p, plan, i as u64)).collect();
    summary(contender.name(), judged, plan)
}

pub(crate) fn summary(policy: String, judged: Vec<Judged>, plan: &Plan) -> PolicyResult {
    let of = |figure: fn(&ProgramResult) -> f64| judged.iter().map(|one| figure(&one.0)).collect::<Vec<_>>();
    // Programs are resampled, because the regret of one program does not predict the regret of others.
    let interval = |values: &[f64], fraction: fn(f64) -> f64| {
        let are_several = values.len() > 1;
        let mean = |values: &[f64]| mean(values).map(fraction);
        are_several.then(|| bootstrap(values, plan.resamples, plan.seed, mean)).flatten()
    };
    let margin = Settings::default().margin(plan.w);
    let count = |is: &dyn Fn(&ProgramResult) -> bool| judged.iter().filter(|one| is(&one.0)).count();
    let gains = of(|one| -one.score);
    PolicyResult {
        policy,
        programs: judged.len(),
        trials: average(&of(|one| one.trials)),
        regret: more(average(&of(|one| one.regret))),
        regret_interval: interval(&of(|one| one.regret), more),
        gain: saved(average(&gains)),
        gain_interval: interval(&gains, saved),
        gain_cpu: saved(average(&of(|one| -one.cpu))),
        gain_memory: saved(average(&of(|one| -one.memory))),
        wrong: count(&|one| one.regret > margin),
        harmed: count(&|one| one.score > margin),
        within_3_pct: count(&|one| one.regret <= WITHIN) as f64 / judged.len() as f64,
        within_3_pct_less_noise: less_noise(&judged),
        beyond_3_pct: count(&|one| one.regret - regret_bound(one) > WITHIN),
        details: judged.into_iter().map(Judged::in_fractions).collect(),
    }
}

/// Share of programs whose regret is at most 3 %, with the noise of the judgement taken out. It counts the
/// programs whose error is known; None when there are none.
fn less_noise(judged: &[Judged]) -> Option<f64> {
    let with_error = |Judged(one): &Judged| {
        let (error, freedom) = one.regret_error?;
        Some(MeasuredValue { value: one.regret, error, freedom })
    };
    let values: Vec<_> = judged.iter().filter_map(with_error).collect();
    true_share_at_most(&values, WITHIN, LEAST_ERROR)
}

/// Bound on the part of the regret that is noise, one-sided, as a difference of logarithms as all of [`Judged`].
fn regret_bound(one: &ProgramResult) -> f64 {
    match one.regret_error {
        _ if one.by_truth => 0.0,
        Some((error, freedom)) => t_quantile(0.05, freedom) * error.max(LEAST_ERROR),
        None => f64::INFINITY, // one round proves nothing
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn average(values: &[f64]) -> f64 {
    mean(values).unwrap_or(f64::NAN)
}

pub(crate) fn one_program(
    contender: &Contender,
    program: &SimulatedProgram,
    plan: &Plan,
    number: u64,
) -> Option<Judged> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    random.set_stream(number);
    let mut sum = Sum::new(program);
    for _ in 0..plan.splits {
        let rounds = shuffled(program.rounds.len(), &mut random);
        let seed = random.random();
        for turn in turns(&rounds) {
            let outcome = contender.settle(program, &turn.seen, plan.w, seed)?;
            sum.add(&Verdict::new(program, &turn, outcome.pick, plan.w)?, outcome.trials, outcome.pick);
        }
    }
    Some(sum.judged(program))
}

/// A pick on runs that did not choose it.
struct Verdict {
    regret: f64,
    point: Point,
    score: f64,
    /// Regret in each judging round that has both; empty where the truth is known.
    by_round: Vec<(usize, f64)>,
}

impl Verdict {
    fn new(program: &SimulatedProgram, turn: &Turn<'_>, pick: usize, w: f64) -> Option<Self> {
        if let Some(truth) = &program.truth {
            let best = truth.iter().map(|point| point.score(w)).fold(f64::INFINITY, f64::min);
            let score = truth[pick].score(w);
            return Some(Self { regret: score - best, point: truth[pick], score, by_round: vec![] });
        }
        let best = best(program, &turn.seen, w)?;
        let point = cost(program, turn.judging, pick)?;
        let score = point.score(w);
        let regret = score - cost(program, turn.judging, best)?.score(w);
        let of = |&round: &usize| {
            let row = &program.rounds[round];
            Some((round, row[pick]?.over(row[best]?).score(w)))
        };
        Some(Self { regret, point, score, by_round: turn.judging.iter().filter_map(of).collect() })
    }
}

/// Sums over all turns of one program.
struct Sum {
    trials: f64,
    regret: f64,
    score: f64,
    point: Point,
    picks: Vec<f64>,
    turns: f64,
    /// Regret by round (x).
    by_round: Vec<Moments>,
}

impl Sum {
    fn new(program: &SimulatedProgram) -> Self {
        Self {
            trials: 0.0,
            regret: 0.0,
            score: 0.0,
            point: Point { cpu: 0.0, memory: 0.0 },
            picks: vec![0.0; program.candidates.len()],
            turns: 0.0,
            by_round: vec![Moments::default(); program.rounds.len()],
        }
    }

    fn add(&mut self, verdict: &Verdict, trials: u32, pick: usize) {
        self.trials += f64::from(trials);
        self.regret += verdict.regret;
        self.score += verdict.score;
        self.point.cpu += verdict.point.cpu;
        self.point.memory += verdict.point.memory;
        self.picks[pick] += 1.0;
        self.turns += 1.0;
        for &(round, regret) in &verdict.by_round {
            self.by_round[round] = self.by_round[round].merge(Moments::of(regret, 0.0));
        }
    }

    /// Standard error of the mean regret over the rounds, and its degrees of freedom. Each round counts with
    /// its mean over the turns in which it judged. None with fewer than two rounds.
    fn error(&self) -> Option<(f64, f64)> {
        let judged = self.by_round.iter().filter(|round| round.count > 0);
        let rounds: Moments = judged.map(|round| (round.mean_x, 0.0)).collect();
        let freedom = f64::from(rounds.count.checked_sub(1).filter(|freedom| *freedom > 0)?);
        Some(((rounds.xx / freedom / f64::from(rounds.count)).sqrt(), freedom))
    }

    fn judged(self, program: &SimulatedProgram) -> Judged {
        let turns = self.turns;
        let shares = program.candidates.iter().cloned().zip(self.picks.iter().map(|count| count / turns));
        Judged(ProgramResult {
            program: program.name.clone(),
            trials: self.trials / turns,
            regret: self.regret / turns,
            regret_error: self.error(),
            by_truth: program.truth.is_some(),
            score: self.score / turns,
            cpu: self.point.cpu / turns,
            memory: self.point.memory / turns,
            picks: shares.filter(|(_, share)| *share > 0.0).collect(),
        })
    }
}

/// Rounds that judge what the others chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn<'a> {
    /// Indices of all other rounds, in their order.
    pub seen: Vec<usize>,
    /// Indices of the rounds that judge.
    pub judging: &'a [usize],
}

/// Two turns that judge by different rounds: a third each, two at least, but never more than half. Empty
/// parts with fewer than two rounds.
pub fn turns(rounds: &[usize]) -> [Turn<'_>; 2] {
    let third = (rounds.len() / 3).max(2).min(rounds.len() / 2);
    [0, third].map(|from| {
        let judging = &rounds[from..from + third];
        Turn { seen: rounds.iter().copied().filter(|round| !judging.contains(round)).collect(), judging }
    })
}

/// The numbers below `len` in random order.
pub fn shuffled(len: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut rounds: Vec<usize> = (0..len).collect();
    rounds.shuffle(random);
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::World;

    /// With the truth hidden the judgement says about what the truth does, of a policy, of what is never
    /// right and of what could be known.
    #[test]
    fn the_noise_of_judging_is_taken_out() {
        let world = World { programs: 150, rounds: 12, ..World::default() };
        let known = world.programs(31);
        let mut hidden = known.clone();
        hidden.iter_mut().for_each(|program| program.truth = None);
        let plan = Plan { splits: 6, resamples: 20, ..Plan::default() };
        let contenders = [
            Contender::Adaptive(Settings::default()),
            Contender::Always("jemalloc".to_owned()),
            Contender::All,
        ];
        for contender in contenders {
            let truth = assess(&contender, &known, &plan);
            let judged = assess(&contender, &hidden, &plan);
            let share = judged.within_3_pct_less_noise.unwrap();
            assert!(
                (share - truth.within_3_pct).abs() < 0.08,
                "{}: {share} {}",
                judged.policy,
                truth.within_3_pct
            );
            assert!(judged.beyond_3_pct <= truth.beyond_3_pct, "{judged:?}");
            assert!(truth.within_3_pct_less_noise.is_none());
        }
    }

    /// One round that judges proves nothing, one program nothing of others, and none nothing at
    /// all.
    #[test]
    fn unknown_figures_are_not_printed() {
        let one = |regret_error, by_truth| {
            Judged(ProgramResult {
                program: "p".to_owned(),
                trials: 4.0,
                regret: 0.10,
                regret_error,
                by_truth,
                score: 0.0,
                cpu: 0.0,
                memory: 0.0,
                picks: vec![],
            })
        };
        let of = |judged| summary("x".to_owned(), judged, &Plan { resamples: 20, ..Plan::default() });
        assert_eq!(of(vec![one(None, false)]).beyond_3_pct, 0);
        assert_eq!(of(vec![one(Some((0.01, 3.0)), false)]).beyond_3_pct, 1);
        assert_eq!(of(vec![one(None, true)]).beyond_3_pct, 1);
        assert_eq!(of(vec![one(None, true)]).regret_interval, None);
        assert!(of(vec![one(None, true), one(None, true)]).regret_interval.is_some());
        let none = of(vec![]);
        assert!(
            [none.trials, none.regret, none.gain, none.within_3_pct].iter().all(|figure| figure.is_nan())
        );
        assert_eq!(serde_json::to_value(&none).unwrap()["regret"], serde_json::Value::Null);
    }

    /// Twice the memory and four times the CPU: the logarithms are 0.69 and 1.39, but it is 1 and 3 more, and
    /// 1.83 together.
    #[test]
    fn of_a_program_fractions_are_those_of_all() {
        let one = Judged(ProgramResult {
            program: "p".to_owned(),
            trials: 4.0,
            regret: 8_f64.sqrt().ln(),
            regret_error: Some((0.01, 3.0)),
            by_truth: false,
            score: 8_f64.sqrt().ln(),
            cpu: 4_f64.ln(),
            memory: 2_f64.ln(),
            picks: vec![],
        });
        let result = summary("x".to_owned(), vec![one], &Plan { resamples: 20, ..Plan::default() });
        let detail = &result.details[0];
        let (error, freedom) = detail.regret_error.unwrap();
        let figures = [detail.cpu, detail.memory, detail.score, detail.regret, error];
        let wanted = [3.0, 1.0, 8_f64.sqrt() - 1.0, 8_f64.sqrt() - 1.0, 8_f64.sqrt() * 0.01];
        assert!(
            figures.iter().zip(wanted).all(|(figure, wanted)| (figure - wanted).abs() < 1e-12),
            "{detail:?}"
        );
        assert_eq!((freedom, detail.regret), (3.0, result.regret), "of one program the mean is its own");
    }

    /// The best answer without the runs that judge is the measure itself.
    #[test]
    fn the_best_of_all_runs_has_no_regret() {
        let mut programs = World { programs: 10, ..World::default() }.programs(3);
        programs.iter_mut().for_each(|program| program.truth = None);
        let all = assess(&Contender::All, &programs, &Plan { splits: 4, resamples: 20, ..Plan::default() });
        assert!(all.details.iter().all(|one| one.regret == 0.0 && one.trials == 66.0), "{all:?}");
    }

    #[test]
    fn a_third_of_the_rounds_judges_what_the_others_chose() {
        for (rounds, judging) in [(0, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 2), (12, 4)] {
            let all: Vec<usize> = (0..rounds).collect();
            let turns = turns(&all);
            for turn in &turns {
                assert_eq!((turn.judging.len(), turn.seen.len()), (judging, rounds - judging));
                assert!(turn.judging.iter().all(|round| !turn.seen.contains(round)));
            }
            assert!(turns[0].judging.iter().all(|round| !turns[1].judging.contains(round)));
        }
    }
}
