// SPDX-License-Identifier: Apache-2.0
//! `imas bench`: the form of the result, the measurements, and the flags.

mod ends;
use std::path::Path;
use std::process::Output;

use crate::support::{
    World, assert_refused, build, candidate, default_set, describe, input, keys, list, names_of, output,
    parsed, stdout, succeeded, text,
};
use imas_linux::catalogue::CatalogueCandidate;
use imas_testing::skipped;
use serde_json::Value;

pub(crate) fn bench(world: &World, flags: &[&str], command: &[&str]) -> (Value, Output) {
    let output = output(world.imas(["bench", "--json"]).args(flags).arg("--").args(command));
    (parsed(&output), output)
}

pub(crate) fn behave(world: &World) -> String {
    build::program("behave", &world.work()).to_string_lossy().into_owned()
}

pub(crate) fn warnings<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(result, "/warnings").iter().filter(|warning| warning["kind"] == kind).collect()
}

pub(crate) fn names(result: &Value) -> Vec<&str> {
    list(result, "/candidates").iter().map(|candidate| text(candidate, "/name")).collect()
}

// ---- shape ------------------------------------------------------------------------------------------------

fn check_interval(ratio: &Value) {
    let interval: Vec<f64> = list(ratio, "").iter().map(|number| number.as_f64().unwrap()).collect();
    assert_eq!(interval.len(), 3, "[lo, mid, hi]");
    assert!(0.0 < interval[0] && interval[0] <= interval[1] && interval[1] <= interval[2], "{interval:?}");
}

fn check_runs(row: &Value, runs: usize) {
    assert_eq!(list(row, "/runs").len(), runs, "{row:#}");
    for run in list(row, "/runs") {
        for key in ["exit", "user_s", "system_s", "wall_s", "peak_bytes", "mean_bytes", "minor_faults"] {
            assert!(run[key].is_number(), "no {key} in {run:#}");
        }
        assert!(
            run["wall_s"].as_f64().unwrap() > 0.0 && run["minor_faults"].as_u64().unwrap() > 0,
            "{run:#}"
        );
    }
}

#[test]
fn the_result_has_its_shape_and_all_exports_agree() {
    let world = World::new();
    let file = |name: &str| world.work().join(name).to_string_lossy().into_owned();
    let (json, csv, markdown) = (file("r.json"), file("r.csv"), file("r.md"));
    let sql = input("work.sql").to_string_lossy().into_owned();
    let exports = ["--export-json", &json, "--export-csv", &csv, "--export-markdown", &markdown];
    let flags = [&["-n", "3", "--input", &sql][..], &exports].concat();
    let (result, output) = bench(&world, &flags, &["sqlite3", ":memory:"]);
    assert!(output.status.success(), "{}", describe(&output));

    for key in ["schema", "command", "host", "candidates", "judgement", "warnings"] {
        assert!(keys(&result).contains(&key), "no {key} in {result:#}");
    }
    assert_eq!(
        (&result["schema"], &result["command"]),
        (&Value::from(1), &serde_json::json!(["sqlite3", ":memory:"]))
    );
    let set = default_set();
    assert_eq!(names(&result), names_of(&set), "the default set must be measured");
    for one in &set {
        check_candidate(candidate(&result, &one.name), one);
    }
    assert_eq!(keys(&result["judgement"]["picks"]), ["balanced", "cpu", "memory"]);
    assert!(picks(&result).iter().all(|pick| names(&result).contains(pick)), "{result:#}");
    assert_eq!(serde_json::from_str::<Value>(&std::fs::read_to_string(&json).unwrap()).unwrap(), result);
    check_csv(Path::new(&csv), &result);
    let page = std::fs::read_to_string(&markdown).unwrap();
    assert!(page.starts_with("`sqlite3 :memory:`\n"), "{page}");
    assert!(set.iter().all(|one| page.contains(&format!("| {} ", one.name))), "{page}");
}

fn check_candidate(row: &Value, one: &CatalogueCandidate) {
    let (name, allocator) = (one.name.as_str(), one.allocator.as_str());
    assert_eq!((&row["available"], &row["reason"]), (&Value::Bool(true), &Value::Null), "{row:#}");
    assert!(!text(row, "/version").is_empty());
    check_runs(row, 3);
    assert!(row["median"]["cpu_s"].as_f64().unwrap() > 0.0, "{row:#}");
    assert!(row["median"]["peak_bytes"].as_f64().unwrap() > 1e6, "{row:#}");
    if name != "system" {
        check_interval(&row["ratio"]["cpu"]);
        check_interval(&row["ratio"]["memory"]);
    }
    let paper = &row["paper"];
    assert!(paper["ns_per_op"].as_f64().unwrap() > 0.0, "{paper:#}");
    for ratio in ["frag_virtual", "frag_resident"] {
        assert!((0.0..=1.0).contains(&paper[ratio].as_f64().unwrap()), "{paper:#}");
    }
    assert!(paper["heap_bytes"].as_u64().unwrap() > 1_000_000, "{paper:#}");
    assert!(paper["operations"].as_u64().unwrap() > 10_000, "{paper:#}");
    // The split is unknown if a sample fell into a signal handler.
    if matches!(allocator, "system" | "jemalloc" | "tcmalloc") && paper["split"]["told"].is_object() {
        assert!(paper["split"]["told"]["in_use"].as_u64().unwrap() > 0, "{paper:#}");
    }
    let served = text(paper, "/served");
    match &one.library {
        Some(_) => {
            assert!(served.starts_with(&crate::support::calls_itself(one)), "{name} served by {served}")
        }
        None => assert_eq!(served, "libc.so.6", "{name}"),
    }
}

