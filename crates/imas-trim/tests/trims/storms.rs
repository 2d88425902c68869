// SPDX-License-Identifier: Apache-2.0
//! Programs in which much happens during the trims: handlers that allocate, processes and threads that begin and end.

use std::process::Command;
use std::time::{Duration, Instant};

use imas_testing::skipped;
use imas_trim::{LeftAlone, TrimTime};

use crate::program::{Program, compiled, may_trace};

const KINDS: [&str; 6] = ["handlers", "alternative-stack", "fork", "spawn", "threads", "arena"];
const TIMES: u32 = 200;

/// Trims a program so many times. It is left alone at times, where its threads are busy, hold a lock or get no processor.
pub(crate) fn trim_again_and_again(program: &Program, times: u32, name: &str) {
    let bounds = TrimTime { find: Duration::from_secs(5), end: Duration::from_secs(60) };
    let (begun, mut done, mut left_alone) = (Instant::now(), 0, 0);
    while done < times {
        match imas_trim::trim(program.pid, &program.site, bounds) {
            Ok(_) => done += 1,
            Err(refused) if refused.may_pass() => left_alone += 1,
            Err(refused) => panic!("{name}: {refused}"),
        }
        assert!(left_alone <= times, "{name}: trimmed {done} times in {:?}", begun.elapsed());
    }
    println!("{name}: {done} trims in {:.1?}, {left_alone} times left alone", begun.elapsed());
}

#[test]
fn whatever_happens_beside_the_trims_the_program_has_what_it_wrote() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let storms = compiled(folder.path(), "storms");
    for kind in KINDS {
        let program = Program::start(Command::new(&storms).arg(kind));
        trim_again_and_again(&program, TIMES, kind);
        program.end();
    }
}

/// Its stack may be an array of the program, and it may have interrupted malloc.
#[test]
fn a_thread_on_an_alternative_stack_is_left_alone() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = Program::start(Command::new(compiled(folder.path(), "storms")).arg("on-stack"));
    let soon = Duration::from_millis(300);
    let refused = imas_trim::trim(program.pid, &program.site, TrimTime { find: soon, end: soon });
    let is_said = |why: &String| why.contains("signal handler");
    assert!(matches!(&refused, Err(LeftAlone::NoThread(why)) if is_said(why)), "{refused:?}");
    program.end();
}

/// Trims in a row of each program, IMAS_TRIMS of them: `cargo test -p imas-trim -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn many_trims_in_a_row_make_no_difference() {
    let times = std::env::var("IMAS_TRIMS").map_or(1000, |text| text.parse().expect("a number"));
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let (storms, waits) = (compiled(folder.path(), "storms"), compiled(folder.path(), "waits"));
    let of_storms = KINDS.map(|kind| (&storms, [kind, "0", ""]));
    let of_waits = [
        ("read", ""),
        ("read", "t"),
        ("epoll_wait", ""),
        ("accept", ""),
        ("wait4", ""),
        ("pause", ""),
        ("sigsuspend", ""),
        ("semop", ""),
        ("pselect", "t"),
    ]
    .map(|(kind, flags)| (&waits, [kind, "0", flags]));
    let programs = of_storms.len() + of_waits.len();
    for (program, words) in of_storms.into_iter().chain(of_waits) {
        let is_wait = program == &waits;
        let program = Program::start(Command::new(program).args(words));
        trim_again_and_again(&program, times, words[0]);
        let said = program.end();
        let waits = said.lines().filter(|line| line.split(' ').count() == 4).collect::<Vec<_>>();
        assert!(
            !is_wait || matches!(&waits[..], [one] if one.ends_with(&format!(" {times}"))),
            "{words:?}: {said}"
        );
    }
    println!("{programs} programs x {times} trims with a difference: 0");
}
