// SPDX-License-Identifier: Apache-2.0
//! A program from its first start until it is settled, and the commands that show and undo this.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;

use crate::support::{
    INGEST, LIBRARIES, SIX, World, assert_nobody_known, assert_printed, assert_refused, build, candidate,
    default_set, describe, input, keys, list, names_of, output, printed, real, stderr, stdout, succeeded,
    text, wait_until, write_script,
};
use imas_core::sample::{Ended, PageKind};
use imas_testing::Running;
use serde_json::Value;

/// Settings that give each candidate one test. So a program is settled after as many starts as there are
/// candidates.
const ONE_TEST: &str = "max_tests = 1\nretest_s = 0";

/// Puts the program through one trial of each of the six.
fn settle(world: &World, command: &[&str]) {
    world.tests_six(ONE_TEST);
    for _ in SIX {
        succeeded(world.start(command));
    }
}

// ---- settling ---------------------------------------------------------------------------------------------

fn sqlite_at_work(world: &World) -> String {
    let mut command = world.imas(["run", "--retest", "0", "--", "sqlite3", ":memory:"]);
    let output = succeeded(output(command.stdin(std::fs::File::open(input("work.sql")).unwrap())));
    stdout(&output)
}

#[test]
fn thirty_starts_settle_a_program() {
    let world = World::new();
    world.tests_six("");
    let want = sqlite_at_work(&world);
    for start in 1..30 {
        assert_eq!(sqlite_at_work(&world), want, "start {start}");
    }
    let shown = world.json(["show", "sqlite3", "--json"]);
    assert_eq!(shown["trials"], 30);
    for name in SIX {
        let view = candidate(&shown, name);
        assert_eq!(view["summary"]["count"], 5, "{view:#}");
        assert_eq!(list(view, "/left_out").len(), 0, "{view:#}");
        assert!(view["summary"]["ns_per_op"].as_f64().unwrap() > 0.0, "{view:#}");
        assert!(view["summary"]["heap_bytes"].as_f64().unwrap() > 100e3, "{view:#}");
    }
    for pick in ["fastest", "leanest", "balanced"] {
        assert!(SIX.contains(&text(&shown, &format!("/picks/{pick}"))));
    }
    assert_eq!(shown["next"]["trial"], false);
    let served: Vec<_> = world.trials().into_iter().map(|trial| trial.sample.served).collect();
    for name in ["jemalloc ", "tcmalloc ", "hoard ", "mimalloc "] {
        assert_eq!(served.iter().filter(|served| served.starts_with(name)).count(), 5, "{served:?}");
    }
    let table = printed(&output(&mut world.imas(["show", "sqlite3"])));
    for word in SIX.iter().chain(&["ns per operation", "fragmentation", "heap", "fastest", "leanest"]) {
        assert!(table.contains(word), "no {word} in\n{table}");
    }
}

/// A settled start is an exec of the pick: the same process, without the hook and with no library of IMAS but
/// the guard.
#[test]
fn the_settled_start_has_no_hook() {
    let world = World::new();
    let script = world.work().join("look.sh");
    write_script(
        &script,
        "#!/bin/bash\necho $$,$LD_PRELOAD; grep -o '[^/ ]*\\.so[.0-9]*$' /proc/$$/maps | LC_ALL=C sort -u\n",
    );
    let script = script.to_string_lossy().into_owned();
    settle(&world, &[&script]);
    let shown = world.json(["show", &script, "--json"]);
    assert_eq!(shown["next"]["trial"], false);
    let pick = text(&shown, "/next/candidate");
    check_mapped(&world, &script, pick);
    // The pick may vary. These two candidates cover both kinds: without and with a library.
    for candidate in ["system", "mimalloc"] {
        world.check(["pin", &script, candidate]).success();
        check_mapped(&world, &script, candidate);
    }
}

