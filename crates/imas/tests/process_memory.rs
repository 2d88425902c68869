// SPDX-License-Identifier: Apache-2.0
//! Running processes by their memory: `imas explain --pid` by its use, workers that are forked without exec; `imas advise`
//! without any trial: running processes whose glibc holds free pages, and one whose arenas are many and full. A program that
//! the kernel kills at the memory limit of its control group is noted as such; whether it counts against its candidate is for
//! Fisher's test (docs/decisions/0019).
//!
//! Then `imas explain PID --leaks` on programs whose memory is known: a leak, a cache, blocks that were freed, blocks that
//! come and go. `bench/held` has fifty of them.

use std::os::unix::process::ExitStatusExt;
use std::process::Child;
use std::time::Instant;

use imas_core::sample::Ended;
use imas_testing::{Group, end_piped, skipped, start_piped};
use serde_json::Value;

use crate::support::{
    World, built, describe, lib_dir, list, looked_at, output, parsed, real, stdout, succeeded, wait_until,
};

/// Keeps 120 MB in blocks of 1000 bytes from malloc. With an argument it frees all but every eighth. Then it
/// writes a letter, and ends when its standard input is closed.
const KEEPER: &str = r"
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(1000) for _ in range(120000)]
for block in blocks: libc.memset(block, 1, 1000)
if sys.argv[1] == 'free':
    for at, block in enumerate(blocks):
        if at % 8: libc.free(block)
print('x', flush=True); sys.stdin.read()
";

fn explained(world: &World, pid: u32) -> (Value, String) {
    let pid = pid.to_string();
    let json = output(&mut world.imas(["explain", "--json", "--pid", &pid]));
    let page = stdout(&output(&mut world.imas(["explain", "--pid", &pid])));
    (parsed(&json), page)
}

#[test]
fn what_is_live_is_read_without_a_trial() {
    let world = World::new();
    for (argument, verdict, live) in [("keep", "live", 122e6), ("free", "fragmentation", 20e6)] {
        let child = start_piped(world.command(real("python3")).args(["-c", KEEPER, argument]));
        let memory = looked_at(|| explained(&world, child.id()).0);
        let mut page = String::new();
        wait_until("the page has its heaps", || {
            page = explained(&world, child.id()).1;
            page.contains("glibc holds")
        });
        end_piped(child);
        let resident = &memory["resident"];
        assert!(resident["heap"].as_u64().unwrap() > 110_000_000, "{memory:#}");
        assert!(resident["files"].as_u64().unwrap() > 1_000_000, "{memory:#}");
        assert!(memory["verdict"] == verdict && memory["live_bytes"].is_null(), "{memory:#}");
        let found = memory["heaps"]["bytes"]["live"].as_f64().unwrap();
        assert!((found - live).abs() < 8e6, "{memory:#}");
        assert_eq!(memory["candidate"], "system", "{memory:#}");
        assert!(page.contains("live blocks of glibc's malloc"), "{page}");
    }
}

/// Each of them counts what a program holds that frees nothing, or all but every eighth block.
#[test]
fn other_allocators_are_asked_by_their_own_counters() {
    let world = World::new();
    let cases = [("mimalloc", "mimalloc"), ("jemalloc", "jemalloc"), ("tcmalloc", "tcmalloc (gperftools)")];
    for (library, name) in cases {
        for (argument, least) in [("keep", 120e6), ("free", 15e6)] {
            let file = format!("lib{library}.so");
            let mut command = world.command(real("python3"));
            let preload = lib_dir().join("allocators").join(&file);
            let child = start_piped(command.args(["-c", KEEPER, argument]).env("LD_PRELOAD", preload));
            let (memory, page) = explained(&world, child.id());
            end_piped(child);
            assert_eq!(memory["heaps"], Value::Null, "{memory:#}");
            let heap = list(&memory, "/allocators").iter().find(|heap| heap["name"] == name);
            let heap = heap.unwrap_or_else(|| panic!("{name}: {memory:#}"));
            let live = heap["live"].as_f64().unwrap_or_else(|| panic!("{name}: {memory:#}"));
            // The interpreter has some itself; caches of gperftools count as live.
            let most = if name.starts_with("tcmalloc") { 135e6 } else { least * 1.1 + 12e6 };
            assert!(live > least && live < most, "{name} {argument}: {live}: {memory:#}");
            assert!(page.contains(&format!("live blocks of {name} in {file}")), "{page}");
            let verdict = memory["verdict"].as_str().unwrap();
            // Pages that jemalloc has not returned yet are not counted: they might be somebody else's.
            let expected = match (live > 100e6, name) {
                (true, _) => "live",
                (false, "jemalloc") => "unknown",
                (false, _) => "fragmentation",
            };
            assert_eq!(verdict, expected, "{name} {argument}: {memory:#}");
        }
    }
}

