// SPDX-License-Identifier: Apache-2.0
//! `imas-lab simulate`: data sets, made-up programs and a user's own store, replayed.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use support::{World, json, printed, stderr};

/// The laboratory's own data set and made-up programs; the figures themselves are judged in imas-core.
#[test]
fn the_laboratory_replays_data_and_reports_what_it_leaves_out() {
    let world = World::new();
    let data = world.work().join("runs.jsonl");
    let mut lines = String::from("{\"imas\":\"runs\",\"schema\":1}\nno json\n");
    for round in 0..8 {
        for (candidate, memory) in [("system", 200), ("jemalloc", 100)] {
            lines += &format!(
                "{{\"program\":\"p\",\"candidate\":\"{candidate}\",\"round\":{round},\"ok\":true,\"user_s\":1,\"mean_bytes\":{memory}}}\n"
            );
        }
    }
    lines += "{\"program\":\"q\",\"candidate\":\"system\",\"ok\":true,\"user_s\":1,\"mean_bytes\":9}\n";
    std::fs::write(&data, lines).unwrap();
    let data = data.to_str().unwrap();
    let output = world
        .lab(["simulate", "--data", data, "--policy", "adaptive,always:jemalloc,always:system", "--json"])
        .output()
        .unwrap();
    let errors = stderr(&output);
    assert!(errors.contains("runs.jsonl: line 2 is no run") && errors.contains("q is left out"), "{errors}");
    let result = json(&output);
    assert_eq!((&result["schema"], &result["programs"]), (&1.into(), &1.into()));
    let policies = result["policies"].as_array().unwrap();
    let of = |i: usize, key: &str| policies[i][key].as_f64().unwrap();
    assert_eq!(
        (of(0, "regret"), of(0, "wrong"), of(0, "harmed")),
        (0.0, 0.0, 0.0),
        "half the memory is found"
    );
    assert!(of(0, "trials") > 0.0 && of(0, "trials") <= 6.0);
    assert!((of(2, "regret") - (2f64.sqrt() - 1.0)).abs() < 1e-9, "twice the memory: {result}");
    let detail = |i: usize, key: &str| policies[i]["details"][0][key].as_f64().unwrap();
    assert!((detail(2, "regret") - of(2, "regret")).abs() < 1e-9, "of one program as of all: {result}");
    assert!((detail(1, "memory") + 0.5).abs() < 1e-9, "half the memory: {result}");
}

#[test]
fn a_policy_that_is_not_there_is_an_error_with_a_hint() {
    for (policy, wanted) in [
        ("best", "best: no such policy"),
        ("always:glibc:arena2", "always glibc:arena2: no program has runs of that candidate"),
    ] {
        let output = World::new().lab(["simulate", "--policy", policy]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let errors = stderr(&output);
        assert!(errors.contains(wanted) && errors.contains("hint:"), "{errors}");
    }
}

/// Real trials of the user's own store, and the errors around it.
#[test]
fn the_laboratory_replays_the_users_own_store() {
    let world = World::new();
    let nothing = world.lab(["simulate", "--stored"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    assert!(stderr(&nothing).contains("hint:"));
    world.configure("retest_s = 0\ncandidates = ['mimalloc', 'glibc:arena1']\n");
    let start = || {
        let words = ["run", "--policy", "paper", "--", "/usr/bin/sort", "--parallel=1", "/etc/services"];
        printed(&world.imas(words).output().unwrap());
    };
    start();
    world.ingest();
    let few = world.lab(["simulate", "--stored"]).output().unwrap();
    let errors = stderr(&few);
    assert_eq!(few.status.code(), Some(2));
    assert!(errors.contains("sort is left out") && errors.contains("4 rounds"), "{errors}");
    (1..3 * 5).for_each(|_| start());
    world.ingest();
    let result = json(&world.lab(["simulate", "--stored", "--json"]).output().unwrap());
    assert_eq!((&result["schema"], &result["programs"]), (&1.into(), &1.into()), "{result}");
    let policies = result["policies"].as_array().unwrap();
    let names: Vec<_> = policies.iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert!(names.starts_with(&["adaptive", "paper", "best of all seen", "always system"]), "{names:?}");
    for one in policies {
        for key in ["trials", "regret", "wrong", "harmed"] {
            assert!(one[key].is_number(), "{key} of {one}");
        }
    }
    let sort: Vec<_> = policies[1]["details"].as_array().unwrap().iter().map(|one| &one["program"]).collect();
    assert_eq!(sort, ["/usr/bin/sort"]);
    // Neither a text file nor another program's database is a store. Both must stay unchanged.
    let (notes, foreign) = (world.work().join("notes.txt"), world.work().join("foreign.db"));
    std::fs::write(&notes, "mine\n".repeat(1000)).unwrap();
    let made =
        std::process::Command::new(support::real("sqlite3")).arg(&foreign).arg("CREATE TABLE t (x)").status();
    assert!(made.unwrap().success());
    for file in [&notes, &foreign] {
        let before = std::fs::read(file).unwrap();
        let named = ["--store", file.to_str().unwrap()];
        for (mut command, verb) in [
            (world.imas(["show"]), "show"),
            (world.imas(["explain", "1"]), "explain"),
            (world.lab(["simulate"]), "simulate"),
        ] {
            let output = command.args(named).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{verb}");
            support::assert_hinted(&output, "store");
        }
        assert!(std::fs::read(file).unwrap() == before, "{} was changed", file.display());
    }
    let names: Vec<_> =
        std::fs::read_dir(world.work()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("corrupt")), "{names:?}");
    let absent = world.work().join("no.db");
    let output = world.lab(["simulate", "--store", absent.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// The packed runs that the published figures rest on: 114 programs, lines of failures and of programs that
/// were left out.
#[test]
fn the_published_runs_are_read() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/suite.jsonl.gz");
    let text = imas_runs::journal::read_text(&path).unwrap();
    let data = imas_core::raw_runs::data::read(&text);
    assert!(data.unreadable.is_empty(), "{:?}", data.unreadable);
    assert!(data.runs.len() > 1000, "{} runs", data.runs.len());
}
