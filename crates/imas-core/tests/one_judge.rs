// SPDX-License-Identifier: Apache-2.0
//! How often the judge takes noise for a gain, and how often it finds a true one: made-up benchmarks of commands.
//!
//! `lab/imas-study/tests/one_judge.rs` does the same for servers, `imas-simulate` for the policy, whose trials follow
//! one another.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::bench::{CandidateRuns, CheckStatus, FailRule, Looks, Options, check_against, compare};
use imas_core::judgement::{BenchCourse, BenchJudgement, Goal};
use imas_core::run::RawRun;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Made-up benchmarks of each kind. Of a share of 5 %, 2,000 count up to 5 + 3 * 0.49 % by chance.
const BENCHES: u64 = 2000;
const MOST_WRONG: f64 = 0.05 + 3.0 * 0.00487;
/// Number of made-up sessions of each kind. They are fewer because each looks at its runs after every round
/// and compares up to 30 times.
const SESSIONS: u64 = 200;
const MOST_WRONG_SESSIONS: f64 = 0.05 + 3.0 * 0.0154;

/// Noise of the logarithms, all with the standard deviation 1.
#[derive(Clone, Copy, Debug)]
enum Tail {
    Normal,
    /// A tenth of the runs lies four deviations higher: another program was at work.
    Heavy,
    /// Noise that is three times as large for the first candidate as for all others.
    Uneven,
}

/// Nearly normal: the sum of twelve even numbers.
fn normal(random: &mut SmallRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

fn noise(tail: Tail, candidate: usize, random: &mut SmallRng) -> f64 {
    let plain = normal(random);
    match tail {
        Tail::Heavy if random.random::<f64>() < 0.1 => (plain + 4.0) / 1.56,
        Tail::Heavy => plain / 1.56,
        Tail::Uneven if candidate == 1 => 3.0 * plain,
        Tail::Normal | Tail::Uneven => plain,
    }
}

/// A made-up benchmark: `system` and `equals` candidates.
#[derive(Clone, Copy)]
struct Made {
    equals: usize,
    rounds: u32,
    sigma: f64,
    tail: Tail,
    /// Factor of CPU time of the last candidate.
    last: f64,
}

impl Made {
    fn runs(&self, seed: u64) -> Vec<CandidateRuns> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut of = |candidate: usize| CandidateRuns {
            name: if candidate == 0 { "system".to_owned() } else { format!("c{candidate}") },
            runs: (0..self.rounds).map(|round| self.run(candidate, round, &mut random)).collect(),
        };
        (0..=self.equals).map(&mut of).collect()
    }

    fn run(&self, candidate: usize, round: u32, random: &mut SmallRng) -> RawRun {
        let mut draw = || (self.sigma * noise(self.tail, candidate, random)).exp();
        let factor = if candidate == self.equals { self.last } else { 1.0 };
        let user_s = factor * draw();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let mean_bytes = (1e8 * draw()) as u64;
        RawRun { round, user_s, wall_s: user_s, mean_bytes, ..RawRun::default() }
    }

    /// Share of the benchmarks whose picks are so. Fewer resamples make narrower intervals, and so more proofs: few suit a
    /// bound of wrong picks, more a bound of right ones.
    fn share(&self, resamples: usize, is: impl Fn(&BenchJudgement) -> bool) -> f64 {
        let picks =
            |seed| compare(&self.runs(seed), &Options { resamples, seed, ..Options::default() }).judgement;
        (0..BENCHES).filter(|&seed| is(&picks(seed))).count() as f64 / BENCHES as f64
    }
}

fn is_any(judgement: &BenchJudgement) -> bool {
    judgement.best().is_some()
}