/// Starts the script, which prints its pid, its preload and its libraries.
fn check_mapped(world: &World, script: &str, candidate: &str) {
    let child = world.imas(["run", "--", script]).stdout(Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let text = stdout(&child.wait_with_output().unwrap());
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(&*format!("{pid},")), "the same process, and a clean environment");
    let of_allocators = LIBRARIES.map(|name| format!("lib{name}.so"));
    let is_ours = |file: &&str| file.starts_with("libimas") || of_allocators.iter().any(|name| name == file);
    let ours: Vec<_> = lines.filter(is_ours).map(str::to_owned).collect();
    let library = LIBRARIES.contains(&candidate).then(|| format!("lib{candidate}.so"));
    let guard = (candidate != "system").then(|| "libimas-guard.so".to_owned());
    let mut want: Vec<_> = library.into_iter().chain(guard).collect();
    want.sort();
    assert_eq!(ours, want, "{candidate}: {text}");
}

// ---- what the program sees --------------------------------------------------------------------------------

/// All kinds of start: trial, production, forced, and switched off.
fn ways_to_start(world: &World) -> Vec<Vec<&'static str>> {
    world.tests_six("retest_s = 0");
    let mut ways: Vec<Vec<&str>> = SIX.iter().map(|_| vec!["run", "--"]).collect();
    ways.extend(SIX.iter().map(|candidate| vec!["run", "--candidate", candidate, "--"]));
    ways
}

