// SPDX-License-Identifier: Apache-2.0
//! Where memory is short, imasd asks running processes to give free pages back.

use std::process::Child;

use crate::support::{World, lib_dir, piped, python};

/// Two threads that sleep, and 60 MB of which all but every hundredth block is free.
const HOLDER: &str = include_str!("../../../tests/programs/holds_free.py");

/// A process under a candidate that gives back, or under the guard alone.
fn holder(world: &World, gives_back: bool) -> Child {
    let own = gives_back.then(|| lib_dir().join("libimas-giveback.so"));
    let libraries = own.into_iter().chain([lib_dir().join("libimas-guard.so")]);
    let preload: Vec<String> = libraries.map(|library| library.to_string_lossy().into_owned()).collect();
    let mut command = world.command(&python());
    command
        .args(["-c", HOLDER, "threads"])
        .env("LD_PRELOAD", preload.join(":"))
        .env("IMAS_UNSET", "LD_PRELOAD");
    piped::start(&mut command)
}

#[test]
fn who_can_answer_is_asked_and_nobody_else() {
    let mut world = World::with("short_at = 0.0\n");
    let (can, cannot) = (holder(&world, true), holder(&world, false));
    world.start();
    world.wait("the answer is there", || world.counter("trims_answered") >= 1);
    let (asked, mib) = (world.counter("trims_asked"), world.counter("trimmed_mib"));
    let log = world.log();
    world.stop("-TERM");
    assert_eq!(asked, 1, "the other one cannot answer");
    assert!(mib >= 40, "{mib} MiB\n{log}");
    let line = format!("memory is short: process {} (", can.id());
    assert!(log.contains(&line) && log.contains("MiB back, in "), "{log}");
    piped::end(can);
    piped::end(cannot);
}