/// One line per run, with the figures of the JSON.
fn check_csv(file: &Path, result: &Value) {
    let text_of = std::fs::read_to_string(file).unwrap();
    let mut lines = text_of.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    let place = |name: &str| head.iter().position(|column| *column == name).unwrap();
    let (at_candidate, at_user, at_exit) = (place("candidate"), place("user_s"), place("exit"));
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let mut want = Vec::new();
    for row in list(result, "/candidates") {
        want.extend(
            list(row, "/runs")
                .iter()
                .map(|run| (text(row, "/name"), run["user_s"].as_f64(), run["exit"].as_i64())),
        );
    }
    let got: Vec<_> = rows
        .iter()
        .map(|row| (row[at_candidate], row[at_user].parse().ok(), row[at_exit].parse().ok()))
        .collect();
    assert_eq!(got, want);
}

#[test]
fn people_get_a_table_a_sentence_and_no_json() {
    let world = World::new();
    let output = succeeded(output(
        world.imas(["bench", "-n", "2", "--with", "hoard", "--"]).args([&behave(&world), "400000"]),
    ));
    let text = stdout(&output);
    for word in ["candidate", "CPU", "mean MiB", "system", "hoard"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    assert!(text.contains("\nNothing can be said after 2 rounds: a proof takes at least 3"), "{text}");
    assert!(text.contains("imas run --follow"), "{text}");
    assert!(
        !crate::support::stderr(&output).contains('\u{1b}'),
        "without a terminal there must be no bar and no colour"
    );
}

// ---- what is run ------------------------------------------------------------------------------------------

/// The candidates of all runs in order, recorded by the program itself. Each run must read its input from the
/// beginning.
fn order(world: &World, seed: &str) -> Vec<String> {
    let log = world.work().join("log");
    let _ = std::fs::remove_file(&log);
    let who = build::program("who", &world.work());
    let code = format!("{} >>{}; echo \"$GLIBC_TUNABLES\" >/dev/null; cat", who.display(), log.display());
    let sql = input("work.sql").to_string_lossy().into_owned();
    let flags =
        ["-n", "4", "--trials", "1", "--seed", seed, "--input", &sql, "--with", "hoard,mimalloc,jemalloc"];
    let (result, _) = bench(world, &flags, &["sh", "-c", &code]);
    assert!(warnings(&result, "output-differs").is_empty(), "{result:#}");
    std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_seed_decides_the_order_and_every_round_has_all() {
    let world = World::new();
    let first = order(&world, "7");
    assert_eq!(first.len(), 1 + 4 * 5, "a warm-up, four rounds and the counted runs: {first:?}");
    assert_eq!(first[0], "libc", "the warm-up is under system");
    for round in first[1..].chunks(4) {
        let mut names: Vec<_> = round.iter().map(|name| name.split(' ').next().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["hoard", "jemalloc", "libc", "mimalloc"], "{first:?}");
    }
    assert_eq!(order(&world, "7"), first);
    assert_ne!(order(&world, "8"), first);
}

#[test]
fn the_user_names_the_candidates() {
    let world = World::new();
    let behave = behave(&world);
    let (subset, _) = bench(&world, &["-n", "1", "--with", "mimalloc,glibc:arena1"], &[&behave, "100"]);
    assert_eq!(
        names(&subset),
        ["system", "glibc:arena1", "mimalloc"],
        "system first, then the catalogue's order"
    );
    let (all, _) = bench(&world, &["-n", "1", "--trials", "0", "--with", "all"], &[&behave, "100"]);
    let listed = world.json(["list", "--json"]);
    let rows = list(&listed, "/candidates").iter().filter(|row| row["runtime"].is_null());
    let for_all: Vec<_> = rows.map(|row| text(row, "/name")).collect();
    assert_eq!(names(&all), for_all, "those of a runtime are for its programs alone");
}

// ---- what is flagged --------------------------------------------------------------------------------------

/// Names of the picks; a goal without one has none.
pub(crate) fn picks(result: &Value) -> Vec<&str> {
    ["cpu", "memory", "balanced"].iter().filter_map(|goal| pick(result, goal)).collect()
}

/// The pick of a goal.
pub(crate) fn pick<'a>(result: &'a Value, goal: &str) -> Option<&'a str> {
    result["judgement"]["picks"][goal]["candidate"].as_str()
}