#[test]
fn the_environment_is_restored_byte_for_byte() {
    let world = World::new();
    let odd = OsStr::new("a\u{1}b=c:d e");
    let dress = |command: &mut std::process::Command| {
        command.env("ODD", odd).env("EMPTY", "").env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=5");
        stdout(&output(command))
    };
    // Prints the environment of the program, then its child's.
    let words = ["bash", "-c", "cat /proc/self/environ | sort -z; env -0 | sort -z"];
    let want = dress(world.command(words[0]).args(&words[1..]));
    assert!(want.contains("ODD=") && want.contains("EMPTY=\0"));
    for way in ways_to_start(&world) {
        let got = dress(world.imas(&way).args(words));
        assert_eq!(got, want, "{way:?}");
    }
    let plain = stdout(&output(world.command("env").env("EMPTY", "")));
    for way in ways_to_start(&world) {
        let got = stdout(&output(world.imas(&way).arg("env").env("EMPTY", "")));
        assert_eq!(sorted(&got), sorted(&plain), "{way:?}");
    }
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn streams_arguments_and_ends_are_the_programs_own() {
    let world = World::new();
    let binary: Vec<u8> = (0..=255).cycle().take(200_000).collect();
    for way in ways_to_start(&world) {
        let mut child =
            world.imas(&way).arg("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut into = child.stdin.take().unwrap();
        let sent = binary.clone();
        let writer = std::thread::spawn(move || into.write_all(&sent));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.status.success() && output.stdout == binary, "{way:?}");
    }
    for way in ways_to_start(&world) {
        let code = "printf '%s|' \"$0\" \"$@\"; echo err >&2; exit 42";
        let output = output(world.imas(&way).args(["bash", "-c", code, "-x", "", "a b", "--help"]));
        assert_printed(&output, 42, "-x||a b|--help|");
        // At the first start of a shell, imas prints that it learns nothing about the shell's children.
        let printed = stderr(&output);
        let is_own = |line: &&str| !line.starts_with("imas: ") && !line.starts_with("hint: ");
        assert_eq!(printed.lines().filter(is_own).collect::<Vec<_>>(), ["err"], "{way:?}: {printed}");
    }
    for (name, signal) in [("TERM", 15), ("KILL", 9), ("INT", 2), ("PIPE", 13)] {
        for way in ways_to_start(&world) {
            // A background job of a shell ignores SIGINT, and its children inherit that.
            let mut command = world.command("env");
            command.args(["--default-signal=INT,TERM", env!("CARGO_BIN_EXE_imas")]).args(&way);
            let ended = output(command.args(["bash", "-c", &format!("kill -{name} $$")]));
            assert_eq!(ended.status.signal(), Some(signal), "{way:?}: {}", describe(&ended));
        }
    }
}

#[test]
fn the_process_is_the_one_that_was_spawned() {
    let world = World::new();
    for way in ways_to_start(&world) {
        let child = world.imas(&way).args(["sh", "-c", "echo $$"]).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        assert_eq!(stdout(&child.wait_with_output().unwrap()), format!("{pid}\n"), "{way:?}");
    }
}

#[test]
fn a_command_that_cannot_start_ends_as_with_env() {
    let world = World::new();
    let plain = world.work().join("plain");
    std::fs::write(&plain, "x").unwrap();
    let plain = plain.to_string_lossy().into_owned();
    for (word, code, says) in [
        ("no-such-program", 127, "not found"),
        (plain.as_str(), 126, "not executable"),
        ("/usr", 126, "directory"),
    ] {
        let output = output(&mut world.imas(["run", "--", word]));
        assert_eq!(output.status.code(), Some(code), "{}", describe(&output));
        let printed = stderr(&output);
        assert!(printed.starts_with("imas: ") && printed.contains(says), "{printed}");
    }
    assert_eq!(output(&mut world.imas(["run", "--"])).status.code(), Some(125));
    assert_eq!(output(&mut world.imas(["run", "--no-such-flag", "--", "true"])).status.code(), Some(125));
    assert_eq!(world.page_files(), [""; 0], "a failed start must leave no page");
}

// ---- which program it is ----------------------------------------------------------------------------------

#[test]
fn scripts_are_programs_of_their_own() {
    let world = World::new();
    world.configure("max_tests = 1\nretest_s = 0");
    let script = |name: &str, first: &str| -> String {
        let file = world.work().join(name);
        write_script(&file, &format!("{first}\nprint(12)\n"));
        file.to_string_lossy().into_owned()
    };
    let direct = script("direct.py", "#!/usr/bin/python3 -u");
    let by_env = script("by_env.py", "#!/usr/bin/env python3");
    for words in
        [vec![direct.as_str()], vec![&by_env], vec!["python3", &direct], vec!["python3", "-c", "print(12)"]]
    {
        let output = world.start(&words);
        assert_printed(&output, 0, "12\n");
    }
    let shown = world.json(["show", "--json"]);
    let python = std::fs::canonicalize(real("python3")).unwrap().to_string_lossy().into_owned();
    let known: Vec<_> = list(&shown, "/programs")
        .iter()
        .map(|each| {
            assert_eq!(text(each, "/program/path"), python);
            (text(each, "/program/detail"), each["trials"].as_u64().unwrap())
        })
        .collect();
    let code = format!("-c #{:016x}", imas_linux::c_bytes::fnv64(b"print(12)"));
    assert_eq!(known, [(direct.as_str(), 2), (by_env.as_str(), 1), (code.as_str(), 1)]);
    // A name that matches several programs is an error. A script's name matches one.
    assert_refused(&output(&mut world.imas(["show", "python3"])), "runs several programs");
    assert_eq!(text(&world.json(["show", &by_env, "--json"]), "/program/detail"), by_env);
}

// ---- commands around it -----------------------------------------------------------------------------------

#[test]
fn pin_unpin_exclude_and_forget() {
    let world = World::new();
    let who = build::program("who", &world.work()).to_string_lossy().into_owned();
    let ran = || stdout(&world.start([&who]));
    let next = || world.json(["show", &who, "--json"]);

    world.check(["pin", &who, "mimalloc"]).success();
    assert!(ran().starts_with("mimalloc "), "a pin has priority over trials");
    assert_eq!((text(&next(), "/next/candidate"), text(&next(), "/next/reason")), ("mimalloc", "pinned"));
    let explained = world.json(["explain", &who, "--json"]);
    assert!(text(&explained, "/undo").starts_with("imas unpin "), "{explained:#}");

    world.check(["exclude", "add", &who]).success();
    world.check(["exclude", "add", &who]).code(1);
    assert_eq!(list(&world.json(["exclude", "list", "--json"]), "/excluded"), &[Value::from(who.as_str())]);
    assert!(ran().starts_with("mimalloc "), "a pin has priority over an exclusion");

    world.check(["unpin", &who]).success();
    world.check(["unpin", &who]).code(1);
    assert_eq!((ran().as_str(), text(&next(), "/next/reason")), ("libc\n", "excluded"));
    assert_eq!(next()["excluded"], true);

    world.check(["exclude", "remove", &who]).success();
    world.check(["exclude", "remove", &who]).code(1);
    assert_eq!(next()["next"]["trial"], true);
    ran();
    assert!(next()["trials"].as_u64().unwrap() > 0);

    world.check(["forget", &who]).success();
    world.check(["show", &who]).code(2).stderr(predicates::str::contains("nothing is known"));
    assert_eq!(ran(), "libc\n", "the trials must begin again with system");
    assert_eq!(world.trials().len(), 1);
}

#[test]
fn reading_commands_have_their_shapes() {
    let world = World::new();
    settle(&world, &["perl", "-e", "print 1"]);
    let listing = world.json(["list", "--json"]);
    assert_eq!(listing["schema"], 1);
    let defaults = default_set();
    let defaults = names_of(&defaults);
    for &name in SIX.iter().chain(&defaults) {
        let row = candidate(&listing, name);
        for key in ["name", "available", "library", "version", "origin", "licence", "environment", "reason"] {
            assert!(keys(row).contains(&key), "no {key} in {row:#}");
        }
        assert_eq!((&row["available"], &row["reason"]), (&Value::Bool(true), &Value::Null), "{row:#}");
        assert!(!text(row, "/version").is_empty() && !text(row, "/licence").is_empty(), "{row:#}");
    }
    let tunables = text(candidate(&listing, "glibc:arena1"), "/environment/GLIBC_TUNABLES");
    assert_eq!(tunables, "glibc.malloc.arena_max=1");
    let tested: Vec<_> = list(&world.json(["list", "--default", "--json"]), "/candidates")
        .iter()
        .filter(|row| row["runtime"].is_null())
        .map(|row| text(row, "/name").to_owned())
        .collect();
    assert_eq!(tested, defaults);

    let shown = world.json(["show", "perl", "--json"]);
    for key in
        ["schema", "program", "build_id", "candidates", "picks", "pinned", "excluded", "trials", "next"]
    {
        assert!(keys(&shown).contains(&key), "no {key} in {shown:#}");
    }
    let explained = world.json(["explain", "perl", "--json"]);
    for key in ["schema", "program", "next", "sentence", "undo", "quarantined", "candidates", "past"] {
        assert!(keys(&explained).contains(&key), "no {key} in {explained:#}");
    }
    assert_eq!(list(&explained, "/past").len(), SIX.len(), "{explained:#}");
    assert!(!list(&explained, "/next/evidence").is_empty());
    world.check(["explain", "perl"]).success().stdout(predicates::str::contains("to change it: imas "));

    let doctor = world.json(["doctor", "--json"]);
    assert!(list(&doctor, "/findings").iter().all(|finding| finding["state"] != "broken"), "{doctor:#}");
    let looked_at: Vec<_> = list(&doctor, "/findings").iter().map(|finding| text(finding, "/what")).collect();
    for what in [
        "installation",
        "store",
        "trial pages",
        "candidates",
        "hardware counters",
        "system calls",
        "conditions",
    ] {
        assert!(looked_at.contains(&what), "no {what} in {looked_at:?}");
    }
}

#[test]
fn a_dry_run_starts_and_records_nothing() {
    let world = World::new();
    let mark = world.work().join("mark");
    let mark_text = mark.to_string_lossy().into_owned();
    for flags in [&["run", "--dry-run"][..], &["run", "--dry-run", "--candidate", "hoard"]] {
        let output = output(world.imas(flags).args(["--", "touch", &mark_text]));
        assert!(output.status.success() && stdout(&output).is_empty(), "{}", describe(&output));
        assert!(stderr(&output).starts_with("imas: /usr/bin/touch") && stderr(&output).contains(" under "));
        assert!(!mark.exists());
    }
    assert_eq!(world.page_files(), [""; 0]);
    assert!(world.trials().is_empty());
    let verbose = output(&mut world.imas(["run", "-v", "--", "touch", &mark_text]));
    assert!(stderr(&verbose).contains("under system: "), "{}", describe(&verbose));
    assert!(mark.exists());
}

#[test]
fn the_switch_turns_everything_off() {
    let world = World::new();
    let who = build::program("who", &world.work());
    for arguments in [&["run", "--"][..], &["run", "--candidate", "hoard", "--"]] {
        let output = output(world.imas(arguments).arg(&who).env("IMAS_DISABLE", "1"));
        assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("libc\n", ""), "{arguments:?}");
    }
    assert!(!world.store_path().exists() && world.page_files().is_empty());
}

