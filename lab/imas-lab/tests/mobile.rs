// SPDX-License-Identifier: Apache-2.0
//! `imas-lab study mobile`: real programs under real candidates, few and once; what is missing is describe,
//! and nothing is lost when it is killed.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;

use serde_json::Value;
use support::{World, assert_hinted, describe, json, list, output, real, stderr, stdout, text};

/// `imas-lab study mobile` into a folder of this world.
fn study(world: &World, more: &[&str]) -> Command {
    let mut command = world.lab(["study", "mobile", "--json"]);
    command.arg("--out").arg(world.work().join("out")).args(more);
    command
}

fn samples(world: &World) -> Vec<Value> {
    let file = std::fs::read_to_string(world.work().join("out/mobile.jsonl")).unwrap();
    let lines = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["part"].is_string()).collect()
}

fn finding<'a>(study: &'a Value, claim: &str) -> &'a Value {
    let all = list(study, "/study/findings");
    all.iter().find(|finding| text(finding, "/claim").starts_with(claim)).unwrap()
}

#[test]
fn sizes_and_benchmarks_are_measured_judged_and_kept() {
    let world = World::new();
    let words = ["--parts", "size,benchmarks", "--rounds", "1", "--with", "tlsf,dlmalloc,tcmalloc"];
    let first = json(&output(&mut study(&world, &words)));
    assert_eq!(text(finding(&first, "tlsf is the smallest"), "/verdict"), "reproduced");
    // One round proves nothing.
    assert_eq!(text(finding(&first, "With few allocations"), "/verdict"), "undecided");
    let before = samples(&world);
    assert!(before.iter().all(|sample| sample["failed"].is_null()), "{before:?}");
    for candidate in ["system", "tlsf", "dlmalloc", "tcmalloc"] {
        let mine = || before.iter().filter(|sample| sample["candidate"] == candidate);
        assert!(mine().count() >= 5, "{candidate}");
        let times = mine().filter(|sample| sample["part"] == "benchmarks");
        let figures = times.flat_map(|sample| sample["figures"].as_object().unwrap().values());
        assert!(figures.clone().count() >= 20 && figures.clone().all(|time| time.as_f64().unwrap() > 0.0));
    }

    let refused = output(&mut study(&world, &words));
    assert_eq!(refused.status.code(), Some(2));
    assert_hinted(&refused, "samples of an earlier session");

    // A kill leaves the last sample half written.
    let file = world.work().join("out/mobile.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    json(&output(study(&world, &words).arg("--resume")));
    let after = samples(&world);
    assert_eq!(after.len(), before.len());
    assert_eq!(after[..after.len() - 1], before[..before.len() - 1]);

    // Shown again, elsewhere, without a run.
    let page = world.work().join("again");
    let mut again = world.lab(["study", "mobile", "--data"]);
    let again = output(again.arg(&file).arg("--out").arg(&page));
    assert!(stdout(&again).contains("tlsf is the smallest library"), "{}", describe(&again));
    assert!(std::fs::read_to_string(page.join("mobile.html")).unwrap().contains("<svg"));
    assert!(!page.join("mobile.jsonl").exists());
}

/// A folder for PATH with these programs of the system and nothing else.
fn only(world: &World, names: &[&str]) -> std::path::PathBuf {
    let folder = world.work().join("bin");
    std::fs::create_dir_all(&folder).unwrap();
    for name in names {
        std::os::unix::fs::symlink(real(name), folder.join(name)).unwrap();
    }
    folder
}

#[test]
fn the_use_case_runs_under_the_candidate_without_a_browser() {
    let world = World::new();
    let path = only(&world, &["curl", "gm", "ffmpeg"]);
    let words = ["--parts", "use-case", "--iterations", "1", "--with", "tlsf"];
    let ran = output(study(&world, &words).env("PATH", &path));
    let study = json(&ran);
    assert!(
        stderr(&ran).contains("chromium is not installed\nhint: apt install chromium"),
        "{}",
        describe(&ran)
    );
    let samples = samples(&world);
    assert_eq!(samples.len(), 2, "{samples:?}");
    for sample in &samples {
        assert!(sample["failed"].is_null(), "{sample}");
        let expected = if sample["candidate"] == "system" { "glibc" } else { "tlsf" };
        for program in ["gallery", "video"] {
            assert_eq!(sample["served"][program], expected, "{sample}");
            assert!(sample["figures"][format!("{program}.resident")].as_f64().unwrap() > 1e6, "{sample}");
        }
        for state in ["before", "running", "idle"] {
            assert!(sample["figures"][format!("{state}.free")].as_f64().unwrap() > 0.0, "{sample}");
        }
    }
    let tables: Vec<&str> = list(&study, "/study/tables").iter().map(|table| text(table, "/id")).collect();
    assert!(["memory", "pages", "served"].iter().all(|id| tables.contains(id)), "{tables:?}");
    assert!(!left_running(&world.work()), "something of it goes on running");
}

/// Whether a process still works in or below the folder that TMPDIR named.
fn left_running(folder: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok())
        .any(|cwd| cwd.starts_with(folder))
}

#[test]
fn an_impossible_request_is_refused_with_the_reason() {
    let world = World::new();
    let nothing = only(&world, &[]);
    let refused = output(study(&world, &["--parts", "use-case"]).env("PATH", nothing));
    assert_eq!(refused.status.code(), Some(2));
    assert_hinted(&refused, "no program of the use case is installed");
    for (words, says) in [
        (&["study", "fit", "--iterations", "3"][..], "are for 'study mobile'"),
        (&["study", "mobile", "--with", "nonsense"], "nonsense: no such candidate"),
        (&["study", "mobile", "--with", "system"], "nothing to compare"),
        (&["study", "mobile", "--data", "/dev/null"], "hold no samples"),
        (&["study", "mobile", "--data", "/no/such.jsonl"], "/no/such.jsonl"),
    ] {
        let output = output(world.lab(words).arg("--out").arg(world.work().join("none")));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert_hinted(&output, says);
    }
}
