// SPDX-License-Identifier: Apache-2.0
//! The default policy with real starts under the real hook.

use crate::support::{World, json, printed};

/// The policy tests candidates in rounds and ends with an answer. The output gives the answer, its reason,
/// and when it is looked at again.
#[test]
fn a_program_settles_and_the_answer_is_explained() {
    // Fixed, because by default the machine's load selects the objective and could change the answer between
    // two calls.
    const RULES: [&str; 4] = ["--policy", "adaptive", "--objective", "balanced"];
    let world = World::new();
    world.configure("retest_s = 0\ncandidates = ['mimalloc', 'glibc:arena1']\n");
    let start = || {
        let command = ["--", "/usr/bin/sort", "--parallel=1", "/etc/services"];
        printed(&world.imas(["run"]).args(RULES).args(command).output().unwrap())
    };
    let explain = || json(&world.imas(["explain", "--json", "/usr/bin/sort"]).args(RULES).output().unwrap());
    // Each candidate but the pick has eight trials at most, one in a round of its own at worst. The pick and `system` run
    // beside it.
    let most = 8 * 2 * 3;
    let untouched = start();
    let mut starts = 1;
    while explain()["next"]["trial"] == true {
        assert_eq!(start(), untouched, "the output must be the same under every candidate");
        starts += 1;
        assert!(starts <= most + 1, "no answer after {starts} starts");
    }
    let answer = explain();
    assert!(starts >= 3, "{starts}: a round has three candidates");
    assert!(answer["standings"][0]["rounds"].as_u64().unwrap() >= 1, "{answer}");
    assert!(answer["looked_at_again"].as_str().unwrap().contains("change"), "{answer}");
    assert_eq!(answer["confidence"], 0.95);
    let page = printed(&world.imas(["explain", "/usr/bin/sort"]).args(RULES).output().unwrap());
    // No figure of three trials means much: the page is one line then.
    let is_one_line = page.contains("nothing proven") && page.trim_end().lines().count() == 1;
    let gains = answer["expected_gain"].as_array().unwrap();
    let picks: Vec<_> = gains.iter().map(|one| one["pick"].as_str().unwrap()).collect();
    assert_eq!(picks, ["fastest", "leanest", "balanced"], "{answer}");
    for one in gains {
        let interval = one["interval"].as_array();
        assert_eq!(interval.is_none(), one["candidate"] == "system", "{one}");
        if let Some([lo, hi]) = interval.map(Vec::as_slice) {
            assert!(lo.as_f64() < one["gain"].as_f64() && one["gain"].as_f64() < hi.as_f64(), "{one}");
        }
        let is_there = page.contains(&format!("expected under the {}", one["pick"].as_str().unwrap()));
        assert!(is_there || is_one_line, "{page}");
    }
    assert!(is_one_line || (page.contains("looked at again") && page.contains("score")), "{page}");
}

/// Between two trials the question is open, not answered for 90 days. An operator's decision is not looked at
/// again. Commands print which store they use.
#[test]
fn explain_names_the_next_review_and_the_store_that_undoes_a_decision() {
    let world = World::new();
    world.configure("retest_s = 3600\ncandidates = ['mimalloc']\n");
    let start = || {
        let words = ["run", "--policy", "adaptive", "--", "/usr/bin/sort", "/etc/services"];
        printed(&world.imas(words).output().unwrap())
    };
    let explain = |more: &[&str]| {
        let words = [&["explain", "--json", "/usr/bin/sort"], more].concat();
        json(&world.imas(words).output().unwrap())
    };
    (0..2).for_each(|_| drop(start()));
    let trials = world.trials();
    assert_eq!(trials.len(), 2);
    let (store, sort) = world.forgotten_program();
    // A saving of a third of the memory, seen once, justifies another round at any load of the machine.
    for mut trial in trials {
        let mebibytes = if trial.sample.candidate == "system" { 90 } else { 60 };
        trial.sample.memory.resident_over_time = mebibytes << 20;
        trial.sample.usage.as_mut().unwrap().user_s = 1.0;
        assert!(store.add_trial(sort.id, &trial).unwrap(), "{trial:?}");
    }
    drop(store);
    let waiting = explain(&["--policy", "adaptive", "--objective", "memory"]);
    assert_eq!(waiting["next"]["trial"], false, "{waiting}");
    let again = waiting["looked_at_again"].as_str().unwrap();
    assert!(again.starts_with("from ") && again.contains("open: a trial of"), "{again}");
    let paper = explain(&["--policy", "paper"]);
    assert!(paper["looked_at_again"].as_str().unwrap().contains("open: a trial of"), "{paper}");
    printed(&world.imas(["pin", "/usr/bin/sort", "mimalloc"]).output().unwrap());
    let pinned = explain(&[]);
    assert_eq!(
        (&pinned["looked_at_again"], &pinned["undo"]),
        (&"not before it is unpinned".into(), &"imas unpin sort".into())
    );
    let elsewhere = world.work().join("else where.db");
    let words = ["pin", "--store", elsewhere.to_str().unwrap(), "/usr/bin/sort", "mimalloc"];
    printed(&world.imas(words).output().unwrap());
    let named = explain(&["--store", elsewhere.to_str().unwrap()]);
    let undo = named["undo"].as_str().unwrap();
    let words = shell_words::split(undo).unwrap();
    assert_eq!(words[..3], ["imas", "--store", elsewhere.to_str().unwrap()], "{undo}");
    printed(&world.imas(&words[1..]).output().unwrap());
    assert_ne!(explain(&["--store", elsewhere.to_str().unwrap()])["next"]["reason"], "pinned");
    assert_eq!(explain(&[])["next"]["reason"], "pinned", "the other store must not change");
}
