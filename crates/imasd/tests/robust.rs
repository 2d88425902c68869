// SPDX-License-Identifier: Apache-2.0
//! kill -9, damage and full disks, and changes to a program, its page, its file or its daemon between two scans.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use imas_linux::elf::ElfImage;
use imas_linux::index::Index;
use imas_testing::{Running, skipped};

use crate::support::{WORKER, World, python};

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

/// Outlives every wait of these tests.
const LINGERER: &str = "
import sys, time
kept = [str(i) * 3 for i in range(60000)]
if sys.argv[1:]:
    time.sleep(3600)
";

fn start(command: &mut Command) -> Running {
    Running(command.stdout(Stdio::null()).spawn().unwrap())
}

/// The index offers a trial for up to a second after its end. A process that starts in this second must not
/// run it once more, because the candidate may have crashed the program.
#[test]
fn an_ended_trial_has_no_process_while_the_index_still_offers_it() {
    let (world, script, program) = World::with(
        "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 5\ncandidates = [\"jemalloc\"]\n",
    ).noticed("worker.py", WORKER);
    let store = world.store();
    let stored = || store.trials(program.id).unwrap().len();
    let token = || world.offer(&program).map(|(_, token)| token);
    let mut still_offered = 0;
    while world.next_trial(&program).is_some() {
        let (before, offered) = (stored(), token());
        world.run_trial(&script, &program, || stored() > before);
        world.freeze(); // the checks below must see one state
        if token() == offered {
            still_offered += 1;
            let page = world.pages().join(format!("{:016x}.page", offered.unwrap()));
            assert!(page.exists(), "the page of an offered trial must stay");
        }
        world.signal("-CONT");
    }
    assert!(still_offered > 0, "the index was always up to date: the race was not tested");
    world.wait("all pages are removed", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
}

/// After an exec the process runs another program. Its crash does not count for the first one, however soon
/// it comes.
#[test]
fn a_crash_of_the_next_image_is_not_the_first_ones() {
    const LAUNCHER: &str = "
import os, sys, time
time.sleep(3600 if sys.argv[1:] else 0.2)
os.execv('/bin/sh', ['sh', '-c', 'kill -SEGV $$'])
";
    let (world, script, program) = World::new().noticed("launcher.py", LAUNCHER);
    let stored = || world.store().trials(program.id).unwrap();
    for _ in 0..2 {
        if world.next_trial(&program).is_some() {
            let before = stored().len();
            world.run_trial(&script, &program, || stored().len() > before);
        }
    }
    let ends: Vec<_> = stored().iter().map(|trial| trial.sample.ended).collect();
    assert!(!ends.is_empty() && !ends.iter().any(|ended| ended.is_crash()), "{ends:?}");
    assert_eq!(world.counter("crashes"), 0);
}

/// After an upgrade a running process still uses the old file. Its trial belongs to the old build.
#[test]
fn a_trial_that_outlives_an_upgrade_is_of_the_build_that_ran() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("upgrade-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let tool = folder.join("tool");
    imas_testing::copy_program(&python(), &tool);
    let build = |file: &Path| ElfImage::read(file).unwrap().build_id.unwrap();
    let old = build(&tool);

    let mut world = World::new();
    world.start();
    let serve = || start(world.command(&tool).args(["-c", "import time; time.sleep(3600)"]));
    let program = || {
        let known = world.store().programs().unwrap();
        known.into_iter().find(|program| program.path == tool.to_string_lossy())
    };
    let first = serve();
    world.wait("the program is noticed", || program().is_some());
    drop(first);
    let program = program().unwrap();
    world.wait("a trial is on offer", || world.offer(&program).is_some());
    let second = serve();
    world.wait("the trial is taken", || !world.store().witnesses().unwrap().is_empty());

    let upgraded = folder.join("tool.new");
    let mut bytes = std::fs::read(&tool).unwrap();
    let digits: Vec<u8> =
        (0..old.len()).step_by(2).map(|at| u8::from_str_radix(&old[at..at + 2], 16).unwrap()).collect();
    let at = bytes.windows(digits.len()).position(|window| window == digits).unwrap();
    bytes[at] ^= 0xff;
    let written = folder.join("tool.written");
    std::fs::write(&written, bytes).unwrap();
    std::fs::set_permissions(&written, std::fs::metadata(&tool).unwrap().permissions()).unwrap();
    imas_testing::copy_program(&written, &upgraded);
    std::fs::rename(&upgraded, &tool).unwrap();
    assert_ne!(build(&tool), old);
    world.store().pin(program.id, "jemalloc", 1.0).unwrap();
    let (id, file) = (u64::try_from(program.id).unwrap(), std::fs::metadata(&tool).unwrap().ino());
    // imasd reads a file when it sees a process that runs it, not because it is at the path.
    let third = serve();
    world.wait("the new file is published", || {
        world.index().entries().any(|entry| entry.program_id == id && entry.exe_ino == file)
    });
    drop((third, second));
    let stored = || world.store().trials(program.id).unwrap();
    world.wait("the trial is stored", || !stored().is_empty());
    assert_eq!(stored()[0].build_id, old);
    drop(world);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The stub removes its page if the kernel refuses the exec. The owner of the page can do the same.
#[test]
fn a_trial_whose_page_is_gone_is_offered_again_though_its_process_lives() {
    let (world, script, program) = World::new().noticed("lingerer.py", LINGERER);
    let token = world.offer(&program).unwrap().1;
    let mut running = world.take_trial(&script);
    std::fs::remove_file(world.pages().join(format!("{token:016x}.page"))).unwrap();
    world.wait("another is on offer", || world.offer(&program).is_some_and(|(_, now)| now != token));
    assert!(running.0.try_wait().unwrap().is_none());
}

#[test]
fn forgetting_a_running_program_removes_all_of_its_data() {
    let (world, script, program) = World::new().noticed("lingerer.py", LINGERER);
    // The program must not be noticed again.
    world.configure(
        "policy = \"paper\"\nworth_cpu_s = 1e6\nworth_life_s = 1e6\ncandidates = [\"jemalloc\"]\n",
    );
    world.signal("-HUP");
    world.wait("the configuration was read again", || world.log().contains("were read again"));
    world.store().pin(program.id, "jemalloc", 1.0).unwrap();
    world.wait("the pin is published", || world.production(&program) != 1);
    let running = world.linger(&script);
    world.wait("the program was placed", || !world.store().witnesses().unwrap().is_empty());
    world.store().forget(program.id).unwrap();
    world.wait("no start finds it any more", || world.index().entries().next().is_none());
    drop(running);
    world.wait("its page is gone", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
    assert!(!world.log().contains("the store refused"), "{}", world.log());
}

#[test]
fn a_second_imasd_is_refused_and_the_first_serves_on() {
    let mut world = World::new();
    world.start();
    let second = world.imasd().stderr(Stdio::piped()).output().unwrap();
    let printed = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(2), "{printed}");
    assert!(printed.contains("another imasd") && printed.contains("hint: "), "{printed}");
    let (script, program) = world.notices("worker.py", WORKER);
    assert_eq!(world.settle(&script, &program), 2);
    assert_eq!(world.stop("-TERM").code(), Some(0));
    world.start();
    assert_eq!(world.stop("-TERM").code(), Some(0), "its lock is free again");
}
