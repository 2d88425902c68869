// SPDX-License-Identifier: Apache-2.0
//! How often the judge takes noise for a gain of a server, and how often it finds a true one.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use std::collections::BTreeSet;
use std::path::Path;

use imas_core::compare::Looks;
use imas_core::judgement::Goal;
use imas_core::raw_runs::data::Line;
use imas_core::run::RawRun;
use imas_core::server_bench::course::{CourseOptions, FollowedCourse};
use imas_core::server_bench::{ServiceOptions, compare_services};
use imas_core::server_run::{Figure, ServerRun};
use imas_study::services::{BenchShape, EqualPairs, PickRule, RoundChanges};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Made-up benchmarks of each kind. Of a share of 5 %, 2,000 count up to 5 + 3 * 0.49 % by chance.
const BENCHES: u64 = 2000;
const MOST_WRONG: f64 = 0.05 + 3.0 * 0.00487;
/// Resamples of an interval: far fewer than a page has, for the share of picks is an average over many benchmarks.
const RESAMPLES: usize = 200;
/// Compared in full, with the intervals of the page: fewer, for each has thousands of resamples.
const COMPARED: u64 = 200;
const MOST_WRONG_COMPARED: f64 = 0.05 + 3.0 * 0.0154;

/// A made-up benchmark: `system` and `equals` candidates.
#[derive(Clone, Copy)]
struct Made {
    equals: usize,
    rounds: u32,
    sigma: f64,
    /// A tenth of the runs lies four deviations higher.
    is_heavy: bool,
    /// Factor of the memory of the last candidate.
    last: f64,
}

/// Nearly normal: the sum of twelve even numbers.
fn normal(random: &mut SmallRng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

impl Made {
    fn names(&self) -> Vec<String> {
        let name = |at: usize| if at == 0 { "system".to_owned() } else { format!("c{at}") };
        (0..=self.equals).map(name).collect()
    }

    fn noise(&self, random: &mut SmallRng) -> f64 {
        let plain = normal(random);
        match self.is_heavy {
            true if random.random::<f64>() < 0.1 => (plain + 4.0) / 1.56,
            true => plain / 1.56,
            false => plain,
        }
    }

    fn runs(&self, seed: u64) -> Vec<RawRun> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut runs = vec![];
        for (at, candidate) in self.names().into_iter().enumerate() {
            for round in 0..self.rounds {
                let factor = if at == self.equals { self.last } else { 1.0 };
                let value = 1e8 * factor * (self.sigma * self.noise(&mut random)).exp();
                let memory = Figure::lower("memory", value, "B");
                let (program, candidate) = ("made up".into(), candidate.clone());
                let run = RawRun { program, candidate, round, user_s: 1.0, ..RawRun::default() };
                runs.push(run.with_server(ServerRun::of([memory])));
            }
        }
        runs
    }

    /// The candidate that a proven gain picks.
    fn pick(&self, seed: u64) -> Option<usize> {
        let changes = RoundChanges::of("made up", &self.runs(seed));
        let goal = Goal::Memory;
        let rule =
            PickRule { goal, rails: vec![], least_gain: 0.05, needs_proof: true, resamples: RESAMPLES };
        rule.pick(&changes, &changes.rounds)
    }

    fn share(&self, is: impl Fn(Option<usize>) -> bool) -> f64 {
        (0..BENCHES).filter(|&seed| is(self.pick(seed))).count() as f64 / BENCHES as f64
    }
}

#[test]
fn equal_candidates_are_picked_in_one_benchmark_of_twenty() {
    let mut too_often = vec![];
    for equals in [1, 7] {
        for is_heavy in [false, true] {
            for rounds in [3, 4, 6, 12] {
                for sigma in [0.02, 0.08, 0.20] {
                    let made = Made { equals, rounds, sigma, is_heavy, last: 1.0 };
                    let share = made.share(|pick| pick.is_some());
                    let shape = if is_heavy { "heavy tail" } else { "normal" };
                    println!(
                        "{equals} equal, {shape}, {rounds} rounds, noise {sigma}: {:.1} %",
                        share * 100.0
                    );
                    if share > MOST_WRONG {
                        too_often.push((equals, shape, rounds, sigma, share));
                    }
                }
            }
        }
    }
    assert!(too_often.is_empty(), "{too_often:?}");
}

/// Benchmarks of equal candidates by the noise of the published runs: 2,000, each with four candidates, six rounds and
/// `system` three times a round.
#[test]
fn equal_services_are_neither_picked_nor_rejected() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/services.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    let run = |line: &str| match Line::parse(line) {
        Ok(Line::Run(run)) => Some(*run),
        _ => None,
    };
    let pairs = EqualPairs::of(&text.lines().filter_map(run).collect::<Vec<_>>());
    let rails = ["cpu+2%", "p99+5%"].map(|rail| rail.parse().unwrap()).to_vec();
    let rule =
        PickRule { goal: Goal::Memory, rails, least_gain: 0.05, needs_proof: true, resamples: RESAMPLES };
    let shape = BenchShape { equal: 4, rounds: 6, system_runs: 3 };
    let found = pairs.benches(&rule, shape, 2000).unwrap();
    println!("{found:?}");
    assert!(found.share <= 0.05, "{found:?}");
    assert!(found.picked as f64 / 2000.0 <= MOST_WRONG, "{found:?}");
    assert!(found.rejecting as f64 / 2000.0 <= 0.10, "{found:?}");
}

