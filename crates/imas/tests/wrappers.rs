// SPDX-License-Identifier: Apache-2.0
//! Commands that start another command: trials and decisions belong to the program that runs in the end.

use std::path::PathBuf;

use crate::support::{World, build, describe, list, output, stderr, stdout, succeeded, text, write_script};

/// A world without waiting time, and the path of a program that prints the name of its allocator.
fn world() -> (World, String) {
    let world = World::new();
    world.tests_six("max_tests = 3\nretest_s = 0");
    let who = build::program("who", &world.work()).to_string_lossy().into_owned();
    (world, who)
}

/// Path, detail and number of trials of every program in the store.
fn known(world: &World) -> Vec<(String, String, u64)> {
    let shown = world.json(["show", "--json"]);
    let programs = list(&shown, "/programs").iter();
    let of = |each: &serde_json::Value| {
        (
            text(each, "/program/path").to_owned(),
            text(each, "/program/detail").to_owned(),
            each["trials"].as_u64().unwrap(),
        )
    };
    programs.map(of).collect()
}

#[test]
fn imas_learns_about_the_program_that_wrappers_start() {
    let (world, who) = world();
    let ways: [&[&str]; 11] = [
        &["env", &who],
        &["env", "-u", "HOME", "A=1", &who],
        &["nice", "-n", "1", &who],
        &["timeout", "100", &who],
        &["timeout", "--foreground", "100", "env", "A=1", "nice", &who],
        &["nohup", &who],
        &["setsid", "-w", &who],
        &["stdbuf", "-oL", &who],
        &["ionice", "-t", &who],
        &["sh", "-c", &format!("exec {who}")],
        &["bash", "-c", &format!("{who} 2>&1")],
    ];
    let mut trials = 0;
    for words in ways {
        let output = world.start(words);
        assert!(output.status.success(), "{words:?}: {}", describe(&output));
        trials += 1;
    }
    assert_eq!(known(&world), [(who, String::new(), trials)]);
}

#[test]
fn a_candidate_serves_the_program_and_not_the_wrapper() {
    let (world, who) = world();
    for words in
        [vec!["timeout", "100", who.as_str()], vec!["sh", "-c", who.as_str()], vec!["env", "A=1", &who]]
    {
        let mut imas = world.imas(["run", "--candidate", "mimalloc", "--"]);
        let output = output(imas.args(&words));
        assert!(stdout(&output).starts_with("mimalloc "), "{words:?}: {}", describe(&output));
    }
}

#[test]
fn the_environment_is_the_same_under_a_wrapper() {
    let (world, _) = world();
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let ways: [&[&str]; 7] = [
        &["env", "A=1", "env"],
        &["env", "-i", "B=2", "/usr/bin/env"],
        &["env", "-u", "HOME", "A=", "env"],
        &["nice", "env"],
        &["timeout", "100", "env"],
        &["sh", "-c", "env"],
        &["bash", "-c", "exec env"],
    ];
    for words in ways {
        let plain = output(world.command(words[0]).args(&words[1..]));
        for start in 0..3 {
            let ours = world.start(words);
            assert_eq!(
                sorted(&stdout(&ours)),
                sorted(&stdout(&plain)),
                "{words:?}, start {start}: {}",
                describe(&ours)
            );
        }
    }
}

