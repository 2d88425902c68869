// SPDX-License-Identifier: Apache-2.0
//! `imas-lab services`: a session is interrupted in the middle of a run, and goes on.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../imas/tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::{World, describe, output, real, stderr, wait_until};

/// A web server, and a load that waits in the second run until it is ended.
fn recipes(world: &World) -> PathBuf {
    let folder = world.work().join("recipes");
    std::fs::create_dir(&folder).unwrap();
    let (python, work) = (real("python3"), world.work());
    let recipe = format!(
        "about = 'a test'
command = '{} -m http.server --bind 127.0.0.1 $PORT'
ready = 'tcp:$PORT'
load = ['echo >> {loads}; if [ $(wc -l < {loads}) = 2 ]; then sleep 4244; fi']
cleanup = 'echo >> {cleanups}'
cycles = 1
idle = 0
threads = 1
",
        python.display(),
        loads = work.join("loads").display(),
        cleanups = work.join("cleanups").display(),
    );
    std::fs::write(folder.join("web.toml"), recipe).unwrap();
    folder
}

/// Lines of a journal that are runs.
fn runs(journal: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(journal).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .filter(|line| line["candidate"].is_string())
        .map(|run| {
            assert!(run["failure"].is_null(), "{run}");
            (run["candidate"].as_str().unwrap().to_owned(), run["round"].as_u64().unwrap())
        })
        .collect()
}

fn lines(file: &Path) -> usize {
    std::fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

fn is_running(command_line: &str) -> bool {
    let mut pgrep = Command::new("pgrep");
    pgrep.args(["-f", "-x", "--", command_line]).stdout(Stdio::null()).status().unwrap().success()
}

#[test]
fn an_interrupted_session_keeps_its_runs_and_goes_on() {
    let world = World::new();
    let (folder, journal) = (recipes(&world), world.work().join("runs.jsonl"));
    let run = |more: &[&str]| {
        let mut command = world.lab(["services", "run", "--rounds", "2", "--with", "glibc:arena1"]);
        command.arg("--recipes").arg(&folder).arg("--out").arg(&journal).args(more);
        command
    };
    let temporary = world.work().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = run(&[]);
    command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    wait_until("the second run is loaded", || is_running("sleep 4244"));
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    let printed = stderr(&ended);
    assert!(printed.contains("imas: interrupted; every finished run is kept, --resume goes on"), "{printed}");
    assert!(!printed.contains("no run under") && !printed.contains("the load failed"), "{printed}");
    assert!(!is_running("sleep 4244"));
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "a folder of the run");
    let kept = runs(&journal);
    assert_eq!(kept.len(), 1, "the run that was cut short is not kept: {kept:?}");
    assert_eq!(lines(&world.work().join("cleanups")), 1, "a clean-up would be killed half-way");

    let again = output(&mut run(&["--resume"]));
    assert!(again.status.success(), "{}", describe(&again));
    let mut all = runs(&journal);
    assert_eq!(all[..1], kept[..]);
    all.sort();
    let each = |name: &str| [(name.to_owned(), 0), (name.to_owned(), 1)];
    assert_eq!(all, [each("glibc:arena1"), each("system")].concat());
    assert_eq!(lines(&world.work().join("loads")), 5, "no finished run was made again");
}
