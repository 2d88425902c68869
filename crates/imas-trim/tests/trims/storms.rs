// SPDX-License-Identifier: Apache-2.0
//! Programs in which much happens during the trims (handlers that allocate, processes and threads that come and go),
//! and programs in namespaces of their own, in a container, and under filters of system calls.
//!
//! Then a tracer that is killed anywhere: it leaves the program unharmed.
//!
//! Between two calls of ptrace(2) nothing of the traced program changes but one write below its stack pointer. So a kill at
//! each of these calls is a kill at each instruction of the procedure; kills while it waits come at some of its times.
//! strace(1) counts the calls and kills; here the procedure is a process of its own.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use imas_testing::skipped;
use imas_trim::{LeftAlone, TrimSite, TrimTime};

use crate::program::{BOUNDS, NEXT, Program, compiled, compiled_with, may_trace};

const KINDS: [&str; 6] = ["handlers", "alternative-stack", "fork", "spawn", "threads", "arena"];
const TIMES: u32 = 200;

/// Trims a program `times` times. It is left alone at times, where its threads are busy, hold a lock or get no processor.
fn trim_again_and_again(program: &Program, times: u32, name: &str) {
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

const NAMESPACES: [&[&str]; 4] = [
    &["unshare", "--pid", "--fork"],
    &["unshare", "--mount", "--uts", "--ipc", "--net"],
    &["unshare", "--user", "--map-root-user"],
    &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--cgroup"],
];
const FEW_TIMES: u32 = 20;

/// Trims a program that waits for a byte, and looks what it sees of that.
fn goes_on(mut program: Program, name: &str) {
    for _ in 0..FEW_TIMES {
        let done = program.trim().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert!(done.trim_ms.is_some(), "{name}: {done:?}");
    }
    program.ask(b'w');
    let seen = program.seen();
    assert_eq!((seen.outcome.result, seen.outcome.code, seen.trims), (1, 77, FEW_TIMES), "{name}");
    program.end();
}

#[test]
fn a_program_in_namespaces_of_its_own_goes_on() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    for words in NAMESPACES {
        if !Command::new(words[0]).args(&words[1..]).arg("true").status().is_ok_and(|status| status.success())
        {
            skipped(&format!("{words:?} is not possible here"));
            continue;
        }
        let mut command = Command::new(words[0]);
        goes_on(Program::start_within(command.args(&words[1..]).arg(&waits).arg("read")), &words.join(" "));
    }
}

/// The container has podman's usual filter of system calls, which is docker's but for a few calls.
#[test]
fn a_program_in_a_container_goes_on() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let root = tempfile::tempdir().unwrap();
    let waits = compiled(root.path(), "waits");
    let linked = Command::new("ldd").arg(&waits).output().unwrap();
    let linked = String::from_utf8(linked.stdout).unwrap();
    for library in linked.split_whitespace().filter(|word| word.starts_with('/')) {
        let into = root.path().join(&library[1..]);
        std::fs::create_dir_all(into.parent().unwrap()).unwrap();
        std::fs::copy(library, into).unwrap();
    }
    for folder in ["proc", "dev", "sys", "tmp", "run", "etc"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    let container = |program: &str| {
        let mut command = Command::new("podman");
        command.args(["--cgroup-manager=cgroupfs", "--runtime=runc", "run", "--rm", "-i", "--network=none"]);
        // Limits no higher than ours: to raise one takes a right.
        command.args(["--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--rootfs"]);
        command.arg(root.path()).args([program, "read"]);
        command
    };
    // A program that ends at once, as its standard input does.
    let tried = container("/waits").stdin(std::process::Stdio::null()).output();
    if !tried.as_ref().is_ok_and(|done| done.status.success()) {
        let why =
            tried.map_or_else(|error| error.to_string(), |done| String::from_utf8_lossy(&done.stderr).into());
        return skipped(&format!("podman runs no container here: {why}"));
    }
    let program = Program::start_within(&mut container("/waits"));
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid)).unwrap();
    assert!(status.contains("\nSeccomp:\t2\n"), "it has a filter: {status}");
    goes_on(program, "container");
}

/// Names of the system calls in a group of systemd; None where systemd is not there.
fn names_of(group: &str) -> Option<Vec<String>> {
    let listed = Command::new("systemd-analyze").args(["syscall-filter", group]).output().ok()?;
    let text = String::from_utf8(listed.stdout).ok().filter(|_| listed.status.success())?;
    let mut names = vec![];
    for word in text.lines().skip(1).map(str::trim).filter(|word| !word.is_empty() && !word.starts_with('#'))
    {
        if word.starts_with('@') { names.extend(names_of(word)?) } else { names.push(word.to_owned()) }
    }
    Some(names)
}

#[test]
fn a_unit_with_a_filter_goes_on_unless_it_forbids_what_malloc_trim_does() {
    if !may_trace() {
        return skipped("processes cannot be traced here");
    }
    let folder = tempfile::tempdir().unwrap();
    let waits = compiled(folder.path(), "waits");
    let Some(filtered) = compiled_with(folder.path(), "tests/filtered.c", &["-lseccomp"]) else {
        return skipped("libseccomp is not installed");
    };
    let Some(names) = names_of("@system-service") else { return skipped("systemd-analyze is not there") };
    let start = |but: &str| {
        let file = folder.path().join(format!("all-but-{but}"));
        let allowed: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != but).collect();
        std::fs::write(&file, allowed.join("\n")).unwrap();
        let mut command = Command::new(&filtered);
        command.arg(&file).arg(&waits).arg("read");
        Program::start(&mut command)
    };
    goes_on(start("nothing"), "@system-service");
    for call in ["madvise", "futex"] {
        let program = start(call);
        assert_eq!(program.trim(), Err(LeftAlone::Filter(call.to_owned())));
        program.end();
    }
}

/// Kinds of waits, and the limit of each in milliseconds: one that is made again, that EINTR would end, that the kernel
/// continues, and that the signal handler of the program has a part in.
const KILLED_KINDS: [(&str, u32); 6] =
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
        .args(["--quiet", "--ignored", "--exact", "storms::one_trim"])
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
    let kinds = KILLED_KINDS.map(|(kind, limit_ms)| (kind, limit_ms * slowness));
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
