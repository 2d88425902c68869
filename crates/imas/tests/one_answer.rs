// SPDX-License-Identifier: Apache-2.0
//! All outputs agree on picks and figures, and commands that read do not write.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, SystemTime};

use imas_core::stats::Interval;
use serde_json::Value;

use crate::support::{World, build, describe, list, output, stdout, succeeded, text};

/// The cells of each row of a page's tables of candidates, as text.
fn rows(page: &str, candidate: &str) -> Vec<Vec<String>> {
    let begin = format!("<tr data-candidate=\"{candidate}\">");
    let rows = page.split(&begin).skip(1).map(|row| row.split("</tr>").next().unwrap());
    rows.map(|row| row.split("<td").skip(1).map(plain).collect()).collect()
}

/// The text of a piece of HTML that begins within a tag.
fn plain(html: &str) -> String {
    let mut text = String::new();
    let mut is_tag = true;
    for c in html.chars() {
        match c {
            '<' => is_tag = true,
            '>' => is_tag = false,
            _ if !is_tag => text.push(c),
            _ => {}
        }
    }
    text.trim().replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&")
}

/// A ratio with its interval, in the form of all tables.
fn change(ratio: &Value) -> String {
    let [lo, mid, hi] = [0, 1, 2].map(|i| ratio[i].as_f64().unwrap());
    imas_cli::format::change(&Interval { lo, mid, hi })
}

fn page_of(world: &World, words: &[&str]) -> String {
    let file = world.work().join("page.html");
    let mut imas = world.imas(["report", "--html"]);
    succeeded(output(imas.arg(&file).args(words).env("IMAS_POLICY", "adaptive")));
    std::fs::read_to_string(&file).unwrap()
}

/// Compares a benchmark's table with the page that `report` makes of its raw runs.
fn check_bench(world: &World, flags: &[&str], command: &[&str]) -> Value {
    let (json, runs) = (world.work().join("result.json"), world.work().join("runs.jsonl"));
    let _ = std::fs::remove_file(&runs);
    let mut imas = world.imas(["bench", "--name", "it", "--seed", "7"]);
    imas.args(flags).arg("--export-json").arg(&json).arg("--export-runs").arg(&runs).arg("--");
    let table: Output = output(imas.args(command));
    assert!(table.status.success(), "{}", describe(&table));
    let result: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let page = page_of(world, &["it", "--data", &runs.to_string_lossy()]);
    for candidate in list(&result, "/candidates").iter().filter(|one| one["name"] != "system") {
        let name = text(candidate, "/name");
        let rows = rows(&page, name);
        let row = rows.first().unwrap_or_else(|| panic!("no {name}: {page}"));
        for figure in ["cpu", "memory"] {
            if let ratio @ Value::Array(_) = &candidate["ratio"][figure] {
                assert!(row.contains(&change(ratio)), "{name}, {figure}: {ratio} and {row:?}");
            }
        }
        for (pick, goal) in [("fastest", "cpu"), ("leanest", "memory"), ("balanced", "balanced")] {
            let is_pick = crate::bench::pick(&result, goal) == Some(name);
            assert_eq!(row[0].contains(pick), is_pick, "{name}, {pick}: {row:?}\n{}", describe(&table));
        }
    }
    let last = stdout(&table).lines().find(|line| line.ends_with('.')).unwrap().to_owned();
    assert!(plain(&format!(">{page}")).contains(&format!("it: {last}")), "{last}\n{page}");
    result
}

#[test]
fn a_page_of_runs_agrees_with_the_table() {
    let world = World::new();
    let behave = build::program("behave", &world.work()).to_string_lossy().into_owned();
    let flags = ["-n", "4", "--trials", "1", "--with", "mimalloc,jemalloc,glibc:arena1"];
    check_bench(&world, &flags, &["sort", "/etc/services"]);
    let result = check_bench(&world, &flags, &[&behave, "20000", "exit3", "mimalloc"]);
    let excluded = |name: &str| {
        let of_it = list(&result, "/candidates").iter().find(|one| one["name"] == name);
        of_it.unwrap()["ineligible"] != Value::Null
    };
    assert!(excluded("mimalloc") && !excluded("jemalloc"), "{result:#}");
}

/// Stores twelve rounds of three candidates: one a third faster, one a third leaner.
fn learned(world: &World) -> i64 {
    // Fixed, because by default the machine's load selects the objective, and what two commands print could differ.
    world.configure("candidates = ['mimalloc', 'jemalloc']\n[overrides]\nobjective = 'balanced'\n");
    for candidate in ["system", "mimalloc", "jemalloc"] {
        let words = ["run", "--policy", "adaptive", "--retest", "0", "--", "/usr/bin/sort", "/etc/services"];
        assert!(output(&mut world.imas(words)).status.success(), "{candidate}");
    }
    let trials = world.trials();
    let (store, sort) = world.forgotten_program();
    for round in 0..12_u32 {
        for trial in &trials {
            let mut trial = trial.clone();
            let (cpu_s, mebibytes) = match trial.sample.candidate.as_str() {
                "mimalloc" => (0.66, 100),
                "jemalloc" => (1.0, 60),
                _ => (1.0, 90),
            };
            trial.sample.trial_id = format!("{round}-{}", trial.sample.trial_id);
            trial.sample.memory.resident_over_time = (mebibytes + u64::from(round % 3)) << 20;
            let usage = trial.sample.usage.as_mut().unwrap();
            (usage.user_s, usage.system_s) = (cpu_s * (1.0 + 0.001 * f64::from(round % 5)), 0.0);
            trial.sample.made_unix_s -= 60.0 * f64::from(12 - round);
            assert!(store.add_trial(sort.id, &trial).unwrap());
        }
    }
    sort.id
}

