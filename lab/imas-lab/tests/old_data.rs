// SPDX-License-Identifier: Apache-2.0
//! Stores, journals, settings and command lines of an older IMAS are understood. Its programs wrote the
//! fixtures: `tests/fixtures/make`.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use imas_core::TrialRecord;
use imas_core::candidate::Candidate;
use imas_core::quarantine::quarantined;
use imas_core::sample::PageKind;
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde_json::Value;
use support::{World, built, describe, json, keys, lib_dir, list, output, printed, succeeded, text};

/// Time after both candidates had crashed their programs, and some months before they are judged anew for
/// their age; seconds since 1970.
const NOW_S: f64 = 1_795_500_000.0;

fn fixture(name: &str) -> PathBuf {
    support::workspace().join("tests/fixtures/2026-11-22").join(name)
}

/// A store for the test to write in, unpacked.
fn store(name: &str, to: &Path) {
    let unpacked = succeeded(output(Command::new("zcat").arg(fixture(name))));
    std::fs::write(to, unpacked.stdout).unwrap();
}

/// A world whose store is the older user's own.
fn of_the_user() -> World {
    let world = World::new();
    std::fs::create_dir_all(world.store_path().parent().unwrap()).unwrap();
    store("imas.db.gz", &world.store_path());
    world
}

/// The program of which path or script ends so.
fn program(store: &Store, end: &str) -> StoredProgram {
    let programs = store.programs().unwrap();
    let found = programs.iter().find(|one| one.path.ends_with(end) || one.detail.ends_with(end));
    found.unwrap_or_else(|| panic!("no {end} in {programs:?}")).clone()
}

/// Number of trials by candidate.
fn counts(trials: &[TrialRecord]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    trials.iter().for_each(|trial| *counts.entry(trial.sample.candidate.as_str()).or_default() += 1);
    counts
}

/// Names of the candidates that crashed the program's old build and were not unblocked.
fn quarantined_then(store: &Store, program: &StoredProgram) -> Vec<String> {
    let trials = store.trials(program.id).unwrap();
    let version_of = |name| trials.iter().find(|trial| trial.sample.candidate == name);
    let candidates = ["system", "jemalloc", "mimalloc"].map(|name| {
        let version = version_of(name).map(|trial| trial.allocator_version.as_str());
        Candidate::new(name, version.unwrap_or_default(), &[])
    });
    let unblocked = store.unblocked(program.id).unwrap();
    let found = quarantined(&trials, &candidates, &trials[0].build_id, &unblocked, NOW_S);
    found.into_iter().map(|one| one.candidate).collect()
}

// ---- stores -----------------------------------------------------------------------------------------------

#[test]
fn a_users_store_keeps_trials_pins_exclusions_and_unblocked_candidates() {
    let world = of_the_user();
    let store = Store::open(&world.store_path()).unwrap();
    let [sort, crash, stands, wc] =
        ["/sort", "/crash.py", "/stands.py", "/wc"].map(|end| program(&store, end));
    let mut trials = store.trials(sort.id).unwrap();
    trials.retain(|trial| trial.sample.kind == PageKind::Trial); // it also had a production start
    assert_eq!(counts(&trials), BTreeMap::from([("system", 2), ("jemalloc", 2), ("mimalloc", 2)]));
    for trial in &trials {
        let sample = &trial.sample;
        assert!(sample.malloc.calls > 100 && sample.malloc.mean_ns > 0.0, "{trial:?}");
        assert!(sample.memory.resident_peak > 100_000, "{trial:?}");
        assert!(sample.usage.is_some() && sample.wall_s > 0.0 && !trial.build_id.is_empty(), "{trial:?}");
        assert!(!sample.ended.is_crash() && trial.retest_s == Some(0.0), "{trial:?}");
        assert!(sample.served.contains(if sample.candidate == "system" {
            "libc"
        } else {
            &sample.candidate
        }));
    }
    // The trials of sort were too short to look at the split of memory; those of python3 were not.
    let of_python = [crash.id, stands.id].into_iter().flat_map(|id| store.trials(id).unwrap());
    let mut splits = of_python.filter_map(|trial| trial.sample.memory.split);
    assert!(splits.any(|split| split.reported.is_some_and(|reported| reported.in_use > 100_000)));
    assert_eq!(store.decisions(sort.id, 100).unwrap().iter().filter(|decided| decided.trial).count(), 6);
    assert_eq!(store.pinned(wc.id).unwrap().as_deref(), Some("mimalloc"));
    assert_eq!(store.exclusions().unwrap(), ["/usr/bin/tac"]);
    assert!(store.is_excluded("/usr/bin/tac", "").unwrap());
    // Both crashed; of one the user has cleared the candidate.
    assert_eq!(store.unblocked(crash.id).unwrap().into_keys().collect::<Vec<_>>(), ["jemalloc"]);
    for crashed in [&crash, &stands] {
        let trials = store.trials(crashed.id).unwrap();
        assert_eq!(trials.iter().filter(|trial| trial.sample.ended.is_crash()).count(), 1, "{trials:?}");
    }
    assert_eq!(quarantined_then(&store, &crash), [""; 0]);
    assert_eq!(quarantined_then(&store, &stands), ["mimalloc"]);
}