// ---- nothing is lost --------------------------------------------------------------------------------------

#[test]
fn eight_starts_at_once_lose_nothing() {
    let world = World::new();
    let behave = build::program("behave", &world.work());
    let (mut started, mut untouched) = (0, 0);
    // However busy the machine is, some find the store free.
    while started < 24 || (started - untouched < 6 && started < 400) {
        let starts: Vec<_> = (0..8)
            .map(|_| {
                let mut imas = world.imas(["run", "--retest", "0", "--"]);
                imas.arg(&behave).arg("20000").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
            })
            .collect();
        for start in starts {
            let output = succeeded(start.wait_with_output().unwrap());
            // A start waits half a second for the store at most. On a busy machine the other processes may
            // keep it locked that long.
            untouched += usize::from(stderr(&output).contains("the program is started untouched"));
            started += 1;
        }
    }
    let trials = world.trials();
    assert_eq!(trials.len(), started - untouched);
    assert!(trials.len() >= 6, "{untouched} of {started} starts found the store locked");
    assert!(
        trials.iter().all(|trial| trial.sample.malloc.calls >= 20_000 && trial.sample.pass_reason.is_none())
    );
    assert_eq!(world.page_files(), [""; 0], "every page was harvested and removed");
}

/// Simultaneous starts, as under `make -j8`: a candidate's waiting time begins when its trial begins. The programs run
/// until all have been started, however busy the machine is.
#[test]
fn of_starts_at_once_one_is_a_candidates_trial() {
    let world = World::new();
    let behave = build::program("behave", &world.work());
    let start = || world.imas(["run", "--"]).arg(&behave).args(["20000", "hang"]).spawn().unwrap();
    let starts: Vec<_> = (0..8).map(|_| Running(start())).collect();
    let runs = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == behave);
    wait_until("all have been started", || starts.iter().all(|start| runs(start.0.id())));
    drop(starts);
    world.ingest();
    let mut tried: Vec<_> = world.trials().into_iter().map(|trial| trial.sample.candidate).collect();
    tried.sort_unstable();
    let different = tried.iter().collect::<BTreeSet<_>>().len();
    assert!(different > 0 && different == tried.len(), "{tried:?}");
}