#[test]
fn show_explain_and_the_page_name_the_same_picks() {
    let world = World::new();
    let number = learned(&world).to_string();
    let json = |verb: &str| -> Value {
        crate::support::json(&output(world.imas([verb, &number, "--json"]).env("IMAS_POLICY", "adaptive")))
    };
    let (shown, explained) = (json("show"), json("explain"));
    assert_eq!(shown["picks"], explained["picks"]);
    assert_eq!(shown["picks"]["fastest"], "mimalloc", "{shown:#}");
    assert_eq!(shown["picks"]["leanest"], "jemalloc", "{shown:#}");
    assert_eq!(shown["expected_gain"], explained["expected_gain"]);
    assert_eq!(shown["standings"], explained["standings"]);

    let page = page_of(&world, &[&number]);
    for (name, pick) in [("mimalloc", "fastest"), ("jemalloc", "leanest")] {
        let row = &rows(&page, name)[0];
        assert!(row[0].contains(pick), "{name}: {row:?}");
        for verb in ["show", "explain"] {
            let printed = stdout(&output(world.imas([verb, &number]).env("IMAS_POLICY", "adaptive")));
            let line =
                printed.lines().map(str::trim).find(|line| line.starts_with(&format!("{name} "))).unwrap();
            let changes: Vec<&str> =
                line.split("  ").map(str::trim).filter(|cell| cell.ends_with('%')).collect();
            for change in &changes[..2] {
                assert!(row.iter().any(|cell| cell.starts_with(change)), "{verb}: {line}\n{row:?}");
            }
            assert!(line.contains(pick), "{verb}: {line}");
            assert!(printed.contains(&format!("expected under the {pick}, {name}: ")), "{printed}");
        }
    }
    let gain = &list(&shown, "/expected_gain")[0]["gain"].as_f64().unwrap() * 100.0;
    assert!(plain(&format!(">{page}")).contains(&format!("{:+.1} % [", -gain)), "{gain}: {page}");
}

/// Every file below the folders, with its contents. Only SQLite's shared index (`-shm`) may differ, because
/// each reader registers in it.
fn files(folders: &[PathBuf]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = folders.to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                found.insert(path.clone(), vec![]);
                folders.push(path);
            } else {
                let is_shared = path.to_string_lossy().ends_with("-shm");
                let bytes = if is_shared { vec![] } else { std::fs::read(&path).unwrap() };
                found.insert(path, bytes);
            }
        }
    }
    found
}

fn names(files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<&Path> {
    files.keys().map(PathBuf::as_path).collect()
}

fn folders(world: &World) -> Vec<PathBuf> {
    let data = world.store_path();
    let above = data.ancestors().nth(3).unwrap();
    let mut all: Vec<PathBuf> = ["data", "config", "home"].iter().map(|name| above.join(name)).collect();
    all.push(world.runtime().to_owned());
    all
}

/// Commands that read. Two are left out because they store something: `list` stores the checks of every
/// library, and `advise` stores the memory of processes to show its growth later.
fn reading(program: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["show"],
        vec!["show", "--json"],
        vec!["show", program],
        vec!["explain", program],
        vec!["env", program],
        vec!["env", "--candidate", "mimalloc"],
        vec!["status"],
        vec!["doctor"],
        vec!["exclude", "list"],
        vec!["report", "--html", "/dev/null"],
        vec!["run", "--dry-run", "--", program],
        vec!["system", "status"],
    ]
}

#[test]
fn commands_that_read_leave_every_file_as_it_is() {
    let world = World::new();
    world.configure("retest_s = 0");
    let who = build::program("who", &world.work()).to_string_lossy().into_owned();
    for _ in 0..2 {
        assert!(world.start([&who]).status.success());
    }
    let damaged = world.pages().join("damaged.page");
    std::fs::write(&damaged, "no page").unwrap();
    std::fs::set_permissions(&damaged, std::fs::Permissions::from_mode(0o600)).unwrap();
    let opened = std::fs::File::options().write(true).open(&damaged).unwrap();
    opened.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    let before = files(&folders(&world));
    assert!(before.len() > 6, "{:?}", names(&before));
    for words in reading(&who) {
        let done = output(&mut world.imas(&words));
        let after = files(&folders(&world));
        assert_eq!(names(&after), names(&before), "{words:?}: {}", describe(&done));
        assert!(after == before, "{words:?} changed a file: {}", describe(&done));
    }
}

#[test]
fn commands_that_read_make_nothing_for_a_new_user() {
    let world = World::new();
    let before = files(&folders(&world));
    for words in reading("/usr/bin/sort") {
        let done = output(&mut world.imas(&words));
        let after = files(&folders(&world));
        assert_eq!(names(&after), names(&before), "{words:?}: {}", describe(&done));
    }
}

#[test]
fn a_trial_is_shown_before_it_is_stored() {
    let world = World::new();
    world.configure("retest_s = 0");
    let who = build::program("who", &world.work()).to_string_lossy().into_owned();
    assert!(world.start([&who]).status.success());
    assert_eq!(world.page_files().len(), 1);
    for _ in 0..2 {
        assert_eq!(world.json(["show", &who, "--json"])["trials"], 1, "the trial must be counted once");
    }
    assert_eq!(world.page_files().len(), 1, "the page must still be pending");
    world.ingest();
    assert!(world.page_files().is_empty());
    assert_eq!(world.json(["show", &who, "--json"])["trials"], 1);
}
