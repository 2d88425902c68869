// SPDX-License-Identifier: Apache-2.0
//! kill -9, damage and full disks. Acknowledged data stay, the published index is complete, and imasd goes
//! on.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use crate::support::{WORKER, World};
use imas_linux::index::Index;
use imas_testing::skipped;

#[test]
fn kill_at_any_instant_loses_no_stored_sample_and_leaves_a_whole_index() {
    let (mut world, script, program) = World::with(
        "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 200\ncandidates = [\"jemalloc\"]\n",
    ).noticed("worker.py", WORKER);
    let mut stored = BTreeSet::new();
    for round in 0..15_u64 {
        let mut child = world
            .command(&crate::support::python())
            .arg(&script)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // The delays cover the time from the first millisecond of the trial to long after its end.
        std::thread::sleep(Duration::from_millis(round * 23 % 300));
        assert!(world.stop("-KILL").code().is_none());
        Index::read(&world.path("run/state/index")).unwrap();
        let now: BTreeSet<_> =
            world.store().trials(program.id).unwrap().into_iter().map(|t| t.sample.trial_id).collect();
        assert!(now.is_superset(&stored), "a stored sample must stay");
        stored = now;
        child.wait().unwrap();
        world.start();
    }
    assert!(world.store().check().unwrap().is_empty());
    world.wait("every page is processed", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
    let before = world.counter("trials_stored");
    world.wait("a trial is on offer again", || world.offer(&program).is_some());
    world.run_trial(&script, &program, || world.counter("trials_stored") > before);
}

#[test]
fn a_damaged_store_is_renamed_aside_and_everything_starts_untouched() {
    let (mut world, script, program) = World::new().noticed("worker.py", WORKER);
    world.settle(&script, &program);
    world.stop("-TERM");
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(world.path(&format!("db/imas.db{suffix}")));
    }
    std::fs::write(world.store_path(), vec![0x55; 65536]).unwrap();
    world.start();
    assert!(world.log().contains("was damaged"), "{}", world.log());
    assert_eq!(world.index().entries().filter(|entry| entry.candidate != 1).count(), 0);
    let aside = std::fs::read_dir(world.path("db")).unwrap().flatten();
    assert!(aside.into_iter().any(|entry| entry.file_name().to_string_lossy().contains(".corrupt-")));
    world.notice(&script);
}

#[test]
fn trials_that_ended_while_the_daemon_was_down_are_stored_after_its_restart() {
    let (mut world, script, program) = World::new().noticed("worker.py", WORKER);
    // imasd identifies the process, then the page is left alone.
    let running = world.take_trial(&script);
    world.stop("-KILL");
    drop(running);
    world.start();
    world.wait("it is stored", || world.store().trials(program.id).unwrap().len() == 1);
}

/// Needs a mount namespace. Skipped if none can be created.
#[test]
fn a_full_disk_keeps_pages_and_the_last_index_until_there_is_room() {
    crate::support::alone("robust::full_disk", &[]);
}

#[test]
#[ignore = "run by the test above, in a mount namespace of its own"]
fn full_disk() {
    let world = World::new();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "imasd-test"])
        .arg(world.path("db"))
        .status()
        .is_ok_and(|status| status.success());
    assert!(mounted);
    let (mut world, script, program) = world.noticed("worker.py", WORKER);
    let running = world.take_trial(&script);
    // SQLite overwrites a log that was written back, which needs no more room. So this truncates the log.
    let back = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('PRAGMA wal_checkpoint(TRUNCATE)').fetchall()";
    let python = Command::new(crate::support::python()).args(["-c", back]).arg(world.store_path()).status();
    assert!(python.unwrap().success());
    let filler = world.path("db/filler");
    let _ = std::fs::write(&filler, vec![0; 2 << 20]); // as much as fits
    drop(running);
    world.wait("the refusal is logged", || world.log().contains("it is tried again"));
    assert_eq!(std::fs::read_dir(world.pages()).unwrap().count(), 1, "the page stays");
    world.index();
    world.wait("it is tried again, without success", || world.counter("store_refusals") > 1);
    std::fs::remove_file(&filler).unwrap();
    world.wait("the trial is stored", || world.store().trials(program.id).unwrap().len() == 1);
    assert_eq!(world.log().matches("it is tried again").count(), 1);
    world.stop("-TERM");
    // The folder itself is removed with the world.
    Command::new("umount").arg(world.path("db")).status().unwrap();
}

/// Needs a mount namespace, as above.
#[test]
fn a_full_page_folder_only_makes_programs_start_untouched() {
    crate::support::alone("robust::full_pages", &[]);
}

#[test]
#[ignore = "run by the test above, in a mount namespace of its own"]
fn full_pages() {
    let unit = include_str!("../../../packaging/systemd/run-imas-state-u.mount");
    let options = unit.lines().find_map(|line| line.strip_prefix("Options=")).unwrap();
    let world = World::new();
    let place = world.path("run/state/u");
    std::fs::create_dir_all(&place).unwrap();
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", options, "imas-pages"]).arg(&place).status();
    assert!(mounted.is_ok_and(|status| status.success()));
    let (mut world, script, program) = world.noticed("worker.py", WORKER);
    world.settle(&script, &program);
    world.store().pin(program.id, "jemalloc", 1.0).unwrap();
    world.wait("the pin is published", || world.production(&program) != 1);
    let says = || String::from_utf8(world.python(&script).stdout).unwrap();
    assert!(says().contains("libjemalloc"));

    // A closed file that is no page is deleted at once. So this file is deleted first and kept open.
    let path = world.pages().join("filler");
    let mut filler = std::fs::File::create(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _ = filler.write_all(&vec![0; 80 << 20]); // as much as fits
    let printed = says();
    assert!(printed.starts_with('[') && !printed.contains("libjemalloc"), "{printed}");
    let status = world.imas("status").arg("--run-dir").arg(world.path("run")).output().unwrap();
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(status.contains("is full"), "{status}");
    drop(filler);
    assert!(says().contains("libjemalloc"), "with free space the program is placed again");
    world.stop("-TERM");
    Command::new("umount").arg("--lazy").arg(&place).status().unwrap();
}

#[test]
fn units_are_hardened() {
    let checks = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/unit-security");
    let checked = Command::new(checks).output().unwrap();
    let said = String::from_utf8_lossy(&checked.stdout);
    if said.starts_with("SKIPPED") {
        return skipped("systemd-analyze is not installed");
    }
    assert!(checked.status.success(), "{said}");
}

#[test]
fn a_store_that_is_removed_under_it_is_begun_anew() {
    let (world, script, program) = World::new().noticed("worker.py", WORKER);
    world.freeze(); // it must not begin a new one while the old one's files are removed
    for file in ["db/imas.db", "db/imas.db-wal", "db/imas.db-shm"] {
        std::fs::remove_file(world.path(file)).unwrap();
    }
    world.signal("-CONT");
    world.wait("a new store is there", || world.path("db/imas.db").exists());
    let again = world.notice(&script);
    assert_eq!(again.path, program.path);
    assert!(world.log().contains("was removed or replaced"), "{}", world.log());
}
