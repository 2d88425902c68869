// SPDX-License-Identifier: Apache-2.0
//! `imas trim`: running processes give their free pages back.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use imas_testing::{Group, end_piped, skipped, start_piped};
use serde_json::Value;

use crate::support::{
    World, assert_hinted, describe, list, looked_at, output, parsed, real, stderr, stdout, succeeded,
    wait_until,
};

/// 60 MB with free pages between blocks in use, and a way to wait.
const HOLDER: &str = include_str!("../../../tests/programs/holds_free.py");

fn held(world: &World, candidate: &str, how: &str) -> Child {
    let python = real("python3");
    let words = ["run", "--candidate", candidate, "--", python.to_str().unwrap(), "-c", HOLDER, how];
    start_piped(&mut world.imas(words))
}

/// Outcome of a trim of one process, however little it holds.
fn trimmed(world: &World, pid: u32) -> Value {
    let pid = pid.to_string();
    let said = output(&mut world.imas(["trim", &pid, "--at-least", "0", "--json"]));
    let row = list(&parsed(&said), "/processes")[0].clone();
    assert_eq!(said.status.code(), Some(i32::from(row["thread"].is_null())), "{}", describe(&said));
    row
}

/// Whether nobody here may trace a process: the machine's yama or a filter forbids it.
fn cannot_trace(row: &Value) -> bool {
    row["why"].as_str().is_some_and(|why| why.contains("may not be traced"))
}

/// Bytes that the process could return.
fn returnable(world: &World, pid: u32) -> u64 {
    let explained = looked_at(|| world.json(["explain", "--json", "--pid", &pid.to_string()]));
    explained["heaps"]["bytes"]["returnable"].as_u64().unwrap_or_else(|| panic!("{explained:#}"))
}

const MIB: u64 = 1 << 20;

/// A child of fork has free pages of its own, and its parent waits in waitpid.
#[test]
fn a_child_of_fork_gives_its_own_pages_back() {
    let world = World::new();
    let python = real("python3");
    let mut command = world.command(&python);
    command.args(["-c", HOLDER, "fork"]).env_remove("LD_PRELOAD");
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut answers = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut answers, &mut line).unwrap();
    let number = line.trim().parse().unwrap();
    wait_until("the child has filled its heap", || returnable(&world, number) > 40 * MIB);
    let of_child = trimmed(&world, number);
    let of_parent = trimmed(&world, child.id());
    drop(child.stdin.take());
    child.wait().unwrap();
    if cannot_trace(&of_child) {
        return skipped("processes cannot be traced here");
    }
    assert!(of_child["returned_bytes"].as_u64().unwrap() > 40 * MIB, "{of_child:#}");
    assert!(of_parent["thread"].is_u64(), "it waits: {of_parent:#}");
}

/// The promised memory came back, one thread stood still for a moment, and the program goes on.
#[test]
fn a_process_gives_back_what_it_promised() {
    let world = World::new();
    let python = real("python3");
    let untouched =
        |how: &str| start_piped(world.command(&python).args(["-c", HOLDER, how]).env_remove("LD_PRELOAD"));
    for child in
        [untouched("poll"), untouched("threads"), untouched("blocked"), held(&world, "glibc:arena1", "poll")]
    {
        let pid = child.id().to_string();
        let explained = || stdout(&output(&mut world.imas(["explain", "--pid", &pid])));
        // On a busy machine the time of a look may be over before it has read the heaps.
        wait_until("the free pages are named", || explained().contains("returns the free pages now"));
        let promised = returnable(&world, child.id());
        let row = trimmed(&world, child.id());
        if cannot_trace(&row) {
            end_piped(child);
            return skipped("processes cannot be traced here");
        }
        let left = returnable(&world, child.id());
        let page = stdout(&output(&mut world.imas(["trim", &pid])));
        end_piped(child);
        assert!(page.contains("(--at-least)"), "{page}");
        assert!(row["why"].is_null(), "{row:#}");
        let returned = row["returned_bytes"].as_u64().unwrap();
        assert!(promised > 40 * MIB && promised.abs_diff(returned) <= MIB.max(returned / 20), "{row:#}");
        assert!(left < MIB, "{left} bytes are left");
        assert!(row["thread"].is_u64() && row["stood_ms"].is_f64() && row["took_ms"].is_f64(), "{row:#}");
    }
}

/// The kills in one kind of wait are over by then, however busy the machine is.
const LONGEST: Duration = Duration::from_secs(600);

/// Compiles a program of tests.
fn compiled(world: &World, source: &str) -> std::path::PathBuf {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let made = world.work().join(source.file_stem().unwrap());
    succeeded(output(world.command("cc").arg("-o").arg(&made).arg(&source)));
    made
}

