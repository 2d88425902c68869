// SPDX-License-Identifier: Apache-2.0
//! `imas tune`: a search that finds a large gain and proves it, one that goes on, and wrong input.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::path::PathBuf;

use serde_json::Value;
use support::{World, assert_hinted, build, describe, lib_dir, list, output, stdout, text};

/// An installation whose catalogue has no settings of glibc.
fn small_installation(world: &World) -> PathBuf {
    let lib = world.work().join("lib");
    std::fs::create_dir(&lib).unwrap();
    for file in ["libimas.so", "libimas-guard.so", "libimas-record.so", "imas-replayer", "tuning.toml"] {
        std::os::unix::fs::symlink(lib_dir().join(file), lib.join(file)).unwrap();
    }
    std::os::unix::fs::symlink(lib_dir().join("contract"), lib.join("contract")).unwrap();
    let catalogue = "schema = 1\n[[candidate]]\nname = \"system\"\nallocator = \"system\"\ndefault = true\n";
    std::fs::write(lib.join("catalogue.toml"), catalogue).unwrap();
    lib
}

/// `imas tune --json` with these words.
fn tune(world: &World, lib: &PathBuf, words: &[&str]) -> Value {
    let ended = output(world.imas(["tune", "--json"]).args(words).env("IMAS_LIB_DIR", lib));
    assert!(ended.status.success(), "{}", describe(&ended));
    serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {}", describe(&ended)))
}

/// Each thread of the program frees all it had. Every arena keeps it, so that one arena takes a small part of
/// the memory.
#[test]
fn a_large_gain_is_found_proven_and_named() {
    let world = World::new();
    let lib = small_installation(&world);
    let program = build::program("arenas", &world.work()).to_string_lossy().into_owned();
    std::fs::write(world.work().join("input"), "a line\n").unwrap();
    let words = ["--objective", "memory", "--allocators", "glibc", "--points", "30", "--folder", "kept"];
    // What the command prints does not reach the result, and its input reaches it in each run.
    let line = format!("read -r line && echo $line && exec {program}");
    let command = ["--input", "input", "--", "sh", "-c", &line];
    let result = tune(&world, &lib, &[&words[..], &command].concat());
    let proven = text(&result, "/proven");
    assert!(proven.starts_with("glibc?"), "{result:#}");
    let name = text(&result, "/named/name");
    assert_eq!(name, "glibc:tuned-sh");
    let listed = output(world.imas(["list", "--json"]).env("IMAS_LIB_DIR", &lib));
    let rows: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let row = support::candidate(&rows, name);
    assert_eq!(row["available"], true, "{row:#}");
    let ran = output(world.imas(["run", "--candidate", name, "--", &program]).env("IMAS_LIB_DIR", &lib));
    assert!(ran.status.success(), "{}", describe(&ran));

    // With the same folder nothing is recorded or replayed twice.
    let kept = std::fs::read_to_string(world.work().join("kept/points.jsonl")).unwrap();
    let trace = world.work().join("kept/trace").to_string_lossy().into_owned();
    let again = tune(&world, &lib, &[&words[..], &[&trace]].concat());
    assert_eq!(std::fs::read_to_string(world.work().join("kept/points.jsonl")).unwrap(), kept);
    assert_eq!(list(&again, "/points").len(), list(&result, "/points").len());
    assert_eq!(again["live"], Value::Null, "a trace alone is not measured live");
}

#[test]
fn a_search_is_cut_short_and_goes_on() {
    let world = World::new();
    let lib = small_installation(&world);
    let trace = world.work().join("work.trace");
    let recorded = output(
        world.imas(["record", "--out"]).arg(&trace).arg("--").arg(build::program("arenas", &world.work())),
    );
    assert!(recorded.status.success(), "{}", describe(&recorded));
    let trace = trace.to_string_lossy().into_owned();
    let words = ["--allocators", "glibc", "--folder", "kept", &trace];
    let first = tune(&world, &lib, &[&["--points", "5"][..], &words].concat());
    assert_eq!(list(&first, "/points").len(), 5, "{first:#}");
    // What a kill in the middle of a line leaves.
    let file = world.work().join("kept/points.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.len() - 20]).unwrap();
    let page = world.work().join("page.html").to_string_lossy().into_owned();
    let more = tune(&world, &lib, &[&["--points", "9", "--export-html", &page][..], &words].concat());
    assert_eq!(list(&more, "/points").len(), 9, "{more:#}");
    assert!(std::fs::read_to_string(page).unwrap().contains("<svg"));
}

#[test]
fn wrong_input_is_named() {
    let world = World::new();
    let ended = |words: &[&str]| output(world.imas(["tune"]).args(words));
    assert_hinted(&ended(&["--allocators", "nonsense", "--", "true"]), "no settings of nonsense are known");
    assert_hinted(&ended(&["--at-most", "p99+5%", "--", "true"]), "there is no figure 'p99'");
    let none = ended(&["no-such.trace"]);
    assert!(!none.status.success() && stdout(&none).is_empty(), "{}", describe(&none));
    let failed = ended(&["--allocators", "glibc", "--points", "2", "--", "sh", "-c", "exit 3"]);
    assert_hinted(&failed, "while it was recorded");
    let neither = ended(&[]);
    assert_eq!(neither.status.code(), Some(2), "{}", describe(&neither));
}

/// Each setting of the space at both ends of its range, and each of its words: the allocator takes it.
#[test]
fn allocators_take_all_values_of_the_space() {
    let world = World::new();
    let text = std::fs::read_to_string(lib_dir().join("tuning.toml")).unwrap();
    let space: toml::Table = toml::from_str(&text).unwrap();
    let mut tried = 0;
    for setting in space["setting"].as_array().unwrap() {
        let word = |key: &str| setting.get(key).map(|value| value.to_string().trim_matches('"').to_owned());
        let (allocator, name) = (word("allocator").unwrap(), word("name").unwrap());
        let words = setting.get("words").and_then(toml::Value::as_array);
        let words = words.into_iter().flatten().filter_map(toml::Value::as_str).map(str::to_owned);
        for value in words.chain(word("from")).chain(word("to")) {
            let candidate = format!("{allocator}?{name}:{value}");
            let ran =
                output(&mut world.imas(["run", "--candidate", &candidate, "--", "sh", "-c", "echo fine"]));
            assert_eq!(
                (stdout(&ran).as_str(), support::stderr(&ran).as_str()),
                ("fine\n", ""),
                "{candidate}"
            );
            tried += 1;
        }
    }
    assert!(tried >= 40, "{tried}");
}