#[test]
fn an_allocator_whose_counters_are_not_known_has_a_name() {
    let world = World::new();
    let library = lib_dir().join("allocators/libhoard.so");
    let mut command = world.command(real("python3"));
    let child = start_piped(command.args(["-c", KEEPER, "keep"]).env("LD_PRELOAD", &library));
    let (memory, page) = explained(&world, child.id());
    end_piped(child);
    assert_eq!((&memory["verdict"], &memory["heaps"]), (&"unknown".into(), &Value::Null), "{memory:#}");
    assert!(page.contains("never used in it: another one serves it (libhoard.so is loaded)"), "{page}");
    assert!(
        page.contains("what is live in libhoard.so is not known: its counters cannot be found"),
        "{page}"
    );
    assert!(page.contains("heaps of libhoard.so"), "{page}");
}

#[test]
fn in_a_trial_free_blocks_are_fragmentation_and_live_ones_are_not() {
    let world = World::new();
    world.tests_six("");
    for (argument, verdict) in [("free", "fragmentation"), ("keep", "live")] {
        let words = ["run", "--retest", "0", "--", "/usr/bin/python3", "-c", KEEPER, argument];
        let child = start_piped(&mut world.imas(words));
        let (memory, page) = explained(&world, child.id());
        end_piped(child);
        assert_eq!(memory["verdict"], verdict, "{memory:#}");
        let live = memory["live_bytes"].as_f64().unwrap();
        let expected = if argument == "free" { 120e6 / 8.0 } else { 120e6 };
        assert!(live > expected * 0.9 && live < expected * 1.3 + 10e6, "{live} {memory:#}");
        assert!(page.contains("live blocks"), "{page}");
    }
}

#[test]
fn the_parts_add_up_and_have_names() {
    let world = World::new();
    let child = start_piped(world.command(real("python3")).args(["-c", KEEPER, "free"]));
    let memory = looked_at(|| explained(&world, child.id()).0);
    let page = stdout(&output(&mut world.imas(["explain", &child.id().to_string()])));
    end_piped(child);
    let parts = list(&memory, "/parts");
    let sum: u64 = parts.iter().map(|part| part["resident_bytes"].as_u64().unwrap()).sum();
    assert!(sum.abs_diff(memory["resident_bytes"].as_u64().unwrap()) < 4 << 20, "{memory:#}");
    assert!(memory["named_share"].as_f64().unwrap() > 0.95, "{memory:#}");
    assert!(parts.is_sorted_by_key(|part| std::cmp::Reverse(part["resident_bytes"].as_u64())), "{memory:#}");
    assert!(page.contains("free blocks of glibc's malloc in whole pages"), "{page}");
    assert_eq!(memory["objects"][0]["runtime"], "CPython", "{memory:#}");
}

/// CPython's own figures are written before it waits.
#[test]
fn objects_of_cpython_are_counted_as_it_counts_them() {
    let script = "import sys; x = [str(i) * 3 for i in range(200000)]; del x[::3]\n\
                  sys._debugmallocstats(); print('x', flush=True); sys.stdin.read()";
    let world = World::new();
    let mut command = world.command(real("python3"));
    let child = start_piped(command.args(["-c", script]).stderr(std::process::Stdio::piped()));
    let memory = explained(&world, child.id()).0;
    let mut own = String::new();
    let mut child = child;
    drop(child.stdin.take());
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut own).unwrap();
    child.wait().unwrap();
    let figure = |name: &str| -> f64 {
        let line = own.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{own}"));
        line.rsplit(' ').next().unwrap().replace(',', "").parse().unwrap()
    };
    let heap = &memory["objects"][0];
    for (found, name) in [("live", "# bytes in allocated blocks"), ("free", "# bytes in available blocks")] {
        let (found, own) = (heap[found].as_f64().unwrap(), figure(name));
        assert!(
            (found - own).abs() <= own * 0.02 + 65536.0,
            "{name}: {found}, its own figure {own}: {memory:#}"
        );
    }
}

