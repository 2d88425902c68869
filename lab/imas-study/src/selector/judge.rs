// SPDX-License-Identifier: Apache-2.0
//! Applies every strategy to every program. Each pick is judged on rounds that did not choose it: the
//! choosing and the judging rounds are as in `imas-lab simulate` ([`imas_simulate::turns()`]). Gains in the
//! paper's figures are compared with `system` in the same rounds.

use std::collections::BTreeMap;

use imas_core::candidate::CountedSample;
use imas_simulate::{SimulatedProgram, cost, shuffled, turns};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::strategy::{Parts, Strategy};

/// The outcome of one program under one strategy: means over the splits, as logarithms of ratios to `system`.
/// Below 0 is a gain.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Outcome {
    pub(crate) cpu: f64,
    pub(crate) memory: f64,
    /// Gain in the paper's figures. None without enough counted rounds.
    pub(crate) paper: Option<PaperGain>,
    /// Share of the splits for each picked candidate, most frequent first.
    pub(crate) picks: Vec<(String, f64)>,
}

/// Outcomes by strategy, then by program. A program without an outcome for the strategy is missing.
pub(crate) type Outcomes = BTreeMap<Strategy, BTreeMap<usize, Outcome>>;

/// Number of splits, and seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) splits: u32,
    pub(crate) seed: u64,
}

/// Judges all programs. `done` is called after each.
pub(crate) fn judge(
    programs: &[SimulatedProgram],
    strategies: &[Strategy],
    plan: Plan,
    mut done: impl FnMut(usize),
) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for (number, program) in programs.iter().enumerate() {
        for (strategy, outcome) in judge_program(program, number as u64, strategies, plan) {
            outcomes.entry(strategy).or_default().insert(number, outcome);
        }
        done(number + 1);
    }
    outcomes
}

fn judge_program(
    program: &SimulatedProgram,
    number: u64,
    strategies: &[Strategy],
    plan: Plan,
) -> Vec<(Strategy, Outcome)> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    random.set_stream(number);
    let mut sums: Vec<Sum> = strategies.iter().map(|_| Sum::new(program.candidates.len())).collect();
    for _ in 0..plan.splits {
        let (measured, counted) =
            (shuffled(program.rounds.len(), &mut random), shuffled(program.counted.len(), &mut random));
        let seed = random.random();
        for (measured, counted) in turns(&measured).into_iter().zip(turns(&counted)) {
            let parts = Parts {
                seen: &measured.seen,
                judging: measured.judging,
                counted_seen: &counted.seen,
                counted_judging: counted.judging,
            };
            for (strategy, sum) in strategies.iter().zip(&mut sums) {
                sum.add(program, &parts, strategy, seed);
            }
        }
    }
    strategies.iter().cloned().zip(sums).filter_map(|(s, sum)| Some((s, sum.outcome(program)?))).collect()
}

/// Sums over the splits.
struct Sum {
    judged: f64,
    cpu: f64,
    memory: f64,
    paper_judged: f64,
    time: f64,
    frag: f64,
    picks: Vec<f64>,
}

impl Sum {
    fn new(candidates: usize) -> Self {
        let picks = vec![0.0; candidates];
        Self { judged: 0.0, cpu: 0.0, memory: 0.0, paper_judged: 0.0, time: 0.0, frag: 0.0, picks }
    }

    fn add(&mut self, program: &SimulatedProgram, parts: &Parts<'_>, strategy: &Strategy, seed: u64) {
        let Some(pick) = strategy.pick(program, parts, seed) else { return };
        if let Some(point) = cost(program, parts.judging, pick) {
            self.judged += 1.0;
            self.cpu += point.cpu;
            self.memory += point.memory;
            self.picks[pick] += 1.0;
        }
        if let Some(gain) = paper_gain(program, parts.counted_judging, pick) {
            self.paper_judged += 1.0;
            self.time += gain.time;
            self.frag += gain.frag;
        }
    }

