// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite`: what is in it, what a run records, what is left out and why, and that nothing is lost
//! when it is killed.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::{
    World, assert_hinted, describe, installation, keys, list, output, stderr, stdout, succeeded, text,
    wait_until,
};

/// `imas-lab suite ACTION` with folders in this world.
fn suite(world: &World, action: &str, more: &[&str]) -> Command {
    let mut command = world.lab(["suite", action]);
    command.arg("--out").arg(world.work().join("out"));
    command.arg("--cache").arg(world.work().join("cache")).args(more);
    command
}

fn shown(world: &World) -> Value {
    serde_json::from_slice(&output(&mut suite(world, "show", &["--json"])).stdout).unwrap()
}

fn runs(world: &World) -> Vec<Value> {
    let file = std::fs::read_to_string(world.work().join("out/runs.jsonl")).unwrap();
    let lines = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["program"].is_string()).collect()
}

fn key(run: &Value) -> (String, String, String, u64) {
    let of = |name: &str| run[name].as_str().unwrap().to_owned();
    (of("program"), of("candidate"), of("kind"), run["round"].as_u64().unwrap())
}

fn run_own(world: &World, own: &str, more: &[&str]) -> Output {
    let lib = installation(world, own);
    output(suite(world, "run", more).env("IMAS_LIB_DIR", lib))
}

fn program(name: &str, command: &str) -> String {
    format!(
        "[[program]]\nname = '{name}'\ncategory = 'test'\nseconds = 0.1\ncommand = '''{command}'''\nsets = ['quick']\n"
    )
}

#[test]
fn the_list_has_what_it_should() {
    let world = World::new();
    let listing = support::json(&output(&mut world.lab(["suite", "list", "--json"])));
    assert_eq!(listing["schema"], 1);
    let programs = list(&listing, "/programs");
    assert!(programs.len() >= 120, "{}", programs.len());
    for program in programs {
        for name in ["name", "category", "packages", "command", "installed"] {
            assert!(keys(program).contains(&name), "no {name} in {program:#}");
        }
    }
    let names: BTreeSet<&str> = programs.iter().map(|program| text(program, "/name")).collect();
    assert_eq!(names.len(), programs.len());
}

/// Real programs, with the packages every test machine has.
#[test]
fn real_programs_run_and_are_recorded() {
    let world = World::new();
    let ran = succeeded(output(&mut suite(
        &world,
        "run",
        &["sed", "lit-phases", "--with", "mimalloc", "--rounds", "2", "--counted", "1"],
    )));
    let runs = runs(&world);
    assert_eq!(runs.len(), 2 * 2 * 3, "{}", describe(&ran));
    for run in &runs {
        assert_eq!(run["ok"], true, "{run:#}");
        assert!(run["user_s"].as_f64().unwrap() > 0.0 && run["peak_bytes"].as_u64().unwrap() > 0, "{run:#}");
        let counted = run["kind"] == "counted";
        assert_eq!(counted, run["ops"].is_u64(), "{run:#}");
        assert_eq!(counted, run["latency"].is_object(), "{run:#}");
        // sed may be over before anybody looks.
        assert_eq!(
            counted && (run["program"] == "lit-phases" || run["curve"].is_object()),
            run["curve"].is_object()
        );
        if run["curve"].is_object() {
            assert_is_drawable(run);
        }
    }
    assert!(stdout(&ran).contains("mimalloc") && stdout(&ran).contains("lit-phases"), "{}", describe(&ran));
    let summary = shown(&world);
    assert_eq!(list(&summary, "/summary/programs").len(), 2);
    assert_can_be_packed_and_shown(&world);
}

