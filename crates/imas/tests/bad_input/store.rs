// SPDX-License-Identifier: Apache-2.0
//! A store that is damaged, inaccessible, of a later version, or locked; programs that do not allow a preload, and
//! resource limits that forbid it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_testing::{Running, skipped};

use super::{assert_started_untouched, who};
use crate::support::{
    INGEST, World, assert_hinted, assert_refused, build, describe, output, real, stderr, stdout, succeeded,
};

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
        let stored = output(world.imas(INGEST).env("IMAS_STORE", &place));
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
    world.ingest();
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

/// `run` starts the program untouched, with the reason under -v. `bench` refuses it with a hint.
fn assert_left_alone(world: &World, program: &Path, status: i32, why: &str) {
    for arguments in [&["run", "-v", "--retest", "0"][..], &["run", "-v", "--candidate", "hoard"]] {
        for _ in 0..2 {
            let started = output(world.imas(arguments).arg("--").arg(program));
            assert_eq!(started.status.code(), Some(status), "{why}: {}", describe(&started));
            assert!(!stdout(&started).contains("hoard"), "{why}: {}", describe(&started));
            assert!(stderr(&started).contains(why), "{why}: {}", describe(&started));
            assert!(!stderr(&started).contains("ld.so"), "{why}: {}", describe(&started));
        }
    }
    assert_eq!(world.page_files(), [""; 0], "{why}");
    assert_refused(&output(world.imas(["bench", "-n", "1", "--"]).arg(program)), why);
}

#[test]
fn programs_that_cannot_be_helped_are_left_alone() {
    let world = World::new();
    let made = |name: &str, compiler: &str, flags: &[&str]| {
        build::program_with(compiler, "plain", flags, &world.work().join(name))
    };
    assert_left_alone(&world, &made("static", "cc", &["-static"]), 0, "statically linked");
    assert_left_alone(&world, &made("static-pie", "cc", &["-static-pie"]), 0, "statically linked");
    assert_left_alone(&world, &made("asan", "cc", &["-fsanitize=address"]), 0, "sanitizer");
    let static_asan = made("static-asan", "cc", &["-fsanitize=address", "-static-libasan"]);
    assert_left_alone(&world, &static_asan, 0, "malloc of its own");
    assert_left_alone(&world, &made("tsan", "cc", &["-fsanitize=thread"]), 0, "sanitizer");
    let _ = std::fs::remove_file(world.lib_dir().join("musl")); // what 'make musl' builds is not there
    assert_left_alone(&world, &made("musl", "musl-gcc", &[]), 0, "not glibc");
    assert_left_alone(&world, &made("own", "cc", &["-DOWN_MALLOC", "-rdynamic"]), 0, "malloc of its own");
    let privileged = made("privileged", "cc", &[]);
    std::fs::set_permissions(&privileged, std::fs::Permissions::from_mode(0o4755)).unwrap();
    assert_left_alone(&world, &privileged, 0, "raised privileges");
}

/// Needs neither a 32-bit library nor a kernel that runs 32-bit programs: the program ends with 7, or its
/// start fails as it does without IMAS.
#[test]
fn a_32_bit_program_is_left_alone() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("this machine's compiler makes no programs of 32 bits");
    }
    let world = World::new();
    let program =
        build::program_with("cc", "small", &["-m32", "-nostdlib", "-static"], &world.work().join("small"));
    match output(&mut world.command(&program)).status.code() {
        Some(7) => assert_left_alone(&world, &program, 7, "another architecture"),
        _ => panic!("this kernel runs no 32-bit programs"),
    }
}

#[test]
fn file_capabilities_are_raised_privileges() {
    let world = World::new();
    let program = build::program("plain", &world.work());
    let set = output(world.command(real("setcap")).arg("cap_net_raw+ep").arg(&program));
    if !set.status.success() {
        return skipped("setcap is refused here");
    }
    assert_left_alone(&world, &program, 0, "raised privileges");
}