    fn outcome(self, program: &SimulatedProgram) -> Option<Outcome> {
        let n = self.judged;
        let paper = (self.paper_judged > 0.0)
            .then(|| PaperGain { time: self.time / self.paper_judged, frag: self.frag / self.paper_judged });
        let shares = program.candidates.iter().cloned().zip(self.picks.iter().map(|count| count / n));
        let mut picks: Vec<(String, f64)> = shares.filter(|(_, share)| *share > 0.0).collect();
        picks.sort_by(|a, b| b.1.total_cmp(&a.1));
        (n > 0.0).then(|| Outcome { cpu: self.cpu / n, memory: self.memory / n, paper, picks })
    }
}

/// Gains over `system` in the paper's figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct PaperGain {
    /// Logarithm of the ratio of ns per operation to `system`.
    pub(crate) time: f64,
    /// Fragmentation of `system` minus the candidate's; 0.1 is ten percentage points.
    pub(crate) frag: f64,
}

/// Averages over the counted rounds, as Algorithm 8 computes them. None without rounds.
pub(crate) fn paper_gain(
    program: &SimulatedProgram,
    rounds: &[usize],
    candidate: usize,
) -> Option<PaperGain> {
    let mean = |i: usize, get: fn(&CountedSample) -> f64| -> Option<f64> {
        let values = rounds.iter().map(|&r| program.counted[r][i].as_ref().map(get));
        let values = values.collect::<Option<Vec<f64>>>().filter(|v| !v.is_empty())?;
        Some(values.iter().sum::<f64>() / values.len() as f64)
    };
    let (ns, system_ns) = (mean(candidate, |c| c.ns_per_op)?, mean(0, |c| c.ns_per_op)?);
    let time = (ns / system_ns).ln();
    let frag = mean(0, |c| c.frag)? - mean(candidate, |c| c.frag)?;
    time.is_finite().then_some(PaperGain { time, frag })
}

#[cfg(test)]
mod tests {
    use super::*;

    use imas_core::adaptive::Point;

    use crate::selector::strategy::Aim;

    /// Candidates without a true difference, with noise. The best one is best by chance.
    fn alike(seed: u64) -> SimulatedProgram {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let candidates: Vec<String> = ["system", "a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let mut point = || Some(Point { cpu: random.random_range(-0.2..0.2), memory: 0.0 });
        let rounds = (0..12).map(|_| (0..candidates.len()).map(|_| point()).collect()).collect();
        SimulatedProgram {
            name: seed.to_string(),
            candidates,
            rounds,
            counted: vec![],
            same_runs: false,
            truth: None,
        }
    }

    /// The winner's curse: without a true difference there is no gain. A gain appears only if the rounds that
    /// chose also judge.
    #[test]
    fn picks_are_judged_on_rounds_that_did_not_choose_them() {
        let programs: Vec<SimulatedProgram> = (0..60).map(alike).collect();
        let strategies = [
            Strategy::Best(Aim::Fastest),
            Strategy::Hindsight(Aim::Fastest),
            Strategy::Adaptive(Aim::Fastest),
        ];
        let outcomes = judge(&programs, &strategies, Plan { splits: 4, seed: 1 }, |_| ());
        let mean = |s: &Strategy| outcomes[s].values().map(|o| o.cpu).sum::<f64>() / 60.0;
        assert!(mean(&strategies[0]).abs() < 0.02, "held out: {}", mean(&strategies[0]));
        assert!(mean(&strategies[1]) < -0.06, "in hindsight: {}", mean(&strategies[1]));
        assert!(mean(&strategies[2]).abs() < 0.01, "adaptive: {}", mean(&strategies[2]));
    }

    #[test]
    fn the_same_seed_gives_the_same_outcomes() {
        let programs = [alike(1), alike(2)];
        let strategies = Strategy::all(&programs[0].candidates);
        let plan = Plan { splits: 2, seed: 7 };
        assert_eq!(judge(&programs, &strategies, plan, |_| ()), judge(&programs, &strategies, plan, |_| ()));
    }

    #[test]
    fn a_program_without_counted_rounds_is_not_judged_by_the_paper() {
        let outcomes =
            judge(&[alike(1)], &[Strategy::Paper(Aim::Fastest)], Plan { splits: 1, seed: 1 }, |_| ());
        assert!(outcomes.is_empty());
    }
}