/// imas and all that it has started are killed, at each system call from the first one by which a process is traced: the
/// process goes on, and sees nothing. The rounds end with one in which nobody is killed.
#[test]
fn imas_may_be_killed_at_any_moment() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("the killer reads registers of x86-64");
    }
    let world = World::new();
    let (killer, waits) =
        (compiled(&world, "../../tests/programs/killer.c"), compiled(&world, "../imas-trim/tests/waits.c"));
    for (how, limit_ms) in [("read", "0"), ("poll", "300")] {
        let mut child = start_piped(world.command(&waits).args([how, limit_ms]));
        let pid = child.id().to_string();
        let (mut killed, begun) = (0, Instant::now());
        loop {
            let words = ["trim", &pid, "--at-least", "0", "--json"];
            let imas = world.imas(words);
            let mut command = world.command(&killer);
            command.arg(killed.to_string()).arg(imas.get_program()).args(imas.get_args());
            let envs = imas.get_envs().filter_map(|(name, value)| Some((name, value?)));
            let said = stdout(&succeeded(output(command.envs(envs))));
            if said.contains("may not be traced") {
                end_piped(child);
                return skipped("processes cannot be traced here");
            }
            let is_killed = said.ends_with("killed\n");
            killed += u32::from(is_killed);
            assert!(child.try_wait().unwrap().is_none(), "{how}: it ended after {killed}");
            // On a busy machine the time of a trim may be over before it was done.
            let is_trimmed =
                said.contains("\"thread\"") && !said.replace(": ", ":").contains("\"thread\":null");
            if !is_killed && is_trimmed {
                break;
            }
            assert!(begun.elapsed() < LONGEST, "{how}: {said}");
        }
        println!("{how}: killed at {killed} moments");
        assert!(killed > 20, "{how}: killed {killed} times alone");
        drop(child.stdin.take());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut said).unwrap();
        let is_as_ever = |line: &str| ["0 77 ", "1 77 "].iter().any(|wait| line.starts_with(wait));
        assert!(child.wait().unwrap().success() && said.ends_with("as before\n"), "{how}: {said}");
        let mut waits_seen = said.lines().skip(1).filter(|line| *line != "as before");
        assert!(waits_seen.all(is_as_ever), "{how}: {said}");
    }
}

/// A process that runs on another malloc, is stopped or is traced is left alone, and the reason is said.
#[test]
fn what_is_left_alone_has_the_reason() {
    let world = World::new();
    let other = held(&world, "jemalloc", "poll");
    let of_other = trimmed(&world, other.id());
    end_piped(other);
    assert!(of_other["thread"].is_null(), "{of_other:#}");
    assert!(of_other["why"].as_str().unwrap().contains("another one serves it"), "{of_other:#}");
    let little = start_piped(world.command(real("python3")).args(["-c", HOLDER, "poll"]));
    let pid = little.id().to_string();
    let page = output(&mut world.imas(["trim", &pid, "--at-least", "1G"]));
    assert!(stdout(&page).contains("holds less than 1024.0 MiB in all"), "{}", describe(&page));
    assert_eq!(page.status.code(), Some(1));
    for words in [&["trim", &pid, "--all"][..], &["trim"]] {
        assert_eq!(output(&mut world.imas(words)).status.code(), Some(2), "{words:?}");
    }
    end_piped(little);
}

#[test]
fn settings_of_a_runtime_have_their_name() {
    let (world, name) = (World::new(), "cpython:own");
    for library in [None, Some("libjemalloc.so")] {
        world.add_settings_of_python(library);
        let child = held(&world, name, "poll");
        let row = trimmed(&world, child.id());
        end_piped(child);
        assert_eq!(row["candidate"], name, "{row:#}");
        assert_eq!(row["thread"].is_null(), library.is_some() || cannot_trace(&row), "{row:#}");
    }
}

/// One that is stopped holds nobody up, and gives back when it goes on.
#[test]
fn a_stopped_process_is_left_alone_until_it_goes_on() {
    let world = World::new();
    let child = held(&world, "glibc:arena1", "threads");
    let signal = |name: &str| {
        assert!(Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap().success());
    };
    signal("-STOP");
    let row = trimmed(&world, child.id());
    signal("-CONT");
    let later = trimmed(&world, child.id());
    end_piped(child);
    if cannot_trace(&later) {
        return skipped("processes cannot be traced here");
    }
    assert!(row["why"].as_str().unwrap().contains("stopped, frozen"), "{row:#}");
    assert!(later["thread"].is_u64(), "{later:#}");
}

#[test]
fn what_is_no_process_and_no_service_is_refused() {
    let world = World::new();
    assert_hinted(&output(&mut world.imas(["trim", "4194305"])), "does not exist");
    assert_hinted(&output(&mut world.imas(["trim", "no-such-unit"])), "no process of it runs");
    assert_hinted(&output(&mut world.imas(["trim", "a b"])), "not the name of a service");
}