/// Whatever is picked is wrong: in at most one benchmark of twenty, over all three picks.
#[test]
fn equal_candidates_are_picked_in_one_benchmark_of_twenty() {
    let mut too_often = vec![];
    for equals in [1, 7] {
        for tail in [Tail::Normal, Tail::Heavy, Tail::Uneven] {
            for rounds in [3, 4, 6, 12] {
                for sigma in [0.02, 0.08, 0.20] {
                    let made = Made { equals, rounds, sigma, tail, last: 1.0 };
                    let share = made.share(20, is_any);
                    println!(
                        "{equals} equal, {tail:?}, {rounds} rounds, noise {sigma}: {:.1} %",
                        share * 100.0
                    );
                    if share > MOST_WRONG {
                        too_often.push((equals, tail, rounds, sigma, share));
                    }
                }
            }
        }
    }
    assert!(too_often.is_empty(), "{too_often:?}");
}

/// Printed, with what a test may demand of it: a gain of 10 % is found where the noise allows it.
#[test]
fn a_gain_of_ten_per_cent_is_found() {
    for (rounds, sigma, least) in
        [(4, 0.02, 0.9), (4, 0.05, 0.3), (6, 0.02, 0.99), (6, 0.05, 0.65), (12, 0.05, 0.9), (12, 0.08, 0.5)]
    {
        let made = Made { equals: 7, rounds, sigma, tail: Tail::Normal, last: 0.9 };
        let found = made.share(60, |judgement| judgement.pick(Goal::Cpu) == Some("c7"));
        println!(
            "7 candidates, {rounds} rounds, noise {sigma}: the better one is found in {:.0} %",
            found * 100.0
        );
        assert!(found >= least, "{rounds} rounds, noise {sigma}: {found}");
    }
}

/// Rounds that stop as soon as something is proven have the error of one test.
#[test]
fn looks_that_may_end_the_rounds_share_the_error() {
    for (sigma, tail) in [(0.04, Tail::Normal), (0.20, Tail::Normal), (0.08, Tail::Uneven)] {
        let wrong = (0..SESSIONS).filter(|&seed| {
            let all = Made { equals: 5, rounds: 30, sigma, tail, last: 1.0 }.runs(seed);
            let options = Options { resamples: 20, seed, looks: Some(Looks::AUTO), ..Options::default() };
            (5..=30).find_map(|rounds| {
                let so_far: Vec<CandidateRuns> = all
                    .iter()
                    .map(|one| CandidateRuns { name: one.name.clone(), runs: one.runs[..rounds].to_vec() })
                    .collect();
                let judgement = compare(&so_far, &options).judgement;
                (judgement.course != BenchCourse::Open || rounds == 30).then(|| is_any(&judgement))
            }) == Some(true)
        });
        let share = wrong.count() as f64 / SESSIONS as f64;
        println!("looks, noise {sigma}, {tail:?}: {:.1} %", share * 100.0);
        assert!(share <= MOST_WRONG_SESSIONS, "noise {sigma}, {tail:?}: {share}");
    }
}

/// `--baseline`: one and the same program, measured twice.
#[test]
fn the_same_program_fails_no_baseline() {
    let rules: Vec<FailRule> = ["cpu>0%", "mean>0%"].map(|rule| rule.parse().unwrap()).into();
    for tail in [Tail::Normal, Tail::Heavy] {
        for (rounds, sigma) in [(3, 0.02), (3, 0.20), (6, 0.08), (12, 0.08)] {
            let made = Made { equals: 3, rounds, sigma, tail, last: 1.0 };
            let failed = (0..BENCHES).filter(|&seed| {
                let (before, now) = (made.runs(seed), made.runs(seed + 1_000_000));
                let names = ["system", "c1", "c2", "c3"];
                let checks = check_against(&before, &now, &names, &rules, true);
                checks.iter().any(|check| check.status == CheckStatus::Failed)
            });
            let share = failed.count() as f64 / BENCHES as f64;
            println!("baseline, {tail:?}, {rounds} rounds, noise {sigma}: {:.1} %", share * 100.0);
            assert!(share <= MOST_WRONG, "{tail:?}, {rounds} rounds, noise {sigma}: {share}");
        }
    }
}