/// Neither reads an allocator: both work where none is installed.
fn assert_can_be_packed_and_shown(world: &World) {
    let [packed, page] = ["runs.jsonl.gz", "page.html"].map(|name| world.work().join(name));
    let mut pack = world.lab(["suite", "pack"]);
    pack.arg(world.work().join("out/runs.jsonl")).arg("--to").arg(&packed);
    pack.arg("--json").env("IMAS_LIB_DIR", world.work().join("nothing"));
    let written = support::json(&output(&mut pack));
    assert_eq!(written["runs"], 12, "{written:#}");
    let report = |program: &str| {
        let mut report = world.imas(["report", program, "--html"]);
        report.arg(&page).arg("--data").arg(&packed).env("IMAS_LIB_DIR", world.work().join("nothing"));
        output(&mut report)
    };
    succeeded(report("lit-phases"));
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(!text.contains(">sed<") && text.contains("<title>lit-phases</title>"));
    for drawing in [
        "Resident memory through one counted run",
        "Where the resident memory was",
        "aria-label=\"Latency of calls\"",
        "aria-label=\"Latency of calls, percentiles\"",
    ] {
        assert!(text.contains(drawing), "no {drawing}");
    }
    let mut behind = world.imas(["report", "--html"]);
    let behind = output(behind.arg(&page).arg("--data").arg(&packed).arg("lit-phases"));
    assert_eq!(behind.status.code(), Some(2));
    assert_hinted(&behind, "lit-phases: there is no such file of runs");
    assert!(stderr(&behind).contains("name it first: imas report lit-phases"), "{}", describe(&behind));
    let unknown = report("gcc");
    assert_eq!(unknown.status.code(), Some(2));
    assert_hinted(&unknown, "gcc: no such program in the runs");
}

/// Every look has all its figures; the calls that were timed are in buckets.
fn assert_is_drawable(run: &Value) {
    let lists = ["ms", "resident_kib", "heap_kib", "live_kib"];
    let lists = lists.map(|name| {
        let list = list(run, &format!("/curve/{name}")).iter().map(|n| n.as_u64().unwrap());
        list.collect::<Vec<_>>()
    });
    assert!((1..=64).contains(&lists[0].len()), "{run:#}");
    assert!(lists.iter().all(|list| list.len() == lists[0].len()), "{run:#}");
    assert!(lists[0].is_sorted() && lists[1].iter().all(|&kib| kib > 0), "{run:#}");
    let calls = list(run, "/latency/malloc/calls");
    assert!(calls.iter().filter_map(Value::as_u64).sum::<u64>() > 0, "{run:#}");
}

/// Long enough to have CPU time and to be seen: a run without either has no figures.
const WORK: &str = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done";

/// Program that does `action` when the candidate's library is in it.
fn under(library: &str, action: &str) -> String {
    format!("sh -c '{WORK}; if grep -q lib{library} /proc/$$/maps; then {action}; fi; echo done'")
}

/// Reads the growth at which it collects.
const GO: &str = "package main\n\nimport (\n\t\"fmt\"\n\t\"runtime/debug\"\n)\n\n\
                  func main() { fmt.Println(debug.SetGCPercent(-1) > 0) }\n";