#[test]
fn a_process_that_does_not_exist_is_an_error_that_names_the_way_out() {
    let world = World::new();
    let gone = output(&mut world.imas(["explain", "--pid", "4194304"]));
    let said = describe(&gone);
    assert!(!gone.status.success() && said.contains("process 4194304 does not exist"), "{said}");
    assert!(!said.contains("sudo"), "root finds none either: {said}");
    let none = output(&mut world.imas(["explain"]));
    assert_eq!(none.status.code(), Some(2), "{}", describe(&none));
}

#[test]
fn a_process_that_is_over_or_the_kernels_is_said_to_be_so() {
    let world = World::new();
    let explained = |pid: u32| describe(&output(&mut world.imas(["explain", "--pid", &pid.to_string()])));
    let mut over = std::process::Command::new("true").spawn().unwrap();
    wait_until("it is known to have ended", || explained(over.id()).contains(" has ended"));
    over.wait().unwrap();
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name.trim() != "kthreadd" {
        return skipped("no thread of the kernel is seen here");
    }
    let said = explained(2);
    assert!(said.contains("process 2 is a thread of the kernel") && !said.contains("sudo"), "{said}");
}

/// A line answers whether the set-up works.
#[test]
fn a_line_says_whether_imas_is_active_and_by_what() {
    let world = World::new();
    world.tests_six("");
    let python = real("python3");
    let python = python.to_str().unwrap();
    let waits = ["-c", "import sys; print('x', flush=True); sys.stdin.read()"];
    let library = lib_dir().join("allocators/libmimalloc.so");
    let preloaded = format!("LD_PRELOAD={}", library.display());
    let cases: [(&[&str], &str, &str); 4] = [
        (&["env", python], "no, glibc's malloc serves", "c-library"),
        (&["env", &preloaded, python], "preloaded by LD_PRELOAD and not by IMAS", "preload"),
        (
            &["IMAS", "run", "--candidate", "mimalloc", "--", python],
            "yes, mimalloc serves, set by IMAS for production",
            "guard",
        ),
        (&["IMAS", "run", "--retest", "0", "--", python], "in a trial", "trial"),
    ];
    for (words, says, by) in cases {
        let program = if words[0] == "IMAS" { crate::support::built("imas") } else { words[0].into() };
        let child = start_piped(world.command(program).args(&words[1..]).args(waits));
        let (json, page) = explained(&world, child.id());
        end_piped(child);
        let line = page.lines().find(|line| line.starts_with("is IMAS active here: ")).unwrap_or_default();
        assert!(line.contains(says), "{words:?}: {page}");
        assert_eq!(json["active"]["by"], by, "{json:#}");
    }
}

/// Sixteen threads that each take 8 MB in blocks of 1000 bytes, and with an argument free most of them. The program
/// prints a line when they have, and ends when its standard input is closed.
const THREADS: &str = r"
import ctypes, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
stay = threading.Barrier(17)
def work():
    stay.wait()
    blocks = [libc.malloc(1000) for _ in range(8000)]
    for block in blocks: libc.memset(block, 1, 1000)
    if sys.argv[1] == 'free':
        for at, block in enumerate(blocks):
            if at % 100: libc.free(block)
    stay.wait(); stay.wait()
[threading.Thread(target=work).start() for _ in range(16)]
stay.wait(); stay.wait(); print('x', flush=True); sys.stdin.read(); stay.wait()
";

fn threads(world: &World, what: &str) -> Child {
    start_piped(world.command(real("python3")).args(["-c", THREADS, what]))
}

/// The row of the process.
fn row_of(advice: &Value, pid: u32) -> Option<&Value> {
    list(advice, "/heaps").iter().find(|row| row["pid"] == pid)
}