/// The next start is no trial, and nothing is settled until the running trial has ended.
#[test]
fn a_trial_made_by_another_start_is_reported() {
    let world = World::new();
    let running = Running(world.imas(["run", "--", "sleep", "1000"]).spawn().unwrap());
    let explained = || world.json(["explain", "sleep", "--json"]);
    wait_until("the page", || !world.page_files().is_empty());
    wait_until("the process of the trial", || explained()["under_way"]["pid"] == running.0.id());
    let explanation = explained();
    assert_eq!(text(&explanation, "/under_way/candidate"), "system");
    assert!(explanation["under_way"]["since_unix_s"].is_number(), "{explanation:#}");
    assert_eq!(explanation["next"]["trial"], false);
    assert_eq!(text(&explanation, "/next/reason"), "no-data");
    assert!(text(&explanation, "/looked_at_again").contains("has ended"), "{explanation:#}");
    let page = stdout(&output(&mut world.imas(["explain", "sleep"])));
    let process = format!("(process {})", running.0.id());
    assert!(page.contains("now: a trial of system is under way since") && page.contains(&process), "{page}");
    assert!(!page.contains("at the next start"), "{page}");
    let dry = output(&mut world.imas(["run", "--dry-run", "--", "sleep", "0"]));
    assert!(stderr(&dry).contains("Nothing has been measured yet"), "{}", describe(&dry));
    let none = output(&mut world.imas(["env", "sleep"]));
    assert!(stderr(&none).contains("a trial of system is under way"), "{}", describe(&none));
    drop(running);
    let after = explained();
    assert_eq!((&after["under_way"], &after["next"]["trial"]), (&Value::Null, &true.into()), "{after:#}");
}

