// SPDX-License-Identifier: Apache-2.0
//! Replicas have their trials at the same time, each under another candidate.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Stdio};

use imas_store::samples::StoredProgram;
use support::{World, python};

/// Works, then waits until its standard input is closed.
const WORKER: &str = "
import sys
kept = [[str(i) for i in range(2000)] for _ in range(20)]
sys.stdin.read()
";

struct Worker(Child);

impl Worker {
    fn start(world: &World, script: &Path) -> Self {
        let mut command = world.command(&python());
        Self(command.arg(script).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    /// The allocator that the hook counts for; None without the hook.
    fn under_trial(&self) -> Option<String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap_or_default();
        let is_hooked = maps.contains("/libimas.so");
        let name = ["jemalloc", "mimalloc"].into_iter().find(|name| maps.contains(&format!("lib{name}.so")));
        is_hooked.then(|| name.unwrap_or("system").to_owned())
    }

    /// Closes standard input, so that the worker ends.
    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The worker that takes the trial on offer, and what it runs under.
fn replica(world: &World, script: &Path, program: &StoredProgram) -> (Worker, String) {
    world.wait("a trial is on offer", || world.offer(program).is_some());
    let offered = world.offer(program);
    let worker = Worker::start(world, script);
    world.wait("it runs a trial", || worker.under_trial().is_some());
    world.wait("the trial is taken", || world.offer(program) != offered);
    let under = worker.under_trial().unwrap();
    (worker, under)
}

#[test]
fn workers_that_live_side_by_side_are_tried_at_the_same_time() {
    let mut world =
        World::with("worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\", \"mimalloc\"]\n");
    world.start();
    let script = world.script("worker.py", WORKER);
    let before = [Worker::start(&world, &script), Worker::start(&world, &script)];
    world.wait("the program is noticed", || world.program(&script).is_some());
    let program = world.program(&script).unwrap();
    let replicas: Vec<_> = (0..3).map(|_| replica(&world, &script, &program)).collect();
    let all = BTreeSet::from(["system", "jemalloc", "mimalloc"].map(str::to_owned));
    let names: BTreeSet<String> = replicas.iter().map(|(_, under)| under.clone()).collect();
    assert_eq!(names, all, "each has another candidate");
    assert_eq!(world.offer(&program), None, "the round is complete, so no trial is on offer");
    for (worker, _) in replicas {
        worker.end();
    }
    world.wait("all three are stored", || world.counter("trials_stored") == 3);
    let trials = world.store().trials(program.id).unwrap();
    let tried: BTreeSet<String> = trials.into_iter().map(|trial| trial.sample.candidate).collect();
    assert_eq!(tried, all);
    let newest = || world.store().decisions(program.id, 1).unwrap().remove(0);
    world.wait("another round or a decision", || world.offer(&program).is_some() || !newest().trial);
    drop(before);
}

/// A program without replicas has one trial at a time.
#[test]
fn a_program_that_lives_alone_waits_for_its_trial() {
    let mut world =
        World::with("worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\", \"mimalloc\"]\n");
    world.start();
    let script = world.script("worker.py", WORKER);
    let first = Worker::start(&world, &script);
    world.wait("the program is noticed", || world.program(&script).is_some());
    first.end();
    let program = world.program(&script).unwrap();
    let (alone, _) = replica(&world, &script, &program);
    assert_eq!(world.offer(&program), None);
    alone.end();
    world.wait("the next trial is on offer", || world.offer(&program).is_some());
}
