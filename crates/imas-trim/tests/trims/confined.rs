// SPDX-License-Identifier: Apache-2.0
//! Programs in namespaces of their own, in a container, and under filters of system calls as systemd makes them.

use std::process::Command;

use imas_testing::skipped;
use imas_trim::LeftAlone;

use crate::program::{Program, compiled, compiled_with, may_trace};

const NAMESPACES: [&[&str]; 4] = [
    &["unshare", "--pid", "--fork"],
    &["unshare", "--mount", "--uts", "--ipc", "--net"],
    &["unshare", "--user", "--map-root-user"],
    &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--cgroup"],
];
const TIMES: u32 = 20;

/// Trims a program that waits for a byte, and looks what it sees of that.
fn goes_on(mut program: Program, name: &str) {
    for _ in 0..TIMES {
        let done = program.trim().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        assert!(done.trim_ms.is_some(), "{name}: {done:?}");
    }
    program.ask(b'w');
    let seen = program.seen();
    assert_eq!((seen.outcome.result, seen.outcome.code, seen.trims), (1, 77, TIMES), "{name}");
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
