// SPDX-License-Identifier: Apache-2.0
//! Programs that fail under settings of their runtime: the settings are rejected at once.

use std::path::Path;

use imas_core::sample::Ended;
use serde_json::Value;

use crate::bench::{bench, names, picks};
use crate::runtimes::go_built;
use crate::support::{World, candidate, list, output, real, succeeded, text};

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

#[test]
fn a_run_that_fails_under_settings_rejects_them() {
    let world = World::new();
    let Some(program) = go_built(&world, "fails", &[], GO, "0") else {
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
    let ends: Vec<_> =
        world.trials().into_iter().map(|trial| (trial.sample.candidate, trial.sample.ended)).collect();
    for (name, status) in [("go:gogc50", 2), ("go:gogc400", 137)] {
        assert!(ends.contains(&(name.to_owned(), Ended::Failed { status })), "it is remembered: {ends:?}");
    }
    assert!(ends.iter().all(|(name, _)| name != "go:gogc200"), "{ends:?}");
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
    let ends: Vec<bool> = (0..8).map(|_| world.start(words).status.success()).collect();
    let failed = ends.iter().filter(|is_good| !**is_good).count();
    assert_eq!((failed, ends[0]), (1, true), "{ends:?}");
    let explained: Value = world.json(["explain", script.to_str().unwrap(), "--json"]);
    let quarantined = list(&explained, "/quarantined");
    assert_eq!(quarantined.len(), 1, "{explained:#}");
    assert_eq!(text(&quarantined[0], "/candidate"), "node:tiny");
}

/// Keeps 64 MB.
const ARRAYS: &str = "public class Arrays { public static void main(String[] words) { \
     var kept = new java.util.ArrayList<byte[]>(); for (int i = 0; i < 64; i++) kept.add(new byte[1 << 20]); \
     System.out.println(kept.size()); } }";

/// A status of 1 may mean anything. So it takes as many failures as are unlikely by chance: three or four, beside as many
/// starts under `system` that did not fail.
#[test]
fn a_heap_that_is_too_small_is_noticed_by_its_exits() {
    if !Path::new("/usr/bin/javac").exists() {
        return imas_testing::skipped("javac is not installed");
    }
    let world = World::new();
    let source = world.work().join("Arrays.java");
    std::fs::write(&source, ARRAYS).unwrap();
    succeeded(output(world.command("/usr/bin/javac").arg(&source)));
    let tiny = "schema = 1\n[[candidate]]\nname = 'jvm:tiny'\nruntime = 'jvm'\ndefault = true\n\
                arguments = ['-Xmx16m']\n";
    world.add_catalogue("mine.toml", tiny);
    world.configure("candidates = ['jvm:tiny']\nmax_tests = 6\nretest_s = 0");
    let work = world.work();
    let words = ["/usr/bin/java", "-cp", work.to_str().unwrap(), "Arrays"];
    let ends: Vec<bool> = (0..14).map(|_| world.start(words).status.success()).collect();
    let failed = ends.iter().filter(|is_good| !**is_good).count();
    assert!((3..=4).contains(&failed) && ends[0] && ends[10..].iter().all(|is_good| *is_good), "{ends:?}");
}
