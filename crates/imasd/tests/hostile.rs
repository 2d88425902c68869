// SPDX-License-Identifier: Apache-2.0
//! The owner of a folder of pages can write anything into it. Such data must not change a decision, stop the
//! daemon, or affect anything outside the folder.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::io::{BufRead, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::support::{WORKER, World, me};
use imas_abi::page_kind;
use imas_store::samples::StoredProgram;
use imas_testing::{Running, skipped};
use zerocopy::{FromZeros, IntoBytes};

/// A forged page for the trial on offer, as correct as an outsider can make it.
fn page(world: &World, program: &StoredProgram, pid: u32, start_ticks: u64) -> imas_abi::Page {
    let mut page = imas_abi::Page::new_zeroed();
    let header = &mut page.header;
    header.magic = imas_abi::PAGE_MAGIC;
    header.version = imas_abi::PAGE_VERSION;
    header.page_bytes = u32::try_from(imas_abi::TRIAL_PAGE_BYTES).unwrap();
    header.kind = page_kind::TRIAL;
    header.pid = pid;
    header.uid = me();
    header.process_start_ticks = start_ticks;
    header.made_unix_ns = 1;
    header.state = imas_abi::state::TRIAL;
    header.exit_status = -1;
    let put = |field: &mut [u8], text: &str| field[..text.len()].copy_from_slice(text.as_bytes());
    put(&mut header.boot_id, &imas_linux::process::boot_id().unwrap());
    let (_, token) = world.offer(program).unwrap();
    put(&mut header.trial_id, &format!("{token:016x}-{:016x}", program.id));
    put(&mut header.candidate, "system");
    put(&mut header.program, &program.path);
    put(&mut header.detail, &program.detail);
    header.armed = 1;
    page
}

fn dropped(world: &World) -> u64 {
    let kinds = ["unwitnessed", "damaged", "forged", "unknown", "stale", "too_many"];
    kinds.iter().map(|kind| world.counter(&format!("dropped_{kind}"))).sum()
}

/// All state that a forged page could change.
fn decided(world: &World, program: &StoredProgram) -> (usize, u16, Option<(u16, u64)>) {
    (world.store().trials(program.id).unwrap().len(), world.production(program), world.offer(program))
}

fn prepared() -> (World, StoredProgram) {
    let (world, _, program) = World::new().noticed("worker.py", WORKER);
    (world, program)
}

/// Identity of this test's own process. It lives, but it does not run the program.
fn myself() -> (u32, u64) {
    let me = std::process::id();
    (me, imas_linux::process::start_ticks(me).unwrap())
}

