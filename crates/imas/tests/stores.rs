// SPDX-License-Identifier: Apache-2.0
//! Several stores of one user: a page belongs to the store that decided its start, and to no other.

use std::process::{Command, Stdio};

use crate::support::{World, build, json, list, output, real, succeeded, wait_until};
use imas_testing::Running;

/// `imas` as a user with that home folder has it: nothing names a store but the home.
fn at_home(world: &World, home: &str, words: &[&str]) -> Command {
    let folder = world.work().join(home);
    std::fs::create_dir_all(&folder).unwrap();
    let mut imas = world.imas(words);
    imas.env("HOME", folder).env_remove("IMAS_STORE").env_remove("XDG_DATA_HOME");
    imas
}

fn known_to(imas: &mut Command) -> Vec<String> {
    let shown = json(&output(imas));
    let programs = list(&shown, "/programs").iter();
    programs.map(|program| program["program"]["path"].as_str().unwrap().to_owned()).collect()
}

fn at_home_known(world: &World, home: &str) -> Vec<String> {
    known_to(&mut at_home(world, home, &["show", "--json"]))
}

fn start(world: &World, home: &str, program: &str) {
    succeeded(output(&mut at_home(world, home, &["run", "--retest", "0", "--", program])));
}

#[test]
fn two_homes_keep_their_pages_apart() {
    let world = World::new();
    world.tests_six("");
    let [one, other] = ["who", "plain"].map(|name| build::program(name, &world.work()).display().to_string());
    start(&world, "a", &one);
    start(&world, "b", &other);
    assert_eq!(at_home_known(&world, "a"), [one.as_str()]);
    assert_eq!(at_home_known(&world, "b"), [other.as_str()]);
    let harvested = json(&output(&mut at_home(&world, "b", &["harvest", "--json"])));
    assert_eq!(harvested["stored"], 1, "its own page alone");
    start(&world, "b", &other);
    let harvested = json(&output(&mut at_home(&world, "a", &["harvest", "--json"])));
    assert_eq!(harvested["stored"], 1, "nobody took it");
    assert_eq!(at_home_known(&world, "a"), [one.as_str()]);
}

#[test]
fn a_trial_that_still_runs_is_no_other_stores_business() {
    let world = World::new();
    world.tests_six("");
    let sleeper = real("sleep").display().to_string();
    let mut imas = at_home(&world, "a", &["run", "--", &sleeper, "600"]);
    let running = Running(imas.stdout(Stdio::null()).spawn().unwrap());
    let counts = |home: &str| {
        let harvested = json(&output(&mut at_home(&world, home, &["harvest", "--json"])));
        (harvested["stored"].as_u64().unwrap(), harvested["running"].as_u64().unwrap())
    };
    wait_until("the page of the start", || counts("a") == (0, 1));
    assert_eq!(counts("b"), (0, 0));
    drop(running);
    assert_eq!(counts("b"), (0, 0), "it ended");
    assert_eq!(counts("a"), (1, 0));
}

#[test]
fn a_store_that_is_named_has_pages_of_its_own_however_it_is_named() {
    let world = World::new();
    world.tests_six("");
    let who = build::program("who", &world.work()).display().to_string();
    let data = world.work().join("data-a");
    let in_data = |words: &[&str]| {
        let mut imas = at_home(&world, "a", words);
        imas.env("XDG_DATA_HOME", &data);
        imas
    };
    assert!(output(&mut in_data(&["run", "--", &who])).status.success());
    assert!(at_home_known(&world, "a").is_empty(), "the store below XDG_DATA_HOME is another one");
    let store = data.join("imas/imas.db");
    let link = world.work().join("link");
    std::os::unix::fs::symlink(&data, &link).unwrap();
    for named in [store, link.join("imas/imas.db")] {
        let named = named.display().to_string();
        assert_eq!(
            known_to(&mut at_home(&world, "b", &["show", "--json", "--store", &named])),
            [who.as_str()]
        );
    }
}
