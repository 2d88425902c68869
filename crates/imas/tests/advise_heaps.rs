// SPDX-License-Identifier: Apache-2.0
//! `imas advise` without any trial: running processes whose glibc holds free pages, and one whose arenas are many and
//! full.

use std::process::Child;
use std::time::Instant;

use serde_json::Value;

use crate::support::{World, list, output, parsed, piped, real, stdout, wait_until};

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
    piped::start(world.command(real("python3")).args(["-c", THREADS, what]))
}

/// The row of the process.
fn row_of(advice: &Value, pid: u32) -> Option<&Value> {
    list(advice, "/heaps").iter().find(|row| row["pid"] == pid)
}

/// Advice that has a row of the process. On a busy machine the time for looks at processes may be over before
/// its turn, and that of the look at its heaps before all are read; after a minute an estimate will do.
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
    piped::end(free);
    piped::end(full);
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
    assert!(page.contains("--candidate glibc:lean"), "{page}");
}