#[test]
fn the_comparison_of_a_bench_picks_no_more_often() {
    for (rounds, sigma) in [(4, 0.08), (6, 0.05)] {
        let made = Made { equals: 7, rounds, sigma, is_heavy: false, last: 1.0 };
        let wrong = (0..COMPARED).filter(|&seed| {
            let options = ServiceOptions { seed, ..ServiceOptions::default() };
            compare_services(&made.names(), &made.runs(seed), &options).pick() != "system"
        });
        let share = wrong.count() as f64 / COMPARED as f64;
        println!("compared, {rounds} rounds, noise {sigma}: {:.1} %", share * 100.0);
        assert!(share <= MOST_WRONG_COMPARED, "{rounds} rounds, noise {sigma}: {share}");
    }
}

/// One benchmark of a server with rounds until it is settled: `system` three times a round, three equal candidates and
/// a limit of no more memory. How many candidates the limit rejects at any look.
fn rejected_at_any_look(seed: u64) -> usize {
    let mut random = SmallRng::seed_from_u64(seed);
    let names = ["system", "c1", "c2", "c3"].map(str::to_owned);
    let looks = Looks::SERVER;
    let rails = vec!["memory+0%".parse().unwrap()];
    let options = ServiceOptions { seed, rails, looks: Some(looks), ..ServiceOptions::default() };
    let (mut runs, mut rejected) = (vec![], BTreeSet::new());
    for round in 0..looks.most {
        for (at, name) in
            ["system", "system", "system", "c1", "c2", "c3"].iter().zip(0_u32..).map(|(n, at)| (at, n))
        {
            let memory = Figure::lower("memory", 1e8 * (0.05 * normal(&mut random)).exp(), "B");
            let at_s = f64::from(round * 10 + at);
            let run = RawRun { candidate: (*name).into(), round, at_s, user_s: 1.0, ..RawRun::default() };
            runs.push(run.with_server(ServerRun::of([memory])));
        }
        if round + 1 >= looks.first {
            let found = compare_services(&names, &runs, &options).candidates;
            let broken = found.into_iter().filter(|one| !one.exceeds.is_empty());
            rejected.extend(broken.map(|one| one.name));
        }
    }
    rejected.len()
}

#[test]
fn looks_at_a_server_reject_equal_candidates_no_more_often() {
    const SERVERS: u64 = 60;
    let rejected: usize = (0..SERVERS).map(rejected_at_any_look).sum();
    let share = rejected as f64 / (3 * SERVERS) as f64;
    println!("looked at after each round: {:.1} % of the candidates are rejected", share * 100.0);
    assert!(share <= 0.05, "{share}");
}

/// Made-up benches by the course of `imas bench`: three candidates, equal but for the last. The share that picks one, and
/// the mean number of runs.
fn courses(sigma: f64, is_heavy: bool, last: f64) -> (f64, f64) {
    let (mut picked, mut made) = (0, 0);
    let looks = Looks::SERVER;
    for seed in 0..BENCHES {
        let bench = Made { equals: 3, rounds: looks.most, sigma, is_heavy, last };
        let runs = bench.runs(seed);
        let how =
            ServiceOptions { seed, resamples: RESAMPLES, looks: Some(looks), ..ServiceOptions::default() };
        let course = CourseOptions { ignores_heaps: true, looks };
        let found = FollowedCourse::of(&bench.names(), &how, &course, |name, round| {
            runs.iter().find(|run| run.candidate == name && run.round == round).cloned()
        });
        picked += usize::from(found.comparison.pick() != "system");
        made += found.runs.len();
    }
    (picked as f64 / BENCHES as f64, made as f64 / BENCHES as f64)
}

#[test]
fn the_course_of_a_server_picks_equal_candidates_no_more_often() {
    for (sigma, is_heavy) in [(0.02, false), (0.05, false), (0.05, true), (0.20, false), (0.20, true)] {
        let (share, runs) = courses(sigma, is_heavy, 1.0);
        println!("course, noise {sigma}, heavy {is_heavy}: {:.1} %, {runs:.1} runs", share * 100.0);
        assert!(share <= MOST_WRONG, "noise {sigma}: {share}");
    }
}

#[test]
fn the_course_of_a_server_finds_a_gain_in_few_runs() {
    for (sigma, last, least, most) in
        [(0.02, 0.8, 0.95, 11.0), (0.02, 0.9, 0.7, 13.0), (0.05, 0.8, 0.5, 14.0)]
    {
        let (share, runs) = courses(sigma, false, last);
        println!("course, noise {sigma}, factor {last}: {:.0} %, {runs:.1} runs", share * 100.0);
        assert!(share >= least && runs <= most, "noise {sigma}, factor {last}: {share}, {runs}");
    }
}

#[test]
fn a_gain_of_ten_per_cent_is_found() {
    for (rounds, sigma, least) in [(4, 0.02, 0.9), (4, 0.05, 0.3), (6, 0.02, 0.99), (6, 0.05, 0.65)] {
        let made = Made { equals: 7, rounds, sigma, is_heavy: false, last: 0.9 };
        let found = made.share(|pick| pick == Some(made.equals - 1));
        println!(
            "7 candidates, {rounds} rounds, noise {sigma}: the better one is found in {:.0} %",
            found * 100.0
        );
        assert!(found >= least, "{rounds} rounds, noise {sigma}: {found}");
    }
}
