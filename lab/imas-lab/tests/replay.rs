// SPDX-License-Identifier: Apache-2.0
//! `imas-lab study replay`: a program of the suite is recorded and replayed; what is there already is not made
//! again.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::path::Path;

use serde_json::Value;
use support::{World, installation, stderr};

/// Live runs of the program that claim what is needed: `glibc:lean` with half the memory.
fn live(world: &World) -> String {
    let file = world.work().join("live.jsonl");
    let run = |candidate: &str, round: u32, bytes: u32| {
        format!(
            "{{\"program\":\"lists\",\"candidate\":\"{candidate}\",\"round\":{round},\"ok\":true,\"user_s\":1,\
             \"mean_bytes\":{bytes},\"peak_bytes\":{bytes}}}\n"
        )
    };
    let rounds = (0..4).flat_map(|round| [run("system", round, 2000), run("glibc:lean", round, 1000)]);
    std::fs::write(&file, rounds.collect::<String>()).unwrap();
    file.to_str().unwrap().to_owned()
}

const SUITE: &str = "\
[[program]]
name = 'lists'
category = 'test'
seconds = 0.1
command = \"perl -e 'push @a, [1..5] for 1..20000'\"
";

fn lines(out: &Path) -> Vec<Value> {
    let journal = std::fs::read_to_string(out.join("replay.jsonl")).unwrap();
    journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_program_is_predicted_once_and_judged_each_time() {
    let world = World::new();
    let (live, out) = (live(&world), world.work().join("out"));
    let words =
        ["study", "replay", "--json", "--replays", "1", "--live", &live, "--out", out.to_str().unwrap()];
    let (cache, lib) = (world.work().join("cache"), installation(&world, SUITE));
    let study = |more: &[&str]| {
        let mut lab = world.lab(words);
        lab.args(more).env("IMAS_SUITE_CACHE", &cache).env("IMAS_LIB_DIR", &lib).output().unwrap()
    };
    let first = study(&[]);
    assert!(first.status.success(), "{}", stderr(&first));
    let made = lines(&out);
    let candidates: Vec<&str> = made.iter().filter_map(|line| line["candidate"].as_str()).collect();
    assert_eq!(candidates, ["glibc:lean", "system"], "{made:?}");
    assert!(made[1]["cpu_ratio"].as_f64().unwrap() > 0.0 && made[1]["calls"].as_u64().unwrap() > 100);
    for ratio in ["cpu_ratio", "mean_ratio"] {
        let own = made[2][ratio].as_f64().unwrap();
        assert!((own - 1.0).abs() < 1e-9, "{ratio}: {own}"); // sums may round
    }

    let refused = study(&[]);
    assert!(stderr(&refused).contains("--resume"), "{}", stderr(&refused));
    let reliability = world.work().join("reliability.json");
    let again = study(&["--resume", "--reliability", reliability.to_str().unwrap()]);
    assert!(again.status.success(), "{}", stderr(&again));
    assert_eq!(lines(&out).len(), made.len() + 1, "a header, and nothing is made again");
    let table = std::fs::read_to_string(&reliability).unwrap();
    assert!(table.contains("\"programs\": 1") && table.contains("\"candidate\": \"glibc:lean\""), "{table}");
    let page = std::fs::read_to_string(out.join("replay.html")).unwrap();
    assert!(page.contains("correlate"));
}

#[test]
fn what_is_missing_is_described() {
    let world = World::new();
    let live = live(&world);
    for (words, message) in [
        (&["study", "replay"][..], "needs live runs"),
        (&["study", "replay", "--live", "/no/such.jsonl", "--data", "/no/such.jsonl"], "/no/such.jsonl"),
        (&["study", "replay", "--live", &live, "--only", "no-such-program"], "no such program"),
        (&["study", "replay", "--live", &live, "--with", "nonsense"], "nonsense: no such candidate"),
        (&["study", "replay", "--live", &live, "--data", &live], "no program has both"),
        (&["study", "fit", "--live", &live], "are for 'study replay'"),
        (&["study", "replay", "--live", &live, "--iterations", "3"], "are for 'study mobile'"),
    ] {
        let output = world.lab(words).output().unwrap();
        assert!(
            !output.status.success() && stderr(&output).contains(message),
            "{words:?}: {}",
            stderr(&output)
        );
    }
}
