// SPDX-License-Identifier: Apache-2.0
//! One thread in each kind of wait is trimmed, and the program sees what an untouched run of it beside it sees.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use imas_testing::skipped;
use imas_trim::{LeftAlone, TrimTime};

use crate::program::{Program, compiled, may_trace};

const WITHOUT_LIMIT: [&str; 26] = [
    "poll",
    "select",
    "epoll_wait",
    "pause",
    "ppoll",
    "pselect",
    "epoll_pwait",
    "epoll_pwait2",
    "read",
    "readv",
    "read-socket",
    "read-event",
    "read-signal",
    "read-inotify",
    "recv",
    "recvmsg",
    "accept",
    "accept4",
    "wait4",
    "waitid",
    "sigsuspend",
    "sigwait",
    "msgrcv",
    "semop",
    "semtimedop",
    "mq_receive",
];
const WITH_LIMIT: [&str; 19] = [
    "poll",
    "select",
    "epoll_wait",
    "ppoll",
    "pselect",
    "epoll_pwait",
    "epoll_pwait2",
    "read-socket",
    "read-timer",
    "recv",
    "recvmsg",
    "accept",
    "accept4",
    "sigwait",
    "semtimedop",
    "mq_receive",
    "nanosleep",
    "clock_nanosleep",
    "clock_nanosleep-until",
];
/// A handler with SA_RESTART lets these go on.
const RESTARTED: [&str; 6] = ["read", "recv", "accept", "wait4", "waitid", "mq_receive"];
/// The oldest calls: x86-64 alone has them.
const OLDEST: [&str; 4] = ["poll", "select", "epoll_wait", "pause"];
const NOT_JUDGED: [&str; 2] = ["io_getevents", "futex"];

/// Kinds that there are on this processor.
fn here(kinds: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    kinds.iter().copied().filter(|kind| cfg!(target_arch = "x86_64") || !OLDEST.contains(kind))
}

/// Whether a signal that comes while malloc_trim runs ends the wait even where the handler has no SA_RESTART. On aarch64 the
/// kernel has decided that before a tracer may say anything: there such calls are made again.
fn is_ended_by_a_handler(kind: &str) -> bool {
    let has_flag = ["read", "recv", "accept", "wait", "mq_"].iter().any(|begin| kind.starts_with(begin));
    cfg!(target_arch = "x86_64") || !has_flag
}

/// A program in one kind of wait, and another one that nobody touches.
fn pair(waits: &Path, kind: &str, limit_ms: u32, flags: &str) -> (Program, Program) {
    let start = |flags: &str| Program::start(Command::new(waits).args([kind, &limit_ms.to_string(), flags]));
    (start(flags), start(&flags.replace('s', "")))
}

#[test]
fn a_wait_without_a_limit_goes_on() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    for (kind, flags) in here(&WITHOUT_LIMIT).flat_map(|kind| [(kind, ""), (kind, "t")]) {
        let (mut program, mut twin) = pair(&waits, kind, 0, flags);
        for _ in 0..3 {
            program.waits();
            for _ in 0..2 {
                let done = program.trim().unwrap();
                assert!(done.trim_ms.is_some() && done.arenas >= 1, "{kind} {flags}: {done:?}");
            }
            twin.waits();
            program.ask(b'w');
            twin.ask(b'w');
            let (seen, expected) = (program.seen(), twin.seen());
            assert_eq!(seen.outcome, expected.outcome, "{kind} {flags}");
            assert_eq!((seen.trims, expected.trims), (2, 0), "{kind} {flags}");
        }
        program.end();
        twin.end();
    }
}

/// The signal would have ended the wait, or interrupted it: so it does.
#[test]
fn a_signal_that_comes_while_malloc_trim_runs_is_no_less_than_one_in_the_wait() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    let restarted = RESTARTED.iter().map(|kind| (*kind, "sr"));
    let ended = here(&WITHOUT_LIMIT).filter(|kind| is_ended_by_a_handler(kind));
    let ended = ended.flat_map(|kind| [(kind, "s"), (kind, "st")]);
    for (kind, flags) in ended.chain(restarted) {
        let (mut program, mut twin) = pair(&waits, kind, 0, flags);
        for _ in 0..2 {
            program.waits();
            program.trim().unwrap();
            twin.waits();
            twin.ask(b's');
            if flags == "sr" {
                program.ask(b'w');
                twin.ask(b'w');
            }
            let (seen, expected) = (program.seen(), twin.seen());
            assert_eq!((&seen.outcome, seen.trims), (&expected.outcome, 1), "{kind} {flags}");
        }
        program.end();
        twin.end();
    }
}

