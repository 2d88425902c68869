// SPDX-License-Identifier: Apache-2.0
//! Replicas have their trials at the same time, each under another candidate.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::support::{World, python};
use imas_core::TrialRecord;
use imas_linux::index::{OfferedTrial, offered};
use imas_store::samples::StoredProgram;
use imas_testing::Running;

/// Works, prints a letter, then waits until its standard input is closed.
const WORKER: &str = "
import sys
kept = [[str(i) for i in range(2000)] for _ in range(20)]
print('x', flush=True)
sys.stdin.read()
";

struct Worker(Running);

impl Worker {
    fn start(world: &World, script: &Path) -> Self {
        let mut command = world.command(&python());
        Self(Running(command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()))
    }

    /// Waits until the worker has worked.
    fn has_worked(&mut self) {
        self.0.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    /// The allocator that the hook counts for; None without the hook.
    fn under_trial(&self) -> Option<String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.0.id())).unwrap_or_default();
        // libc is mapped after all that is preloaded: before that, the allocator may be missing yet.
        let is_hooked = maps.contains("/libimas.so") && maps.contains("/libc.so.6");
        let name = ["jemalloc", "mimalloc", "hoard"]
            .into_iter()
            .find(|name| maps.contains(&format!("lib{name}.so")));
        is_hooked.then(|| name.unwrap_or("system").to_owned())
    }

    /// Closes standard input, so that the worker ends.
    fn end(mut self) {
        drop(self.0.0.stdin.take());
        assert!(self.0.0.wait().unwrap().success());
    }
}

/// Offers of the program in the index: candidate ids and tokens.
fn offers(world: &World, program: &StoredProgram) -> Vec<OfferedTrial> {
    let id = u64::try_from(program.id).unwrap();
    let index = world.index();
    index.entries().filter(|entry| entry.program_id == id).flat_map(offered).collect()
}

fn start(world: &World, script: &Path, count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::start(world, script)).collect()
}

/// Candidates that these workers run under, once all of them run a trial.
fn all_under_trial(world: &World, workers: &[Worker]) -> Vec<String> {
    let under = || workers.iter().map(Worker::under_trial).collect::<Option<Vec<_>>>();
    world.wait("all run a trial", || under().is_some());
    let mut under = under().unwrap();
    under.sort();
    under
}

/// First workers of a program, which only show that it has `count` replicas: the script, the program with a
/// trial on offer for each worker of the next deployment, and the workers, which still run.
fn first_deployment(world: &World, count: usize) -> (PathBuf, StoredProgram, Vec<Worker>) {
    let script = world.script("worker.py", WORKER);
    // One that starts when the others are noticed already would take a trial.
    world.freeze();
    let mut workers = start(world, &script, count);
    workers.iter_mut().for_each(Worker::has_worked);
    world.signal("-CONT");
    world.wait("the program is noticed", || world.program(&script).is_some());
    let program = world.program(&script).unwrap();
    world.wait("a trial for each worker", || offers(world, &program).len() == count);
    (script, program, workers)
}

/// The program and the workers of its second deployment: each may take a trial.
fn second_deployment(world: &World, count: usize) -> (StoredProgram, Vec<Worker>) {
    let (script, program, before) = first_deployment(world, count);
    before.into_iter().for_each(Worker::end);
    (program, start(world, &script, count))
}

/// Four workers with four candidates: every start of a deployment has a trial of its own, though all start
/// before imasd can publish anything, and `system` runs beside the others.
#[test]
fn workers_that_start_at_once_have_each_another_candidate() {
    let candidates = "candidates = [\"jemalloc\", \"mimalloc\", \"hoard\"]\n";
    let mut world = World::with(&format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{candidates}"));
    world.start();
    let (program, workers) = second_deployment(&world, 4);
    assert_eq!(all_under_trial(&world, &workers), ["hoard", "jemalloc", "mimalloc", "system"]);
    world.wait("no trial is left", || offers(&world, &program).is_empty());
    workers.into_iter().for_each(Worker::end);
    world.wait("all are stored", || world.counter("trials_stored") == 4);
    let trials = world.store().trials(program.id).unwrap();
    let begins = trials.iter().map(|trial| trial.sample.made_unix_s).fold(0.0, f64::max);
    let is_beside = |trial: &TrialRecord| trial.sample.made_unix_s + trial.sample.wall_s > begins;
    assert!(trials.iter().all(is_beside), "they ran at the same time");
    let newest = || world.store().decisions(program.id, 1).unwrap().remove(0);
    world.wait("another deployment or a decision", || {
        let offers = offers(&world, &program).len();
        // The offers are of candidates that are not eliminated by now; one of them is `system`.
        (2..=4).contains(&offers) || (offers == 0 && !newest().trial)
    });
}

/// imasd that is started again goes on with the deployment: no trial is run twice.
#[test]
fn a_deployment_survives_a_restart_of_imasd() {
    let candidates = "candidates = [\"jemalloc\", \"mimalloc\"]\n";
    let mut world = World::with(&format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{candidates}"));
    world.start();
    let (program, workers) = second_deployment(&world, 3);
    assert_eq!(all_under_trial(&world, &workers), ["jemalloc", "mimalloc", "system"]);
    world.wait("all are taken", || offers(&world, &program).is_empty());
    world.stop("-TERM");
    world.start();
    workers.into_iter().for_each(Worker::end);
    world.wait("all are stored", || world.store().trials(program.id).unwrap().len() == 3);
}
