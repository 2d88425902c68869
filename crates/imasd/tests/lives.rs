// SPDX-License-Identifier: Apache-2.0
//! Running processes: how services live on (memory in windows, work by the user's counter, untouched replicas), and
//! what imasd does where memory is short or `[trim]` says so.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use imas_core::service_life::LifeWindow;
use imas_store::samples::StoredProgram;
use imas_testing::{Running, end_piped, skipped, start_piped};

use crate::support::{World, python};

/// Works and grows until it is killed; counts its work in a file.
const SERVICE: &str = "
import os, sys, threading, time
kept, done, own = [], 0, f'count.{os.getpid()}'
def work():
    global done
    while True:
        kept.append(b'x' * 20000)
        done += sum(1 for _ in range(20000)) // 20000
        with open(own, 'w') as file:
            file.write(str(done))
        os.replace(own, 'count')
        time.sleep(0.01)
threading.Thread(target=work).start()
";

fn start(world: &World, script: &Path) -> Running {
    Running(world.command(&python()).arg(script).stdout(Stdio::null()).spawn().unwrap())
}

/// A world with that command as the counter of the service, and the service's script.
fn world(work: &str) -> (World, PathBuf) {
    let world = World::new();
    let script = world.script("service.py", SERVICE);
    let settings = "worth_cpu_s = 0.0\nworth_life_s = 0.1\nsample_after_s = 1.0\ncandidates = ['jemalloc', 'mimalloc']\n";
    let work = work.replace("FOLDER", world.path("work").to_str().unwrap());
    world.configure(&format!("{settings}[program.'{}']\nwork = \"{work}\"\n", script.display()));
    (world, script)
}

/// The windows of the process that runs the first trial.
fn windows(world: &World, program: &StoredProgram) -> Vec<LifeWindow> {
    let trials = world.store().trials(program.id).unwrap();
    let life = trials.first().and_then(|trial| trial.sample.life.clone());
    life.unwrap_or_default().windows
}