#[test]
fn a_static_program_is_measured_under_settings_of_its_runtime() {
    let world = World::new();
    let compilers = ["/usr/local/go/bin/go", "/usr/bin/go"];
    let Some(compiler) = compilers.into_iter().find(|file| Path::new(file).is_file()) else {
        return imas_testing::skipped("the Go compiler is not installed");
    };
    let (source, built) = (world.work().join("percent.go"), world.work().join("percent"));
    std::fs::write(&source, GO).unwrap();
    let mut build = world.command(compiler);
    build.args(["build", "-o"]).args([&built, &source]).env("CGO_ENABLED", "0").env("GOFLAGS", "");
    let made = output(build.env("GOCACHE", std::env::temp_dir().join("imas-test-go-cache")));
    assert!(made.status.success(), "{}", describe(&made));
    let own = program("percent", built.to_str().unwrap()) + &program("sed", "sed p /etc/passwd");
    let with = ["--with", "settings,mimalloc", "--rounds", "1", "--counted", "1"];
    let ran = run_own(&world, &own, &with);
    assert!(ran.status.success(), "{}", describe(&ran));
    let all: Vec<_> = runs(&world).iter().map(key).collect();
    let of = |program: &str, kind: &str| -> BTreeSet<String> {
        let own = all.iter().filter(|key| key.0 == program && key.2 == kind);
        // Whether these are offered is up to the machine.
        let own = own.filter(|key| key.1 != "go:limit" && !key.1.starts_with("thp:"));
        own.map(|key| key.1.clone()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(of("percent", "measured"), set(&["system", "go:gogc50", "go:gogc200", "go:gogc400"]));
    assert_eq!(of("percent", "counted"), set(&[]));
    assert_eq!(of("sed", "measured"), set(&["system", "mimalloc"]));
    assert_eq!(of("sed", "counted"), set(&["system", "mimalloc"]));
    std::fs::remove_dir_all(world.work().join("out")).unwrap();
    let mut alone = suite(&world, "run", &["percent", "--with", "mimalloc"]);
    let alone = output(alone.env("IMAS_LIB_DIR", world.work().join("lib")));
    assert!(stderr(&alone).contains("percent: not run"), "{}", describe(&alone));
}

#[test]
fn a_failure_under_a_candidate_is_reported_and_left_out() {
    let world = World::new();
    let own = [
        program("crashes", &under("mimalloc", "kill -SEGV $$")),
        program("exits", &under("mimalloc", "exit 3")),
        program("differs", &under("mimalloc", "echo other")),
        program("fine", &format!("sh -c '{WORK}; echo done'")),
        program("never", "sh -c 'exit 4'"),
        program("random", "sh -c 'cat /proc/sys/kernel/random/uuid'"),
        program("slow", &under("mimalloc", "sleep 1000")),
    ];
    let ran = succeeded(run_own(
        &world,
        &own.concat(),
        &["--with", "mimalloc,jemalloc", "--rounds", "4", "--timeout", "10"],
    ));
    let summary = shown(&world);
    let troubles: BTreeSet<(&str, &str, &str)> = list(&summary, "/summary/troubles")
        .iter()
        .map(|t| (text(t, "/program"), text(t, "/candidate"), text(t, "/why")))
        .collect();
    let wanted = [("crashes", "crash"), ("differs", "output"), ("exits", "exit"), ("slow", "timeout")];
    let wanted: BTreeSet<_> = wanted.into_iter().map(|(program, why)| (program, "mimalloc", why)).collect();
    assert_eq!(troubles, wanted, "{}", describe(&ran));
    let overall = list(&summary, "/summary/overall");
    let of = |name: &str| overall.iter().find(|o| o["candidate"] == name).unwrap();
    // `random` takes 1 ms of CPU time and is compared all the same.
    assert_eq!((&of("mimalloc")["programs"], &of("mimalloc")["left_out"]), (&2.into(), &4.into()));
    assert_eq!(of("jemalloc")["programs"], 6);
    assert!(stderr(&ran).contains("never: left out: it fails under system"), "{}", describe(&ran));
    let why = "it fails under system (exit): exit 4";
    assert_eq!(summary["summary"]["left_out"], json!({ "never": why }), "{}", describe(&ran));
    let row = |words: [&str; 3]| {
        let table = stdout(&ran).split("Left out, and why").nth(1).unwrap_or_default().to_owned();
        table.lines().any(|line| words.iter().all(|word| line.contains(word)))
    };
    assert!(row(["never", "all", why]), "{}", describe(&ran));
    assert!(row(["slow", "mimalloc", "timeout in 2 of 2 runs"]), "{}", describe(&ran));
    assert_in_the_study(&world, why);
    // Two chances each, of four rounds.
    assert_eq!(runs(&world).iter().filter(|run| run["ok"] == false).count(), 8);
}

/// The output of the program is the same at first, and a candidate's is another; then it varies by itself.
#[test]
fn a_candidate_rejected_before_the_output_varied_is_accepted_again() {
    let world = World::new();
    let log = world.work().join("log");
    let body = format!(
        "{WORK}; if grep -q libmimalloc /proc/$$/maps; then echo other; else echo run >>{log}; test $(wc -l <{log}) -le 3; echo $?; fi",
        log = log.display()
    );
    let own = program("turns", &format!("sh -c '{body}'"));
    let ran = succeeded(run_own(&world, &own, &["--with", "mimalloc", "--rounds", "5", "--counted", "0"]));
    let rejected = runs(&world).iter().filter(|run| run["why"] == "output").count();
    assert!((1..=2).contains(&rejected), "{}", describe(&ran));
    let record = std::fs::read_to_string(world.work().join("out/runs.jsonl")).unwrap();
    assert_eq!(record.matches("{\"output_varies\":\"turns\"").count(), 1, "{record}");
    assert!(stderr(&ran).contains("turns: its output varies under system"), "{}", describe(&ran));
    let summary = shown(&world);
    assert!(list(&summary, "/summary/troubles").is_empty(), "{summary:#}");
    let data = imas_core::raw_runs::data::read(&record);
    let counts = data.runs.iter().filter(|run| run.ok && run.candidate == "mimalloc").count();
    assert!(counts > rejected && data.unreadable.is_empty(), "it was tried again: {counts} runs");
    // Runs that were skipped meanwhile are made now.
    let lib = world.work().join("lib");
    let again = ["--with", "mimalloc", "--rounds", "5", "--counted", "0", "--resume"];
    let resumed = succeeded(output(suite(&world, "run", &again).env("IMAS_LIB_DIR", lib)));
    assert_eq!(runs(&world).len(), 10, "{}", describe(&resumed));
    // In a record from before there were such lines, the output of system shows the same.
    let file = world.work().join("out/runs.jsonl");
    let record = std::fs::read_to_string(&file).unwrap();
    let lines = record.lines().filter(|line| !line.contains("output_varies"));
    std::fs::write(&file, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    let summary = shown(&world);
    assert!(list(&summary, "/summary/troubles").is_empty(), "{summary:#}");
}

/// Checks that the study names all that was left out, with the reasons, in its table.
fn assert_in_the_study(world: &World, why: &str) {
    let out = world.work().join("study");
    let mut study = world.lab(["study", "selector", "--data"]);
    succeeded(output(study.arg(world.work().join("out/runs.jsonl")).arg("--out").arg(&out)));
    let table = std::fs::read_to_string(out.join("selector-left-out.csv")).unwrap();
    for row in
        [format!("never,all,{why}"), "slow,mimalloc,2 x timeout".into(), "differs,mimalloc,2 x output".into()]
    {
        assert!(table.contains(&row), "no {row} in {table}");
    }
    let measurements = std::fs::read_to_string(out.join("selector-measurements.csv")).unwrap();
    let slow = measurements.lines().find(|line| line.starts_with("slow,mimalloc"));
    let slow = slow.unwrap_or_else(|| panic!("no slow,mimalloc in {measurements}"));
    assert!(slow.ends_with("-,-,2 x timeout"), "{slow}");
}

#[test]
fn a_set_up_that_fails_costs_its_own_program_only() {
    let world = World::new();
    let own = program("bad", "true") + "setup = 'echo broken >&2; false; true'\n" + &program("good", "true");
    let ran = succeeded(run_own(&world, &own, &["--with", "mimalloc", "--rounds", "1"]));
    assert!(
        stderr(&ran).contains("the input of bad could not be made (exit 1): broken"),
        "{}",
        describe(&ran)
    );
    assert!(runs(&world).iter().all(|run| run["program"] == "good") && runs(&world).len() == 2);
}

/// The load takes a hundred times the memory of the server; what is recorded is the server's.
#[test]
fn of_a_server_only_the_server_counts() {
    let world = World::new();
    let server = r#"sh -c 'exec python3 -c "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind(\"t\"); s.listen(); x = b\"x\" * 8000000; os.rename(\"t\", \"s\")
while True:
    c, _ = s.accept(); c.sendall(b\"hello\"); c.close()"'"#;
    let load = r#"python3 -c 'import socket; x = b"x" * 400000000; c = socket.socket(socket.AF_UNIX); c.connect("s"); assert c.recv(9) == b"hello"'"#;
    let own = program("server", server)
        + &format!("executable = 'python3'\n[program.server]\nready = 'test -S s'\nload = '''{load}'''\n")
        + &program("deaf", "sleep 50")
        + "[program.server]\nready = 'test -S s'\nload = 'false'\n";
    let own =
        own.replace("ready = 'test -S s'\nload = 'false'", "ready = 'true'\nload = 'echo refused; false'");
    let ran = succeeded(run_own(&world, &own, &["--with", "mimalloc", "--rounds", "1"]));
    assert!(
        stderr(&ran).contains("deaf: left out: it fails under system (load): exit 1: refused"),
        "{}",
        describe(&ran)
    );
    let runs = runs(&world);
    assert_eq!(runs.len(), 2);
    for run in &runs {
        let peak = run["peak_bytes"].as_u64().unwrap();
        assert!(run["ok"] == true && (8_000_000..300_000_000).contains(&peak), "{run:#}");
    }
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let world = World::new();
    let (record, go) = (world.work().join("out/runs.jsonl"), world.work().join("go"));
    // From the eighth line on each waits for the word to go on: it cannot come to its end before it is
    // killed.
    let waits = format!(
        "sh -c 'sleep 0.05; until [ -e {} ] || [ $(cat {} 2>/dev/null | wc -l) -lt 8 ]; do sleep 0.05; done'",
        go.display(),
        record.display()
    );
    let own = program("a", &waits) + &program("b", &waits);
    let lib = installation(&world, &own);
    let run = |more: &[&str]| {
        let mut command = suite(&world, "run", &["--with", "mimalloc", "--rounds", "6"]);
        command.args(more).env("IMAS_LIB_DIR", &lib);
        command
    };
    let lines = || std::fs::read_to_string(&record).unwrap_or_default().lines().count();
    let mut child = run(&[]).spawn().unwrap();
    wait_until("a few runs", || lines() > 5);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = runs(&world).len();
    assert!((1..24).contains(&before), "{before}");
    cut_last_line(&record);
    std::fs::write(&go, "").unwrap();
    let refused = output(&mut run(&[]));
    assert_eq!(refused.status.code(), Some(2));
    assert_hinted(&refused, "has runs already");
    let resumed = succeeded(output(&mut run(&["--resume"])));
    let keys: Vec<_> = runs(&world).iter().map(key).collect();
    assert_eq!(keys.len(), 24, "{}", describe(&resumed));
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), 24, "a run was made twice");
}

/// Cuts off the end of the last line, as a kill in the middle of a write would.
fn cut_last_line(path: &Path) {
    let text = std::fs::read(path).unwrap();
    std::fs::write(path, &text[..text.len() - 20]).unwrap();
}

#[test]
fn bad_input_is_named() {
    let world = World::new();
    let no_program = output(&mut suite(&world, "run", &["gccc"]));
    assert_eq!(no_program.status.code(), Some(2));
    assert_hinted(&no_program, "gccc: no such program in the suite");
    let no_candidate = output(&mut suite(&world, "run", &["sed", "--with", "nonsense"]));
    assert_eq!(no_candidate.status.code(), Some(2));
    assert_hinted(&no_candidate, "nonsense: no such candidate");
    let nothing = output(&mut suite(&world, "show", &[]));
    assert_eq!(nothing.status.code(), Some(2));
    assert_hinted(&nothing, "there are no runs");
    let lib = installation(&world, "[[program]]\nname = 'a'\ncomand = 'b'\n");
    let typing_error = output(suite(&world, "list", &[]).env("IMAS_LIB_DIR", lib));
    assert_eq!(typing_error.status.code(), Some(2));
    assert_hinted(&typing_error, "line 3");
}

/// The session ends between two programs, so that what is there is balanced, and goes on from there.
#[test]
fn a_time_limit_ends_it_with_whole_programs() {
    let world = World::new();
    let own = program("first", "sleep 0.6") + &program("second", "sleep 0.6");
    let lib = installation(&world, &own);
    let run = |more: &[&str]| {
        let mut run = suite(&world, "run", &["--with", "mimalloc", "--rounds", "2"]);
        output(run.args(more).env("IMAS_LIB_DIR", &lib))
    };
    let ran = succeeded(run(&["--time-limit", "1s"]));
    assert!(stderr(&ran).contains("time limit of 1 second: round 1 is not finished"), "{}", describe(&ran));
    let programs: BTreeSet<String> = runs(&world).iter().map(|run| key(run).0).collect();
    assert_eq!((programs.len(), runs(&world).len()), (1, 2), "{}", describe(&ran));
    let resumed = succeeded(run(&["--resume"]));
    assert_eq!(runs(&world).iter().map(key).collect::<BTreeSet<_>>().len(), 8, "{}", describe(&resumed));

    let wrong = run(&["--resume", "--time-limit", "soon"]);
    assert!(stderr(&wrong).contains("not a time such as 90s, 55m or 1h30m"), "{}", describe(&wrong));
}