#[test]
fn the_effect_and_exit_status_of_a_wrapper_are_unchanged() {
    let (world, who) = world();
    for (words, code) in [
        (vec!["timeout", "0.2", "sleep", "100"], 124),
        (vec!["sh", "-c", "exit 7"], 7),
        (vec!["nice", "sh", "-c", "exit 8"], 8),
        (vec!["env", "no-such-program"], 127),
        (vec!["timeout", "5", "no-such-program"], 127),
        (vec!["sh", "-c", "no-such-program"], 127),
    ] {
        let output = world.start(&words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", describe(&output));
    }
    let niced = stdout(&world.start(["nice", "-n", "3", "nice"]));
    assert_eq!(niced.trim(), stdout(&output(world.command("nice").args(["-n", "3", "nice"]))).trim());
    let dry = output(world.imas(["run", "--dry-run", "--", "sh", "-c"]).arg(format!("{who} >made")));
    assert!(stderr(&dry).contains(&who), "{}", describe(&dry));
    assert!(!world.work().join("made").exists(), "a dry run must start nothing");
}

#[test]
fn each_code_on_the_command_line_is_a_program() {
    let world = World::new();
    world.configure("max_tests = 1\nretest_s = 0");
    for words in [
        ["perl", "-e", "print 1"],
        ["perl", "-e", "print 2"],
        ["perl", "-e", "print 1"],
        ["sh", "-c", "echo 1; echo 2"],
        ["sh", "-c", "echo 3; echo 4"],
        ["python3", "-c", "print(1)"],
    ] {
        succeeded(world.start(words));
    }
    let known = known(&world);
    let trials: Vec<_> = known.iter().map(|(_, _, trials)| *trials).collect();
    assert_eq!(trials, [2, 1, 1, 1, 1], "{known:?}");
    let is_hashed = |detail: &str| {
        detail.get(..4).is_some_and(|start| ["-e #", "-c #"].contains(&start)) && detail.len() == 20
    };
    assert!(known.iter().all(|(_, detail, _)| is_hashed(detail)), "{known:?}");
}

#[test]
fn a_program_that_starts_others_is_pointed_out_once() {
    let (world, who) = world();
    let script = format!("{who}; {who}");
    let first = world.start(["sh", "-c", &script]);
    assert!(stderr(&first).contains("starts other programs"), "{}", describe(&first));
    assert!(stderr(&first).contains("--follow"), "{}", describe(&first));
    let second = world.start(["sh", "-c", &script]);
    assert!(!stderr(&second).contains("starts other programs"), "{}", describe(&second));
    assert!(!stderr(&world.start([&who])).contains("starts other programs"), "the program does its own work");
}

/// A minimal version manager like pyenv and rbenv, with only the part that starts a program.
fn manager(world: &World, who: &str) -> PathBuf {
    let root = world.work().join("managed");
    let exec = format!(
        "#!/bin/bash\nset -e\nXENV_COMMAND=\"$2\"\nXENV_COMMAND_PATH={who}\nXENV_VERSION=1\nexport XENV_VERSION\n\
         IFS=: hook_paths=($XENV_HOOK_PATH)\nunset IFS\nfor folder in \"${{hook_paths[@]}}\"; do\n\
         for script in \"$folder\"/exec/*.bash; do [ ! -e \"$script\" ] || source \"$script\"; done; done\n\
         shift 1\nexec \"$XENV_COMMAND_PATH\" \"$@\"\n"
    );
    let main = format!(
        "#!/bin/bash\nXENV_HOOK_PATH=\"$XENV_HOOK_PATH:{0}/hooks\"\nexport XENV_HOOK_PATH=\"${{XENV_HOOK_PATH#:}}\"\nshift\nexec {0}/libexec/xenv-exec \"$@\"\n",
        root.display()
    );
    let shim = format!(
        "#!/usr/bin/env bash\nset -e\nprogram=\"${{0##*/}}\"\nexec \"{}/libexec/xenv\" exec \"$program\" \"$@\"\n",
        root.display()
    );
    for (name, text) in [
        ("libexec/xenv-exec", exec.replace("\"$2\"", "\"$1\"")),
        ("libexec/xenv", main),
        ("shims/tool", shim),
    ] {
        let file = root.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        write_script(&file, &text);
    }
    root.join("shims/tool")
}

#[test]
fn a_shim_leads_to_its_program() {
    let (world, who) = world();
    let shim = manager(&world, &who).to_string_lossy().into_owned();
    for _ in 0..2 {
        succeeded(world.start([&shim]));
    }
    assert_eq!(known(&world), [(who, String::new(), 2)]);
    let env = manager(&world, "/usr/bin/env").to_string_lossy().into_owned();
    let plain = stdout(&output(&mut world.command(&env)));
    let ours = stdout(&world.start([&env]));
    let set = |text: &str| {
        text.lines()
            .filter(|line| !line.starts_with("SHLVL"))
            .map(str::to_owned)
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(set(&ours), set(&plain));
}
