// SPDX-License-Identifier: Apache-2.0
//! `imas learn`: one recorded run, its replays, and trials of what they find promising.

use std::process::Output;

use crate::bench::behave;
use crate::support::{
    World, assert_hinted, describe, input, list, output, stderr, stdout, succeeded, text, wait_until,
};
use serde_json::Value;

const CANDIDATES: &str = "candidates = ['jemalloc', 'mimalloc', 'glibc:arena1']\nretest_s = 0\n[overrides]\nobjective = 'balanced'\n";

fn world() -> World {
    let world = World::new();
    world.configure(CANDIDATES);
    world
}

fn learn(world: &World, words: &[&str]) -> Output {
    output(world.imas(["learn", "-n", "1", "--policy", "adaptive"]).args(words))
}

/// The only program of the answer.
fn learned(world: &World, words: &[&str]) -> Value {
    let output = learn(world, &[&["--json"], words].concat());
    // Before the answer is what the command itself prints.
    let stdout = stdout(&output);
    let from = stdout.find("{\n").or_else(|| stdout.find('{')).unwrap_or(0);
    let answer: Value = serde_json::from_str(&stdout[from..])
        .unwrap_or_else(|error| panic!("{error}: {}", describe(&output)));
    assert_eq!(list(&answer, "/programs").len(), 1, "{answer:#}");
    answer["programs"][0].clone()
}

fn names<'a>(answer: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(answer, pointer).iter().map(|one| text(one, "/candidate")).collect()
}

/// Files of recordings that wait.
fn recordings(world: &World) -> usize {
    let folder = world.store_path().with_file_name("recordings");
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Bytes of all raw files.
fn raw_bytes(world: &World) -> u64 {
    let folders = std::fs::read_dir(world.store_path().with_file_name("recordings"));
    let files = folders.into_iter().flatten().flatten().flat_map(|folder| std::fs::read_dir(folder.path()));
    let bytes = |file: std::fs::DirEntry| file.metadata().map_or(0, |about| about.len());
    files.flatten().flatten().map(bytes).sum()
}

#[test]
fn a_command_is_recorded_replayed_and_its_trials_begin_with_what_is_promising() {
    let world = world();
    let sql = input("work.sql").to_string_lossy().into_owned();
    let script = format!(".read {sql}");
    let command = ["sqlite3", ":memory:", &script];
    let answer = learned(&world, &[&["--"], &command[..]].concat());
    assert_eq!(text(&answer, "/state"), "learned", "{answer:#}");
    assert!(answer["recorded"]["calls"].as_u64().unwrap() > 10_000, "{answer:#}");
    let mut predicted = names(&answer, "/predictions");
    predicted.sort_unstable();
    assert_eq!(predicted, ["glibc:arena1", "jemalloc", "mimalloc"], "{answer:#}");
    for one in list(&answer, "/predictions") {
        let of = |pointer: &str| one.pointer(pointer).unwrap().as_f64().unwrap();
        assert!(of("/predicted_memory") > -0.9 && of("/predicted_cpu") < 9.0, "{one:#}");
        assert!(of("/expected_memory/deviation") > 0.0, "{one:#}");
    }
    // The next start is decided with the predictions, by every command alike.
    let show = world.json(["show", "--json", "--policy", "adaptive", "sqlite3"]);
    assert_eq!(show["predictions"], answer["predictions"], "{show:#}");
    let explain = stdout(&output(&mut world.imas(["explain", "--policy", "adaptive", "sqlite3"])));
    assert!(explain.contains("a recorded run was replayed under 3 candidates"), "{explain}");
    assert!(explain.contains("predicted CPU, memory"), "{explain}");
    let standings = list(&show, "/standings");
    for (candidate, standing) in list(&show, "/candidates").iter().zip(standings) {
        let is_next = show["next"]["trial"] == true && show["next"]["candidate"] == candidate["name"];
        assert!(!is_next || text(standing, "/status") != "unpromising", "{show:#}");
    }
}

#[test]
fn the_next_start_of_a_program_is_recorded_and_replayed_when_it_has_ended() {
    let world = world();
    let program = behave(&world);
    let asked = learn(&world, &[&program]);
    assert!(asked.status.success() && stdout(&asked).contains("the next start by 'imas run' is recorded"));
    assert_eq!(text(&learned(&world, &[&program]), "/state"), "asked");
    let shown = stdout(&output(&mut world.imas(["show", &program])));
    assert!(shown.contains("is recorded instead; undo: imas learn --cancel"), "{shown}");
    // The first start alone is recorded; it has the program's own exit status.
    let first = world.start([&program, "200000", "exit3"]);
    assert_eq!(first.status.code(), Some(3), "{}", describe(&first));
    assert_eq!(recordings(&world), 1);
    assert!(world.start([&program, "20000"]).status.success());
    assert_eq!(recordings(&world), 1);
    let past = world.json(["explain", "--json", &program]);
    let reasons: Vec<_> = list(&past, "/past").iter().map(|one| text(one, "/reason")).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "recorded").count(), 1, "{past:#}");
    let answer = learned(&world, &["--pending"]);
    assert_eq!(text(&answer, "/state"), "learned", "{answer:#}");
    assert_eq!(names(&answer, "/predictions").len(), 3, "{answer:#}");
    assert_eq!(recordings(&world), 0, "the raw files are deleted");
    let none = learn(&world, &["--pending"]);
    assert!(none.status.success() && stdout(&none).contains("no recording waits"), "{}", describe(&none));
}

