// SPDX-License-Identifier: Apache-2.0
//! A program that the kernel kills at the memory limit of its control group is noted as such; whether it counts
//! against its candidate is for Fisher's test (docs/decisions/0019).

use std::os::unix::process::ExitStatusExt;

use imas_core::sample::Ended;
use imas_testing::{Group, skipped};

use crate::support::{World, built, describe, list, output, real};

/// A control group with little memory.
fn small_group() -> Option<Group> {
    let group = Group::new(&format!("imas-test-memory-{}", std::process::id()))?;
    std::fs::write(group.0.join("memory.max"), "67108864").ok()?;
    let _ = std::fs::write(group.0.join("memory.swap.max"), "0"); // without swap there is no such file
    Some(group)
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
    world.check(["harvest"]).success();
    let ends: Vec<_> =
        world.trials().into_iter().map(|trial| (trial.sample.candidate, trial.sample.ended)).collect();
    assert!(ends.contains(&("mimalloc".to_owned(), Ended::OutOfMemory)), "{ends:?}");
    let explained = world.json(["explain", tail.to_str().unwrap(), "--json"]);
    assert!(list(&explained, "/quarantined").is_empty(), "one kill proves nothing: {explained:#}");
    let left = std::fs::read_dir(world.pages()).unwrap().flatten();
    let notes = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "kills"));
    assert_eq!(notes.count(), 0);
}