#[test]
fn the_commands_work_on_a_users_store() {
    let world = of_the_user();
    let shown = world.json(["show", "--json"]);
    let lines: Vec<_> = list(&shown, "/programs").iter().collect();
    let trials = |end: &str| {
        let mine = |line: &&&Value| {
            let either = [text(line, "/program/path"), text(line, "/program/detail")];
            either.iter().any(|one| one.ends_with(end))
        };
        lines.iter().find(mine).unwrap()["trials"].as_u64().unwrap()
    };
    assert_eq!(["/sort", "/crash.py", "/stands.py", "/wc"].map(trials), [6, 5, 5, 0], "{shown:#}");
    let wc = world.json(["explain", "--json", "/usr/bin/wc"]);
    assert_eq!((text(&wc, "/next/candidate"), text(&wc, "/next/reason")), ("mimalloc", "pinned"));
    assert!(printed(&output(&mut world.imas(["exclude", "list"]))).contains("/usr/bin/tac"));
    assert!(printed(&world.start(["/usr/bin/sort", "/dev/null"])).is_empty());
    // What was called "lift" is called "unblock".
    let number = program(&Store::open(&world.store_path()).unwrap(), "/stands.py").id.to_string();
    printed(&output(&mut world.imas(["pin", "--lift", &number, "mimalloc"])));
    let store = Store::open(&world.store_path()).unwrap();
    assert_eq!(quarantined_then(&store, &program(&store, "/stands.py")), [""; 0]);
}

#[test]
fn imasd_serves_the_store_of_an_older_one() {
    let world = World::new();
    let db = world.work().join("imasd.db");
    store("imasd.db.gz", &db);
    let run = world.runtime().join("run");
    std::fs::create_dir(&run).unwrap();
    let mut imasd = world.command(built("imasd"));
    imasd.args(["--user", "--once", "--lib-dir"]).arg(lib_dir()).arg("--run-dir").arg(&run);
    imasd.arg("--store").arg(&db).arg("--config").arg(fixture("imasd.toml"));
    let ran = output(&mut imasd);
    assert!(ran.status.success() && !describe(&ran).contains("WARN"), "{}", describe(&ran));
    let store = Store::open(&db).unwrap();
    assert_eq!(store.programs().unwrap().len(), 7);
    assert_eq!(store.pinned(program(&store, "/worker.py").id).unwrap().as_deref(), Some("jemalloc"));
    for name in ["mimalloc-0.py", "mimalloc-1.py", "mimalloc-2.py"] {
        assert_eq!(quarantined_then(&store, &program(&store, name)), ["mimalloc"], "{name}");
    }
    assert_eq!(quarantined_then(&store, &program(&store, "jemalloc-0.py")), [""; 0], "it was unblocked");
    assert_eq!(quarantined_then(&store, &program(&store, "jemalloc-1.py")), ["jemalloc"]);
    let disabled = || store.disabled().unwrap().into_iter().map(|one| one.allocator).collect::<Vec<_>>();
    assert_eq!(disabled(), ["mimalloc"], "jemalloc was given back");
    assert!(store.cleared().unwrap().contains_key("jemalloc"));
    printed(&output(world.imas(["lift", "mimalloc", "--store"]).arg(&db)));
    assert_eq!(disabled(), [""; 0]);
}

// ---- settings and status ----------------------------------------------------------------------------------

/// Weight of CPU by which a program is judged.
fn weight(world: &World, program: &str) -> String {
    let policy = ["--policy", "adaptive"];
    let explain = || json(&world.imas(["explain", "--json", program]).args(policy).output().unwrap());
    for _ in 0..40 {
        let mut start = world.imas(["run", "--retest", "0"]);
        printed(&output(start.args(policy).args(["--", program, "/etc/passwd"])));
        let explained = explain();
        let evidence = list(&explained, "/next/evidence");
        if let Some(weight) = evidence.iter().find(|one| one["name"] == "weight of CPU") {
            return text(weight, "/value").to_owned();
        }
    }
    panic!("{program} comes to no decision: {:#}", explain());
}

