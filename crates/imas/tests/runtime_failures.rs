// SPDX-License-Identifier: Apache-2.0
//! Programs that fail under settings of their runtime: the settings are rejected at once.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::bench::{bench, names, picks};
use crate::support::{World, candidate, describe, list, output, real, text};

/// Ends as a program that runs out of memory under GOGC=50, and as one that is killed at its limit under GOGC=400.
const GO: &str = r#"package main

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"
)

var kept [][]byte

func main() {
	percent := debug.SetGCPercent(100)
	for i := 0; i < 300000; i++ {
		kept = append(kept, make([]byte, 100))
		if i%1000 == 0 {
			kept = nil
		}
	}
	if percent == 50 {
		panic("out of memory")
	}
	if percent == 400 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Println("done")
}
"#;

fn go_program(folder: &Path) -> Option<PathBuf> {
    let compiler = Path::new("/usr/local/go/bin/go");
    if !compiler.is_file() {
        return None;
    }
    let (source, program) = (folder.join("fails.go"), folder.join("fails"));
    std::fs::write(&source, GO).unwrap();
    let mut build = Command::new(compiler);
    let made = output(build.args(["build", "-o"]).args([&program, &source]).env("CGO_ENABLED", "0"));
    assert!(made.status.success(), "{}", describe(&made));
    Some(program)
}

#[test]
fn a_run_that_fails_under_settings_rejects_them() {
    let world = World::new();
    let Some(program) = go_program(&world.work()) else {
        return imas_testing::skipped("the Go compiler is not installed");
    };
    let flags = ["-n", "2", "--with", "go:gogc50,go:gogc200,go:gogc400"];
    let (result, _) = bench(&world, &flags, &[program.to_str().unwrap()]);
    assert_eq!(names(&result), ["system", "go:gogc50", "go:gogc200", "go:gogc400"], "{result:#}");
    for name in ["go:gogc50", "go:gogc400"] {
        assert!(!candidate(&result, name)["ineligible"].is_null(), "{name}: {result:#}");
        assert!(!picks(&result).contains(&name), "{result:#}");
    }
    assert!(candidate(&result, "go:gogc200")["ineligible"].is_null(), "{result:#}");
}

/// Keeps 64 MB of objects.
const KEEPER: &str =
    "const kept = []; for (let i = 0; i < 2e6; i++) kept.push({ number: i }); console.log(kept.length)";

#[test]
fn a_crash_under_settings_quarantines_them() {
    if !Path::new("/usr/bin/node").exists() {
        return imas_testing::skipped("node is not installed");
    }
    let world = World::new();
    let tiny = "schema = 1\n[[candidate]]\nname = 'node:tiny'\nruntime = 'node'\ndefault = true\n\
                environment = { NODE_OPTIONS = '--max-old-space-size=24' }\n";
    world.add_catalogue("mine.toml", tiny);
    world.configure("candidates = ['node:tiny']\nmax_tests = 2\nretest_s = 0");
    let script = world.work().join("keeper.js");
    std::fs::write(&script, KEEPER).unwrap();
    let node = real("node");
    let words = [node.to_str().unwrap(), script.to_str().unwrap()];
    let mut ends = vec![];
    for _ in 0..8 {
        ends.push(world.start(words).status.success());
    }
    let failed = ends.iter().filter(|is_good| !**is_good).count();
    assert_eq!((failed, ends[0]), (1, true), "{ends:?}");
    let explained: Value = world.json(["explain", script.to_str().unwrap(), "--json"]);
    let quarantined = list(&explained, "/quarantined");
    assert_eq!(quarantined.len(), 1, "{explained:#}");
    assert_eq!(text(&quarantined[0], "/candidate"), "node:tiny");
}
