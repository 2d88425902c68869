// SPDX-License-Identifier: Apache-2.0
//! Settings of language runtimes, from the learner to the start by the stub.

use std::process::Command;

use imas_core::sample::Ended;
use imas_store::samples::StoredProgram;
use imas_testing::{compiled, skipped};

use crate::support::{World, node};

const CONFIGURATION: &str = "policy = 'paper'\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 1\n\
                             candidates = ['node:semi8', 'node:limit', 'ruby:slow-growth', 'go:gogc50', 'jvm:serial']\n";

fn tried(world: &World, program: &StoredProgram) -> Vec<String> {
    let trials = world.store().trials(program.id).unwrap();
    let mut tried: Vec<_> = trials.into_iter().map(|trial| trial.sample.candidate).collect();
    tried.sort();
    tried
}

const JOB: &str = r"
const kept = [];
for (let i = 0; i < 200000; i++) kept.push(Buffer.from(String(i)));
const shown = {
    limit: require('v8').getHeapStatistics().heap_size_limit,
    options: process.env.NODE_OPTIONS ?? null,
    names: Object.keys(process.env).filter(name => /NODE|IMAS_[^R]/.test(name)),
    child: /NODE_OPTIONS|IMAS_[^R]/.test(require('child_process').execFileSync('/usr/bin/env')),
    given: require('fs').readFileSync('/proc/self/maps').includes('libimas-settings'),
};
console.log(JSON.stringify(shown));
if (process.argv.length > 2) setTimeout(() => {}, 300000);
";

fn shown(command: &mut Command) -> serde_json::Value {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn node_is_tried_under_its_settings_and_then_placed() {
    let Some(node) = node() else { return skipped("node is not installed") };
    let (world, script, program) = World::with(CONFIGURATION).noticed("job.js", JOB);
    world.settle(&script, &program);
    assert_eq!(tried(&world, &program), ["node:semi8", "system"]);
    let mut ended = world.store().trials(program.id).unwrap().into_iter().map(|trial| trial.sample.ended);
    assert!(ended.all(|ended| ended == Ended::Clean { status: Some(0) }));

    world.pin(&program, "node:semi8");
    let plain = shown(Command::new(&node).arg(&script));
    let placed = shown(&mut world.start_of(&script));
    assert!(placed["limit"].as_u64() < plain["limit"].as_u64(), "{placed} {plain}");
    assert_eq!(placed["given"], true);
    let unseen = ["options", "names", "child"];
    assert!(unseen.iter().all(|name| placed[name] == plain[name]), "{placed} {plain}");
    let own = shown(world.start_of(&script).env("NODE_OPTIONS", "--no-warnings"));
    assert!(own["given"] == false && own["options"] == "--no-warnings", "{own}");
    let own = shown(world.command(&node).arg("--max_semi_space_size=32").arg(&script));
    assert!(own["given"] == false && own["limit"].as_u64() > plain["limit"].as_u64(), "{own}");
}

/// A program with the symbols of Node.js and nothing else of it.
const LIKE_NODE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int _ZN4node5StartEiPPc(void) { return 0; }
#ifdef NEW
int node_api_create_external_string_latin1(void) { return 0; }
#endif
int main(int argc, char **argv) {
    for (int i = 0; i < 200000; i++)
        free(malloc(i % 2000 + 1));
    puts(getenv("NODE_OPTIONS") != NULL ? argv[0] : "-");
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}
"#;

/// An older Node.js does not start with this option, so where the file does not show the version nothing is offered.
#[test]
fn what_an_unknown_version_may_refuse_is_not_tried() {
    let mut world = World::with(&CONFIGURATION.replace("[", "['jemalloc', "));
    world.start();
    for (name, flag, expected) in [
        ("nodeold", "-DOLD", &["jemalloc", "system"][..]),
        ("nodenew", "-DNEW", &["jemalloc", "node:semi8", "system"]),
    ] {
        let file = compiled(&world.path("work"), name, LIKE_NODE, &["-rdynamic", "-fno-builtin", flag]);
        let program = world.notice(&file);
        world.settle(&file, &program);
        assert_eq!(tried(&world, &program), expected, "{name}");
    }
}
