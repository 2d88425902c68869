// SPDX-License-Identifier: Apache-2.0
//! A tracer that is killed anywhere leaves the program unharmed.
//!
//! Between two calls of ptrace(2) nothing of the traced program changes but one write below its stack pointer. So a kill at
//! each of these calls is a kill at each instruction of the procedure; kills while it waits come at some of its times.
//! strace(1) counts the calls and kills; here the procedure is a process of its own.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use imas_testing::skipped;
use imas_trim::TrimSite;

use crate::program::{BOUNDS, NEXT, Program, compiled, may_trace};

/// Kinds of waits, and the limit of each in milliseconds: one that is made again, that EINTR would end, that the kernel
/// continues, and that the signal handler of the program has a part in.
const KINDS: [(&str, u32); 6] =
    [("read", 0), ("epoll_pwait", 0), ("ppoll", 0), ("sigsuspend", 0), ("accept", 0), ("nanosleep", 200)];
/// Variable with the program that [`one_trim`] trims.
const OF: &str = "IMAS_TEST_TRIM_OF";
/// More calls than any trim makes.
const MOST: u32 = 1 << 20;

#[test]
#[ignore = "the procedure that the other test of this file kills"]
fn one_trim() {
    let Ok(numbers) = std::env::var(OF) else {
        return skipped("it is started by the other test of this file");
    };
    let numbers: Vec<u64> = numbers.split(' ').map(|word| word.parse().unwrap()).collect();
    let [pid, malloc_trim, sigreturn, first_arena] = numbers[..] else { panic!("{numbers:?}") };
    let code = |address: u64| (address, crate::program::code_at(pid.try_into().unwrap(), address));
    let site =
        TrimSite { malloc_trim: code(malloc_trim), sigreturn: code(sigreturn), first_arena, next: NEXT };
    imas_trim::trim(pid.try_into().unwrap(), &site, BOUNDS).unwrap();
}

/// Trims the program in a process that is killed when it makes that call for this number of times.
fn trim_until(call: &str, times: u32, program: &Program) -> ExitStatus {
    let site = &program.site;
    let numbers = [program.pid.into(), site.malloc_trim.0, site.sigreturn.0, site.first_arena];
    Command::new("strace")
        .args(["-f", "-qqq", "-o", "/dev/null", "-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:signal=SIGKILL:when={times}")])
        .arg(std::env::current_exe().unwrap())
        .args(["--quiet", "--ignored", "--exact", "killed::one_trim"])
        .env(OF, numbers.map(|number| number.to_string()).join(" "))
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

/// Whether the tracer was killed at its call with this number. The program and its untouched twin see the same after it.
fn is_killed_without_harm(at: (&str, u32), pair: &mut (Program, Program), kind: &str, limit_ms: u32) -> bool {
    let (program, twin) = pair;
    program.waits();
    let status = trim_until(at.0, at.1, program);
    assert!(status.success() || status.signal() == Some(libc::SIGKILL), "{kind}, {at:?}: {status}");
    assert!(!program.is_traced(), "{kind}, {at:?}");
    if limit_ms == 0 {
        program.waits();
        twin.waits();
        program.ask(b'w');
        twin.ask(b'w');
    }
    let expected = twin.seen().outcome;
    // EINTR ends some waits, as SIGSTOP and SIGCONT do; a signal ends most.
    while program.seen().outcome != expected {
        assert!(program.has_seen(60), "{kind}, {at:?}");
    }
    !status.success()
}

#[test]
fn a_tracer_that_is_killed_at_any_call_leaves_the_program_unharmed() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    if Command::new("strace").arg("--version").output().is_err() {
        return skipped("strace is missing");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    // A wait must not be over before an emulated processor has found its thread.
    let slowness = u32::try_from(imas_testing::deadline(1).as_secs()).unwrap();
    let kinds = KINDS.map(|(kind, limit_ms)| (kind, limit_ms * slowness));
    for ((kind, limit_ms), flags) in kinds.iter().flat_map(|kind| [(kind, ""), (kind, "s")]) {
        let start =
            |flags: &str| Program::start(Command::new(&waits).args([kind, &*limit_ms.to_string(), flags]));
        let mut pair = (start(flags), start(""));
        let mut kills = |at| is_killed_without_harm(at, &mut pair, kind, *limit_ms);
        let changes = (1..MOST).take_while(|times| kills(("ptrace", *times))).count();
        let waits = (0..20).take_while(|power| kills(("wait4", 1 << power))).count();
        println!(
            "{kind} {flags}: killed at each of {changes} changes and {waits} times of the wait, no harm"
        );
        assert!(changes >= 8 && waits > 0, "{kind} {flags}: {changes} {waits}");
        pair.0.end();
        pair.1.end();
    }
}