/// Advice that has a row of the process. On a busy machine the time for looks at processes may be over before
/// its turn, and the time of the look at its heaps before all are read; after a minute an estimate will do.
fn advised(world: &World, pid: u32, is_first: bool) -> Value {
    let (begun, limit) = (Instant::now(), imas_testing::deadline(60));
    let mut advice = Value::Null;
    wait_until("its heaps are read", || {
        if is_first {
            let _ = std::fs::remove_file(world.store_path().with_extension("advise.json"));
        }
        advice = parsed(&output(&mut world.imas(["advise", "--json"])));
        row_of(&advice, pid).is_some_and(|row| {
            let is_whole = row["heaps"]["read"] == row["heaps"]["held"] || begun.elapsed() > limit;
            is_whole && (is_first || !row["growth"].is_null())
        })
    });
    advice
}

#[test]
fn free_pages_are_reported_and_full_arenas_are_not() {
    let world = World::new();
    let (free, full) = (threads(&world, "free"), threads(&world, "keep"));
    let (pid, other) = (free.id(), full.id());
    let advice = advised(&world, pid, true);
    let mut page = String::new();
    wait_until("the page has it", || {
        page = stdout(&output(&mut world.imas(["advise"])));
        page.contains(&format!("(pid {pid}, "))
    });
    let again = advised(&world, pid, false);
    end_piped(free);
    end_piped(full);
    let row = row_of(&advice, pid).unwrap();
    let bytes = &row["heaps"]["bytes"];
    assert!(bytes["returnable"].as_f64().unwrap() > 90e6 && row["threads"] == 17, "{row:#}");
    assert!(bytes["live"].as_f64().unwrap() < 20e6, "{row:#}");
    assert_eq!(row_of(&advice, other), None, "its arenas are as many, and full");
    assert!(row["growth"].is_null(), "growth needs two measurements: {row:#}");
    let row = row_of(&again, pid).unwrap();
    assert!(
        row["growth"]["bytes"].as_f64().unwrap().abs() < 1e6,
        "the program allocates nothing now: {row:#}"
    );
    assert!(page.contains("in whole resident pages"), "{page}");
    assert!(page.contains("--candidate glibc:arena1"), "{page}");
}

const FORKS: &str = "
import os, sys
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    os.read(r, 1)
    os._exit(0)
print('x', flush=True)
sys.stdin.read()
os.close(w)
os.wait()
";

#[test]
fn workers_that_only_fork_are_counted() {
    let world = World::new();
    let script = world.work().join("server.py");
    std::fs::write(&script, format!("#!{}\n{FORKS}", real("python3").display())).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    succeeded(output(world.imas(["pin"]).arg(&script).arg("hoard")));
    let explain = || stdout(&output(world.imas(["explain"]).arg(&script)));
    assert!(!explain().contains("workers"), "no worker runs");
    let server = start_piped(world.command(real("python3")).arg(&script));
    // On a busy machine the time for looks at processes may be over before both were looked at.
    let counted = "1 of its 2 running processes are workers that were forked";
    wait_until("both are looked at", || explain().contains(counted));
    end_piped(server);
}

/// A control group with little memory.
fn small_group() -> Option<Group> {
    let group = Group::new(&format!("imas-test-memory-{}", std::process::id()))?;
    std::fs::write(group.0.join("memory.max"), "67108864").ok()?;
    let _ = std::fs::write(group.0.join("memory.swap.max"), "0"); // without swap there is no such file
    Some(group)
}

/// A control group of either version; `limit` is in bytes.
fn limited_group(limit: u64) -> Option<Group> {
    let name = format!("imas-test-fit-{}-{limit}", std::process::id());
    let first = || {
        let folder = std::path::Path::new("/sys/fs/cgroup/memory").join(&name);
        std::fs::create_dir(&folder).ok().map(|()| Group(folder))
    };
    let set = |group: Group, file: &str| {
        std::fs::write(group.0.join(file), limit.to_string()).is_ok().then_some(group)
    };
    let second = Group::new(&name).and_then(|group| set(group, "memory.max"));
    second.or_else(|| set(first()?, "memory.limit_in_bytes"))
}

