// SPDX-License-Identifier: Apache-2.0
//! `imas-lab services`: a session is interrupted in the middle of a run, and goes on.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_testing::skipped;
use serde_json::Value;
use support::{World, describe, output, printed, real, stderr, stdout, succeeded, wait_until};

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
            assert!(run["why"].is_null() && run["server"].is_object(), "{run}");
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
        let mut command = world.lab(["services", "run", "--with", "glibc:arena1"]);
        if !more.contains(&"--rounds") {
            command.args(["--rounds", "2"]);
        }
        command.args(["--system-runs", "1", "--counted", "0"]);
        command.arg("--recipes").arg(&folder).arg("--out").arg(&journal).args(more);
        command
    };
    let temporary = world.work().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = run(&[]);
    command.env("TMPDIR", &temporary).stdout(Stdio::null()).stderr(Stdio::piped());
    let running = command.spawn().unwrap();
    wait_until("the second run is loaded", || is_running("sleep 4244"));
    let beside = output(&mut run(&["--resume"]));
    assert!(!beside.status.success(), "{}", describe(&beside));
    let printed = stderr(&beside);
    assert!(printed.contains("another 'imas-lab services run' is at work there"), "{printed}");
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

    succeeded(output(&mut run(&["--resume"])));
    let mut all = runs(&journal);
    assert_eq!(all[..1], kept[..]);
    all.remove(0);
    all.sort();
    let each = |name: &str| [(name.to_owned(), 1), (name.to_owned(), 2)];
    assert_eq!(
        all,
        [each("glibc:arena1"), each("system")].concat(),
        "two whole rounds beside the one that was cut"
    );
    let loads = lines(&world.work().join("loads"));
    let none = output(&mut run(&["--resume"]));
    assert!(
        none.status.success() && lines(&world.work().join("loads")) == loads,
        "no whole round is made again"
    );
    let plan = stdout(&output(&mut run(&["--resume", "--rounds", "4", "--dry-run"])));
    assert!(plan.contains("rounds left") && plan.contains("1 service: "), "{plan}");
    assert_eq!(lines(&world.work().join("loads")), loads, "a plan makes no run");
}

/// The program is made by the set-up, which runs before the first round.
#[test]
fn a_signal_in_a_set_up_ends_the_session() {
    let world = World::new();
    let (folder, journal) = (world.work().join("recipes"), world.work().join("runs.jsonl"));
    std::fs::create_dir(&folder).unwrap();
    let recipe =
        "command = '$SETUP/made'\nready = 'tcp:$PORT'\nload = ['true']\nsetup = 'sleep 4245; true'\n";
    std::fs::write(folder.join("made.toml"), recipe).unwrap();
    let mut command = world.lab(["services", "run", "--with", "glibc:arena1"]);
    command.arg("--recipes").arg(&folder).arg("--out").arg(&journal);
    let running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the set-up runs", || is_running("sleep 4245"));
    assert!(Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap().success());
    let ended = running.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    assert!(!is_running("sleep 4245"));
    assert_eq!(lines(&journal), 0, "a session without any service");
}

#[test]
fn a_session_in_which_no_service_can_be_run_is_no_success() {
    let world = World::new();
    let (folder, journal) = (world.work().join("recipes"), world.work().join("runs.jsonl"));
    std::fs::create_dir(&folder).unwrap();
    let recipe = "packages = ['imas-no-such-package']\ncommand = 'x'\nready = 'tcp:$PORT'\nload = ['true']\n";
    std::fs::write(folder.join("absent.toml"), recipe).unwrap();
    let mut command = world.lab(["services", "run"]);
    let done = output(command.arg("--recipes").arg(&folder).arg("--out").arg(&journal));
    assert!(!done.status.success(), "{}", describe(&done));
    assert!(stderr(&done).contains("none of these services can be run here"), "{}", describe(&done));
    assert_eq!(lines(&journal), 0);
}

