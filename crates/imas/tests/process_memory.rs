// SPDX-License-Identifier: Apache-2.0
//! `imas explain --pid`: the memory of a running process by its use.

use crate::support::{World, describe, lib_dir, looked_at, output, parsed, piped, real, stdout, wait_until};
use serde_json::Value;

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
        let child = piped::start(world.command(real("python3")).args(["-c", KEEPER, argument]));
        let memory = looked_at(|| explained(&world, child.id()).0);
        let mut page = String::new();
        wait_until("the page has its heaps", || {
            page = explained(&world, child.id()).1;
            page.contains("glibc holds")
        });
        piped::end(child);
        let resident = &memory["resident"];
        assert!(resident["heap"].as_u64().unwrap() > 110_000_000, "{memory:#}");
        assert!(resident["files"].as_u64().unwrap() > 1_000_000, "{memory:#}");
        assert!(memory["verdict"] == verdict && memory["live_bytes"].is_null(), "{memory:#}");
        let found = memory["heaps"]["bytes"]["live"].as_f64().unwrap();
        assert!((found - live).abs() < 8e6, "{memory:#}");
        assert_eq!(memory["candidate"], "system", "{memory:#}");
        assert!(page.contains("[heap]"), "{page}");
    }
}

#[test]
fn a_heap_of_another_allocator_is_said_to_be_unreadable() {
    let world = World::new();
    let library = lib_dir().join("allocators/libmimalloc.so");
    let mut command = world.command(real("python3"));
    let child = piped::start(command.args(["-c", KEEPER, "keep"]).env("LD_PRELOAD", &library));
    let (memory, page) = explained(&world, child.id());
    piped::end(child);
    assert_eq!((&memory["verdict"], &memory["heaps"]), (&"unknown".into(), &Value::Null), "{memory:#}");
    assert!(page.contains("never used in it: another one serves it (libmimalloc.so is loaded)"), "{page}");
}

#[test]
fn in_a_trial_free_blocks_are_fragmentation_and_live_ones_are_not() {
    let world = World::new();
    world.tests_six("");
    for (argument, verdict) in [("free", "fragmentation"), ("keep", "live")] {
        let words = ["run", "--retest", "0", "--", "/usr/bin/python3", "-c", KEEPER, argument];
        let child = piped::start(&mut world.imas(words));
        let (memory, page) = explained(&world, child.id());
        piped::end(child);
        assert_eq!(memory["verdict"], verdict, "{memory:#}");
        let live = memory["live_bytes"].as_f64().unwrap();
        let expected = if argument == "free" { 120e6 / 8.0 } else { 120e6 };
        assert!(live > expected * 0.9 && live < expected * 1.3 + 10e6, "{live} {memory:#}");
        assert!(page.contains("live blocks"), "{page}");
    }
}

#[test]
fn a_process_that_does_not_exist_is_an_error_that_names_the_way_out() {
    let world = World::new();
    let gone = output(&mut world.imas(["explain", "--pid", "4194304"]));
    let said = describe(&gone);
    assert!(!gone.status.success() && said.contains("sudo imas explain --pid PID"), "{said}");
    assert!(said.contains("has ended, is the kernel's"), "root finds no program there either: {said}");
    let none = output(&mut world.imas(["explain"]));
    assert_eq!(none.status.code(), Some(2), "{}", describe(&none));
}

/// The first line answers whether the set-up works.
#[test]
fn the_first_line_says_whether_imas_is_active_and_by_what() {
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
        let child = piped::start(world.command(program).args(&words[1..]).args(waits));
        let (json, page) = explained(&world, child.id());
        piped::end(child);
        let first = page.lines().next().unwrap_or_default();
        assert!(first.starts_with("is IMAS active here: ") && first.contains(says), "{words:?}: {page}");
        assert_eq!(json["active"]["by"], by, "{json:#}");
    }
}