#[test]
fn a_running_program_is_waited_for_and_a_wish_can_be_taken_back() {
    let world = world();
    let program = behave(&world);
    let mut imas = world.imas(["run", "--record", "--", &program, "200000", "hang"]);
    let mut child = imas.spawn().unwrap();
    wait_until("most of its calls are recorded", || raw_bytes(&world) > 2 << 20);
    let answer = learned(&world, &["--pending"]);
    assert_eq!((text(&answer, "/state"), answer["pid"].as_u64()), ("running", Some(child.id().into())));
    child.kill().unwrap();
    child.wait().unwrap();
    let answer = learned(&world, &[&program]);
    assert_eq!(text(&answer, "/state"), "learned", "a kill loses nothing: {answer:#}");
    assert_eq!(text(&learned(&world, &[&program]), "/state"), "asked");
    assert_eq!(text(&learned(&world, &["--cancel", &program]), "/state"), "cancelled");
    assert_eq!(text(&learned(&world, &["--cancel", &program]), "/state"), "nothing-to-cancel");
    assert_eq!(learn(&world, &["--cancel", &program]).status.code(), Some(1));
    assert!(world.start([&program, "2000"]).status.success());
    assert_eq!(recordings(&world), 0);
}

/// A script whose first process ends at once. The other process works until the file is gone.
const DAEMON: &str = "
import os, sys, time
if os.fork():
    os._exit(0)
os.setsid()
kept = ['x' * 600 + str(i) for i in range(60000)]
kept = [text + 'y' for text in kept]
open(sys.argv[1] + '.ready', 'w').close()
while os.path.exists(sys.argv[1]):
    time.sleep(0.05)
";

#[test]
fn a_daemon_that_forked_away_is_replayed_when_it_has_ended() {
    let world = world();
    let (script, runs) = (world.work().join("daemon.py"), world.work().join("runs"));
    std::fs::write(&script, DAEMON).unwrap();
    std::fs::write(&runs, "").unwrap();
    let python = crate::support::real("python3");
    let words = [python.as_os_str(), script.as_os_str(), runs.as_os_str()];
    let mut imas = world.imas(["run", "--record", "--"]);
    assert!(imas.args(words).status().unwrap().success());
    wait_until("the daemon works", || world.work().join("runs.ready").exists());
    let answer = learned(&world, &["--pending"]);
    assert_eq!(text(&answer, "/state"), "running", "its first process has ended: {answer:#}");
    std::fs::remove_file(&runs).unwrap();
    let mut answer = Value::Null;
    wait_until("it has ended", || {
        answer = learned(&world, &["--pending"]);
        text(&answer, "/state") != "running"
    });
    assert_eq!(text(&answer, "/state"), "learned", "{answer:#}");
    assert!(text(&answer, "/program/detail").contains("daemon.py"), "{answer:#}");
    assert!(answer["recorded"]["calls"].as_u64().unwrap() > 100_000, "{answer:#}");
}