#[test]
fn ten_thousand_forged_and_damaged_pages_decide_nothing() {
    let (world, program) = prepared();
    let before = decided(&world, &program);
    let (pid, start) = myself();
    let forged = page(&world, &program, pid, start);
    let token = world.offer(&program).unwrap().1;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for number in 0..10_000_u64 {
        let mut bytes = forged.as_bytes().to_vec();
        for _ in 0..number % 4 {
            let at = usize::try_from(next()).unwrap() % 6000;
            bytes[at] = next().to_le_bytes()[0];
        }
        if number % 7 == 0 {
            bytes.truncate(usize::try_from(next()).unwrap() % bytes.len());
        }
        let name = match number % 3 {
            0 => format!("{token:016x}.page"),
            1 => format!("{:016x}.page", next()),
            _ => format!("{pid}-{start}-{number}.page"),
        };
        std::fs::write(world.pages().join(name), bytes).unwrap();
    }
    world.wait("all pages are gone", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
    world.wait("the pages are counted", || dropped(&world) > 3_000);
    let now = decided(&world, &program);
    // A page whose process ended before it was identified withdraws the offer for a while. It does nothing
    // else.
    assert_eq!((now.0, now.1), (before.0, before.1));
    world.wait("it is offered again", || world.offer(&program).is_some());
    // A real trial still counts.
    world.settle(&world.path("work/worker.py"), &program);
    assert_eq!(world.store().trials(program.id).unwrap().len(), 2);
}

#[test]
fn nothing_but_a_plain_page_of_the_owner_is_read() {
    let (world, program) = prepared();
    let before = decided(&world, &program);
    let (pid, start) = myself();
    let token = format!("{:016x}.page", world.offer(&program).unwrap().1);
    let good = page(&world, &program, pid, start).as_bytes().to_vec();
    let outside = world.path("work/outside");
    std::fs::write(&outside, &good).unwrap();
    let here = world.pages().join(&token);
    let mut expected = dropped(&world);
    let mut drops = |what: &str, put: &dyn Fn(&Path)| {
        put(&here);
        // imasd notices a file when it is closed after writing, which never happens to a link or a pipe. So
        // this second file makes imasd look.
        std::fs::write(world.pages().join("look"), "x").unwrap();
        world.wait(what, || dropped(&world) > expected);
        expected = dropped(&world);
        let _ = std::fs::remove_file(&here);
        let _ = std::fs::remove_dir(&here);
    };
    drops("a symbolic link", &|here| symlink(&outside, here).unwrap());
    drops("a hard link", &|here| std::fs::hard_link(&outside, here).unwrap());
    drops("a pipe", &|here| {
        assert!(std::process::Command::new("mkfifo").arg(here).status().unwrap().success());
    });
    drops("a folder", &|here| std::fs::create_dir(here).unwrap());
    drops("a file that shrinks", &|here| {
        std::fs::write(here, &good).unwrap();
        let _ = std::fs::OpenOptions::new().write(true).open(here).map(|file| file.set_len(100));
    });
    drops("a file beyond all size", &|here| {
        let file = std::fs::File::create(here).unwrap();
        file.set_len(1 << 40).unwrap();
    });
    assert!(
        outside.exists() && std::fs::read(&outside).unwrap() == good,
        "files outside the folder must stay as they are"
    );
    assert_eq!(decided(&world, &program), before);
}

#[test]
fn claims_about_others_processes_boots_and_candidates_are_refused() {
    let (world, program) = prepared();
    let before = decided(&world, &program);
    let (pid, start) = myself();
    let name = format!("{:016x}.page", world.offer(&program).unwrap().1);
    let put = |change: &dyn Fn(&mut imas_abi::Page), counter: &str| {
        let was = world.counter(counter);
        let mut page = page(&world, &program, pid, start);
        change(&mut page);
        std::fs::write(world.pages().join(&name), page.as_bytes()).unwrap();
        world.wait(counter, || world.counter(counter) > was);
    };
    put(&|_| {}, "dropped_forged");
    put(&|page| page.header.pid = 1, "dropped_forged");
    put(&|page| page.header.candidate[0] = b'x', "dropped_forged");
    put(
        &|page| page.header.boot_id[0] = if page.header.boot_id[0] == b'0' { b'1' } else { b'0' },
        "dropped_stale",
    );
    put(&|page| page.header.uid = me() + 1, "dropped_damaged");
    put(&|page| page.slot[0].calls[0] = u64::MAX, "dropped_damaged");
    assert_eq!(decided(&world, &program), before);
}

/// Hides its command line until it reads a line from standard input. A process looks the same during its
/// exec, but only for a moment. The program moves the end of its arguments to their beginning. PR_SET_MM_MAP
/// sets all bounds of the process at once and needs no privilege.
const HIDDEN: &str = "
import ctypes, struct, sys
SET_MM, SET_MM_MAP = 35, 14
libc = ctypes.CDLL(None)
libc.sbrk.restype = ctypes.c_ulong
stat = [0] * 3 + open('/proc/self/stat').read().rsplit(')', 1)[1].split()  # numbered as in proc(5)
field = lambda number: int(stat[number])
def show(end):
    bounds = [field(n) for n in (26, 27, 45, 46, 47)] + [libc.sbrk(0), field(28), field(48), end, field(50), field(51)]
    map = struct.pack('=11QQIi', *bounds, 0, 0, -1)
    return libc.prctl(SET_MM, SET_MM_MAP, map, ctypes.c_ulong(len(map)), 0)
if sys.argv[2:]:
    print('hidden' if show(field(48)) == 0 and not open('/proc/self/cmdline').read() else 'cannot hide', flush=True)
    sys.stdin.readline()
    show(field(49))
    sys.stdin.readline()
else:
    import time
    time.sleep(300 if sys.argv[1:] else 0)
";

/// During its exec a process has no command line. On a busy machine that may last.
#[test]
fn a_process_that_is_unreadable_for_a_while_is_not_forgotten() {
    let (world, script, program) = World::new().noticed("hidden.py", HIDDEN);
    let mut hidden = std::process::Command::new(crate::support::python());
    hidden.arg(&script).args(["and", "hide"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(hidden.spawn().unwrap());
    let mut printed = String::new();
    std::io::BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut printed).unwrap();
    if printed.trim() != "hidden" {
        return skipped("this kernel has no PR_SET_MM_MAP (CONFIG_CHECKPOINT_RESTORE)");
    }
    let start = imas_linux::process::start_ticks(running.0.id()).unwrap();
    let page = page(&world, &program, running.0.id(), start);
    let name = format!("{:016x}.page", world.offer(&program).unwrap().1);
    std::fs::write(world.pages().join(&name), page.as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(700));
    assert!(world.pages().join(&name).exists(), "the page must stay until its process is identified");
    assert!(world.store().witnesses().unwrap().is_empty(), "the process cannot be identified yet");
    running.0.stdin.as_mut().unwrap().write_all(b"show\n").unwrap();
    world.wait("the process is identified", || !world.store().witnesses().unwrap().is_empty());
    assert_eq!(dropped(&world), 0);
}

#[test]
fn a_reused_process_id_is_rejected() {
    let (world, program) = prepared();
    let (pid, start) = myself();
    let name = format!("{:016x}.page", world.offer(&program).unwrap().1);
    let page = page(&world, &program, pid, start - 1);
    std::fs::write(world.pages().join(name), page.as_bytes()).unwrap();
    world.wait("forged", || world.counter("dropped_forged") == 1);
    assert_eq!(world.store().trials(program.id).unwrap().len(), 0);
}

/// Starts processes, four at a time. The first argument is their number.
const STORM: &str = "
import os, sys
for _ in range(4):
    if os.fork() == 0:
        for _ in range(int(sys.argv[1]) // 4):
            os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)
        os._exit(0)
while True:
    try: os.wait()
    except ChildProcessError: break
";

/// Peak resident memory of a process, bytes.
fn most_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The kernel's process events report every process of the machine.
#[test]
fn a_storm_of_processes_hides_no_other_process() {
    let mut world = World::new();
    world.start();
    let storm = world.script("storm.py", STORM);
    let mut storm =
        std::process::Command::new(crate::support::python()).arg(&storm).arg("20000").spawn().unwrap();
    let (script, program) = world.notices("worker.py", WORKER);
    world.settle(&script, &program);
    assert!(storm.wait().unwrap().success());
    world.notices("other.py", WORKER);
    let memory = most_memory(world.daemon_pid());
    println!(
        "imasd at {:.1} MB at most, events lost {} times",
        memory as f64 / 1e6,
        world.counter("events_lost")
    );
    assert!(memory <= 20_000_000, "{memory}");
}

/// A name as long as a command line allows. The index finds it by its hash, and the store keeps its
/// beginning.
#[test]
fn a_program_with_a_long_name_is_tried_like_others_and_takes_little_room() {
    let mut world = World::new();
    world.start();
    // The main class of a Java program: the first plain word of a command named java.
    let java = world.path("work/java");
    imas_testing::copy_program(Path::new("/usr/bin/tail"), &java);
    let names = [format!("{}a", "x".repeat(100_000)), format!("{}b", "x".repeat(100_000))];
    let start = |name: &str| {
        Running(world.command(&java).args(["-f", name, "/dev/null"]).stderr(Stdio::null()).spawn().unwrap())
    };
    let running = names.each_ref().map(|name| start(name));
    let known = || world.store().programs().unwrap();
    world.wait("both programs are stored", || known().len() == 2);
    assert!(known().iter().all(|program| program.detail.len() < 1200), "their names must be shortened");
    for program in known() {
        world.wait("a trial is on offer", || world.offer(&program).is_some());
    }
    drop(running);
    let program = known().remove(0);
    let token = world.offer(&program).unwrap().1;
    let _trials = names.each_ref().map(|name| start(name));
    let page = world.pages().join(format!("{token:016x}.page"));
    world.wait("the hook finds its entry", || page.exists());
}

/// Where one user owns everything, the limit of programs applies to that user: no program is forgotten to
/// make room for a new one.
#[test]
fn the_limit_of_programs_holds_where_everything_is_one_owners() {
    let mut world = World::with(
        "worth_cpu_s = 0.0\nworth_life_s = 0.1\nmost_programs = 3\ncandidates = [\"jemalloc\"]\n",
    );
    world.start();
    let scripts: Vec<_> = (0..5).map(|number| world.script(&format!("p{number}.py"), WORKER)).collect();
    let _running: Vec<_> = scripts.iter().map(|script| world.linger(script)).collect();
    world.wait("further programs are refused", || world.counter("programs_refused") >= 2);
    assert_eq!(world.store().programs().unwrap().len(), 3);
}
