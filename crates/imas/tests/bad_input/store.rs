// SPDX-License-Identifier: Apache-2.0
//! A store that is damaged, inaccessible, of a later version, or locked.

use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;

use super::{assert_started_untouched, who};
use crate::support::{
    World, assert_hinted, assert_refused, describe, output, real, stderr, stdout, succeeded,
};
use imas_testing::Running;

#[test]
fn a_corrupt_store_is_set_aside_and_kept() {
    let world = World::new();
    let program = who(&world);
    std::fs::create_dir_all(world.store_path().parent().unwrap()).unwrap();
    std::fs::write(world.store_path(), "this is no database\n".repeat(300)).unwrap();
    let started = world.start([&program]);
    assert_started_untouched(&started, "the store was damaged; it was renamed to");
    let folder = world.store_path().parent().unwrap().to_owned();
    let names: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(names.iter().any(|name| name.to_string_lossy().contains(".corrupt-")), "{names:?}");
    assert_eq!(world.trials().len(), 1, "the new store must work");
}

/// Damage in the middle of the file is only found when that page is read.
#[test]
fn a_store_damaged_inside_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for _ in 0..8 {
        world.start([&program]);
    }
    world.trials();
    for kept in [0.3, 0.5, 0.9] {
        let bytes = std::fs::read(world.store_path()).unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small file")]
        let length = (bytes.len() as f64 * kept) as usize;
        for (damage, bytes) in [
            ("cut", bytes[..length].to_vec()),
            ("zeroed", [&bytes[..length], &vec![0; bytes.len() - length][..]].concat()),
        ] {
            for suffix in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{suffix}", world.store_path().display()));
            }
            std::fs::write(world.store_path(), &bytes).unwrap();
            let started = output(world.imas(["run", "--"]).arg(&program));
            assert!(started.status.success(), "{damage} {kept}: {}", describe(&started));
            assert!(!stdout(&started).is_empty());
            let doctor = output(&mut world.imas(["doctor"]));
            assert!(
                [Some(0), Some(1)].contains(&doctor.status.code()),
                "{damage} {kept}: {}",
                describe(&doctor)
            );
        }
    }
}

#[test]
fn a_store_that_cannot_be_opened_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    for place in [
        world.work(),
        PathBuf::from("/proc/no/imas.db"),
        PathBuf::from("/dev/full/imas.db"),
        PathBuf::from("/dev/null"),
    ] {
        let started = output(world.imas(["run", "--"]).arg(&program).env("IMAS_STORE", &place));
        assert_started_untouched(&started, "");
        assert_hinted(&started, "store");
        let stored = output(world.imas(["harvest"]).env("IMAS_STORE", &place));
        assert_refused(&stored, "store");
    }
    for place in [world.work(), PathBuf::from("/dev/full/imas.db"), PathBuf::from("/dev/null")] {
        let shown = output(world.imas(["show"]).env("IMAS_STORE", &place));
        assert_refused(&shown, "store");
    }
}

#[test]
fn a_store_that_is_named_and_missing_is_no_empty_one() {
    let world = World::new();
    let missing = output(&mut world.imas(["show", "--store", "no.db"]));
    assert_eq!(missing.status.code(), Some(0), "{}", describe(&missing));
    assert!(stderr(&missing).contains("there is no store no.db yet"), "{}", describe(&missing));
    let by_variable = output(&mut world.imas(["show"]));
    assert!(stderr(&by_variable).contains("there is no store"), "{}", describe(&by_variable));
    let unnamed = output(world.imas(["show"]).env_remove("IMAS_STORE"));
    assert_eq!(stderr(&unnamed), "", "{}", describe(&unnamed));
}

#[test]
fn a_store_of_a_later_imas_is_left_alone() {
    let world = World::new();
    let program = who(&world);
    world.check(["harvest"]).success();
    let store = world.store_path();
    succeeded(output(world.command(real("sqlite3")).arg(&store).arg("PRAGMA user_version = 9999")));
    let started = world.start([&program]);
    assert_started_untouched(&started, "does not fit this version");
    let version = output(world.command(real("sqlite3")).arg(&store).arg("PRAGMA user_version"));
    assert_eq!(stdout(&version), "9999\n");
    let shown = output(&mut world.imas(["show"]));
    assert_refused(&shown, "does not fit this version");
}

/// A process that keeps the store locked.
fn hold(world: &World) -> Running {
    let mut command = world.command(real("sqlite3"));
    command.arg("-batch").arg(world.store_path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().unwrap();
    let into = holder.stdin.as_mut().unwrap();
    into.write_all(b"BEGIN EXCLUSIVE; INSERT INTO exclusion VALUES ('/x', 1); SELECT 'held';\n").unwrap();
    into.flush().unwrap();
    let mut line = [0; 5];
    std::io::Read::read_exact(holder.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"held\n");
    Running(holder)
}

#[test]
fn a_locked_store_delays_but_does_not_stop_the_program() {
    let world = World::new();
    let program = who(&world);
    assert!(world.start([&program]).status.success());
    let holder = hold(&world);
    let started = world.start([&program]);
    assert_started_untouched(&started, "locked");
    drop(holder);
    let trials = world.trials();
    assert_eq!(trials.len(), 1, "the finished trial must be kept for later");
}
