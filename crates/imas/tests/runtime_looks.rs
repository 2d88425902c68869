// SPDX-License-Identifier: Apache-2.0
//! Running programs: advice that rests on trials, and what `imas advise` and `imas explain --pid` say of language runtimes;
//! and programs that fail under settings of their runtime, which are rejected at once.

use std::path::Path;
use std::process::Stdio;

use imas_core::sample::Ended;
use serde_json::Value;

use crate::bench::{bench, names, picks};
use crate::runtimes::go_built;
use crate::support::{
    SIX, World, candidate, describe, install, list, output, parsed, real, stdout, succeeded, text, wait_until,
};
use imas_store::Store;
use imas_testing::{Running, end_piped, start_piped, trial};

/// Makes much that dies young and keeps nothing. Prints a letter then, and ends when its standard input is closed.
const WASTE: &str = r#"
public class Waste {
    static byte[] last;
    public static void main(String[] words) throws Exception {
        for (int i = 0; i < 60000; i++) last = new byte[50000];
        System.out.println("x");
        System.in.read();
    }
}
"#;

/// Whether [`WASTE`] was compiled: there may be no compiler.
fn compiled(world: &World) -> bool {
    if !Path::new("/usr/bin/javac").exists() {
        return false;
    }
    let source = world.work().join("Waste.java");
    std::fs::write(&source, WASTE).unwrap();
    succeeded(output(world.command(real("javac")).arg(&source)));
    true
}

fn json(world: &World, words: &[&str]) -> Value {
    parsed(&output(&mut world.imas(words)))
}

#[test]
fn a_jvm_that_holds_far_more_than_it_needs_is_advised_about() {
    let world = World::new();
    if !compiled(&world) {
        return imas_testing::skipped("javac is not installed");
    }
    let java = real("java");
    let start = |options: &[&str]| start_piped(world.command(&java).args(options).arg("Waste"));
    let of =
        |advice: &Value, pid: u32| list(advice, "/runtimes").iter().find(|row| row["pid"] == pid).cloned();
    let wasteful = start(&["-Xmn300m"]);
    let pid = wasteful.id();
    // On a busy machine the time for looks at processes may be over before its turn.
    let (mut row, mut page) = (None, String::new());
    wait_until("it is advised about", || {
        row = of(&json(&world, &["advise", "--json"]), pid);
        page = stdout(&output(&mut world.imas(["advise"])));
        row.is_some() && page.contains("were left after the last of")
    });
    let explained = json(&world, &["explain", "--json", "--pid", &pid.to_string()]);
    let text = stdout(&output(&mut world.imas(["explain", "--pid", &pid.to_string()])));
    end_piped(wasteful);
    let heap = &explained["runtime"]["jvm"];
    let bytes = |name: &str| heap[name].as_u64().unwrap_or_else(|| panic!("{explained:#}"));
    assert!(bytes("committed") > 200 << 20 && bytes("after_collection") < 50 << 20, "{explained:#}");
    assert!(bytes("collections") > 0 && explained["runtime"]["runtime"] == "jvm", "{explained:#}");
    assert!(text.contains("runtime: the JVM") && text.contains("left after the last of"), "{text}");
    let row = row.unwrap();
    assert!(row["candidates"][0].as_str().unwrap().ends_with("-lean"), "{row:#}");
    assert_eq!(row["jvm"]["committed"], heap["committed"]);
    assert!(page.contains("'imas run --candidate jvm:"), "{page}");

    let chosen = start(&["-Xmn300m", "-Xms400m", "-XX:+UseG1GC"]);
    let advice = json(&world, &["advise", "--json"]);
    let its_own = chosen.id();
    end_piped(chosen);
    assert_eq!(of(&advice, its_own), None, "its user has chosen");
}

#[test]
fn a_node_program_has_its_runtime_named() {
    if !Path::new("/usr/bin/node").exists() {
        return imas_testing::skipped("node is not installed");
    }
    let world = World::new();
    let script = "global.kept = Buffer.alloc(9e7, 1); console.log('x'); process.stdin.resume()";
    let node = start_piped(world.command(real("node")).args(["-e", script]));
    let pid = node.id();
    let explained = json(&world, &["explain", "--json", "--pid", &pid.to_string()]);
    let mut row = None;
    // There may be others, and on a busy machine the time for looks at processes may be over before its turn.
    wait_until("it is advised about", || {
        let advice = json(&world, &["advise", "--json"]);
        row = list(&advice, "/runtimes").iter().find(|row| row["pid"] == pid).cloned();
        row.is_some()
    });
    end_piped(node);
    assert_eq!(explained["runtime"]["runtime"], "node", "{explained:#}");
    let row: Value = row.unwrap();
    assert!(row["how"].as_str().unwrap().contains("node:semi1") && row["jvm"].is_null(), "{row:#}");
}

/// A process may map anything under the name of the JVM's counters.
#[test]
fn a_file_of_counters_that_lies_is_not_believed() {
    let world = World::new();
    let folder = world.work().join("hsperfdata_x");
    std::fs::create_dir(&folder).unwrap();
    let script = "import mmap, sys\nf = open(sys.argv[1], 'r+b'); m = mmap.mmap(f.fileno(), 0)\nprint('x', flush=True); sys.stdin.read()";
    let endless =
        [&[0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1][..], &[0; 16], &32_i32.to_ne_bytes(), &[0xff; 4100]].concat();
    for bytes in [endless, vec![b'x'; 1 << 20]] {
        let file = folder.join("1");
        std::fs::write(&file, bytes).unwrap();
        let python = start_piped(world.command(real("python3")).args(["-c", script]).arg(&file));
        let explained = json(&world, &["explain", "--json", "--pid", &python.id().to_string()]);
        end_piped(python);
        assert!(explained["runtime"]["jvm"].is_null(), "{explained:#}");
        assert_eq!(explained["runtime"]["runtime"], "cpython", "{explained:#}");
    }
}

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

