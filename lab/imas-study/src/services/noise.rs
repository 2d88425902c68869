// SPDX-License-Identifier: Apache-2.0
//! The noise of a journal: pairs of runs of one and the same thing, and benchmarks that are made up from them.
//!
//! Such pairs are runs under `system` beside runs under a candidate that cannot act on the service, and several runs
//! under `system` in one round.

use std::collections::BTreeMap;

use imas_core::SYSTEM;
use imas_core::run::RawRun;
use imas_core::server_bench::course::{CourseOptions, FollowedCourse};
use imas_core::server_bench::{EvenCpu, ServiceOptions, compared, even_cpu};
use imas_core::server_run::{Figure, ServerRun};
use imas_core::stats::mean_and_deviation;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::services::no_effect::NoEffect;
use crate::services::pick_rule::PickRule;
use crate::services::round_changes::RoundChanges;

/// The figures whose noise is shown. `memory by time` is how memory was measured before. `cpu evened` is CPU time at the
/// usual speed of the CPUs, as it is compared; `cpu by ticks` is what ps(1) shows, and `cpu` the scheduler's run time.
/// `open_p99` is p99 of the open loop.
pub const NOISE_OF: [&str; 11] = [
    "memory",
    BY_TIME,
    "memory_idle",
    "memory_peak",
    "memory_day",
    "cpu",
    EVENED,
    "cpu by ticks",
    "cpu_day",
    "p99",
    "open_p99",
];
const BY_TIME: &str = "memory by time";
const EVENED: &str = "cpu evened";
/// The figures of made-up benchmarks, with the noise that each has.
const MADE_UP: [(&str, &str); 4] =
    [("memory", "memory"), ("memory_idle", "memory_idle"), ("cpu", EVENED), ("p99", "p99")];

/// Pairs of equal things.
#[derive(Debug, Default)]
pub struct EqualPairs {
    /// Logarithms of the ratios of each pair, by service and figure.
    by_service: BTreeMap<String, BTreeMap<&'static str, Vec<f64>>>,
    /// Service and candidate of the pairs.
    pub candidates: Vec<(String, String)>,
    /// All figures of each pair together, by service, for made-up benchmarks.
    deviations: BTreeMap<String, Vec<BTreeMap<String, f64>>>,
}

/// Noise of one service or of all.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct ServiceNoise {
    /// The service; empty: all.
    pub service: String,
    /// Number of pairs.
    pub pairs: usize,
    /// Root mean square of the logarithms in the order of [`NOISE_OF`].
    pub deviations: [Option<f64>; NOISE_OF.len()],
}

/// Results of benchmarks of equal candidates.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct EqualBenches {
    /// Number of benchmarks.
    pub benches: usize,
    /// Benchmarks that picked a candidate.
    pub picked: usize,
    /// Benchmarks in which a guard rail rejected one or more candidates.
    pub rejecting: usize,
    /// Candidates that a guard rail rejected or that were picked, as a share of all.
    pub share: f64,
}

impl EqualPairs {
    /// The pairs of a journal.
    #[must_use]
    pub fn of(runs: &[RawRun]) -> Self {
        let mut found = Self::default();
        let mut services: Vec<&str> = runs.iter().map(|run| run.program.as_str()).collect();
        services.sort_unstable();
        services.dedup();
        for service in services {
            let own: Vec<&RawRun> = runs.iter().filter(|run| run.program == service && run.ok).collect();
            found.read(service, &own);
        }
        found
    }

    fn read(&mut self, service: &str, own: &[&RawRun]) {
        let mut names: Vec<String> = own.iter().map(|run| run.candidate.clone()).collect();
        names.sort_unstable();
        names.dedup();
        let even = even_cpu(&names, own);
        for candidate in names.iter().filter(|name| NoEffect::of(name, own).is_some()) {
            self.candidates.push((service.to_owned(), candidate.clone()));
            let is_system = |run: &&&RawRun| run.candidate == SYSTEM;
            for run in own.iter().filter(|run| run.candidate == *candidate) {
                if let Some(system) = own.iter().filter(is_system).find(|system| system.round == run.round) {
                    self.pair(service, [run, system], &even);
                }
            }
        }
        let mut system: Vec<&&RawRun> = own.iter().filter(|run| run.candidate == SYSTEM).collect();
        system.sort_by_key(|run| run.round);
        for round in system.chunk_by(|a, b| a.round == b.round) {
            round.windows(2).for_each(|pair| self.pair(service, [pair[0], pair[1]], &even));
        }
    }

