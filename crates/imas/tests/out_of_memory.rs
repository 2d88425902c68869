// SPDX-License-Identifier: Apache-2.0
//! A program that the kernel kills at the memory limit of its control group counts against its candidate.

use std::os::unix::process::ExitStatusExt;

use imas_testing::skipped;

use crate::support::{World, built, describe, list, output, real, text};
use crate::trim::Group;

/// A control group with little memory.
fn small_group() -> Option<Group> {
    let group = Group::new(&format!("imas-test-memory-{}", std::process::id()))?;
    std::fs::write(group.0.join("memory.max"), "67108864").ok()?;
    let _ = std::fs::write(group.0.join("memory.swap.max"), "0"); // without swap there is no such file
    Some(group)
}

#[test]
fn a_start_that_is_killed_at_its_memory_limit_counts() {
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
    let explained = world.json(["explain", tail.to_str().unwrap(), "--json"]);
    let quarantined = list(&explained, "/quarantined");
    assert_eq!(quarantined.len(), 1, "{explained:#}");
    assert_eq!(text(&quarantined[0], "/candidate"), "mimalloc");
    assert_eq!(text(&quarantined[0], "/ended"), "out_of_memory");
    world.check(["harvest"]).success();
    let again = world.json(["explain", tail.to_str().unwrap(), "--json"]);
    assert_eq!(list(&again, "/quarantined").len(), 1, "it is stored: {again:#}");
    let left = std::fs::read_dir(world.pages()).unwrap().flatten();
    let notes = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "kills"));
    assert_eq!(notes.count(), 0);
}
