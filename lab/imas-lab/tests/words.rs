// SPDX-License-Identifier: Apache-2.0
//! Words that mean nothing to `imas-lab`, and a broken installation.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

#[path = "../../../crates/imas/tests/support/mod.rs"]
mod support;

use support::{World, assert_hinted, describe, output, stderr};

#[test]
fn unknown_words_are_refused() {
    let world = World::new();
    for words in
        [&["frobnicate"][..], &["suite"], &["simulate", "--frobnicate"], &["simulate", "--weight", "2"], &[]]
    {
        let output = output(&mut world.lab(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert!(
            stderr(&output).contains("--help") || stderr(&output).contains("Usage"),
            "{}",
            describe(&output)
        );
    }
    for (words, says) in [
        (&["study", "selector"][..], "needs raw runs"),
        (&["study", "selector", "--data", "/dev/null"], "cannot judge a selector"),
        (&["study", "fit", "--data", "/dev/null"], "--data is for"),
    ] {
        let output = output(&mut world.lab(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", describe(&output));
        assert_hinted(&output, says);
    }
}

/// Commands that only read existing figures need no allocators. They report what is wrong with the figures.
#[test]
fn without_an_installation_stored_figures_are_judged() {
    let world = World::new();
    for words in [["study", "selector", "--data", "/dev/null"], ["study", "mobile", "--data", "/dev/null"]] {
        let judged = output(world.lab(words).env("IMAS_LIB_DIR", "/no/such/folder"));
        assert_eq!(judged.status.code(), Some(2));
        assert!(!describe(&judged).contains("no catalogue.toml"), "{}", describe(&judged));
    }
    let listed = output(world.lab(["suite", "list"]).env("IMAS_LIB_DIR", "/no/such/folder"));
    assert_eq!(listed.status.code(), Some(2));
    assert_hinted(&listed, "no catalogue.toml");
}
