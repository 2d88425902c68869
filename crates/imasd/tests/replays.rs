// SPDX-License-Identifier: Apache-2.0
//! Starts that imasd has recorded, and replays when the machine is idle.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use imas_store::Store;
use imas_store::recordings::{AskedRecording, RefusedRecording};
use imas_store::samples::StoredProgram;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use support::World;

/// Holds and frees many blocks of all sizes; prints which of IMAS's libraries it has loaded.
const WORKER: &str = "
import sys, time
kept = [('x' * (i % 700)) + str(i) for i in range(150000)]
for turn in range(4):
    kept = [text + 'y' for text in kept if len(text) % 3 != turn % 3] + ['z' * (i % 900) for i in range(50000)]
print(sorted({line.split('/')[-1].strip() for line in open('/proc/self/maps') if '/imas/' in line}))
if sys.argv[1:]:
    time.sleep(300)
";

/// At idle priority a replay gets nothing on a machine as busy as one that tests.
const NORMAL: &str = "priority = 'normal'\n";

const RULES: &str = "worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\", \"mimalloc\", \"glibc:arena1\", \"glibc:lean\"]\n";

/// This machine may be as busy as it likes.
fn world(replay: &str) -> World {
    let mut world = World::with(&format!("{RULES}[replay]\nenabled = true\nmost_pressure = 100.0\n{replay}"));
    world.start();
    world
}

fn status(world: &World) -> serde_json::Value {
    let text = std::fs::read(world.path("run/state/status.json")).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&text).unwrap_or_default()["replay"].clone()
}

/// Folders of recordings that are offered, grow or wait.
fn folders(world: &World) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(world.path("db/recordings")).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| !path.to_string_lossy().contains("/imas-")).collect()
}

fn is_offered(world: &World) -> bool {
    folders(world).iter().any(|folder| folder.join("offer").exists())
}

/// Starts the script until a start has been recorded. Its offer is published within seconds; a start before that is
/// a trial or an untouched one.
fn run_recorded(world: &World, script: &std::path::Path, store: &Store, program: &StoredProgram) {
    let mut was_recorded = false;
    world.wait("a start is recorded", || {
        let printed = String::from_utf8(world.python(script).stdout).unwrap();
        was_recorded |= printed.contains("libimas-record.so");
        assert!(!printed.contains("libimas-record.so") || !printed.contains("libimas.so"), "{printed}");
        was_recorded
    });
    world.wait("its recording is known", || {
        let known = store.recording(program.id).unwrap();
        known.is_none_or(|known| known.begun.is_some())
    });
}

/// Of Linux.
const SCHED_IDLE: u32 = 5;

/// The child that replays.
fn child_of(world: &World) -> Option<procfs::process::Stat> {
    let run_dir = world.path("run").to_string_lossy().into_owned();
    let is_it = |process: &procfs::process::Process| {
        let words = process.cmdline().unwrap_or_default();
        words.contains(&run_dir) && words.contains(&"--of-daemon".to_owned())
    };
    let mut found = procfs::process::all_processes().unwrap().flatten().filter(is_it);
    found.find_map(|process| process.stat().ok())
}

#[test]
fn a_program_is_recorded_replayed_at_idle_and_then_needs_few_trials() {
    let mut world = world(NORMAL);
    let script = world.script("worker.py", WORKER);
    let program = world.notice(&script);
    let store = world.store();
    world.wait("its recording is offered", || is_offered(&world));
    run_recorded(&world, &script, &store, &program);
    world.wait("predictions are stored", || store.predictions(program.id).unwrap().is_some());
    world.wait("the raw files are deleted", || folders(&world).is_empty());
    world.wait("the status says so", || status(&world)["learned"] == 1);
    let predictions = store.predictions(program.id).unwrap().unwrap();
    let mut names: Vec<_> = predictions.differences.iter().map(|one| one.candidate.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["glibc:arena1", "glibc:lean", "jemalloc", "mimalloc"]);
    assert!(
        predictions.run.peak_bytes > 1e6 && predictions.run.allocator_share > 0.0,
        "{:?}",
        predictions.run
    );
    // The policy uses them, and the program starts as decided.
    world.settle(&script, &program);
    let trials = store.trials(program.id).unwrap();
    let tried: std::collections::BTreeSet<_> =
        trials.iter().map(|trial| trial.sample.candidate.as_str()).filter(|name| *name != "system").collect();
    assert!(tried.len() < 4, "every candidate was tried: {tried:?}");
    let (printed, decided) = world.as_decided(&script, &program);
    let library = match decided.as_str() {
        "jemalloc" | "mimalloc" => format!("lib{decided}.so"),
        _ => String::new(),
    };
    assert!(printed.contains(&library) && !printed.contains("libimas-record"), "{decided}: {printed}");
    assert!(store.recording(program.id).unwrap().is_none(), "it is recorded once");
    let explain = world.imas("explain").arg(program.id.to_string()).output().unwrap();
    let explain = String::from_utf8(explain.stdout).unwrap();
    // Of how many it speaks depends on which were tried: the command has candidates of its own.
    assert!(explain.contains("predicted: a recorded run was replayed under"), "{explain}");
    world.stop("-TERM");
}