/// Servers of Node.js, one behind a start script, and one of Python: each has the allocator, and settings of its own runtime
/// alone.
#[test]
fn a_service_gets_settings_of_its_runtime() {
    let node = Path::new("/usr/bin/node");
    if !node.is_file() {
        return skipped("node is not installed");
    }
    let world = World::new();
    let (folder, journal) = (world.work().join("recipes"), world.work().join("runs.jsonl"));
    std::fs::create_dir(&folder).unwrap();
    let script = folder.join("server.js");
    std::fs::write(
        &script,
        "require('http').createServer((ask, answer) => answer.end()).listen(process.argv[2])",
    )
    .unwrap();
    let start = folder.join("start");
    std::fs::write(&start, format!("#!/bin/sh\n{} {} \"$@\"\n", node.display(), script.display())).unwrap();
    std::fs::set_permissions(&start, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let servers = [
        ("js", format!("{} {} $PORT", node.display(), script.display())),
        ("behind", format!("{} $PORT", start.display())),
        ("py", format!("{} -m http.server --bind 127.0.0.1 $PORT", real("python3").display())),
    ];
    for (name, command) in servers {
        let lines =
            format!("command = '{command}'\nready = 'tcp:$PORT'\nload = ['true']\ncycles = 1\nidle = 0\n");
        std::fs::write(folder.join(name).with_extension("toml"), lines).unwrap();
    }
    let run = |more: &[&str]| {
        let mut command = world.lab(["services", "run", "--with", "glibc:arena1,node:semi1,go:gogc50"]);
        command.args(["--rounds", "1", "--system-runs", "1", "--counted", "0"]).args(more);
        succeeded(output(command.arg("--recipes").arg(&folder).arg("--out").arg(&journal)))
    };
    let plan = stdout(&run(&["--dry-run"]));
    let runs_of = |name: &str| {
        let row = plan.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split_whitespace().rev().nth(2).unwrap().to_owned()
    };
    // A plan starts nothing, so it does not know what a script starts.
    assert_eq!([runs_of("js"), runs_of("behind"), runs_of("py")], ["3", "2", "2"], "most runs: {plan}");
    let done = run(&[]);
    assert!(
        stderr(&done).contains("as no service of this session gets them: go:gogc50\n"),
        "{}",
        describe(&done)
    );
    let text = std::fs::read_to_string(&journal).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let made: BTreeSet<(String, String)> = lines
        .filter(|line| line["candidate"].is_string())
        .map(|run| {
            assert_eq!(run["ok"], true, "{run}");
            let word = |key: &str| run[key].as_str().unwrap().to_owned();
            (word("program"), word("candidate"))
        })
        .collect();
    let wanted = [
        ("behind", "glibc:arena1"),
        ("behind", "node:semi1"),
        ("behind", "system"),
        ("js", "glibc:arena1"),
        ("js", "node:semi1"),
        ("js", "system"),
        ("py", "glibc:arena1"),
        ("py", "system"),
    ];
    let wanted = wanted.map(|(service, name)| (service.to_owned(), name.to_owned()));
    assert_eq!(made, BTreeSet::from(wanted));
}

/// A journal of two services with `rounds` rounds: one gains by `glibc:arena2`, the other by nothing.
fn journal(world: &World, rounds: u32) -> PathBuf {
    let memory = [
        ("gains", "system", 100.0),
        ("gains", "glibc:arena2", 60.0),
        ("same", "system", 80.0),
        ("same", "glibc:arena2", 90.0),
    ];
    written(world, &format!("made-{rounds}.jsonl"), rounds, &memory)
}

/// A journal with this memory, MB, by service and candidate.
fn written(world: &World, name: &str, rounds: u32, memory: &[(&str, &str, f64)]) -> PathBuf {
    let file = world.work().join(name);
    let figure = |name: &str, value: f64| serde_json::json!({"name": name, "value": value, "unit": "B", "better": "lower"});
    let line = |service: &str, candidate: &str, round: u32, mb: f64| {
        let memory = figure("memory", mb * 1e6 + f64::from(round));
        let figures = serde_json::json!({"memory": memory, "p99": figure("p99", 5.0)});
        let heaps = serde_json::json!([{"process": "x", "threads": 9, "bytes": 100_000_000, "heap_bytes": vec![4_000_000; 16]}]);
        serde_json::json!({"service": service, "candidate": candidate, "round": round, "figures": figures, "heaps": heaps})
            .to_string()
    };
    let of_round = |round: u32| -> String {
        memory.iter().map(|(service, candidate, mb)| line(service, candidate, round, *mb) + "\n").collect()
    };
    let rounds: Vec<String> = (0..rounds).map(of_round).collect();
    std::fs::write(&file, rounds.concat()).unwrap();
    file
}

#[test]
fn settings_of_runtimes_have_a_judgement_of_their_own() {
    let world = World::new();
    let memory = [
        ("java", "system", 100.0),
        ("java", "jvm:serial", 60.0),
        ("web", "system", 80.0),
        ("web", "glibc:arena2", 90.0),
    ];
    let file = written(&world, "java.jsonl", 2, &memory);
    let said = |words: &[&str]| printed(&output(world.lab(["services"]).args(words).arg(&file)));
    let judged = said(&["judge"]);
    assert!(judged.contains("'imas-lab services runtimes' judges them"), "{judged}");
    let judged: Value = serde_json::from_str(&said(&["judge", "--json"])).unwrap();
    let for_all: Vec<&Value> =
        judged["for_all"].as_array().unwrap().iter().map(|one| &one["candidate"]).collect();
    assert_eq!(for_all, ["glibc:arena2"]);

    let path = file.to_str().unwrap();
    let twice = said(&["runtimes", "--markdown", path]);
    assert!(twice.contains("Leanest picks: memory -40 %"), "{twice}");
    assert!(twice.contains("leanest, proven") && twice.contains("java: jvm:serial"), "four rounds: {twice}");
    assert!(twice.contains("`jvm:serial`") && twice.contains("java (95 MiB)"), "{twice}");
    assert!(!twice.contains("web"), "{twice}");
    let json: Value = serde_json::from_str(&said(&["runtimes", "--json"])).unwrap();
    assert_eq!(json["picks"][0]["runtime"], "jvm", "{json}");
    let none = output(world.lab(["services", "runtimes"]).arg(journal(&world, 2)));
    assert!(stderr(&none).contains("ran under settings of its language runtime"), "{}", describe(&none));
}

#[test]
fn a_journal_is_judged() {
    let world = World::new();
    let said = |verb: &str, rounds: u32, flags: &[&str]| {
        printed(&output(world.lab(["services", verb]).arg(journal(&world, rounds)).args(flags)))
    };
    let one = said("judge", 1, &[]);
    assert!(one.contains("nothing: no service has two rounds") && one.contains("1 of 2 services"), "{one}");
    let four = said("judge", 4, &[]);
    assert!(
        four.contains("by the leanest that is proven, as imas bench picks: of 2 services: memory 0"),
        "{four}"
    );
    // Sixteen heaps of 4 MB each.
    let counted = |mb: &str| said("judge", 4, &["--heap-at-least", mb]);
    let (small, large) = (counted("20"), counted("70"));
    assert!(small.contains("for the 2 services with 20 MB and more in glibc's heaps"), "{small}");
    assert!(large.contains("for the 0 services with 70 MB"), "{large}");
    let json: Value = serde_json::from_str(&said("judge", 4, &["--json"])).unwrap();
    assert_eq!(json["services"][0]["as_measured"]["by_all"]["candidate"], "glibc:arena2");
    assert!(said("sets", 1, &[]).contains("NOT held out"));
    assert!(said("sets", 2, &["--most", "1"]).contains("best of 1"));
    let table = said("show", 4, &["--markdown"]);
    assert!(table.contains("| gains | 95 | `glibc:arena2` | -40 % "), "{table}");
    assert!(table.contains("| nothing better in 1: same |"), "{table}");
}

/// Advice without a trial names what candidates cost: the file is what the committed raw runs give.
#[test]
fn the_shipped_prices_are_those_of_the_raw_runs() {
    let world = World::new();
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let journal = project.join("lab/results/services-six-rounds.jsonl.gz");
    let made = printed(&output(world.lab(["services", "prices"]).arg(journal)));
    let shipped = std::fs::read_to_string(project.join("crates/imas-engine/candidate-prices.json")).unwrap();
    assert_eq!(made, shipped, "imas-lab services prices FILE > crates/imas-engine/candidate-prices.json");
}

#[test]
fn a_journal_without_runs_is_no_result() {
    let world = World::new();
    let file = world.work().join("empty.jsonl");
    std::fs::write(&file, "").unwrap();
    for verb in ["judge", "sets"] {
        let done = output(world.lab(["services", verb]).arg(&file));
        assert_eq!(done.status.code(), Some(2), "{}", describe(&done));
        assert!(stderr(&done).contains("no valid run of a service under system"), "{}", stderr(&done));
    }
}

/// The shipped server definitions are valid.
#[test]
fn every_recipe_is_sound() {
    let folder = support::workspace().join("lab/workloads/services");
    let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let recipes: Vec<_> = files.filter(|file| file.extension() == Some("toml".as_ref())).collect();
    assert!(recipes.len() >= 54, "{}", recipes.len());
    for file in recipes {
        let service = imas_runs::service::Service::read(&file).unwrap();
        service.words().unwrap();
        assert!(!service.about.is_empty() && !service.packages.is_empty(), "{}", Path::new(&file).display());
    }
}
