// SPDX-License-Identifier: Apache-2.0
//! Replicas that live for hours: one deployment of trials is an answer where untouched replicas have shown
//! how memory varies, and noise alone changes nothing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::{AdaptiveState, Proof, Role, Settings};
use imas_core::candidate::Candidate;
use imas_core::paper::Limits;
use imas_core::sample::{MemoryFigures, OpFigures, Sample, Usage};
use imas_core::service_life::{LifeWindow, ServiceLife, UntouchedLife};
use imas_core::{History, TrialRecord};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Weight of CPU in the score: CPU and memory count alike.
const W: f64 = 0.5;
const FIRST_S: f64 = 600.0;

/// Standard deviations of logarithms between two workers.
#[derive(Clone, Copy)]
struct Noise {
    memory: f64,
    cpu: f64,
    /// How unevenly the load is shared out: it moves memory, live bytes, calls and CPU time alike.
    load: f64,
}

struct Service {
    random: SmallRng,
    noise: Noise,
    /// Memory of each candidate, as a difference of logarithms to `system`.
    truth: Vec<f64>,
    candidates: Vec<Candidate>,
    records: Vec<TrialRecord>,
    untouched: Vec<UntouchedLife>,
    now_s: f64,
}

impl Service {
    fn new(seed: u64, noise: Noise, truth: &[f64]) -> Self {
        let name = |i: usize| Candidate::new(&format!("c{i}"), "1", &[]);
        let candidates = (0..truth.len()).map(|i| if i == 0 { Candidate::system("1") } else { name(i) });
        Self {
            random: SmallRng::seed_from_u64(seed),
            noise,
            truth: truth.to_vec(),
            candidates: candidates.collect(),
            records: vec![],
            untouched: vec![],
            now_s: 1e9,
        }
    }

    /// A normal number: the sum of twelve even ones.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.random.random_range(-0.5..0.5)).sum()
    }

    /// The life of a worker under a deployment's load.
    fn window(&mut self, candidate: usize, load: f64) -> LifeWindow {
        let share = load + self.noise.load * self.normal();
        let memory = self.truth[candidate] + share + self.noise.memory * self.normal();
        let cpu = share + self.noise.cpu * self.normal();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive size")]
        let size = |log: f64| (1e8 * log.exp()) as u64;
        LifeWindow {
            until_s: FIRST_S,
            looks: 16,
            mean_bytes: size(memory),
            peak_bytes: size(memory),
            live_bytes: size(share) / 2,
            calls: size(share),
            cpu_s: 100.0 * cpu.exp(),
            ..LifeWindow::default()
        }
    }

    fn load(&mut self) -> f64 {
        self.now_s += 24.0 * 3600.0;
        0.3 * self.normal()
    }

    /// Workers that IMAS leaves alone.
    fn leave_alone(&mut self, workers: usize) {
        let load = self.load();
        for _ in 0..workers {
            let windows = vec![self.window(0, load)];
            self.untouched.push(UntouchedLife { begun_s: self.now_s, life: ServiceLife { windows } });
            self.now_s += 1.0;
        }
    }

    /// A deployment in which each worker has the trial that is due, or none.
    fn deploy(&mut self, workers: usize) -> usize {
        let load = self.load();
        let due = self.known().side_by_side(W, &[], workers);
        for &candidate in &due {
            let window = self.window(candidate, load);
            self.add(candidate, window);
            self.now_s += 1.0;
        }
        self.now_s += FIRST_S;
        due.len()
    }

    fn add(&mut self, candidate: usize, window: LifeWindow) {
        let memory = MemoryFigures {
            snapshots: 1,
            resident_over_time: window.mean_bytes,
            live_mean: window.live_bytes,
            ..MemoryFigures::default()
        };
        self.records.push(TrialRecord {
            sample: Sample {
                trial_id: format!("t{}", self.records.len()),
                candidate: self.candidates[candidate].name.clone(),
                made_unix_s: self.now_s,
                malloc: OpFigures { calls: window.calls, sampled: 9, mean_ns: 20.0, ..OpFigures::default() },
                memory,
                usage: Some(Usage { user_s: window.cpu_s, ..Usage::default() }),
                wall_s: FIRST_S,
                life: Some(ServiceLife { windows: vec![window] }),
                ..Sample::default()
            },
            allocator_version: "1".into(),
            ..TrialRecord::default()
        });
    }

    fn known(&self) -> AdaptiveState {
        let history = History {
            limits: Limits { retest_s: 0.0, ..Limits::default() },
            now_unix_s: self.now_s,
            untouched: &self.untouched,
            ..History::of(&self.records, &self.candidates)
        };
        let roles = vec![Role::Tested; self.candidates.len()];
        AdaptiveState::new(&history, &roles, &Settings::default())
    }

    fn pick(&self) -> usize {
        self.known().judge(W).pick
    }
}

const QUIET: Noise = Noise { memory: 0.015, cpu: 0.05, load: 0.0 };

#[test]
fn one_deployment_of_four_workers_is_an_answer() {
    let mut service = Service::new(1, QUIET, &[0.0, -0.3, 0.02, 0.3]);
    service.leave_alone(4);
    assert_eq!(service.deploy(4), 4, "each worker has another candidate");
    assert_eq!(service.pick(), 1);
    let proof = service.known().judge(W).standings[1].proof;
    assert_eq!(proof, Some(Proof::Memory));
    // Without them it is no proof: one run of each.
    service.untouched.clear();
    assert_eq!(service.pick(), 0);
}