#[test]
fn replays_wait_for_an_idle_machine_and_survive_a_restart() {
    let mut world = World::with(&format!("{RULES}[replay]\nenabled = true\nmost_pressure = 0.0\n"));
    world.start();
    let script = world.script("worker.py", WORKER);
    let program = world.notice(&script);
    let store = world.store();
    run_recorded(&world, &script, &store, &program);
    // More work than CPUs. A machine with more of them may replay it, which is as well.
    let spin = || std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut spinning: Vec<_> = (0..8).map(|_| spin()).collect();
    let waits = || {
        let is_busy = status(&world)["obstacle"].as_str().is_some_and(|why| why.contains("other work"));
        is_busy || store.predictions(program.id).unwrap().is_some()
    };
    world.wait("it waits", waits);
    for child in &mut spinning {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // imasd is killed and finds the recording again.
    world.stop("-KILL");
    world.configure(&format!("{RULES}[replay]\nenabled = true\nmost_pressure = 100.0\n{NORMAL}"));
    world.start();
    world.wait("it is replayed", || store.predictions(program.id).unwrap().is_some());
    world.stop("-TERM");
}

#[test]
fn a_replay_that_takes_too_long_is_given_up_and_the_reason_shown() {
    let mut world = world("limit_s = 1.0\n");
    let script = world.script("worker.py", &WORKER.replace("range(4)", "range(9)"));
    let program = world.notice(&script);
    let store = world.store();
    run_recorded(&world, &script, &store, &program);
    // A stopped child takes too long on any machine. It must be killed, because it does not see SIGTERM.
    world.wait("it is replayed at the lowest priority", || {
        let child = child_of(&world).filter(|child| child.policy == Some(SCHED_IDLE));
        child.is_some_and(|child| killpg(Pid::from_raw(child.pgrp), Signal::SIGSTOP).is_ok())
    });
    world.wait("it is refused", || {
        store.recording(program.id).unwrap().is_some_and(|known| known.refused.is_some())
    });
    let why = store.recording(program.id).unwrap().unwrap().refused.unwrap().why;
    assert!(why.contains("took more than 1 s"), "{why}");
    assert!(child_of(&world).is_none());
    let show = world.imas("show").arg(program.id.to_string()).output().unwrap();
    let show = String::from_utf8(show.stdout).unwrap();
    assert!(show.contains("nothing was learned from it") && show.contains("took more than"), "{show}");
    world.wait("the raw files are deleted", || folders(&world).is_empty());
    assert!(store.predictions(program.id).unwrap().is_none());
    let build = store.refused_build(program.id).unwrap().unwrap();
    // This build is not recorded by itself again, but where it is asked for.
    let asked = AskedRecording { at_s: 1.0, limit_bytes: 1 << 40, window_s: None };
    assert!(store.ask_recording(program.id, &asked).unwrap());
    world.wait("it is offered again", || is_offered(&world));
    let bounded = store.recording(program.id).unwrap().unwrap().asked;
    assert_eq!((bounded.limit_bytes, bounded.window_s), (64 << 20, Some(600.0)), "within the bounds");
    let refused = RefusedRecording { at_s: 2.0, why: "it was taken back".to_owned() };
    assert!(store.refuse_recording(program.id, &build, &refused).unwrap());
    world.wait("taken back", || !is_offered(&world));
    world.stop("-TERM");
}
