// SPDX-License-Identifier: Apache-2.0
//! Candidates under which the command behaves otherwise: they are flagged and not picked.

use std::path::Path;

use super::{behave, bench, picks, warnings};
use crate::support::{World, candidate, describe, list, succeeded, text};
use serde_json::Value;

/// A candidate that cannot be loaded is listed with the reason. The others are measured.
#[test]
fn an_unusable_candidate_is_listed_with_its_reason() {
    let world = World::new();
    let broken = world.work().join("libbroken.so");
    std::fs::write(&broken, "no library").unwrap();
    world.add_library("broken", &broken, "");
    let (result, output) = bench(&world, &["-n", "1", "--with", "broken,hoard"], &[&behave(&world), "1000"]);
    assert!(output.status.success(), "{}", describe(&output));
    let row = candidate(&result, "broken");
    assert_eq!(row["available"], false);
    assert!(text(row, "/reason").contains("ELF"), "{row:#}");
    assert_eq!(list(row, "/runs").len(), 0);
    assert_eq!(list(candidate(&result, "hoard"), "/runs").len(), 1);
}

#[test]
fn other_output_under_a_candidate_is_flagged_and_not_picked() {
    let world = World::new();
    let (behave, flags) = (behave(&world), ["-n", "3", "--with", "hoard,mimalloc"]);
    let (result, output) = bench(&world, &flags, &[&behave, "20000", "print", "mimalloc"]);
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
        succeeded(world.start([behave.as_str(), "1000", "segv", "hoard"]));
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
    let data = imas_core::raw_runs::data::read(&std::fs::read_to_string(file).unwrap());
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

#[test]
fn a_program_that_fails_under_system_is_reported_with_exit_status_one() {
    let world = World::new();
    let flags = ["-n", "2", "--ignore-failure", "--with", "hoard"];
    let (result, output) = bench(&world, &flags, &["sh", "-c", "echo why >&2; exit 9"]);
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    assert_eq!(warnings(&result, "system-fails")[0]["exit"], 9);
    assert!(list(&result, "/notes").iter().any(|note| note == "the program says: why"), "{result:#}");
}

#[test]
fn output_that_never_repeats_is_not_compared() {
    let world = World::new();
    let command = ["sh", "-c", "echo $$; od -An -N8 -tx1 /dev/urandom"];
    let (result, _) = bench(&world, &["-n", "2", "--with", "hoard"], &command);
    assert_eq!(warnings(&result, "output-varies-by-itself").len(), 1, "{result:#}");
    assert_eq!(candidate(&result, "hoard")["ineligible"], Value::Null);
}