#[test]
fn replicas_with_different_loads_are_no_measure() {
    let mut service = Service::new(2, Noise { load: 0.3, ..QUIET }, &[0.0, -0.3, 0.02, 0.3]);
    service.leave_alone(4);
    service.deploy(4);
    assert_eq!(service.known().board.untouched, None);
    assert_eq!(service.pick(), 0, "their trials are compared by live bytes, as before");
    while service.deploy(4) > 0 {}
    assert_eq!(service.pick(), 1);
}

#[test]
fn a_trial_that_ended_early_is_compared_by_samples() {
    let mut service = Service::new(3, QUIET, &[0.0, -0.3, 0.02, 0.3]);
    service.leave_alone(4);
    service.deploy(4);
    service.records[2].sample.life = None;
    assert_eq!((service.known().board.untouched, service.pick()), (None, 0));
}

#[test]
fn a_service_alone_is_compared_at_the_age_that_both_have_reached() {
    let mut service = Service::new(4, QUIET, &[0.0, 0.0]);
    for candidate in [0, 1, 0, 1] {
        service.load();
        let window = service.window(candidate, 0.0);
        service.add(candidate, window);
    }
    // It is leaner at first and grows; `system` was not seen for as long in the first round.
    let grown = |service: &mut Service, at: usize, bytes: u64| {
        let life = service.records[at].sample.life.as_mut().unwrap();
        let first = life.windows[0];
        life.windows.push(LifeWindow { until_s: 2.0 * FIRST_S, mean_bytes: bytes, ..first });
    };
    grown(&mut service, 1, 1 << 40);
    let early = service.known().board.pairs[1];
    assert!(early.count == 2 && early.mean_y.abs() < 0.2, "{early:?}");
    grown(&mut service, 0, 1 << 38);
    let late = service.known().board.pairs[1];
    assert!((late.mean_y - (4f64.ln() + early.mean_y) / 2.0).abs() < 0.2, "{late:?}");
}

/// Share of 2,000 programs, to which all candidates are alike, that are changed at any time, with noise of
/// that kind.
fn changed(workers: usize, candidates: usize, noise: Noise) -> f64 {
    let programs = 2000;
    let is_changed = |seed: u64| {
        let mut service = Service::new(1000 + seed, noise, &vec![0.0; candidates]);
        service.leave_alone(workers);
        let mut was_changed = false;
        for _ in 0..12 {
            if service.deploy(workers) == 0 {
                break;
            }
            was_changed |= service.pick() != 0;
        }
        was_changed
    };
    (0..programs).filter(|seed| is_changed(*seed)).count() as f64 / programs as f64
}

/// Noise of memory and of the load at all levels, also those at which it is by chance whether untouched
/// replicas are a measure.
#[test]
fn noise_alone_changes_nothing() {
    let mut worst: f64 = 0.0;
    for (workers, candidates) in [(4, 4), (4, 6), (8, 5)] {
        for (memory, load) in [(0.005, 0.0), (0.02, 0.0), (0.05, 0.0), (0.1, 0.0), (0.01, 0.05), (0.02, 0.2)]
        {
            let share = changed(workers, candidates, Noise { memory, load, cpu: 0.05 });
            println!("{workers} workers, {candidates} candidates, noise {memory} and {load}: {share:.3}");
            worst = worst.max(share);
        }
    }
    // With a true share of 5 % this number of programs shows more than 6.5 % once in 900 times.
    assert!(worst <= 0.065, "{worst}");
}

/// How many deployments and trials an answer takes: for docs/decisions/0030.
#[test]
fn an_answer_comes_sooner_by_untouched_replicas() {
    let count = |workers: usize, untouched: bool, truth: &[f64]| {
        let run = |seed: u64| {
            let mut service = Service::new(seed, QUIET, truth);
            if untouched {
                service.leave_alone(workers);
            }
            let mut found = (None, None);
            for deployment in 1..=20u32 {
                if service.deploy(workers) == 0 {
                    found.1 = Some(deployment - 1);
                    break;
                }
                if found.0.is_none() && service.pick() != 0 {
                    found.0 = Some(deployment);
                }
            }
            (found.0.unwrap_or(20), found.1.unwrap_or(20), service.records.len())
        };
        let runs: Vec<_> = (0..100).map(run).collect();
        let mean = |of: &dyn Fn(&(u32, u32, usize)) -> f64| runs.iter().map(of).sum::<f64>() / 100.0;
        (mean(&|run| f64::from(run.0)), mean(&|run| f64::from(run.1)), mean(&|run| run.2 as f64))
    };
    for (workers, truth) in [
        (4, vec![0.0, -0.3, 0.02, 0.3]),
        (4, vec![0.0, -0.3, -0.2, 0.02, 0.3]),
        (8, vec![0.0, -0.3, -0.2, 0.02, 0.3]),
    ] {
        let (with, without) = (count(workers, true, &truth), count(workers, false, &truth));
        let candidates = truth.len();
        println!(
            "{workers} workers, {candidates} candidates: changed after {:.1} deployments, settled after {:.1} ({:.1} trials); without untouched replicas {:.1}, {:.1} ({:.1})",
            with.0, with.1, with.2, without.0, without.1, without.2
        );
        assert!(with.0 < without.0);
    }
}
