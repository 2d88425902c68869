// SPDX-License-Identifier: Apache-2.0
//! `imas run --trim`: imas stays as the parent, and trims the program and what it starts.

use std::process::Command;

use imas_testing::skipped;

use crate::support::{World, describe, output, piped, real, stderr, stdout, wait_until};

/// Sixteen seconds of CPU time, which pay for a trim, and 60 MB with free pages between blocks in use.
const HOLDER: &str = concat!(
    "import time\nwhile time.process_time() < 16: pass\n",
    include_str!("../../../tests/programs/holds_free.py")
);

fn run(world: &World, words: &[&str]) -> Command {
    world.imas([&["run", "--trim=1s", "--candidate", "system", "-v", "--"], words].concat())
}

/// Starts the command, and ends it when a process was trimmed or left alone; what imas said until then.
fn said(world: &World, command: &mut Command) -> String {
    let log = world.work().join("said");
    let child = piped::start(command.stderr(std::fs::File::create(&log).unwrap()));
    let read = || std::fs::read_to_string(&log).unwrap();
    wait_until("a process was trimmed, or left alone", || {
        read().contains(" back: ") || read().contains("left alone")
    });
    piped::end(child);
    read()
}

/// Judges what imas said; returns whether it could trace the process.
fn was_trimmed(said: &str) -> bool {
    let cannot_trace = said.contains("may not be traced");
    assert!(cannot_trace || said.contains("MiB back: thread "), "{said}");
    !cannot_trace
}

#[test]
fn the_program_and_what_it_starts_give_back() {
    let (world, python) = (World::new(), real("python3"));
    let python = python.to_str().unwrap();
    let own = said(&world, &mut run(&world, &[python, "-c", HOLDER, "blocked"]));
    let words = ["sh", "-c", "\"$0\" -c \"$1\" poll; exit $?", python, HOLDER];
    if !was_trimmed(&own) || !was_trimmed(&said(&world, &mut run(&world, &words))) {
        skipped("processes cannot be traced here");
    }
}

/// A container's filter of system calls hides itself from everybody below it; the parent has the same one.
#[test]
fn a_filter_that_was_there_before_is_no_obstacle() {
    let world = World::new();
    let text = r"
import ctypes, os, struct, sys
allow = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))
prctl = ctypes.CDLL(None, use_errno=True).prctl
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow)))
if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.c_void_p(ctypes.addressof(program)), 0, 0): sys.exit('no filter')
os.execvp(sys.argv[1], sys.argv[1:])
";
    let python = real("python3");
    let imas = run(&world, &[python.to_str().unwrap(), "-c", HOLDER, "blocked"]);
    let mut command = world.command(&python);
    command.args(["-c", text]).arg(imas.get_program()).args(imas.get_args());
    let envs = imas.get_envs().filter_map(|(name, value)| Some((name, value?)));
    if !was_trimmed(&said(&world, command.envs(envs))) {
        skipped("processes cannot be traced here");
    }
}

#[test]
fn the_end_and_signals_are_those_of_the_program() {
    let world = World::new();
    let status = |words: &[&str]| output(&mut run(&world, words)).status.code();
    assert_eq!(status(&["sh", "-c", "exit 3"]), Some(3));
    assert_eq!(status(&["sh", "-c", "kill -KILL $$"]), Some(128 + 9));
    assert_eq!(status(&["/no/such/program"]), Some(127));
    let ready = world.work().join("ready");
    let text = "trap 'exit 5' TERM; : >\"$0\"; while :; do sleep 0.1; done";
    let mut child = run(&world, &["sh", "-c", text, ready.to_str().unwrap()]).spawn().unwrap();
    wait_until("the program waits", || ready.exists());
    let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id())).unwrap_or_default();
    let own: u64 = rollup
        .lines()
        .filter_map(|line| {
            line.strip_prefix("Private_Dirty:")?.split_whitespace().next()?.parse::<u64>().ok()
        })
        .sum();
    println!("imas beside the program: {own} KiB of its own");
    let sent = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status().unwrap();
    assert_eq!((sent.success(), child.wait().unwrap().code()), (true, Some(5)));
}

/// Orphans of a container are children of its first process, which reaps them.
#[test]
fn orphans_of_a_container_are_reaped() {
    let world = World::new();
    let text = r"
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    child = os.fork()
    if child: os.write(w, b'%d' % child)
    os._exit(0)
os.wait()
orphan, until = int(os.read(r, 20)), time.monotonic() + 60
while os.path.exists(f'/proc/{orphan}') and time.monotonic() < until: time.sleep(0.05)
print(os.getppid(), 'there' if os.path.exists(f'/proc/{orphan}') else 'reaped')
";
    let python = real("python3");
    let imas = run(&world, &[python.to_str().unwrap(), "-c", text]);
    let mut command = world.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(imas.get_program()).args(imas.get_args());
    let envs = imas.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let done = output(command.envs(envs));
    if stderr(&done).contains("unshare: ") {
        return skipped("no namespace of processes can be made here");
    }
    assert_eq!(stdout(&done), "1 reaped\n", "{}", describe(&done));
}
