// SPDX-License-Identifier: Apache-2.0
//! Commands that read do not write: store, pages and settings are the same before and after each of them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::support::{World, build, describe, output, stdout};

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
    let harvested = world.json(["harvest", "--json"]);
    assert_eq!((&harvested["stored"], &harvested["running"]), (&1.into(), &0.into()), "{harvested:#}");
    assert!(world.page_files().is_empty());
    assert_eq!(world.json(["show", &who, "--json"])["trials"], 1);
    assert!(stdout(&output(&mut world.imas(["harvest"]))).starts_with("trials and starts stored: 0"));
}