/// Node.js is given an old space that does not fit its group, and one that does.
#[test]
fn a_heap_that_does_not_fit_the_limit_is_the_verdict() {
    const MIB: u64 = 1 << 20;
    let Some(group) = limited_group(256 * MIB) else {
        return skipped("no control group with a limit can be made");
    };
    let world = World::new();
    let script = "process.stdout.write('x\\n'); process.stdin.resume()";
    for (old_space, fit) in [(255, "too-large"), (64, "fits")] {
        let inside = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", group.0.display());
        let mut command = world.command("/bin/sh");
        command.args(["-c", &inside, "sh"]).arg(real("node"));
        let child =
            start_piped(command.arg(format!("--max-old-space-size={old_space}")).args(["-e", script]));
        let (memory, page) = explained(&world, child.id());
        let advice = parsed(&output(&mut world.imas(["advise", "--json"])));
        let advised = output(&mut world.imas(["advise"]));
        end_piped(child);
        let limit = &memory["limit"];
        assert_eq!(limit["limit"], 256 * MIB, "{memory:#}");
        assert_eq!(
            (&limit["fit"], &limit["heap_limit"]),
            (&fit.into(), &(old_space * MIB).into()),
            "{memory:#}"
        );
        assert!(limit["highest"].as_u64().unwrap() > MIB, "{memory:#}");
        let row = list(&advice, "/limits").iter().find(|row| row["pid"] == memory["pid"]);
        // A machine with swap would swap first.
        let warning = " when its heap fills: heap 255 MiB (100 % of the limit), ";
        let is_warned = old_space == 255;
        assert_eq!(memory["verdict"] == "over-limit", is_warned, "{memory:#}");
        assert_eq!(page.lines().next().unwrap().contains(warning), is_warned, "{page}");
        assert_eq!(row.is_some(), is_warned, "{advice:#}");
        assert_eq!(stdout(&advised).contains(warning), is_warned, "{}", describe(&advised));
        assert!(page.contains("limit of its control group: 256 MiB, "), "{page}");
    }
}

#[test]
fn a_start_that_is_killed_at_its_memory_limit_is_known_as_one() {
    let Some(group) = small_group() else { return skipped("no control group with a limit can be made") };
    let world = World::new();
    world.tests_six("");
    // It reads a line that never ends.
    let tail = real("tail");
    world.check(["pin", tail.to_str().unwrap(), "mimalloc"]).success();
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
    let mut inside = world.command("/bin/sh");
    inside.args(["-c", script]).arg(&group.0).arg(built("imas")).args(["run", "--"]).arg(&tail);
    let killed = output(inside.arg("/dev/zero"));
    assert_eq!(killed.status.signal(), Some(9), "{}", describe(&killed));
    world.ingest();
    let ends: Vec<_> =
        world.trials().into_iter().map(|trial| (trial.sample.candidate, trial.sample.ended)).collect();
    assert!(ends.contains(&("mimalloc".to_owned(), Ended::OutOfMemory)), "{ends:?}");
    let explained = world.json(["explain", tail.to_str().unwrap(), "--json"]);
    assert!(list(&explained, "/quarantined").is_empty(), "one kill proves nothing: {explained:#}");
    let left = std::fs::read_dir(world.pages()).unwrap().flatten();
    let notes = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "kills"));
    assert_eq!(notes.count(), 0);
}

/// Holds 10 MB of blocks from malloc in a table, writes a letter, and does one thing with more of them for ever.
const HOLDER: &str = r"
import ctypes, sys, threading, time
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def fresh(size=264):
    block = libc.malloc(size)
    libc.memset(block, 7, size)
    return block
table = (ctypes.c_void_p * 1000000)(*[fresh(1000) for _ in range(10000)])
mode, used = sys.argv[1], 10000
if mode == 'freed':
    for at in range(10000, 60000): table[at] = fresh(1000)
    for at in range(60000):
        if at % 8: libc.free(table[at]); table[at] = None
if mode == 'slow':
    for _ in range(10000): libc.malloc(4096)
print('x', flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0)), daemon=True).start()
while True:
    if mode == 'slow': libc.malloc(4096); time.sleep(0.02); continue
    for _ in range(100):
        if mode == 'leak': fresh()
        elif mode == 'cache': table[used] = fresh(); used += 1
        elif mode == 'churn':
            at = 10000 + used % 2000; used += 1
            libc.free(table[at]); table[at] = fresh()
    time.sleep(0.01)
";

fn watched(world: &World, pid: u32, more: &[&str]) -> Value {
    let pid = pid.to_string();
    let words = [&["explain", &pid, "--leaks", "--json"], more].concat();
    parsed(&output(&mut world.imas(words)))["growth"].clone()
}