/// A file format for a pipe must be the only text on standard output.
#[test]
fn a_dash_is_standard_output_and_the_table_is_not_on_it() {
    let world = World::new();
    let behave = behave(&world);
    let bench = |flags: &[&str]| {
        let words = ["bench", "-n", "2", "--trials", "1", "--with", "hoard"];
        output(world.imas(words).args(flags).args(["--", &behave, "2000000"]))
    };
    let runs = succeeded(bench(&["--export-runs", "-"]));
    let data = imas_core::raw_runs::data::read(&stdout(&runs));
    assert_eq!(
        (data.headers.len(), data.runs.len(), data.unreadable.len()),
        (1, 6, 0),
        "{}",
        describe(&runs)
    );
    assert!(crate::support::stderr(&runs).contains("imas run --follow"), "{}", describe(&runs));
    let json = bench(&["--export-json", "-"]);
    assert_eq!(names(&parsed(&json)), ["system", "hoard"], "{}", describe(&json));
    assert!(!world.work().join("-").exists());
    for flags in [
        &["--export-runs", "-", "--json"][..],
        &["--export-runs", "-", "--export-csv", "-"],
        &["--export-markdown", "-", "--show-output"],
    ] {
        assert_refused(&bench(flags), "standard output");
    }
}

#[test]
fn the_state_at_the_beginning_is_measured_before_the_first_run() {
    let world = World::new();
    let script = "[ -e first ] || date +%s.%N >first";
    let (result, _) = bench(&world, &["-n", "1", "--with", "hoard"], &["sh", "-c", script]);
    let first: f64 = std::fs::read_to_string(world.work().join("first")).unwrap().trim().parse().unwrap();
    let began = result["began_unix_s"].as_f64().unwrap();
    assert!(began <= first, "began {began}, first run {first}");
}

#[test]
fn a_serial_program_is_kept_on_one_cpu_and_the_user_may_say_otherwise() {
    let world = World::new();
    let script =
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; grep Cpus_allowed_list /proc/self/status >>seen";
    let kept = |when: &str| {
        let flags = ["-n", "1", "--trials", "0", "--with", "hoard", "--one-cpu", when];
        bench(&world, &flags, &["sh", "-c", script]).0["kept_on_cpu"].as_u64()
    };
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return skipped("one CPU: every run uses it anyway");
    }
    assert_eq!(kept("never"), None);
    let cpu = kept("auto").unwrap();
    assert_eq!(kept("always"), Some(cpu));
    let seen = std::fs::read_to_string(world.work().join("seen")).unwrap();
    let kept: Vec<bool> = seen.lines().map(|line| line.ends_with(&format!("\t{cpu}"))).collect();
    // Warm-up, system and hoard, in three rounds: not pinned to a CPU; not pinned, then pinned; pinned.
    assert_eq!(kept, [false, false, false, false, true, true, true, true, true]);
}

#[test]
fn no_warm_up_is_pinned_to_a_cpu() {
    if std::thread::available_parallelism().unwrap().get() == 1 {
        return skipped("one CPU: every run uses it anyway");
    }
    let world = World::new();
    let script =
        "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; grep Cpus_allowed_list /proc/self/status >>seen";
    let flags = ["-n", "1", "--trials", "0", "--warmup", "3", "--with", "hoard"];
    let cpu = bench(&world, &flags, &["sh", "-c", script]).0["kept_on_cpu"].as_u64().unwrap();
    let seen = std::fs::read_to_string(world.work().join("seen")).unwrap();
    let kept: Vec<bool> = seen.lines().map(|line| line.ends_with(&format!("\t{cpu}"))).collect();
    assert_eq!(kept, [false, false, false, true, true]);
}

// ---- whole trees ------------------------------------------------------------------------------------------

fn operations(world: &World, command: &[&str]) -> f64 {
    let (result, output) = bench(world, &["-n", "1", "--with", "tcmalloc"], command);
    assert!(output.status.success(), "{}", describe(&output));
    let of = |name: &str| candidate(&result, name)["paper"]["operations"].as_f64().unwrap();
    let (system, tcmalloc) = (of("system"), of("tcmalloc"));
    assert!(
        (tcmalloc / system - 1.0).abs() < 0.05,
        "the work must be the same under both: {system}, {tcmalloc}"
    );
    system
}

#[test]
fn every_process_of_a_tree_is_counted() {
    let world = World::new();
    let tree = build::program("tree", &world.work()).to_string_lossy().into_owned();
    for how in [&[][..], &["exec"]] {
        let counted = operations(&world, &[&[tree.as_str(), "5", "100000"], how].concat());
        // Five children with 100,000 calls of malloc and of free each, and the start-up's calls.
        assert!((1_000_000.0..1_050_000.0).contains(&counted), "{how:?}: {counted}");
    }
}

/// A command with almost no CPU time has no ratio, and a warning gives the reason.
#[test]
fn too_little_cpu_time_is_not_compared() {
    let world = World::new();
    let (result, _) = bench(&world, &["-n", "3", "--trials", "0", "--with", "hoard"], &["sleep", "0.2"]);
    assert_eq!(candidate(&result, "hoard")["ratio"]["cpu"], Value::Null, "{result:#}");
    assert_eq!(warnings(&result, "too-little-cpu").len(), 1, "{result:#}");
}