#[test]
fn a_killed_trial_keeps_its_counts() {
    let world = World::new();
    let behave = build::program("behave", &world.work());
    let mut command = world.imas(["run", "--retest", "0", "--"]);
    let child = command.arg(&behave).args(["30000", "hang"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut reader = std::io::BufReader::new(running.0.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "worked\n");
    // The page of a running process stays, however often pages are harvested.
    assert_eq!((0..5).map(|_| world.trials().len()).sum::<usize>(), 0);
    assert_eq!(world.page_files().len(), 1);
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let trials = world.trials();
    let [trial] = &trials[..] else { panic!("{trials:?}") };
    assert_eq!((trial.sample.ended, trial.sample.kind), (Ended::Unknown, PageKind::Trial));
    assert!((30_000..40_000).contains(&trial.sample.malloc.calls), "{:?}", trial.sample);
    let sizes = trial.sample.size_histogram.iter().sum::<u64>() as f64;
    assert!((0.5..2.0).contains(&(sizes / 30_000.0)), "{:?}", trial.sample);
}

/// imas was killed after it stored a page and before it removed it. The page must be stored once.
#[test]
fn a_page_that_comes_twice_is_stored_once() {
    let world = World::new();
    let behave = build::program("behave", &world.work());
    assert!(world.start([behave.as_os_str(), OsStr::new("5000")]).status.success());
    let [name] = &world.page_files()[..] else { panic!("{:?}", world.page_files()) };
    let page = world.pages().join(name);
    let kept: PathBuf = world.work().join("kept");
    std::fs::copy(&page, &kept).unwrap();
    assert_eq!(world.trials().len(), 1);
    assert!(!page.exists());
    std::fs::copy(&kept, &page).unwrap();
    assert_eq!(world.trials().len(), 1);
    assert!(!page.exists());
}

/// Pages are stored by several at the same moment, as by starts.
#[test]
fn many_at_once_store_each_page_once() {
    let world = World::new();
    let behave = build::program("behave", &world.work());
    let kept = world.work().join("pages");
    std::fs::create_dir(&kept).unwrap();
    for start in 1..=6 {
        // Moves the pages away, so that the next start does not harvest them.
        assert!(world.start([behave.as_os_str(), OsStr::new("5000")]).status.success());
        for name in world.page_files() {
            std::fs::copy(world.pages().join(&name), kept.join(&name)).unwrap();
            std::fs::remove_file(world.pages().join(&name)).unwrap();
        }
        assert_eq!(std::fs::read_dir(&kept).unwrap().count(), start);
    }
    for entry in std::fs::read_dir(&kept).unwrap().flatten() {
        std::fs::copy(entry.path(), world.pages().join(entry.file_name())).unwrap();
    }
    let readers: Vec<_> = (0..6)
        .map(|_| world.imas(INGEST).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    for reader in readers {
        let output = reader.wait_with_output().unwrap();
        assert_nobody_known(&output);
        assert!(stderr(&output).starts_with("imas: /no/such"), "no warning: {}", describe(&output));
    }
    assert_eq!(world.trials().len(), 6);
}