#[test]
fn all_processes_of_a_service_are_trimmed() {
    let name = format!("imas-test-trim-{}.service", std::process::id());
    let Some(group) = Group::new(&name) else { return skipped("control groups cannot be made here") };
    let world = World::new();
    let children = [held(&world, "glibc:lean", "threads"), held(&world, "glibc:arena1", "poll")];
    for child in &children {
        std::fs::write(group.0.join("cgroup.procs"), child.id().to_string()).unwrap();
    }
    let asked = world.json(["trim", name.trim_end_matches(".service"), "--json"]);
    let id = "f".repeat(64);
    let container = Group::new(&format!("docker-{id}.scope")).inspect(|group| {
        std::fs::write(group.0.join("cgroup.procs"), children[1].id().to_string()).unwrap();
    });
    let in_container = || parsed(&output(&mut world.imas(["trim", &id[..12], "--json", "--at-least", "1G"])));
    let of_container = container.as_ref().map(|_| in_container());
    children.into_iter().for_each(end_piped);
    let rows = list(&asked, "/processes");
    assert_eq!(rows.len(), 2, "{asked:#}");
    assert!(rows.iter().all(|row| row["unit"] == name.as_str()), "{asked:#}");
    if rows.iter().any(cannot_trace) {
        return skipped("processes cannot be traced here");
    }
    assert!(rows.iter().all(|row| row["thread"].is_u64()), "{asked:#}");
    assert!(of_container.is_some_and(|answer| list(&answer, "/processes").len() == 1), "the container's id");
    assert!(asked["returned_bytes"].as_u64().unwrap() > 40 * MIB, "{asked:#}");
}

#[test]
fn a_timer_is_shown_then_written_then_taken_away() {
    let world = World::new();
    let root = world.work().join("root");
    let folder = root.join("etc/systemd/system");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("web.service"), "[Service]\nExecStart=/usr/bin/web\n").unwrap();
    let files = ["imas-trim-web.service", "imas-trim-web.timer"].map(|name| folder.join(name));
    let trim = |words: &[&str]| {
        let words = [&["trim", "web", "--root", root.to_str().unwrap()], words].concat();
        output(&mut world.imas(words))
    };
    let shown = stdout(&succeeded(trim(&["--every", "10m"])));
    assert!(shown.contains("OnUnitActiveSec=600\n") && shown.contains("trim --at-least 32M -- web.service"));
    assert!(!files[0].exists() && !files[1].exists(), "nothing is written without --write");
    succeeded(trim(&["--every", "10m", "--at-least", "64M", "--write"]));
    let text = std::fs::read_to_string(&files[0]).unwrap();
    assert!(text.contains("ExecStart=\"/usr/bin/imas\" trim --at-least 67108864 -- web.service\n"), "{text}");
    succeeded(trim(&["--every", "off"]));
    assert!(files[0].exists(), "nothing is taken away without --write");
    std::fs::write(&files[1], "[Timer]\n").unwrap();
    for every in ["off", "1h"] {
        assert_eq!(trim(&["--every", every, "--write"]).status.code(), Some(1), "one that was edited stays");
    }
    std::fs::remove_file(&files[1]).unwrap();
    succeeded(trim(&["--every", "off", "--write"]));
    assert!(!files[0].exists());
    assert_eq!(trim(&["--every", "off", "--write"]).status.code(), Some(1), "there is none");
    for words in [&["--every", "59s"][..], &["--every", "soon"], &["--write"], &["--every", "1h", "--json"]] {
        assert_eq!(trim(words).status.code(), Some(2), "{words:?}");
    }
    let unknown = ["trim", "no-such", "--every", "1h", "--root", root.to_str().unwrap()];
    assert_hinted(&output(&mut world.imas(unknown)), "no-such.service");
    assert_hinted(&output(&mut world.imas(["trim", "1", "--every", "1h"])), "is a process");
}

// `imas run --trim`: imas stays as the parent, and trims the program and what it starts.

/// Sixteen seconds of CPU time, which pay for a trim, and 60 MB with free pages between blocks in use.
const BUSY_HOLDER: &str = concat!(
    "import time\nwhile time.process_time() < 16: pass\n",
    include_str!("../../../tests/programs/holds_free.py")
);

fn run(world: &World, words: &[&str]) -> Command {
    world.imas([&["run", "--trim=1s", "--candidate", "system+trims", "-v", "--"], words].concat())
}

/// Starts the command, and ends it when a process was trimmed or left alone for good (not only "for now", as on a busy
/// machine); what imas said until then.
fn said(world: &World, command: &mut Command) -> String {
    let log = world.work().join("said");
    let child = start_piped(command.stderr(std::fs::File::create(&log).unwrap()));
    let read = || std::fs::read_to_string(&log).unwrap();
    wait_until("a process was trimmed, or left alone", || {
        read().contains(" back: ") || read().contains("is left alone: ")
    });
    end_piped(child);
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
    let own = said(&world, &mut run(&world, &[python, "-c", BUSY_HOLDER, "blocked"]));
    let words = ["sh", "-c", "\"$0\" -c \"$1\" poll; exit $?", python, BUSY_HOLDER];
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
    let imas = run(&world, &[python.to_str().unwrap(), "-c", BUSY_HOLDER, "blocked"]);
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
