// SPDX-License-Identifier: Apache-2.0
//! `imas advise` without any trial: a running process whose threads have arenas of their own.

use std::process::Child;

use crate::support::{World, describe, list, output, piped, real, stdout};
use serde_json::Value;

/// Sixteen threads that each keep 8 MB in blocks of 1000 bytes. The program prints a line when they have, and
/// ends when its standard input is closed.
const THREADS: &str = r"
import ctypes, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.malloc.argtypes = [ctypes.c_size_t]
stay = threading.Barrier(17)
def work():
    stay.wait()
    for _ in range(8000):
        libc.memset(libc.malloc(1000), 1, 1000)
    stay.wait(); stay.wait()
[threading.Thread(target=work).start() for _ in range(16)]
stay.wait(); stay.wait(); print('x', flush=True); sys.stdin.read(); stay.wait()
";

fn threads(world: &World, setting: Option<&str>) -> Child {
    let mut command = world.command(real("python3"));
    command.args(["-c", THREADS]);
    if let Some(most) = setting {
        command.env("MALLOC_ARENA_MAX", most);
    }
    piped::start(&mut command)
}

#[test]
fn many_arenas_are_reported_and_two_are_not() {
    let world = World::new();
    let (many, two) = (threads(&world, None), threads(&world, Some("2")));
    let json = output(&mut world.imas(["advise", "--json"]));
    let page = stdout(&output(&mut world.imas(["advise"])));
    let again = output(&mut world.imas(["advise", "--json"]));
    let (pid, other) = (many.id(), two.id());
    piped::end(many);
    piped::end(two);
    let advice: Value =
        serde_json::from_slice(&json.stdout).unwrap_or_else(|error| panic!("{error}: {}", describe(&json)));
    let rows = list(&advice, "/arenas");
    let of = |pid: u32| rows.iter().find(|row| row["pid"] == pid);
    // With one CPU, glibc makes eight arenas at most.
    let row = of(pid).unwrap_or_else(|| panic!("{advice:#}"));
    assert!(row["arenas"].as_u64().unwrap() >= 7, "{row}");
    assert!(row["arena_bytes"].as_f64().unwrap() > 50e6 && row["threads"] == 17, "{row}");
    let estimate = row["estimate_bytes"].as_f64().unwrap();
    assert!(estimate > 8e6 && estimate < row["arena_bytes"].as_f64().unwrap() / 2.0, "{row}");
    assert_eq!(of(other), None, "the number of its arenas was set already");
    assert!(row["growth"].is_null(), "growth needs two measurements: {row}");
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    let row = list(&again, "/arenas").iter().find(|row| row["pid"] == pid).unwrap();
    assert!(row["growth"]["bytes"].as_f64().unwrap().abs() < 1e6, "the program allocates nothing now: {row}");
    assert!(page.contains(&format!("(pid {pid})")) && page.contains("an estimate, not measured"), "{page}");
}
