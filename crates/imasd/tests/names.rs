// SPDX-License-Identifier: Apache-2.0
//! Two names of one file are two programs, from the first look at a process to the start by the stub.

use std::path::Path;
use std::process::Stdio;

use crate::support::{World, answers, has_loaded};
use imas_store::samples::StoredProgram;
use imas_testing::Running;

fn start(world: &World, name: &str) -> Running {
    let mut command = world.command(&world.path("work").join(name));
    let mut running = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    answers(&mut running);
    running
}

fn known(world: &World, detail: &str) -> Option<StoredProgram> {
    let is_it = |program: &StoredProgram| {
        Path::new(&program.path).file_name() == Some("many-names".as_ref()) && program.detail == detail
    };
    world.store().programs().unwrap().into_iter().find(is_it)
}

#[test]
fn two_names_of_one_file_are_two_programs() {
    let mut world = World::new();
    let folder = world.path("work");
    imas_testing::copy_program(Path::new("/usr/bin/cat"), &folder.join("many-names"));
    for name in ["server", "sentinel"] {
        std::os::unix::fs::symlink("many-names", folder.join(name)).unwrap();
    }
    world.start();
    for (name, detail) in [("server", "as server"), ("many-names", "")] {
        let _running = start(&world, name);
        world.wait(name, || known(&world, detail).is_some());
    }
    let [server, file] = ["as server", ""].map(|detail| known(&world, detail).unwrap());
    world.store().pin(server.id, "jemalloc", 1.0).unwrap();
    world.store().pin(file.id, "system", 1.0).unwrap();
    world.wait("the pins are published", || world.production(&server) != 1 && world.offer(&file).is_none());
    for (name, is_placed) in [("server", true), ("many-names", false), ("sentinel", false)] {
        let running = start(&world, name);
        assert_eq!(has_loaded(&running, "libjemalloc"), is_placed, "{name}");
        let is_seen = || world.store().witnesses().unwrap().iter().any(|seen| seen.pid == running.0.id());
        world.wait("its process is identified", || is_seen() == is_placed);
    }
    world.wait("its end is stored", || world.counter("flights_stored") == 1);
    assert_eq!(world.store().trials(server.id).unwrap().len(), 1, "{}", world.log());
    world.stop("-TERM");
}