/// A recording whose raw files were damaged: the reason stays, and a new wish is possible.
#[test]
fn a_recording_that_says_nothing_is_kept_with_its_reason() {
    let world = world();
    let program = behave(&world);
    assert!(world.imas(["run", "--record", "--", &program, "1"]).status().unwrap().success());
    // What was recorded is gone before it is replayed.
    let folder = std::fs::read_dir(world.store_path().with_file_name("recordings")).unwrap().next();
    for file in std::fs::read_dir(folder.unwrap().unwrap().path()).unwrap().flatten() {
        if file.path().extension().is_some_and(|extension| extension == "raw") {
            std::fs::write(file.path(), "damaged").unwrap();
        }
    }
    let answer = learned(&world, &["--pending"]);
    assert_eq!(text(&answer, "/state"), "failed", "{answer:#}");
    assert_eq!(recordings(&world), 0);
    let show = world.json(["show", "--json", &program]);
    assert_eq!(text(&show, "/recording"), "refused", "{show:#}");
    let shown = stdout(&output(&mut world.imas(["show", &program])));
    assert!(shown.contains("nothing was learned from it") && shown.contains("again: imas learn"), "{shown}");
    let none = learn(&world, &["--pending"]);
    assert!(stdout(&none).contains("no recording waits"), "{}", describe(&none));
    assert_eq!(text(&learned(&world, &[&program]), "/state"), "asked");
}

#[test]
fn a_trace_is_learned_from_and_what_says_nothing_is_refused() {
    let world = world();
    let program = behave(&world);
    let trace = world.work().join("run.trace");
    let trace = trace.to_str().unwrap();
    succeeded(output(world.imas(["record", "-o", trace, "--"]).args([&program, "200000"])));
    let answer = learned(&world, &[&program, "--trace", trace, "--with", "jemalloc"]);
    assert_eq!(names(&answer, "/predictions"), ["jemalloc"], "{answer:#}");
    std::fs::write(trace, "no trace at all").unwrap();
    for (words, what) in [
        (vec![program.as_str(), "--trace", trace], "not a trace"),
        (vec![program.as_str(), "--trace", "/nowhere"], "No such file"),
        (vec!["--", program.as_str(), "200000", "exit3"], "ended with 3 while it was recorded"),
        (vec!["--", "nice", program.as_str(), "20"], "starts another program"),
        (vec!["--with", "jemalloc?narenas:1", "--", program.as_str(), "200000"], "of the catalogue"),
    ] {
        let output = learn(&world, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(stderr(&output).contains(what), "{words:?}: {}", describe(&output));
    }
    assert_hinted(&learn(&world, &["--", &program, "200000", "exit3"]), "ended with 3");
    let all_the_same = learned(&world, &["-i", "--", &program, "200000", "exit3"]);
    assert_eq!(text(&all_the_same, "/state"), "learned");
}

#[test]
fn a_recording_that_cannot_be_made_keeps_nothing_from_starting() {
    let world = world();
    let program = behave(&world);
    assert!(learn(&world, &[&program]).status.success());
    // Where the folder should be is a file.
    std::fs::write(world.store_path().with_file_name("recordings"), "").unwrap();
    let started = world.start([&program, "2000", "exit3"]);
    assert_eq!(started.status.code(), Some(3), "{}", describe(&started));
    assert!(stderr(&started).contains("it is not recorded"), "{}", describe(&started));
}
