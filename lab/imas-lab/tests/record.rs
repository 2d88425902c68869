// SPDX-License-Identifier: Apache-2.0
//! A program that `imas-lab record` starts finds what it would find without: its environment and its signals. What
//! cannot be recorded or replayed is refused.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use support::build::program;
use support::{World, assert_refused, built, describe, not_ours, output, printed, real, stderr, stdout};

#[test]
fn the_environment_is_as_it_was() {
    let world = World::new();
    let show = program("start_environment", &world.work()).display().to_string();
    let started = |words: &[&str]| printed(&output(world.command(&show).args(words).arg(&show)));
    let (untouched, lab) = (started(&[]), built("imas-lab").display().to_string());
    let recorded = started(&[&lab, "record", "-o", "trace", "--"]);
    // Children of a recorded program are recorded too: its environment has what they need.
    assert_eq!(not_ours(&recorded), not_ours(&untouched));
    assert!(untouched.ends_with("\nno_equals_sign\nALPHA=2\nMODE=second\n=nameless\n\n"), "{untouched}");
}

/// Notes each signal that a user may send, and ends at the first with 7.
const LISTENER: &str = r#"
$| = 1;
for my $name (qw(TERM HUP INT QUIT USR1 USR2 WINCH ALRM NUM40)) {
    $SIG{$name} = sub { print "got $name\n"; exit 7 };
}
print "ready\n";
sleep 1 for 1 .. 120;
print "nobody told me\n";
"#;

/// Starts the words, sends `imas-lab` the signal once the listener is ready, and returns its exit status and what
/// it printed then.
fn signalled(world: &World, words: &[&str], signal: &str) -> (Option<i32>, String) {
    let mut child = world.lab(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = child.id().to_string();
    assert!(Command::new("/bin/kill").args(["-s", signal, &pid]).status().unwrap().success());
    let mut said = String::new();
    lines.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// Whether this process ignores the signal: SIGHUP under nohup, SIGINT and SIGQUIT in a job that a shell started in the
/// background.
fn is_ignored(signal: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let bit = ["HUP", "INT", "QUIT"].iter().position(|name| *name == signal);
    bit.is_some_and(|bit| u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << bit) != 0)
}

#[test]
fn a_signal_to_record_reaches_the_program() {
    let perl = real("perl").display().to_string();
    for signal in ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "ALRM", "40"] {
        let name = if signal == "40" { "NUM40" } else { signal };
        if is_ignored(signal) {
            continue; // what is ignored stays so in every program
        }
        let world = World::new();
        let words = ["record", "-o", "trace", "--", &perl, "-e", LISTENER];
        let (status, said) = signalled(&world, &words, signal);
        assert_eq!((status, said.as_str()), (Some(7), format!("got {name}\n").as_str()), "{signal}");
        let left: Vec<_> =
            std::fs::read_dir(world.work()).unwrap().flatten().map(|one| one.file_name()).collect();
        assert_eq!(left, ["trace"], "{signal}");
    }
}

#[test]
fn record_says_that_a_daemon_is_left_behind() {
    let world = World::new();
    let left = "sleep 1000 >/dev/null 2>&1 & echo $!";
    let recorded = output(&mut world.lab(["record", "-o", "trace", "--", "/bin/sh", "-c", left]));
    let pid = stdout(&recorded).lines().next().unwrap_or_default().to_owned();
    assert!(Command::new("/bin/kill").arg(pid).status().unwrap().success(), "{}", describe(&recorded));
    let said = stderr(&recorded);
    assert!(said.contains("a process that it left behind still runs"), "{said}");
    let waited = output(&mut world.lab(["record", "-o", "trace", "--", "/bin/sh", "-c", "sleep 0.1 & wait"]));
    let said = stderr(&waited);
    assert!(!said.contains("left behind"), "{said}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let world = World::new();
    for (words, says) in [
        (&["replay", "/no/such.trace"][..], "/no/such.trace"),
        (&["replay", "/etc/passwd"], "not a trace"),
        (&["record", "-o", "/", "--", "true"], "/: is a folder"),
        (&["record", "-o", "/no/such/trace", "--", "true"], "/no/such"),
    ] {
        assert_refused(&output(&mut world.lab(words)), says);
    }
    let missing = output(&mut world.lab(["record", "--", "no-such-program"]));
    assert_eq!(missing.status.code(), Some(127), "{}", describe(&missing));
}
