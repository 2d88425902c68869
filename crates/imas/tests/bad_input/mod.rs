// SPDX-License-Identifier: Apache-2.0
//! Faults of IMAS, its files or its environment. The message must be clear and have a hint, and the program
//! must start.

mod catalogue;
mod disks;
mod installation;
mod store;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{
    World, assert_hinted, assert_printed, assert_refused, build, describe, output, real, stderr, stdout,
    succeeded,
};

/// The program started as if IMAS did not exist, and a message gave the reason.
pub(crate) fn assert_started_untouched(output: &Output, says: &str) {
    assert_printed(output, 0, "libc\n");
    let text = stderr(output);
    assert!(
        text.lines().any(|line| line.starts_with("imas: ") && line.contains(says)),
        "{}",
        describe(output)
    );
}

/// A program that prints which allocator serves it.
pub(crate) fn who(world: &World) -> PathBuf {
    build::program("who", &world.work())
}

#[test]
fn unknown_words_are_refused() {
    let world = World::new();
    for words in
        [&["frobnicate"][..], &["show", "--frobnicate"], &["bench", "-n", "0", "--", "true"], &["bench"], &[]]
    {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(
            stderr(&output).contains("--help") || stderr(&output).contains("Usage"),
            "{words:?}: {}",
            describe(&output)
        );
    }
    for (words, says) in [
        (&["pin", "true", "nonsense"][..], "nonsense: no such candidate"),
        (&["bench", "--with", "hoard,nonsense", "--", "true"], "nonsense: no such candidate"),
        (&["bench", "--with", "", "--", "true"], "'': no such candidate"),
        (&["pin", "true", "cpython:lean"], "cpython:lean: no longer a candidate"),
        (&["bench", "--with", "php:mimalloc", "--", "true"], "php:mimalloc: no longer a candidate"),
        (&["show", "true"], "nothing is known"),
        (&["explain", "4194305"], "process 4194305 does not exist"),
        (&["show", "no-such-program"], "no-such-program: not found"),
        (&["pin", "no-such-program", "hoard"], "no-such-program: not found"),
        (&["bench", "--input", "/no/such/file", "--", "cat"], "/no/such/file"),
        (&["bench", "-n", "1", "--export-json", "/no/such/r.json", "--", "true"], "/no/such/r.json"),
        (&["report", "--html", "/no/such/page.html"], "nothing to report"),
        (&["report", "--html", "/no/such/page.html", "--data", "/no/such/runs.jsonl"], "/no/such/runs.jsonl"),
        (&["report", "--html", "/no/such/page.html", "no-such-program"], "no-such-program: not found"),
        (&["bundle", "glibc:lean", "--out", "/etc/passwd"], "/etc/passwd"),
        (&["bench", "--ready", "tcp:99999", "--load", "true", "--", "true"], "tcp:99999"),
    ] {
        assert_refused(&output(&mut world.imas(words)), says);
    }
}

#[test]
fn a_verb_without_words_names_all_that_it_takes() {
    let world = World::new();
    for (verb, takes) in [
        ("env", "<PROGRAM|--candidate <NAME>>"),
        ("explain", "<PID|PROGRAM|--pid <PID>>"),
        ("forget", "<PROGRAM|--all>"),
        ("apply", "<UNIT|--auto>"),
        ("unapply", "<UNIT|--all>"),
    ] {
        let output = output(&mut world.imas([verb]));
        assert_eq!(output.status.code(), Some(2), "{verb}: {}", describe(&output));
        assert!(stderr(&output).contains(takes), "{verb}: {}", describe(&output));
        assert!(!stderr(&output).contains("--store"), "not typed: {}", describe(&output));
    }
}

/// The world's store is named by IMAS_STORE.
#[test]
fn an_option_wins_over_a_variable() {
    let world = World::new();
    let of_the_system = output(&mut world.imas(["show", "--system"]));
    assert!(!stderr(&of_the_system).contains("--store"), "{}", describe(&of_the_system));
    for words in [["show", "--system", "--store", "x"], ["--system", "show", "--store", "x"]] {
        let both = output(&mut world.imas(words));
        assert_eq!(both.status.code(), Some(2), "{}", describe(&both));
        assert!(stderr(&both).contains("cannot be used with"), "{}", describe(&both));
    }
    let help = output(&mut world.imas(["show", "--help"]));
    assert!(stdout(&help).contains("IMAS_STORE"), "{}", describe(&help));
}

/// A script that ran as `sh look.sh` is found as `look.sh`, although it is neither in PATH nor executable.
#[test]
fn a_script_of_this_folder_is_found_by_its_bare_name() {
    let world = World::new();
    std::fs::write(world.work().join("look.sh"), ":\n").unwrap();
    succeeded(output(world.imas(["run", "--", "sh", "look.sh"]).current_dir(world.work())));
    let shown = output(world.imas(["explain", "look.sh"]).current_dir(world.work()));
    assert!(shown.status.success() && stdout(&shown).contains("/look.sh"), "{}", describe(&shown));
}

#[test]
fn numbers_out_of_range_are_usage_errors() {
    let world = World::new();
    for number in ["-1", "nan", "inf", "1e300", "x"] {
        let bench = output(world.imas(["bench"]).arg(format!("--timeout={number}")).args(["--", "true"]));
        assert_eq!(bench.status.code(), Some(2), "--timeout={number}: {}", describe(&bench));
    }
    for number in ["-1", "nan", "x"] {
        let run = output(world.imas(["run"]).arg(format!("--retest={number}")).args(["--", "true"]));
        assert_eq!(run.status.code(), Some(125), "--retest={number}: {}", describe(&run));
    }
    for words in [&["bench", "--seed", "x", "--", "true"][..], &["explain", "--pid", "x"]] {
        let output = output(&mut world.imas(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(stderr(&output).contains("a whole number is expected"), "{words:?}: {}", describe(&output));
        assert!(!stderr(&output).contains("digit found"), "{words:?}: {}", describe(&output));
    }
}

/// An unknown candidate must not keep the program from starting.
#[test]
fn an_unknown_candidate_does_not_stop_the_program() {
    let world = World::new();
    let output = output(world.imas(["run", "--candidate", "nonsense", "--"]).arg(who(&world)));
    assert_started_untouched(&output, "nonsense: no such candidate");
    assert_hinted(&output, "nonsense");
}

#[test]
fn bytes_that_are_no_text_pass_through() {
    let world = World::new();
    let odd = OsStr::from_bytes(b"\xff\xfe a\nb");
    let folder = world.work().join(OsStr::from_bytes(b"folder \xff"));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("cat it");
    crate::support::install(&real("printf"), &program);
    world.configure("max_tests = 1\nretest_s = 0");
    for _ in 0..8 {
        let output = output(world.imas(["run", "--"]).arg(&program).arg("%s|").arg(odd).env("ODD", odd));
        assert_eq!(output.stdout, [odd.as_bytes(), b"|"].concat(), "{}", describe(&output));
        assert!(output.status.success());
    }
    world.check(["show"]).success();
}