/// `[overrides]` was called `[wishes]`.
#[test]
fn the_older_settings_hold() {
    let world = World::new();
    world.configure(&std::fs::read_to_string(fixture("imas.toml")).unwrap());
    assert!(weight(&world, "/usr/bin/tac").starts_with("0.00"), "memory alone, by [wishes]");
    assert!(weight(&world, "/usr/bin/sort").starts_with("1.00"), "CPU alone, by the program's own section");
}

/// The daemon of before an upgrade may still run.
#[test]
fn the_status_of_an_older_daemon_is_shown() {
    let world = World::new();
    let mut status: Value = serde_json::from_slice(&std::fs::read(fixture("status.json")).unwrap()).unwrap();
    assert_eq!(list(&status, "/barred").len(), 1, "{status:#}");
    let me = std::process::id();
    status["pid"] = me.into();
    status["start_ticks"] = imas_linux::process::start_ticks(me).unwrap().into();
    status["config"] = fixture("imasd.toml").display().to_string().into();
    let run = world.work().join("run");
    std::fs::create_dir_all(run.join("state")).unwrap();
    std::fs::write(run.join("state/status.json"), status.to_string()).unwrap();
    let db = world.work().join("imasd.db");
    store("imasd.db.gz", &db);
    let shown = |more: &[&str]| {
        let mut imas = world.imas(["status", "--run-dir"]);
        output(imas.arg(&run).arg("--store").arg(&db).args(more))
    };
    let page = printed(&shown(&[]));
    let stored = status["counters"]["trials_stored"].to_string();
    for says in [&format!("process {me}"), "7 programs", "mimalloc is disabled everywhere", &stored] {
        assert!(page.contains(says), "no {says}\n{page}");
    }
    let json = json(&shown(&["--json"]));
    assert_eq!(json["running"], true);
    assert_eq!((&json["daemon"]["pid"], &json["daemon"]["programs"]), (&me.into(), &status["programs"]));
    assert_eq!(json["daemon"]["counters"]["crashes"], status["counters"]["crashes"]);
}

// ---- journals ---------------------------------------------------------------------------------------------

