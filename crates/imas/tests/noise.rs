// SPDX-License-Identifier: Apache-2.0
//! `imas doctor --noise`: a real program compared with itself. The figures depend on the machine; the form of
//! the output does not.

use crate::support::{
    World, assert_refused, describe, list, output, parsed, stderr, stdout, succeeded, text,
};

const ROWS: [&str; 7] = [
    "normalised user + system seconds",
    "user + system seconds, better of two",
    "user + system seconds",
    "elapsed seconds",
    "instructions",
    "page faults",
    "peak memory",
];

/// `imas doctor --noise MORE`, without an installation of allocators, which it does not need.
fn noise(world: &World, more: &[&str]) -> std::process::Output {
    let mut command = world.imas(["doctor", "--noise"]);
    output(command.args(more).env("IMAS_LIB_DIR", world.work().join("nothing")))
}

/// Appends a line and works a little.
fn work(world: &World) -> String {
    let made = world.work().join("made");
    format!("echo run >> {}; i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done", made.display())
}

#[test]
fn the_page_names_every_measure_and_what_a_comparison_takes() {
    let world = World::new();
    let measured_here = succeeded(noise(&world, &["--pairs", "3", "--", "sh", "-c", &work(&world)]));
    let page = stdout(&measured_here);
    assert!(page.starts_with("sh against itself under system, 3 pairs\n"), "{page}");
    for row in ROWS {
        assert!(page.lines().any(|line| line.trim_start().starts_with(row)), "no {row}: {page}");
    }
    // Elapsed time is measurable everywhere: two figures and a number of pairs.
    let elapsed = page.lines().find(|line| line.trim_start().starts_with("elapsed seconds")).unwrap();
    let cells: Vec<&str> = elapsed.split_whitespace().collect();
    assert_eq!((cells.len(), cells[3], cells[5]), (7, "%", "%"), "{elapsed}");
    assert!(cells[2].parse::<f64>().unwrap() >= 0.0 && cells[6].parse::<u32>().unwrap() >= 2, "{elapsed}");
    assert!(page.contains("a difference of 3 % in CPU"), "{page}");
    let memory =
        page.lines().find(|line| line.starts_with("free memory: touching a GiB of it takes ")).unwrap();
    let stays = memory.ends_with("it stays here");
    assert!(stays || memory.contains("it returns to the host when it stays free"), "{memory}");
    // One run to fill the caches, then pairs. With several CPUs, as many pairs again, pinned to one CPU.
    let runs = std::fs::read_to_string(world.work().join("made")).unwrap().lines().count();
    assert!([1 + 6, 1 + 12].contains(&runs), "{runs} runs");
}

#[test]
fn json_has_the_same_figures() {
    let world = World::new();
    let pairs = ["--pairs", "6", "--json", "--", "sh", "-c"];
    let found = succeeded(noise(&world, &[&pairs[..], &[&work(&world)]].concat()));
    let found = parsed(&found);
    assert!(found["schema"] == 1 && found["pairs"] == 6 && found["difference"] == 0.03, "{found:#}");
    let steadiness = |name: &str| {
        let measures = list(&found, "/measures");
        let row = measures.iter().find(|row| text(row, "/measure") == name);
        row.unwrap_or_else(|| panic!("no {name} in {found:#}"))["steadiness"].clone()
    };
    for row in ROWS {
        steadiness(row);
    }
    let touch = |name: &str| found["first_touch"][name].as_f64().unwrap();
    assert!(0.0 < touch("least_s_per_gib") && touch("least_s_per_gib") <= touch("most_s_per_gib"));
    // Six pairs give three pairs of the better of two.
    for row in
        ["elapsed seconds", "user + system seconds", "user + system seconds, better of two", "page faults"]
    {
        let steady = steadiness(row);
        let figure = |name: &str| steady[name].as_f64().unwrap_or(f64::NAN);
        assert!(figure("variation") >= 0.0 && figure("paired") >= 0.0, "{row}: {steady}");
        assert!(steady["pairs_needed"].as_u64().is_some_and(|pairs| pairs >= 2), "{row}: {steady}");
    }
}

#[test]
fn a_failing_program_is_reported() {
    let world = World::new();
    let failing = noise(&world, &["--pairs", "3", "--", "sh", "-c", "echo no such table >&2; exit 7"]);
    assert!(failing.status.success(), "{}", describe(&failing));
    let what = |runs: u32| format!("sh: {runs} of {runs} runs failed, the last with exit 7: no such table");
    assert!([6, 12].iter().any(|&runs| stderr(&failing).contains(&what(runs))), "{}", describe(&failing));
    let fine = noise(&world, &["--pairs", "3", "--", "true"]);
    assert!(!stderr(&fine).contains("failed"), "{}", describe(&fine));
}

#[test]
fn bad_input_is_named() {
    let world = World::new();
    let missing = noise(&world, &["--", "no-such-program"]);
    assert_refused(&missing, "no-such-program: not found");
    let too_few = noise(&world, &["--pairs", "2", "--", "true"]);
    assert_eq!(too_few.status.code(), Some(2));
    assert!(stderr(&too_few).contains("2 is not in 3..=10000"), "{}", describe(&too_few));
    let alone = output(&mut world.imas(["doctor", "--pairs", "3"]));
    assert_eq!(alone.status.code(), Some(2));
    assert!(stderr(&alone).contains("--noise"), "{}", describe(&alone));
}