fn troubles(world: &World) -> Vec<serde_json::Value> {
    world.status()["work_troubles"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_service_on_trial_is_looked_at_as_long_as_it_lives() {
    let (mut world, script) = world("cat FOLDER/count");
    world.start();
    let program = world.notice(&script);
    let service = start(&world, &script);
    world.wait("two windows with work", || {
        windows(&world, &program).iter().filter(|window| window.work.is_some()).count() >= 2
    });
    let windows = windows(&world, &program);
    // On a busy machine one in between may be hardly seen, and is left out then.
    let doubles = |pair: &[LifeWindow]| {
        let times = (pair[1].until_s / pair[0].until_s).log2();
        times >= 1.0 && times.fract() == 0.0
    };
    assert!(windows.windows(2).all(doubles), "{windows:?}");
    let last = windows.iter().rfind(|window| window.work.is_some()).unwrap();
    assert!(last.mean_bytes > 1 << 20 && last.peak_bytes >= last.mean_bytes, "{last:?}");
    assert!(last.live_bytes > 100_000 && last.calls > 1000 && last.cpu_s > 0.0, "{last:?}");
    assert!(last.slope_bytes_per_h > 0.0, "it grows: {last:?}");
    let work = last.work.unwrap();
    // The counter is read a while after the look, if the machine is busy; both count whole ticks of 10 ms.
    assert!(work.units >= 2.0 && work.cpu_s > 0.0 && work.cpu_s <= last.cpu_s + 0.5, "{last:?}");
    assert_eq!(troubles(&world), Vec::<serde_json::Value>::new());
    world.wait("the state counts both", || world.counter("windows_stored") >= 2);
    drop(service);
}

/// A window goes on where an imasd that was started again finds the process.
#[test]
fn a_life_goes_on_after_a_restart_of_imasd() {
    let (mut world, script) = world("cat FOLDER/count");
    world.start();
    let program = world.notice(&script);
    let service = start(&world, &script);
    world.wait("a window", || !windows(&world, &program).is_empty());
    world.stop("-KILL");
    let before = windows(&world, &program);
    world.start();
    world.wait("another window", || windows(&world, &program).len() > before.len());
    assert_eq!(windows(&world, &program)[..before.len()], before[..], "none is changed");
    drop(service);
}

#[test]
fn a_counter_that_fails_is_reported_and_the_service_is_measured_without() {
    let (mut world, script) = world("echo broken; exit 3");
    world.start();
    let program = world.notice(&script);
    let service = start(&world, &script);
    world.wait("two windows", || windows(&world, &program).len() >= 2);
    assert!(windows(&world, &program).iter().all(|window| window.work.is_none()));
    world.wait("it is reported", || !troubles(&world).is_empty());
    let trouble = troubles(&world).remove(0);
    assert_eq!(trouble["program"].as_str().unwrap(), script.to_str().unwrap());
    assert!(trouble["why"].as_str().unwrap().contains("exit status 3"), "{trouble}");
    assert_eq!(world.log().matches("its work cannot be counted").count(), 1, "once");
    drop(service);
}

/// While the command hangs, imasd goes on: it notices programs and stores the trial.
#[test]
fn a_counter_that_hangs_holds_up_nothing() {
    let (mut world, script) = world("sleep 1000");
    world.start();
    let program = world.notice(&script);
    let service = start(&world, &script);
    world.wait("the sample of the trial", || !world.store().trials(program.id).unwrap().is_empty());
    let other = world.script("other.py", SERVICE);
    let second = start(&world, &other);
    world.wait("another program is noticed", || world.program(&other).is_some());
    drop((service, second));
}

#[test]
fn untouched_replicas_are_looked_at() {
    let (mut world, script) = world("cat FOLDER/count");
    world.start();
    // One that starts when the others are noticed already would take a trial.
    world.freeze();
    let workers: Vec<_> = (0..3).map(|_| start(&world, &script)).collect();
    let threads = |of: &Running| std::fs::read_dir(format!("/proc/{}/task", of.0.id())).unwrap().count();
    world.wait("all work", || workers.iter().all(|worker| threads(worker) > 1));
    world.signal("-CONT");
    world.wait("the program is noticed", || world.program(&script).is_some());
    let program = world.program(&script).unwrap();
    let count = || {
        let store = world.store();
        let build_id = imas_engine::inspect::command(&command_of(&program), None).unwrap().build_id;
        store.untouched_lives(program.id, &build_id, &imas_linux::host::machine_state()).unwrap()
    };
    world.wait("a window of each worker", || count().len() == 3);
    assert!(count().iter().all(|one| one.life.peak_bytes() > 1 << 20));
    assert!(world.store().trials(program.id).unwrap().is_empty());
    drop(workers);
}

/// The command of a stored program.
fn command_of(program: &StoredProgram) -> imas_linux::program::Command {
    imas_linux::program::Command {
        file: program.path.clone().into(),
        argv: vec![],
        arguments: vec![],
        program: imas_linux::program::Program {
            path: program.path.clone().into(),
            detail: program.detail.clone(),
        },
        privileged: false,
    }
}

/// Sixteen seconds of CPU time, which pay for a trim, and 60 MB with free pages between blocks in use.
const BUSY_HOLDER: &str = concat!(
    "import time\nwhile time.process_time() < 16: pass\n",
    include_str!("../../../tests/programs/holds_free.py")
);

fn busy_holder(world: &World) -> Child {
    let mut command = world.command(&python());
    command.args(["-c", BUSY_HOLDER, "blocked"]).env_remove("LD_PRELOAD");
    start_piped(&mut command)
}

#[test]
fn a_process_that_knows_nothing_of_imas_gives_back_once() {
    let mut world = World::with("[trim]\nevery = '1m'\nat_least = '16M'\n");
    let child = busy_holder(&world);
    world.start();
    world.wait("it was trimmed, or cannot be", || {
        world.counter("trims_outside") > 0 || world.log().contains("is left alone")
    });
    let (trims, mib) = (world.counter("trims_outside"), world.counter("trims_returned_mib"));
    let spent_ms = world.counter("trims_spent_ms");
    let (log, status) = (world.log(), world.status());
    let page = world.imas("status").arg("--run-dir").arg(world.path("run")).output().unwrap();
    world.stop("-TERM");
    let line = format!("trim: process {} (", child.id());
    end_piped(child);
    if log.contains("may not be traced") {
        return skipped("processes cannot be traced here");
    }
    assert!(log.contains(&line) && log.contains("MiB back: thread "), "{log}");
    assert!(trims == 1 && mib >= 40 && spent_ms <= 160, "{trims} {mib} MiB {spent_ms} ms\n{log}");
    assert_eq!(status["trims_left_alone"], serde_json::json!([]), "nothing came back");
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("trims outside 1, trims returned mib "), "{page}");
}