    fn pair(&mut self, service: &str, [run, system]: [&RawRun; 2], even: &EvenCpu) {
        let figures = self.by_service.entry(service.to_owned()).or_default();
        let mut all = BTreeMap::new();
        for figure in NOISE_OF {
            let both = value(run, figure, even).zip(value(system, figure, even));
            let ratio = both.map(|(a, b)| (a / b).ln());
            if let Some(log) = ratio.filter(|log| log.is_finite()) {
                figures.entry(figure).or_default().push(log);
                all.insert(figure.to_owned(), log);
            }
        }
        if MADE_UP.iter().all(|(_, noise)| all.contains_key(*noise)) {
            self.deviations.entry(service.to_owned()).or_default().push(all);
        }
    }

    /// The noise of each service, and of all together.
    #[must_use]
    pub fn noise(&self) -> Vec<ServiceNoise> {
        let row = |service: &str, of: &dyn Fn(&'static str) -> Vec<f64>| ServiceNoise {
            service: service.to_owned(),
            pairs: of("memory").len(),
            deviations: NOISE_OF.map(|figure| root_mean_square(&of(figure))),
        };
        let one = |(service, figures): (&String, &BTreeMap<&'static str, Vec<f64>>)| {
            row(service, &|figure| figures.get(figure).cloned().unwrap_or_default())
        };
        let all = |figure: &'static str| {
            self.by_service.values().filter_map(|figures| figures.get(figure)).flatten().copied().collect()
        };
        self.by_service.iter().map(one).chain([row("", &all)]).collect()
    }

    /// Benchmarks of equal candidates. Each has the noise of one service, and each of its runs deviates as a pair of
    /// that service did: its logarithms, over the square root of two, with a random sign. None without a pair that has
    /// all figures.
    #[must_use]
    pub fn benches(&self, rule: &PickRule, shape: BenchShape, benches: usize) -> Option<EqualBenches> {
        let services: Vec<&Vec<BTreeMap<String, f64>>> = self.deviations.values().collect();
        if services.is_empty() {
            return None;
        }
        let mut random = SmallRng::seed_from_u64(1);
        let mut found = EqualBenches { benches, picked: 0, rejecting: 0, share: 0.0 };
        let mut marked = 0;
        for _ in 0..benches {
            let service = services[random.random_range(0..services.len())];
            let changes = RoundChanges::of("", &shape.runs(service, &mut random));
            let candidates = 0..changes.candidates.len();
            let is_broken = |candidate: usize| {
                rule.rails.iter().any(|rail| rule.is_broken(rail, &changes, candidate, &changes.rounds))
            };
            let rejected = candidates.filter(|candidate| is_broken(*candidate)).count();
            let pick = rule.pick(&changes, &changes.rounds);
            found.picked += usize::from(pick.is_some());
            found.rejecting += usize::from(rejected > 0);
            marked += rejected + usize::from(pick.is_some());
        }
        found.share = marked as f64 / (benches * shape.equal).max(1) as f64;
        Some(found)
    }
}

impl EqualPairs {
    /// Benches of equal candidates by the course of `imas bench`, with the noise as in [`Self::benches`]: how many picked
    /// one, and the mean number of runs. None without a pair that has all figures.
    #[must_use]
    pub fn courses(
        &self,
        how: &ServiceOptions,
        course: &CourseOptions,
        equal: usize,
        benches: usize,
    ) -> Option<(usize, f64)> {
        let services: Vec<&Vec<BTreeMap<String, f64>>> = self.deviations.values().collect();
        let shape = BenchShape { equal, rounds: course.looks.most, system_runs: 1 };
        let mut random = SmallRng::seed_from_u64(1);
        let (mut picked, mut made) = (0, 0);
        for _ in 0..benches {
            let service = services.get(random.random_range(0..services.len().max(1)))?;
            let runs = shape.runs(service, &mut random);
            let names: Vec<String> = runs.iter().take(equal + 1).map(|run| run.candidate.clone()).collect();
            let followed = FollowedCourse::of(&names, how, course, |name, round| {
                runs.iter().find(|run| run.candidate == name && run.round == round).cloned()
            });
            picked += usize::from(followed.comparison.pick() != SYSTEM);
            made += followed.runs.len();
        }
        Some((picked, made as f64 / benches as f64))
    }
}

