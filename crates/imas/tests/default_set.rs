// SPDX-License-Identifier: Apache-2.0
//! The effect of an upgrade that changes the default set, on earlier trials and decisions.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Output;

use crate::support::{
    World, build, candidate, describe, json, lib_dir, list, output, stderr, succeeded, text,
};
use imas_core::TrialRecord;
use imas_core::sample::PageKind;
use imas_linux::host::now_unix_s;
use imas_store::Store;
use imas_testing::trial;
use serde_json::Value;

/// Number of rounds that the store is given.
const ROUNDS: usize = 5;

/// A user's program, and packages that are installed one after the other.
struct User {
    world: World,
    program: PathBuf,
    lib: PathBuf,
}

impl User {
    fn new() -> Self {
        let world = World::new();
        // Fixed, because by default pressure on the machine's CPUs selects the objective, and with it the
        // pick.
        world.configure("retest_s = 0\n[overrides]\nobjective = 'balanced'\n");
        let program = build::program("behave", &world.work());
        let lib = world.work().join("lib");
        std::fs::create_dir(&lib).unwrap();
        for file in ["libimas.so", "libimas-guard.so"] {
            std::fs::copy(lib_dir().join(file), lib.join(file)).unwrap();
        }
        for folder in ["allocators", "contract"] {
            symlink(lib_dir().join(folder), lib.join(folder)).unwrap();
        }
        Self { world, program, lib }
    }

    /// Installs a package with this default set (without `system`).
    fn installs(&self, set: &[&str]) {
        let built = std::fs::read_to_string(lib_dir().join("catalogue.toml")).unwrap();
        let mut is_in = false;
        let line = |line: &str| {
            if let Some(name) = line.strip_prefix("name = ") {
                is_in = name == "\"system\"" || set.iter().any(|one| name == format!("\"{one}\""));
            }
            if line.starts_with("default = ") { format!("default = {is_in}\n") } else { format!("{line}\n") }
        };
        std::fs::write(self.lib.join("catalogue.toml"), built.lines().map(line).collect::<String>()).unwrap();
    }

    /// Stores rounds of trials of the last hours: one of `system` and one of the candidate each. The
    /// candidate's CPU time and memory are `share` of system's.
    fn had_rounds(&self, name: &str, hours_ago: usize, share: f64) {
        let store = Store::open(&self.world.store_path()).unwrap();
        let program = store.program(&self.program.to_string_lossy(), "").unwrap();
        let build_id = imas_linux::elf::ElfImage::read(&self.program).unwrap().build_id.unwrap_or_default();
        let begun_s = now_unix_s() - 3600.0 * hours_ago as f64;
        for at in 0..2 * ROUNDS {
            let (of, share) = if at % 2 == 0 { ("system", 1.0) } else { (name, share) };
            let wobble = 1.0 + 0.002 * (at % 3) as f64;
            let resident = f64::from(100 << 20) * share * wobble;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole bytes are meant"
            )]
            let mut record = trial(of, &build_id, 100 * hours_ago + at, resident as u64, share * wobble);
            record.sample.made_unix_s = begun_s + at as f64;
            assert!(store.add_trial(program.id, &record).unwrap());
        }
    }

    fn imas(&self, words: &[&str], policy: &str) -> Output {
        let mut imas = self.world.imas(words);
        output(imas.env("IMAS_LIB_DIR", &self.lib).env("IMAS_POLICY", policy).arg(&self.program))
    }

    fn json(&self, verb: &str, policy: &str) -> Value {
        json(&self.imas(&[verb, "--json"], policy))
    }

    /// A start that does some work.
    fn starts(&self, policy: &str) -> Output {
        let mut imas = self.world.imas(["run", "-v", "--"]);
        imas.env("IMAS_LIB_DIR", &self.lib).env("IMAS_POLICY", policy).arg(&self.program);

        succeeded(output(imas.arg("20000")))
    }

    fn trials_of(&self, name: &str) -> usize {
        let is_one =
            |record: &&TrialRecord| record.sample.kind == PageKind::Trial && record.sample.candidate == name;
        self.world.trials().iter().filter(is_one).count()
    }
}

fn next(explained: &Value) -> (&str, bool) {
    (text(explained, "/next/candidate"), explained["next"]["trial"] == true)
}