#[test]
fn advice_rests_on_trials_and_on_nothing_else() {
    let world = World::new();
    // Fixed, because by default the machine's load selects the objective: under `paper` an idle machine keeps `system`.
    world.tests_six("max_tests = 4\nretest_s = 0\n[overrides]\nobjective = 'cpu'");
    // A program that keeps running.
    let program = world.work().join("stays");
    install(&real("sleep"), &program);
    let start = |words: &[&str]| {
        let mut command = world.imas(words);
        command.arg("--").arg(&program).arg("1000").stdout(Stdio::null()).stderr(Stdio::null());
        Running(command.spawn().unwrap())
    };
    let advise = |variables: &[(&str, &str)]| {
        let got = output(world.imas(["advise", "--json"]).envs(variables.iter().copied()));
        (got.status.code(), parsed(&got))
    };
    // On a busy machine the time for looks at processes may be over before the turn of this one.
    let advise_of_it = |variables: &[(&str, &str)]| {
        let mut seen = advise(variables);
        wait_until("the process is looked at", || {
            if list(&seen.1, "/processes").is_empty() {
                seen = advise(variables);
            }
            !list(&seen.1, "/processes").is_empty()
        });
        seen
    };
    // Another process, such as cargo or the JVM of another test, may hold free memory: then there is advice
    // about that.
    let by_trials = |code: Option<i32>, advice: &serde_json::Value| {
        let jvms = list(advice, "/runtimes").iter().filter(|row| !row["jvm"].is_null());
        let is_by_reading = !list(advice, "/heaps").is_empty() || jvms.count() > 0;
        if code == Some(0) && is_by_reading { Some(1) } else { code }
    };
    let nothing = output(&mut world.imas(["advise"]));
    assert!(stdout(&nothing).contains("no running process would gain"), "{}", describe(&nothing));

    let untouched = Running(world.command(&program).arg("1000").spawn().unwrap());
    let pid = untouched.0.id();
    assert!(output(world.imas(["pin"]).arg(&program).arg("mimalloc")).status.success());
    let (code, advice) = advise_of_it(&[]);
    assert_eq!(by_trials(code, &advice), Some(1), "{advice:#}");
    let row = &list(&advice, "/processes")[0];
    assert_eq!(
        (row["pid"].as_u64(), text(row, "/on"), text(row, "/pick")),
        (Some(u64::from(pid)), "system", "mimalloc")
    );
    assert!(row["memory"].is_null() && row["gain"] == false, "without data there must be no advice: {row:#}");
    let page_has = |part: &str| stdout(&output(&mut world.imas(["advise"]))).contains(part);
    wait_until("the page has no data", || page_has("no data: too few trials"));

    assert!(output(world.imas(["unpin"]).arg(&program)).status.success());
    let store = Store::open(&world.store_path()).unwrap();
    let known = store.programs().unwrap().into_iter().find(|known| known.path.ends_with("/stays")).unwrap();
    let build_id = imas_linux::elf::ElfImage::read(&program).unwrap().build_id.unwrap_or_default();
    for (at, candidate) in SIX.into_iter().enumerate() {
        for number in 0..8 {
            let resident =
                if candidate == "hoard" { 50 << 20 } else { (100 << 20) + ((at * 8 + number) << 12) as u64 };
            let cost = if candidate == "hoard" { 0.5 } else { 1.0 + 0.01 * number as f64 };
            let mut made = trial(candidate, &build_id, at * 10 + number, resident, cost);
            made.sample.made_unix_s = imas_linux::host::now_unix_s() - 1000.0 + (number * 10 + at) as f64;
            assert!(store.add_trial(known.id, &made).unwrap());
        }
    }
    drop(store);
    let (code, advice) = advise_of_it(&[]);
    let row = &list(&advice, "/processes")[0];
    // Under `paper`, the policy of these worlds, the best is picked and nothing is proven.
    assert_eq!(by_trials(code, &advice), Some(1), "{advice:#}");
    assert_eq!(
        (text(row, "/on"), text(row, "/pick"), row["gain"].as_bool()),
        ("system", "hoard", Some(false)),
        "{row:#}"
    );
    assert!(text(row, "/how").contains("imas run"), "{row:#}");
    wait_until("the page has the pick", || page_has("hoard"));

    // The policy that proves does so of the same trials; none of its own is due.
    let (code, advice) = advise_of_it(&[("IMAS_POLICY", "adaptive"), ("IMAS_RETEST", "1e6")]);
    let row = &list(&advice, "/processes")[0];
    assert_eq!(code, Some(0), "{advice:#}");
    assert_eq!(
        (text(row, "/pick"), row["gain"].as_bool(), &row["trials"]),
        ("hoard", Some(true), &serde_json::json!([8, 8])),
        "{row:#}"
    );
    let memory: Vec<f64> = list(row, "/memory").iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(memory[0] <= memory[1] && memory[1] <= memory[2] && (memory[1] - 0.5).abs() < 0.01, "{memory:?}");

    // A program that runs under its decision needs no advice.
    drop(untouched);
    let placed = start(&["run"]);
    wait_until("the library", || {
        std::fs::read_to_string(format!("/proc/{}/maps", placed.0.id()))
            .is_ok_and(|maps| maps.contains("libhoard.so"))
    });
    let (code, advice) = advise(&[]);
    assert_eq!((by_trials(code, &advice), list(&advice, "/processes").len()), (Some(1), 0), "{advice:#}");
}