/// Shape of a made-up benchmark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BenchShape {
    /// Candidates that are equal to `system`.
    pub equal: usize,
    /// Rounds.
    pub rounds: u32,
    /// Runs under `system` in each round.
    pub system_runs: usize,
}

impl BenchShape {
    fn runs(self, deviations: &[BTreeMap<String, f64>], random: &mut SmallRng) -> Vec<RawRun> {
        let mut runs = vec![];
        let system = std::iter::repeat_n(SYSTEM.to_owned(), self.system_runs);
        let names: Vec<String> = system.chain((0..self.equal).map(|at| format!("c{at}"))).collect();
        for round in 0..self.rounds {
            for (candidate, at) in names.iter().zip(0_u32..) {
                let deviation = &deviations[random.random_range(0..deviations.len())];
                let sign = if random.random::<bool>() { 1.0 } else { -1.0 };
                let of = |name: &str| 100.0 * (sign * deviation[name] / 2.0_f64.sqrt()).exp();
                let figures = MADE_UP.map(|(name, noise)| Figure::lower(name, of(noise), "x"));
                let run = RawRun {
                    candidate: candidate.clone(),
                    round,
                    at_s: f64::from(round * 100 + at),
                    user_s: of(EVENED),
                    ..RawRun::default()
                };
                runs.push(run.with_server(ServerRun::of(figures)));
            }
        }
        runs
    }
}

fn value(run: &RawRun, figure: &str, even: &EvenCpu) -> Option<f64> {
    match figure {
        BY_TIME => by_time(run.of_server()),
        EVENED => compared(run, "cpu", even),
        "cpu by ticks" => run.value("cpu_ticks"),
        figure => run.value(figure),
    }
}

/// Mean over the time of the load, as it was measured before.
fn by_time(run: &ServerRun) -> Option<f64> {
    let from_s = run.value("ready")?;
    let to_s = from_s + run.cycles.iter().map(|cycle| cycle.wall_s).sum::<f64>();
    let inside: Vec<&(f64, u64)> =
        run.curve.iter().filter(|(at_s, _)| (from_s..=to_s).contains(at_s)).collect();
    let span = inside.last()?.0 - inside.first()?.0;
    let area =
        |pair: &[&(f64, u64)]| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1 as f64, pair[1].1 as f64);
    (span > 0.0).then(|| inside.windows(2).map(area).sum::<f64>() / span)
}

fn root_mean_square(logs: &[f64]) -> Option<f64> {
    let squares: Vec<f64> = logs.iter().map(|log| log * log).collect();
    (!logs.is_empty()).then(|| mean_and_deviation(&squares).0.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(candidate: &str, round: u32, memory: f64, loaded: Option<(usize, usize)>) -> RawRun {
        let names = ["memory", "memory_idle", "memory_peak", "cpu", "p99"];
        let server = ServerRun::of(names.map(|name| Figure::lower(name, memory, "x")));
        let (program, at_s) = ("s".to_owned(), f64::from(round) + memory);
        RawRun { program, candidate: candidate.into(), round, at_s, ..RawRun::default() }
            .with_server(ServerRun { loaded, ..server })
    }

    #[test]
    fn pairs_are_runs_of_the_same_thing() {
        let runs = [
            run(SYSTEM, 0, 100.0, None),
            run(SYSTEM, 0, 110.0, None),
            run("never loaded", 0, 90.0, Some((0, 1))),
            run("loaded", 0, 10.0, Some((1, 1))),
        ];
        let found = EqualPairs::of(&runs);
        assert_eq!(found.candidates, [("s".to_owned(), "never loaded".to_owned())]);
        let all = found.noise().pop().unwrap();
        assert_eq!(all.pairs, 2);
        let wanted = ((0.9_f64.ln().powi(2) + 1.1_f64.ln().powi(2)) / 2.0).sqrt();
        assert!((all.deviations[0].unwrap() - wanted).abs() < 1e-9, "{all:?}");
        assert_eq!(all.deviations[1], None, "no curve, no mean over time");
    }
}
