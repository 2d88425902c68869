// SPDX-License-Identifier: Apache-2.0
//! imasd trims running processes by itself where `[trim]` says so, and reports it.

use std::process::Child;

use imas_testing::skipped;

use crate::support::{World, piped, python};

/// Sixteen seconds of CPU time, which pay for a trim, and 60 MB with free pages between blocks in use.
const HOLDER: &str = concat!(
    "import time\nwhile time.process_time() < 16: pass\n",
    include_str!("../../../tests/programs/holds_free.py")
);

fn holder(world: &World) -> Child {
    let mut command = world.command(&python());
    command.args(["-c", HOLDER, "blocked"]).env_remove("LD_PRELOAD");
    piped::start(&mut command)
}

#[test]
fn a_process_that_knows_nothing_of_imas_gives_back_once() {
    let mut world = World::with("trim_when_short = false\n[trim]\nevery = '1m'\nat_least = '16M'\n");
    let child = holder(&world);
    world.start();
    world.wait("it was trimmed, or cannot be", || {
        world.counter("trims_outside") > 0 || world.log().contains("is left alone")
    });
    let (trims, mib) = (world.counter("trims_outside"), world.counter("trims_returned_mib"));
    let spent_ms = world.counter("trims_spent_ms");
    let (log, status) = (world.log(), world.status());
    let page = world.imas("status").arg("--run-dir").arg(world.path("run")).output().unwrap();
    world.stop("-TERM");
    let line = format!("trim: process {} (", child.id());
    piped::end(child);
    if log.contains("may not be traced") {
        return skipped("processes cannot be traced here");
    }
    assert!(log.contains(&line) && log.contains("MiB back: thread "), "{log}");
    assert!(trims == 1 && mib >= 40 && spent_ms <= 160, "{trims} {mib} MiB {spent_ms} ms\n{log}");
    assert_eq!(status["trims_left_alone"], serde_json::json!([]), "nothing came back");
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(page.contains("trims outside 1, trims returned mib "), "{page}");
}