const LIMIT_MS: u32 = 60;
/// A wait is right if it takes no longer than 10 ms beyond what the untouched ones take; on an emulated processor longer.
fn right() -> Duration {
    imas_testing::deadline(1) / 100
}

/// Trimmed waits that are looked at for each that must be right: a busy machine makes any wait late.
const PATIENCE: usize = 10;

/// How late waits ended, the twin's and the trimmed ones, the best ones first. They are never early.
fn lateness(program: &mut Program, twin: &mut Program, kind: &str, must: usize) -> (Duration, Vec<Duration>) {
    let limit = Duration::from_millis(LIMIT_MS.into());
    let late = |took: Duration| {
        assert!(took + Duration::from_millis(1) >= limit, "{kind}: after {took:?}");
        took.saturating_sub(limit)
    };
    let (mut of_twin, mut trimmed) = (vec![], vec![]);
    for _ in 0..must * PATIENCE {
        let expected = twin.seen();
        of_twin.push(late(expected.took));
        of_twin.sort();
        let seen = loop {
            let seen = program.seen();
            assert_eq!(seen.outcome, expected.outcome, "{kind}");
            if seen.trims > 0 {
                break seen;
            }
        };
        trimmed.push(late(seen.took));
        trimmed.sort();
        if trimmed.get(must - 1).is_some_and(|late| *late <= of_twin[of_twin.len() / 2] + right()) {
            break;
        }
    }
    (of_twin[of_twin.len() / 2], trimmed)
}

#[test]
fn a_wait_with_a_limit_ends_in_time() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    for (kind, flags, must) in here(&WITH_LIMIT).flat_map(|kind| [(kind, "", 8), (kind, "t", 3)]) {
        let (mut program, mut twin) = pair(&waits, kind, LIMIT_MS, flags);
        let (is_over, pid, site) = (AtomicBool::new(false), program.pid, program.site.clone());
        let (of_twin, trimmed) = std::thread::scope(|scope| {
            scope.spawn(|| {
                let bounds = TrimTime { find: Duration::from_secs(1), end: Duration::from_secs(60) };
                while !is_over.load(Ordering::Relaxed) {
                    let _ = imas_trim::trim(pid, &site, bounds);
                    std::thread::sleep(Duration::from_millis(LIMIT_MS.into())); // each trim makes its wait longer
                }
            });
            let measured = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                lateness(&mut program, &mut twin, kind, must)
            }));
            is_over.store(true, Ordering::Relaxed);
            measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let right = trimmed.iter().filter(|late| **late <= of_twin + right()).count();
        println!("{kind} {flags}: untouched {of_twin:?} late, trimmed {trimmed:?}");
        assert!(right >= must, "{kind} {flags}: {right} of {}", trimmed.len());
        program.end();
        twin.end();
    }
}

/// After SIGSTOP and SIGCONT the kernel continues such a wait by another call, `restart_syscall`.
#[test]
fn a_wait_that_the_kernel_has_continued_ends_as_ever() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    for kind in here(&["poll", "nanosleep", "clock_nanosleep"]) {
        let program = Program::start(Command::new(&waits).args([kind, "400"]));
        let was_continued = (0..20).any(|_| {
            program.waits();
            program.stop_and_go_on();
            program.trim().is_ok_and(|done| done.call == libc::SYS_restart_syscall)
        });
        assert!(was_continued, "{kind}");
        let said = program.end();
        let is_as_ever = |line: &str| {
            let took =
                line.strip_prefix("0 77 ").and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
            line.starts_with("1 77 ") || took.is_some_and(|micros| micros >= 399_000)
        };
        assert!(said.lines().rev().skip(1).all(is_as_ever), "{kind}: {said}");
    }
}

#[test]
fn a_wait_that_is_not_judged_is_left_alone() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    for (kind, limit_ms) in NOT_JUDGED.iter().flat_map(|kind| [(kind, 0), (kind, LIMIT_MS)]) {
        let (mut program, mut twin) = pair(&waits, kind, limit_ms, "");
        program.waits();
        let soon = Duration::from_millis(100);
        let refused = imas_trim::trim(program.pid, &program.site, TrimTime { find: soon, end: soon });
        assert!(matches!(refused, Err(LeftAlone::NoThread(_))), "{kind}: {refused:?}");
        if limit_ms == 0 {
            twin.waits();
            program.ask(b'w');
            twin.ask(b'w');
        }
        assert_eq!(program.seen().outcome, twin.seen().outcome, "{kind}");
        program.end();
        twin.end();
    }
}
