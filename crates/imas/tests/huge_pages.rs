// SPDX-License-Identifier: Apache-2.0
//! Huge pages as a candidate: programs that print what the kernel says of them, dynamic and static.

use std::path::Path;

use crate::support::build::program_with;
use crate::support::{
    World, assert_hinted, candidate, output, parsed, printed, real, stderr, stdout, succeeded,
};

/// The line of a process without huge pages.
const OFF: &str = "THP_enabled:\t0\n";
const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Whether `thp:off` acts on this machine.
fn is_offered() -> bool {
    let mode = std::fs::read_to_string(FILE).unwrap_or_default();
    mode.contains("[always]") || mode.contains("[madvise]")
}

fn of_this_process() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find(|line| line.starts_with("THP_enabled:"))
        .map_or_else(String::new, |line| format!("{line}\n"))
}

#[test]
fn a_program_has_no_huge_pages_and_sees_nothing_else() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let (sh, print) =
        (real("sh"), "grep THP_enabled /proc/self/status; env; grep -c imas /proc/self/maps; true");
    let run = |candidate: &str| {
        let mut imas = world.imas(["run", "--candidate", candidate, "--"]);
        printed(&output(imas.arg(&sh).args(["-c", print])))
    };
    let (with, without) = (run("thp:off"), run("system"));
    assert!(with.starts_with(OFF), "{with}");
    assert!(without.starts_with(&of_this_process()), "{without}");
    assert_eq!(with.strip_prefix(OFF), without.strip_prefix(&of_this_process()), "environment and mappings");
    assert!(with.ends_with("\n0\n"), "nothing of ours is loaded: {with}");
}

#[test]
fn a_static_program_is_started_and_measured_without_huge_pages() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let program = program_with("cc", "thp", &["-static"], &world.work().join("thp"));
    let shown = output(world.imas(["run", "--candidate", "thp:off", "--"]).arg(&program));
    assert_eq!(stdout(&shown), OFF, "{}", stderr(&shown));
    let seen = world.work().join("seen");
    std::fs::write(&seen, "").unwrap();
    let line = format!("{} >>{}", program.display(), seen.display());
    let words = ["bench", "-n", "1", "-w", "0", "--json", "--with", "thp:off", "--"];
    let done = succeeded(output(world.imas(words).arg(real("sh")).args(["-c", &line])));
    candidate(&parsed(&done), "thp:off");
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains(OFF) && seen.contains(&of_this_process()), "{seen}");
    let direct = succeeded(output(world.imas(words).arg(&program)));
    candidate(&parsed(&direct), "thp:off");
}

/// The second start reads the small file of the first.
#[test]
fn a_pinned_program_has_none_at_each_start() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let program = program_with("cc", "thp", &[], &world.work().join("thp"));
    succeeded(output(world.imas([Path::new("pin"), &program, Path::new("thp:off")]).env("NO_COLOR", "1")));
    for start in ["first", "second"] {
        let shown = world.start([&program]);
        assert_eq!(stdout(&shown), OFF, "{start}: {}", stderr(&shown));
    }
}

#[test]
fn what_no_variable_sets_is_refused_with_the_way() {
    let world = World::new();
    let list = printed(&output(&mut world.imas(["list"])));
    assert!(list.contains("thp:off") && list.contains("thp:advised"), "{list}");
    if is_offered() {
        assert_hinted(
            &output(&mut world.imas(["env", "--candidate", "thp:off"])),
            "no variable sets the huge pages",
        );
    }
    let mode = std::fs::read_to_string(FILE).unwrap_or_default();
    if mode.contains("[madvise]") {
        let refused = output(&mut world.imas(["run", "--candidate", "thp:advised", "--", "true"]));
        assert!(stderr(&refused).contains("only where they are asked for"), "{}", stderr(&refused));
    }
}
