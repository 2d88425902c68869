// SPDX-License-Identifier: Apache-2.0
//! `imas explain PID --leaks` on programs whose memory is known: a leak, a cache, blocks that were freed, blocks that come
//! and go. `bench/held` has fifty of them.

use imas_testing::{end_piped, skipped, start_piped};
use serde_json::Value;

use crate::support::{World, describe, output, parsed, real, stdout, wait_until};

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
    for at in range(10000):
        if at % 8: libc.free(table[at]); table[at] = None
print('x', flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), __import__('os')._exit(0)), daemon=True).start()
while True:
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