/// The answer for a program, once it is this one: a busy machine lets a program grow slowly.
fn says(mode: &str, verdict: &str) -> Value {
    let world = World::new();
    let child = start_piped(world.command(real("python3")).args(["-c", HOLDER, mode]));
    let mut growth = Value::Null;
    wait_until(&format!("{mode} is {verdict}"), || {
        growth = watched(&world, child.id(), &["--for", "3s"]);
        assert!(verdict == "leak" || growth["verdict"] != "leak", "a false leak: {growth:#}");
        growth["verdict"] == verdict
    });
    end_piped(child);
    growth
}

#[test]
fn blocks_that_nothing_points_to_are_a_leak() {
    let growth = says("leak", "leak");
    let sentence = growth["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("leak: ") && sentence.contains("blocks of 272 bytes"), "{growth:#}");
    let leak = &growth["search"]["leaks"][0];
    assert_eq!((&leak["block_bytes"], &growth["search"]["looks"]), (&272.into(), &4.into()), "{growth:#}");
    let (leaked, live) = (&leak["new_bytes"], &growth["search"]["live"]);
    let grown = live[1].as_f64().unwrap() - live[0].as_f64().unwrap();
    assert!(
        (leaked.as_f64().unwrap() / grown - 1.0).abs() < 0.2,
        "as much as malloc's live bytes: {growth:#}"
    );
}

/// Much is lost and little of it is new. The heap of Debian's interpreter lies at low addresses, so that many numbers at
/// uneven places look like pointers into it: they come in with the third look.
#[test]
fn a_slow_leak_beside_much_lost_memory_is_one() {
    let growth = says("slow", "leak");
    assert!(growth["sentence"].as_str().unwrap().contains("blocks of 4112 bytes"), "{growth:#}");
    assert!(growth["search"]["lost_bytes"].as_u64().unwrap() > 30_000_000, "{growth:#}");
}

#[test]
fn blocks_that_a_table_points_to_are_a_cache() {
    let growth = says("cache", "reached");
    let sentence = growth["sentence"].as_str().unwrap();
    assert!(sentence.starts_with("grows, and is reached: a cache or a list ("), "{growth:#}");
    assert!(growth["search"]["leaks"].as_array().unwrap().is_empty(), "{growth:#}");
}

#[test]
fn free_blocks_and_blocks_that_come_and_go_are_no_leak() {
    let growth = says("freed", "fragmentation");
    assert!(
        growth["sentence"].as_str().unwrap().contains(" % is free: fragmentation, 'imas trim "),
        "{growth:#}"
    );
    says("churn", "steady");
}

#[test]
fn the_page_begins_with_the_verdict_and_a_time_alone_needs_no_search() {
    let world = World::new();
    let child = start_piped(world.command(real("python3")).args(["-c", HOLDER, "leak"]));
    let pid = child.id().to_string();
    wait_until("the page begins with the leak", || {
        let page = stdout(&output(&mut world.imas(["explain", &pid, "--leaks", "--for", "3s"])));
        page.starts_with("leak: ") && page.contains("blocks of 272 bytes, nothing points to")
    });
    let alone = parsed(&output(&mut world.imas(["explain", &pid, "--for", "2s", "--json"])));
    assert!(
        alone["growth"]["search"].is_null() && alone["growth"]["seconds"].as_f64().unwrap() >= 2.0,
        "{alone:#}"
    );
    end_piped(child);
    let none = parsed(&output(&mut world.imas(["explain", &std::process::id().to_string(), "--json"])));
    assert!(none["growth"].is_null(), "{none:#}");
}

#[test]
fn what_cannot_be_searched_has_a_reason_and_the_rest_is_shown() {
    let world = World::new();
    let mut command = world.command(real("python3"));
    let library = crate::support::lib_dir().join("allocators/libmimalloc.so");
    if !library.exists() {
        return skipped("libmimalloc.so was not built");
    }
    let child = start_piped(command.args(["-c", HOLDER, "leak"]).env("LD_PRELOAD", &library));
    let page =
        stdout(&output(&mut world.imas(["explain", &child.id().to_string(), "--leaks", "--for", "1s"])));
    end_piped(child);
    assert!(page.starts_with("not known: ") && page.contains("libmimalloc.so"), "{page}");
    assert!(page.contains("resident memory"), "the rest is there: {page}");
    let program = output(&mut world.imas(["explain", "/usr/bin/python3", "--leaks"]));
    assert!(!program.status.success(), "{}", describe(&program));
}