/// The lines of a journal.
fn lines(file: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_runs(lines: &[Value]) -> usize {
    lines.iter().filter(|line| line["program"].is_string()).count()
}

/// Programs, candidates and measured rounds that `simulate` finds in a file.
#[test]
fn raw_runs_are_replayed_and_packed() {
    let world = World::new();
    for (name, program) in
        [("suite.jsonl", "sort-words"), ("suite.jsonl.gz", "sort-words"), ("bench.jsonl", "sort")]
    {
        let mut simulate = world.lab([
            "simulate",
            "--json",
            "--splits",
            "2",
            "--details",
            "--policy",
            "adaptive,always:jemalloc",
        ]);
        let replayed = printed(&output(simulate.arg("--data").arg(fixture(name))));
        assert!(replayed.contains(&format!("\"{program}\"")), "{name}: {replayed}");
        let mut report = world.imas(["report", "--json", "--html"]);
        let page = world.work().join("page.html");
        let reported = printed(&output(report.arg(&page).arg("--data").arg(fixture(name))));
        assert!(reported.contains(program), "{name}: {reported}");
        assert!(std::fs::read_to_string(&page).unwrap().contains("jemalloc"), "{name}");
    }
    let packed = world.work().join("packed.jsonl.gz");
    printed(&output(world.lab(["suite", "pack"]).arg(fixture("suite.jsonl")).arg("--to").arg(&packed)));
    let unpacked = |file: &Path| printed(&output(world.command("zcat").arg(file)));
    assert_eq!(unpacked(&packed), unpacked(&fixture("suite.jsonl.gz")));
}

/// The suite that the journal is of, in an installation of the test's own.
fn suite(world: &World, more: &[&str]) -> Output {
    let lib = world.work().join("lib");
    std::fs::create_dir_all(lib.join("workloads")).unwrap();
    for entry in
        std::fs::read_dir(lib_dir()).unwrap().flatten().filter(|entry| entry.file_name() != "workloads")
    {
        std::os::unix::fs::symlink(entry.path(), lib.join(entry.file_name())).unwrap();
    }
    std::fs::copy(fixture("suite.toml"), lib.join("workloads/suite.toml")).unwrap();
    let mut command =
        world.lab(["suite", "run", "--set", "quick", "--with", "jemalloc,mimalloc", "--resume", "--out"]);
    command.arg(world.work().join("out")).arg("--cache").arg(world.work().join("cache"));
    output(command.env("IMAS_LIB_DIR", lib).args(more))
}

#[test]
fn a_suite_that_was_begun_goes_on() {
    let world = World::new();
    std::fs::create_dir(world.work().join("out")).unwrap();
    let journal = world.work().join("out/runs.jsonl");
    std::fs::copy(fixture("suite.jsonl"), &journal).unwrap();
    let before = lines(&journal);
    assert_eq!(of_runs(&before), 18, "five measured rounds and a counted one of three candidates");
    printed(&suite(&world, &["--rounds", "7", "--counted", "1"]));
    let after = lines(&journal);
    assert_eq!(after[..before.len()], before, "what was there stays as it was");
    assert_eq!(of_runs(&after), 24, "two rounds more");
    assert!(after[before.len()..].iter().any(|line| keys(line).contains(&"candidate")), "{after:?}");
}

#[test]
fn a_mobile_study_that_was_begun_goes_on() {
    let world = World::new();
    let out = world.work().join("out");
    std::fs::create_dir(&out).unwrap();
    let journal = out.join("mobile.jsonl");
    std::fs::copy(fixture("mobile.jsonl"), &journal).unwrap();
    let before = lines(&journal);
    let study = || world.lab(["study", "mobile", "--json", "--out"]);
    let parts = ["--parts", "size", "--with", "tlsf,dlmalloc", "--rounds", "1", "--resume"];
    let resumed = json(&output(study().arg(&out).args(parts)));
    let samples = |lines: &[Value]| lines.iter().filter(|line| line["part"].is_string()).count();
    assert_eq!(samples(&lines(&journal)), samples(&before), "nothing was left to measure");
    let shown = output(study().arg(world.work().join("shown")).arg("--data").arg(fixture("mobile.jsonl")));
    let shown = json(&shown);
    for study in [resumed, shown] {
        let findings = list(&study, "/study/findings");
        let smallest = findings.iter().find(|one| text(one, "/claim").starts_with("tlsf is the smallest"));
        assert_eq!(text(smallest.unwrap(), "/verdict"), "reproduced");
    }
}

/// Every path of keys of a document; of a list, those of its first element.
fn paths(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, value)| paths(value, &format!("{path}/{key}"), found))
        }
        Value::Array(elements) => {
            elements.iter().take(1).for_each(|value| paths(value, &format!("{path}/0"), found))
        }
        _ => found.push(path.to_owned()),
    }
}

/// Scripts read it: what it had it has.
#[test]
fn the_json_of_a_bench_has_what_it_had() {
    let world = World::new();
    let now = world.work().join("bench.json");
    // Long enough for its memory to be seen on a busy machine; else the ratio of memory is null.
    let lines = world.work().join("lines");
    let numbers = (0..200_000u32).map(|n| format!("{}\n", n.wrapping_mul(2_654_435_761)));
    std::fs::write(&lines, numbers.collect::<String>()).unwrap();
    let mut bench = world.imas(["bench", "-n", "5", "--with", "jemalloc", "--export-json"]);
    printed(&output(bench.arg(&now).args(["--", "sort"]).arg(&lines)));
    let read = |file: &Path| serde_json::from_slice::<Value>(&std::fs::read(file).unwrap()).unwrap();
    let (before, now) = (read(&fixture("bench.json")), read(&now));
    let mut wanted = vec![];
    paths(&before, "", &mut wanted);
    // What there is to warn of and to note depends on the machine's minute.
    wanted.retain(|path| !path.starts_with("/warnings/") && !path.starts_with("/notes/"));
    assert!(wanted.len() > 50, "{wanted:?}");
    let lost: Vec<_> = wanted.iter().filter(|path| now.pointer(path).is_none()).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// The packed runs that the published figures rest on: 114 programs, lines of failures and of programs that
/// were left out.
#[test]
fn the_published_runs_are_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/suite.jsonl.gz");
    let text = imas_runs::packed::read(&path).unwrap();
    let data = imas_core::raw_runs::data::read(&text);
    assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
    assert!(data.runs.len() > 1000, "{} runs", data.runs.len());
}
