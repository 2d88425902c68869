// SPDX-License-Identifier: Apache-2.0
//! `imas bench --least-memory`: a real server within real limits of memory.

use std::path::{Path, PathBuf};

use crate::support::{World, assert_hinted, describe, list, output, parsed, real, stderr};
use imas_testing::skipped;

/// Holds the MiB of its second argument for each request, one after the other, and is ready from the start on.
const SERVER: &str = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("listening", file=sys.stderr, flush=True)
while True:
    taken, _ = listener.accept()
    if taken.recv(1):
        held = bytearray(b"x") * (int(sys.argv[2]) << 20)
        taken.sendall(b"y")
        del held
    taken.close()
"#;
/// The rate is one figure, so that no machine is too busy for it.
const LOAD: &str = r#"
import os, socket, sys
for _ in range(3):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as server:
        server.sendall(b"x")
        assert server.recv(1) == b"y"
with open(os.environ["IMAS_METRICS"], "a") as file:
    file.write("rate 100 1/s higher\n")
"#;
const HELD_MIB: u64 = 64;

/// Folders of control groups that a bench has left.
fn groups_left() -> Vec<PathBuf> {
    fn below(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if depth == 0 || !path.is_dir() {
                continue;
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("imas-service-") || name.starts_with("imas-bench-") {
                found.push(path.clone());
            }
            below(&path, depth - 1, found);
        }
    }
    let mut found = vec![];
    below(Path::new("/sys/fs/cgroup"), 4, &mut found);
    found
}

#[test]
fn a_server_works_in_what_it_holds_and_in_no_less() {
    let (world, python) = (World::new(), real("python3").to_string_lossy().into_owned());
    let script = |name: &str, text: &str| {
        let path = world.work().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    };
    let (server, load) = (script("server.py", SERVER), script("load.py", LOAD));
    let held = HELD_MIB.to_string();
    let words =
        "bench --json --least-memory --idle 0 --cycles 1 --ready tcp:$PORT --with glibc:arena1 --load";
    let mut bench = world.imas(words.split(' '));
    let done =
        output(bench.args([&format!("{python} {load} $PORT"), "--", &python, &server, "$PORT", &held]));
    if stderr(&done).contains("no control group with a limit of memory can be made") {
        assert_hinted(&done, "systemd-run");
        return skipped("no control group with a limit of memory can be made here");
    }
    assert!(done.status.success(), "{}", describe(&done));
    let report = parsed(&done);
    let system = &list(&report, "/candidates")[0];
    let least = system["end"]["found"].as_u64().unwrap_or_else(|| panic!("{report:#}")) >> 20;
    // An interpreter, and less than half as much again for pages of files.
    assert!((HELD_MIB..=HELD_MIB + 48).contains(&least), "{least} MiB: {system:#}");
    let runs = system["runs"].as_array().unwrap();
    let killed = runs.iter().filter(|run| run["end"] == "killed").filter_map(|run| run["limit"].as_u64());
    assert!(killed.max().is_some_and(|limit| limit >> 20 < least), "{system:#}");
    let suggested = report["suggestion"]["limit_bytes"].as_u64().unwrap();
    assert!(suggested >> 20 >= least * 11 / 10, "{report:#}");
    // A malloc of one arena holds no less of one large block.
    assert!(list(&report, "/candidates").len() == 2, "{report:#}");
    let is_dead = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('-').nth(2).is_some_and(|pid| !Path::new("/proc").join(pid).exists())
    };
    let left: Vec<PathBuf> = groups_left().into_iter().filter(is_dead).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_least_limit_is_of_a_server() {
    let world = World::new();
    assert_hinted(&output(&mut world.imas(["bench", "--least-memory", "--", "true"])), "is for a server");
}