/// The hook and the guard detect a limit in the loaded process and then do nothing.
#[test]
fn limits_on_address_space_are_respected() {
    let world = World::new();
    let program = who(&world);
    world.configure("candidates = [\"mimalloc\", \"jemalloc\"]\nmax_tests = 2\nretest_s = 0");
    for _ in 0..6 {
        let mut shell = world.command("sh");
        shell.args(["-c", "ulimit -v 4000000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_imas"), "run", "--"]);
        let started = output(shell.arg(&program));
        assert!(started.status.success() && stderr(&started).is_empty(), "{}", describe(&started));
    }
    let trials = world.trials();
    assert!(!trials.is_empty());
    assert!(trials.iter().all(|t| t.sample.pass_reason.as_deref() == Some("rlimit-as")), "{trials:#?}");
}

/// A filter that the program sets by an instruction of its own is seen by nobody. Where the instruction is found, no start
/// ends by it; where not, the first trial is the last.
#[test]
fn a_filter_that_is_set_unseen_ends_one_start_at_most() {
    for (flag, ended) in [("-DRAW", 0), ("-DCOMPUTED", 1)] {
        let world = World::new();
        let program =
            build::program_with("cc", "../hook/programs/sandboxed", &[flag], &world.work().join("box"));
        let program = program.to_str().unwrap();
        let starts: Vec<_> = (0..6).map(|_| world.start([program, "syscall"])).collect();
        let fine = starts.iter().filter(|start| stdout(start) == "sandboxed\n").count();
        assert_eq!(starts.len() - fine, ended, "{flag}: {}", describe(&starts[0]));
        let trials = world.trials();
        assert_eq!(trials.len(), 1, "{flag}: {trials:#?}");
        assert_eq!(trials[0].sample.pass_reason.as_deref(), Some("own-filter"), "{flag}");
        let explained = stdout(&output(world.imas(["explain"]).arg(program)));
        assert!(explained.contains("filter of system calls"), "{flag}: {explained}");
        let benched =
            output(&mut world.imas(["bench", "-n", "1", "--with", "glibc:arena1", "--", program, "syscall"]));
        assert!(benched.status.success(), "{flag}: {}", describe(&benched));
    }
}

/// Where the stack of the first thread is small, imas runs on another one.
#[test]
fn a_small_stack_is_enough() {
    let world = World::new();
    let program = who(&world);
    for kib in ["64", "128", "256"] {
        for words in [
            &["--help"][..],
            &["list"],
            &["nonsense"],
            &["run", "-v", "--candidate", "glibc:arena1", "--", program.to_str().unwrap()],
            &["bench", "-n", "1", "--with", "glibc:arena1", "--", "true"],
        ] {
            let shell = |limit: &str| {
                let mut shell = world.command("sh");
                let script = format!("ulimit -S -s {limit}; exec \"$@\"");
                shell.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_imas")]).args(words);
                output(&mut shell)
            };
            let (small, usual) = (shell(kib), shell("8192"));
            assert_eq!(small.status.code(), usual.status.code(), "{kib} KiB {words:?}: {}", describe(&small));
        }
    }
}

/// The variables that IMAS adds must not exceed the limit of the kernel for arguments and environment.
#[test]
fn an_environment_as_large_as_can_be_still_starts() {
    let world = World::new();
    let filled = |command: &mut Command, kilobytes: usize, bytes: usize| {
        for i in 0..kilobytes / 100 {
            command.env(format!("FILL{i}"), "x".repeat(100 << 10));
        }
        command.env("REST", "x".repeat(kilobytes % 100 * 1024 + bytes));
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let fits = |size: usize| filled(world.command("true").args(["run", "--"]), size >> 10, size & 1023);
    let (mut small, mut large) = (100 << 10, 8 << 20);
    assert!(fits(small) && !fits(large));
    while large - small > 1 {
        let middle = (small + large) / 2;
        if fits(middle) { small = middle } else { large = middle }
    }
    // At the limit, imas itself may not start: its name is longer than `true`, and it has `run --` in
    // addition. A little below the limit, every start must work.
    for below in [300, 400, 600, 900, 1500] {
        let size = small - below;
        for _ in 0..2 {
            assert!(
                filled(world.imas(["run", "--retest", "0", "--"]).arg("true"), size >> 10, size & 1023),
                "{below} below"
            );
        }
    }
}