/// Only the new candidates are tested. The earlier pick stays while no new candidate is proven better.
#[test]
fn a_decision_to_a_candidate_that_left_the_set_stays() {
    let user = User::new();
    user.installs(&["mimalloc"]);
    user.had_rounds("mimalloc", 3, 0.25);
    assert_eq!(
        next(&user.json("explain", "adaptive")),
        ("mimalloc", false),
        "the program must be settled before the upgrade"
    );

    user.installs(&["jemalloc"]);
    let shown = user.json("show", "adaptive");
    let (left, joined) = (candidate(&shown, "mimalloc"), candidate(&shown, "jemalloc"));
    assert_eq!((&left["tested"], &left["summary"]["count"]), (&false.into(), &ROUNDS.into()), "{left:#}");
    assert_eq!((&joined["tested"], &joined["summary"]["count"]), (&true.into(), &0.into()), "{joined:#}");
    assert!(list(&shown, "/candidates").len() == 3, "{shown:#}");
    for start in 0.. {
        assert!(start < 24, "it does not settle");
        match next(&user.json("explain", "adaptive")) {
            (_, false) => break,
            (name, true) => assert!(["system", "jemalloc"].contains(&name), "{name} must not be tested"),
        }
        user.starts("adaptive");
    }
    assert!(user.trials_of("jemalloc") >= 1);
    assert_eq!(user.trials_of("mimalloc"), ROUNDS, "no trial may be added or lost");
    let explained = user.json("explain", "adaptive");
    assert_eq!(next(&explained), ("mimalloc", false), "{explained:#}");
    assert!(stderr(&user.starts("adaptive")).contains(" under mimalloc: "));
    let page = crate::support::stdout(&user.imas(&["explain"], "adaptive"));
    assert!(page.contains("mimalloc: is no longer in the set that is tested"), "{page}");
    assert!(page.contains("proven better; not in the set"), "{page}");
}

/// A case without real starts: how many of them came before, and what they took, would decide what the next
/// one gets.
#[test]
fn a_new_candidate_that_is_proven_better_takes_the_place_of_one_that_left() {
    let user = User::new();
    user.installs(&["mimalloc"]);
    user.had_rounds("mimalloc", 3, 0.25);
    user.installs(&["jemalloc"]);
    assert!(next(&user.json("explain", "adaptive")).1, "jemalloc must be tested first");
    user.had_rounds("jemalloc", 1, 0.05);
    assert_eq!(next(&user.json("explain", "adaptive")), ("jemalloc", false));
}

/// Under the policy `paper`, a candidate counts once it has had all its tests. The new candidates have theirs
/// first.
#[test]
fn under_paper_a_new_candidate_has_its_tests_first() {
    let user = User::new();
    user.installs(&["mimalloc"]);
    user.had_rounds("mimalloc", 3, 0.25);
    user.installs(&["dlmalloc"]);
    for _ in 0..ROUNDS {
        assert_eq!(next(&user.json("explain", "paper")), ("dlmalloc", true));
        user.starts("paper");
    }
    let shown = user.json("show", "paper");
    assert_eq!(candidate(&shown, "dlmalloc")["summary"]["count"], ROUNDS);
    assert_eq!(shown["next"]["trial"], false);
    assert_eq!(text(&shown, "/picks/fastest"), "mimalloc", "{shown:#}");
    let page = crate::support::stdout(&user.imas(&["show"], "paper"));
    assert!(page.lines().any(|line| line.contains("mimalloc") && line.contains("not in the set")), "{page}");
}

/// A candidate set that the user names is final.
#[test]
fn a_candidate_outside_the_users_set_is_out() {
    let user = User::new();
    user.installs(&["mimalloc"]);
    user.had_rounds("mimalloc", 3, 0.25);
    user.world.configure("candidates = ['jemalloc']\nretest_s = 0\n");
    let shown = user.json("show", "adaptive");
    let names: Vec<_> = list(&shown, "/candidates").iter().map(|one| text(one, "/name")).collect();
    assert_eq!(names, ["system", "jemalloc"]);
    assert_ne!(text(&shown, "/next/candidate"), "mimalloc");
    assert_eq!(user.trials_of("mimalloc"), ROUNDS, "its trials must be kept");
}

/// An upgrade removes an allocator, and its candidate, from the catalogue. Its trials stay, and the program
/// still starts.
#[test]
fn a_candidate_that_is_gone_is_no_reason_not_to_start() {
    let user = User::new();
    user.installs(&["mimalloc"]);
    user.had_rounds("mimalloc", 3, 0.25);
    remove(&user.lib.join("catalogue.toml"), "mimalloc");
    assert_eq!(next(&user.json("explain", "adaptive")).0, "system");
    let started = user.starts("adaptive");
    assert!(!stderr(&started).contains("hint:"), "{}", describe(&started));
    assert_eq!(user.trials_of("mimalloc"), ROUNDS);
}

fn remove(catalogue: &Path, name: &str) {
    let text = std::fs::read_to_string(catalogue).unwrap();
    let is_other = |entry: &&str| !entry.starts_with(&format!("\nname = \"{name}\"\n"));
    let kept: Vec<&str> = text.split("[[candidate]]").filter(is_other).collect();
    assert_eq!(kept.len() + 1, text.split("[[candidate]]").count());
    std::fs::write(catalogue, kept.join("[[candidate]]")).unwrap();
}
