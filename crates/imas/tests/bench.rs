// SPDX-License-Identifier: Apache-2.0
//! `imas bench`: the form of the result, the measurements, and the flags.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::path::Path;
use std::process::Output;

use imas_linux::catalogue::CatalogueCandidate;
use imas_testing::skipped;
use serde_json::Value;
use support::{
    World, assert_hinted, build, candidate, default_set, describe, input, keys, list, names_of, output,
    stdout, text,
};

/// A result as JSON, whatever the exit status.
fn result(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", describe(output)))
}

fn bench(world: &World, flags: &[&str], command: &[&str]) -> (Value, Output) {
    let output = output(world.imas(["bench", "--json"]).args(flags).arg("--").args(command));
    (result(&output), output)
}

fn behave(world: &World) -> String {
    build::program("behave", &world.work()).to_string_lossy().into_owned()
}

fn warnings<'a>(result: &'a Value, kind: &str) -> Vec<&'a Value> {
    list(result, "/warnings").iter().filter(|warning| warning["kind"] == kind).collect()
}

fn names(result: &Value) -> Vec<&str> {
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

    for key in ["schema", "command", "host", "candidates", "picks", "warnings"] {
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
    assert_eq!(keys(&result["picks"]).len(), 3);
    for pick in ["fastest", "leanest", "balanced"] {
        assert!(names(&result).contains(&text(&result, &format!("/picks/{pick}"))), "{result:#}");
    }
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
        Some(_) => assert!(served.starts_with(&support::calls_itself(one)), "{name} served by {served}"),
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
    let output =
        output(world.imas(["bench", "-n", "2", "--with", "hoard", "--"]).args([&behave(&world), "20000"]));
    assert!(output.status.success(), "{}", describe(&output));
    let text = stdout(&output);
    for word in ["candidate", "CPU", "peak MiB", "mean MiB", "system", "hoard"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    let sentences = ["Use ", "No candidate is", "Nothing ", "Not settled", " looks better: "];
    assert!(sentences.iter().any(|words| text.contains(words)), "{text}");
    assert!(text.contains("imas run --follow"), "{text}");
    assert_hinted(&output, "runs");
    assert!(
        !support::stderr(&output).contains('\u{1b}'),
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
    assert_eq!(names(&all), names(&listed));
    let unknown = output(&mut world.imas(["bench", "--with", "hoard,nonsense", "--", "true"]));
    assert_eq!(unknown.status.code(), Some(2));
    assert_hinted(&unknown, "nonsense: no such candidate");
}

/// A candidate that cannot be loaded is listed with the reason. The others are measured.
#[test]
fn an_unusable_candidate_is_listed_with_its_reason() {
    let world = World::new();
    let broken = world.work().join("libbroken.so");
    std::fs::write(&broken, "no library").unwrap();
    let entry = format!("schema = 1\n[[candidate]]\nname = \"broken\"\nlibrary = \"{}\"\n", broken.display());
    world.add_catalogue("broken.toml", &entry);
    let (result, output) = bench(&world, &["-n", "1", "--with", "broken,hoard"], &[&behave(&world), "1000"]);
    assert!(output.status.success(), "{}", describe(&output));
    let row = candidate(&result, "broken");
    assert_eq!(row["available"], false);
    assert!(text(row, "/reason").contains("ELF"), "{row:#}");
    assert_eq!(list(row, "/runs").len(), 0);
    assert_eq!(list(candidate(&result, "hoard"), "/runs").len(), 1);
}

// ---- what is flagged --------------------------------------------------------------------------------------

fn picks(result: &Value) -> Vec<&str> {
    ["fastest", "leanest", "balanced"].iter().map(|pick| text(result, &format!("/picks/{pick}"))).collect()
}

#[test]
fn other_output_under_a_candidate_is_flagged_and_not_picked() {
    let world = World::new();
    let (result, output) = bench(
        &world,
        &["-n", "3", "--with", "hoard,mimalloc"],
        &[&behave(&world), "20000", "print", "mimalloc"],
    );
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(candidate(&result, "mimalloc")["ineligible"], "output-differs");
    assert_eq!(candidate(&result, "hoard")["ineligible"], Value::Null);
    assert_eq!(warnings(&result, "output-differs")[0]["candidate"], "mimalloc");
    assert!(!picks(&result).contains(&"mimalloc"), "{result:#}");
}

#[test]
fn another_exit_under_a_candidate_is_flagged_and_not_picked() {
    let world = World::new();
    let (result, _) =
        bench(&world, &["-n", "3", "--with", "hoard"], &[&behave(&world), "20000", "exit3", "hoard"]);
    assert_eq!(candidate(&result, "hoard")["ineligible"]["exit-differs"]["exit"], 3);
    assert_eq!(warnings(&result, "exit-differs")[0]["exit"], 3);
    assert!(!picks(&result).contains(&"hoard"));
}

/// The crash is flagged, and later `imas run` does not use that candidate for the program.
#[test]
fn a_crash_under_a_candidate_is_flagged_and_quarantined() {
    let world = World::new();
    let behave = behave(&world);
    let (result, output) =
        bench(&world, &["-n", "3", "--with", "hoard,tcmalloc"], &[&behave, "20000", "segv", "hoard"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(warnings(&result, "crash-under")[0]["candidate"], "hoard");
    assert!(!picks(&result).contains(&"hoard"));
    let explained = world.json(["explain", &behave, "--json"]);
    assert_eq!(text(&explained, "/quarantined/0/candidate"), "hoard");
    for _ in 0..8 {
        let started = world.start([behave.as_str(), "1000", "segv", "hoard"]);
        assert!(started.status.success(), "{}", describe(&started));
    }
}

/// A script that runs `behave` with `act`. In a counted run, `behave` crashes under hoard. In a measured run
/// it crashes under none.
fn only_counted(world: &World, act: &str) -> String {
    let behave = behave(world);
    format!(
        "if grep -q '/libimas[.]so' /proc/$$/maps; then {act} {behave} 20000 segv hoard; else {act} {behave} 20000; fi; exit $?"
    )
}

/// Two cases: `behave` replaces the shell by exec, or it runs in a child and only the shell's exit status
/// shows the crash.
#[test]
fn a_crash_in_a_counted_run_alone_is_flagged_and_gives_no_figure() {
    let world = World::new();
    for (act, measured) in [("exec", 1), ("", 3)] {
        let script = only_counted(&world, act);
        let (result, output) =
            bench(&world, &["-n", "3", "--with", "hoard,mimalloc"], &["sh", "-c", &script]);
        assert!(output.status.success(), "{}", describe(&output));
        let (hoard, mimalloc) = (candidate(&result, "hoard"), candidate(&result, "mimalloc"));
        assert_eq!(hoard["ineligible"]["crashed"]["signal"], 11, "{act}: {hoard:#}");
        assert_eq!(warnings(&result, "crash-under")[0]["candidate"], "hoard");
        assert_eq!((&hoard["paper"], &mimalloc["ineligible"]), (&Value::Null, &Value::Null), "{act}");
        assert!(mimalloc["paper"]["ns_per_op"].as_f64().unwrap() > 0.0, "{mimalloc:#}");
        assert_eq!(list(hoard, "/runs").len(), measured, "{act}: before the counted one, or all");
    }
}

/// Candidate, kind and reason for exclusion of each exported run.
fn exported(file: &Path) -> Vec<(String, String, Option<String>)> {
    let data = imas_core::simulate::data::read(&std::fs::read_to_string(file).unwrap());
    assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
    data.runs
        .into_iter()
        .map(|run| {
            assert_eq!(run.ok, run.why.is_none(), "{run:?}");
            (run.candidate, format!("{:?}", run.kind), run.why)
        })
        .collect()
}

#[test]
fn exported_runs_say_which_of_them_do_not_count() {
    let world = World::new();
    let file = world.work().join("runs.jsonl");
    let runs = file.to_string_lossy().into_owned();
    let flags = ["-n", "3", "--with", "hoard,mimalloc", "--export-runs", &runs];
    bench(&world, &flags, &[&behave(&world), "20000", "print", "mimalloc"]);
    let lines = exported(&file);
    let whys = |name: &str, kind: &str| -> Vec<Option<String>> {
        lines.iter().filter(|line| line.0 == name && line.1 == kind).map(|line| line.2.clone()).collect()
    };
    assert_eq!(whys("mimalloc", "Measured"), vec![Some("output".to_owned()); 3], "{lines:?}");
    for name in ["system", "hoard"] {
        assert_eq!(whys(name, "Measured"), vec![None; 3], "{lines:?}");
        assert_eq!(whys(name, "Counted"), [None], "{lines:?}");
    }
}

/// A file format for a pipe must be the only text on standard output.
#[test]
fn a_dash_is_standard_output_and_the_table_is_not_on_it() {
    let world = World::new();
    let behave = behave(&world);
    let bench = |flags: &[&str]| {
        let words = ["bench", "-n", "2", "--trials", "1", "--with", "hoard"];
        output(world.imas(words).args(flags).args(["--", &behave, "20000"]))
    };
    let runs = bench(&["--export-runs", "-"]);
    assert!(runs.status.success(), "{}", describe(&runs));
    let data = imas_core::simulate::data::read(&stdout(&runs));
    assert_eq!(
        (data.headers.len(), data.runs.len(), data.unreadable.len()),
        (1, 6, 0),
        "{}",
        describe(&runs)
    );
    assert!(support::stderr(&runs).contains("imas run --follow"), "{}", describe(&runs));
    let json = bench(&["--export-json", "-"]);
    assert_eq!(names(&result(&json)), ["system", "hoard"], "{}", describe(&json));
    assert!(!world.work().join("-").exists());
    for flags in [
        &["--export-runs", "-", "--json"][..],
        &["--export-runs", "-", "--export-csv", "-"],
        &["--export-markdown", "-", "--show-output"],
    ] {
        let refused = bench(flags);
        assert_eq!(refused.status.code(), Some(2), "{flags:?}");
        assert_hinted(&refused, "standard output");
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
fn a_program_that_fails_under_system_is_reported_with_exit_status_one() {
    let world = World::new();
    let (result, output) = bench(
        &world,
        &["-n", "2", "--ignore-failure", "--with", "hoard"],
        &["sh", "-c", "echo why >&2; exit 9"],
    );
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert_eq!(warnings(&result, "system-fails")[0]["exit"], 9);
    assert!(list(&result, "/notes").iter().any(|note| note == "the program says: why"), "{result:#}");
}

#[test]
fn output_that_never_repeats_is_not_compared() {
    let world = World::new();
    let (result, _) = bench(
        &world,
        &["-n", "2", "--with", "hoard"],
        &["sh", "-c", "echo $$; od -An -N8 -tx1 /dev/urandom"],
    );
    assert_eq!(warnings(&result, "output-varies-by-itself").len(), 1, "{result:#}");
    assert_eq!(candidate(&result, "hoard")["ineligible"], Value::Null);
}

#[test]
fn a_run_that_hangs_is_ended() {
    let world = World::new();
    let flags = ["-n", "2", "--timeout", "10", "--with", "hoard,mimalloc"];
    let (result, output) = bench(&world, &flags, &[&behave(&world), "1000", "hang", "hoard"]);
    assert!(output.status.success(), "{}", describe(&output));
    let notes = list(&result, "/notes");
    assert!(notes.iter().any(|note| note == "hoard: a run took too long and was ended"), "{result:#}");
    assert!(!picks(&result).contains(&"hoard"), "{result:#}");
    assert_eq!(list(candidate(&result, "mimalloc"), "/runs").len(), 2);
}

/// A candidate that hangs is not given the time limit in each of its runs. The others go on.
#[test]
fn a_candidate_under_which_it_hangs_is_named() {
    let world = World::new();
    let library = build::library("hangs", &world.work());
    let entry = format!(
        "schema = 1\n[[candidate]]\nname = \"hangs\"\nversion = \"1\"\nlibrary = \"{}\"\n",
        library.display()
    );
    world.add_catalogue("hangs.toml", &entry);
    let (csv, markdown) = (world.work().join("r.csv"), world.work().join("r.md"));
    let (csv, markdown) = (csv.to_string_lossy(), markdown.to_string_lossy());
    let exports = ["--export-csv", &*csv, "--export-markdown", &*markdown];
    let flags = [&["-n", "2", "--with", "hangs,mimalloc"][..], &exports].concat();
    let (result, output) = bench(&world, &flags, &[&behave(&world), "3000"]);
    assert!(output.status.success(), "{}", describe(&output));
    assert_eq!(candidate(&result, "hangs")["ineligible"], "hung", "{result:#}");
    assert_eq!(warnings(&result, "hangs-under")[0]["candidate"], "hangs");
    assert_eq!(warnings(&result, "exit-differs").len(), 0, "{result:#}");
    assert!(!picks(&result).contains(&"hangs"), "{result:#}");
    assert_eq!(
        list(candidate(&result, "mimalloc"), "/runs").len(),
        2,
        "the other candidates must be measured"
    );
    assert!(
        std::fs::read_to_string(&*markdown).unwrap().contains("hangs under hangs"),
        "the page must report it"
    );
    assert!(std::fs::read_to_string(&*csv).unwrap().contains("hangs"));
    assert!(
        support::stderr(&output).contains("hangs under hangs") || text(&result, "/picks/fastest") != "hangs"
    );
    let explained = world.json(["explain", "behave", "--json"]);
    assert_eq!(text(&list(&explained, "/quarantined")[0], "/ended"), "hung", "{explained:#}");
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
        // Five children with 100,000 calls of malloc and of free each, and those of the start-up.
        assert!((1_000_000.0..1_050_000.0).contains(&counted), "{how:?}: {counted}");
    }
}

#[test]
fn a_process_that_outlives_the_command_is_ended() {
    let world = World::new();
    let tree = build::program("tree", &world.work()).to_string_lossy().into_owned();
    let file = world.work().join("daemons").to_string_lossy().into_owned();
    let (result, output) =
        bench(&world, &["-n", "1", "--warmup", "0", "--with", "hoard"], &[&tree, "daemon", &file]);
    assert!(output.status.success(), "{}", describe(&output));
    let daemons = std::fs::read_to_string(&file).unwrap();
    assert_eq!(daemons.lines().count(), 4, "two measured and two counted runs: {daemons}");
    for pid in daemons.lines() {
        // Process ids are reused, so the executable is compared, too.
        let now = std::fs::read_link(Path::new("/proc").join(pid).join("exe"));
        assert!(!now.is_ok_and(|file| file == Path::new(&tree)), "{pid} still runs");
    }
    let notes = list(&result, "/notes");
    assert!(notes.iter().any(|note| note.as_str().unwrap().contains("outlived the command")), "{result:#}");
}

#[test]
fn no_file_and_no_process_remains() {
    let world = World::new();
    bench(&world, &["-n", "1", "--with", "hoard"], &["sh", "-c", "true; true | cat"]);
    assert_eq!(world.page_files(), [""; 0]);
    assert!(world.trials().is_empty(), "a benchmark without a crash must store no trials");
}

// ---- what stops it ----------------------------------------------------------------------------------------

/// The number of runs so far: the command adds a line to a file in each.
fn runs_made(world: &World) -> usize {
    std::fs::read_to_string(world.work().join("made")).unwrap_or_default().lines().count()
}

#[test]
fn a_command_that_fails_is_run_once() {
    let world = World::new();
    let failed =
        output(&mut world.imas(["bench", "--", "sh", "-c", "echo run >>made; echo why >&2; exit 9"]));
    assert_eq!((failed.status.code(), runs_made(&world)), (Some(1), 1), "{}", describe(&failed));
    assert_hinted(&failed, "fails under system: exit 9: why");
    assert_eq!(stdout(&failed), "", "no comparison may be printed");
}

#[test]
fn a_time_limit_that_is_too_short_is_not_the_programs_fault() {
    let world = World::new();
    let words = ["bench", "--timeout", "0.2", "--", "sh", "-c", "echo run >>made; sleep 60"];
    let ended = output(&mut world.imas(words));
    assert_eq!((ended.status.code(), runs_made(&world)), (Some(2), 1), "{}", describe(&ended));
    assert_hinted(&ended, "did not end within 0.2 s");
    assert_eq!(stdout(&ended), "", "no verdict may be printed");
    let none = output(&mut world.imas(["bench", "--timeout", "0", "--", "true"]));
    assert_eq!(none.status.code(), Some(2));
    assert!(support::stderr(&none).contains("must be above 0"), "{}", describe(&none));
}

/// Redirected standard input is read once and given to every run.
#[test]
fn redirected_input_reaches_every_run() {
    let world = World::new();
    let file = world.work().join("lines");
    std::fs::write(&file, "one\ntwo\n").unwrap();
    let words = ["bench", "-n", "2", "--trials", "0", "--with", "hoard", "--", "sh", "-c", "wc -l >>made"];
    let from_file = output(world.imas(words).stdin(std::fs::File::open(&file).unwrap()));
    assert!(from_file.status.success(), "{}", describe(&from_file));
    let mut child = world.imas(words).stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"one\ntwo\n").unwrap();
    assert!(child.wait().unwrap().success());
    let made = std::fs::read_to_string(world.work().join("made")).unwrap();
    assert_eq!(
        made.lines().collect::<Vec<_>>(),
        ["2"; 10],
        "a warm-up and two rounds of two candidates, twice"
    );
}

/// The command's children end with it. The results so far are printed and written.
#[test]
fn a_signal_ends_the_run_and_keeps_what_was_measured() {
    let world = World::new();
    let json = world.work().join("r.json");
    // The sixth run, in the second round, waits for the signal.
    let script = "echo $$ >>made; [ $(wc -l <made) -lt 6 ] || exec sleep 600";
    let json_name = json.to_string_lossy().into_owned();
    let words = ["bench", "-n", "5", "--trials", "0", "--with", "hoard", "--export-json", &json_name];
    let mut command = world.imas(words);
    command.args(["--", "sh", "-c", script]).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    support::wait_until("six runs", || runs_made(&world) == 6);
    assert!(!json.exists(), "no empty file may exist during the runs");
    let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(143), "{}", describe(&ended));
    assert!(stdout(&ended).contains("hoard"), "{}", describe(&ended));
    let text = std::fs::read_to_string(&json).unwrap();
    assert!(text.ends_with('\n'));
    let result: Value = serde_json::from_str(&text).unwrap();
    let runs: usize = list(&result, "/candidates").iter().map(|one| list(one, "/runs").len()).sum();
    assert_eq!(runs, 4, "the completed runs");
    let made = std::fs::read_to_string(world.work().join("made")).unwrap();
    let last = made.lines().last().unwrap();
    let still = std::fs::read_to_string(format!("/proc/{last}/cmdline")).unwrap_or_default();
    assert!(!still.contains("sleep"), "{last} still runs");
}

/// A command with almost no CPU time has no ratio, and a warning gives the reason.
#[test]
fn too_little_cpu_time_is_not_compared() {
    let world = World::new();
    let (result, _) = bench(&world, &["-n", "3", "--trials", "0", "--with", "hoard"], &["sleep", "0.2"]);
    assert_eq!(candidate(&result, "hoard")["ratio"]["cpu"], Value::Null, "{result:#}");
    assert_eq!(warnings(&result, "too-little-cpu").len(), 1, "{result:#}");
}
