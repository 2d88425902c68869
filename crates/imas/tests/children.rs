// SPDX-License-Identifier: Apache-2.0
//! Commands that start another command: trials and decisions belong to the program that runs in the end. Then children with
//! another libc or word size, under `imas run --follow` and `imas bench`: they must start as they do without IMAS.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use imas_testing::skipped;

use crate::support::{
    World, build, built, default_set, describe, lib_dir, list, output, parsed, stderr, stdout, succeeded,
    text, workspace, write_script,
};

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

/// The variants of `plain.c`: name, compiler, and the flags after the source.
fn kinds() -> Vec<(&'static str, &'static str, Vec<String>)> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let musl = format!("/usr/lib/{}-linux-musl", std::env::consts::ARCH);
    let musl_static_pie = format!(
        "-fPIE -static-pie -nostdinc -nostdlib -isystem /usr/include/{}-linux-musl {musl}/rcrt1.o {musl}/crti.o -L{musl} -lc {musl}/crtn.o",
        std::env::consts::ARCH
    );
    vec![
        ("musl", "musl-gcc", words("")),
        ("musl-static", "musl-gcc", words("-static")),
        ("musl-static-pie", "cc", words(&musl_static_pie)),
        ("static", "cc", words("-static")),
        ("static-pie", "cc", words("-static-pie")),
        ("32-bit", "i686-linux-gnu-gcc", words("")),
    ]
}

/// Builds the variants that this machine can build and start. Prints the reason for each of the others.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let source = workspace().join("tests/programs/plain.c");
    let made = |(name, compiler, flags): (&str, &str, Vec<String>)| {
        let program = folder.join(name);
        let built = output(Command::new(compiler).arg("-o").arg(&program).arg(&source).args(flags));
        if built.status.success() && output(&mut Command::new(&program)).status.success() {
            return Some(program);
        }
        skipped(&format!(
            "{name}: {compiler} cannot build it, or it does not start: {}",
            stderr(&built).trim_end()
        ));
        None
    };
    let programs: Vec<_> = kinds().into_iter().filter_map(made).collect();
    assert!(programs.iter().any(|program| program.ends_with("musl")), "musl-tools: run 'make setup-test'");
    programs
}

/// A shell script that starts them one after the other and prints how each ends.
fn script(programs: &[PathBuf]) -> String {
    programs.iter().map(|program| format!("{0}; echo {0} $?; ", program.display())).collect()
}

fn candidates() -> Vec<String> {
    default_set().into_iter().filter(|one| !one.is_system()).map(|one| one.name).collect()
}

fn follow(world: &World, candidate: &str, words: &[&str]) -> Output {
    output(world.imas(["run", "--follow", "--candidate", candidate, "--"]).args(words))
}

#[test]
fn a_start_below_a_followed_one_has_its_own_candidate_alone() {
    let world = World::new();
    let imas = built("imas").display().to_string();
    for how in ["run --candidate system --", "run --candidate glibc:arena1 --", "run --"] {
        let line = format!("{imas} {how} /usr/bin/grep -c libhoard /proc/self/maps");
        let below = follow(&world, "hoard", &["sh", "-c", &line]);
        assert_eq!(stdout(&below), "0\n", "{how}: {}", describe(&below));
    }
}

/// Output and exit status must be as in the untouched run, and standard error must be empty.
fn assert_as_plain(world: &World, candidate: &str, words: &[&str]) {
    let plain = output(world.command(words[0]).args(&words[1..]));
    let ours = follow(world, candidate, words);
    assert_eq!(describe(&ours), describe(&plain), "{candidate}: {words:?}");
    assert_eq!(stderr(&ours), "", "{candidate}: {words:?}");
}

/// The program prints the name of the allocator that serves it.
fn assert_serves(output: &Output, allocator: &str) {
    assert!(stdout(output).starts_with(allocator) && stderr(output).is_empty(), "{}", describe(output));
}

#[test]
fn children_start_below_a_program_that_is_followed() {
    let world = World::new();
    let script = script(&programs(&world.work()));
    for candidate in candidates() {
        assert_as_plain(&world, &candidate, &["sh", "-c", &script]);
    }
    let who = build::program("who", &world.work()).display().to_string();
    let served = follow(&world, "hoard", &["sh", "-c", &format!("{who}; exit $?")]);
    // Children of the native kind do get the candidate.
    assert_serves(&served, "hoard");
}

#[test]
fn children_start_in_measured_and_in_counted_runs() {
    let world = World::new();
    let errors = world.work().join("errors");
    let script = format!("exec 2>>{}; {} ls / ", errors.display(), script(&programs(&world.work())));
    let mut imas = world.imas(["bench", "--json", "-n", "1", "--trials", "1", "--warmup", "0", "--"]);
    let bench = succeeded(output(imas.args(["sh", "-c", &script])));
    let result = parsed(&bench);
    for candidate in list(&result, "/candidates") {
        assert_eq!(list(candidate, "/runs")[0]["exit"], 0, "{candidate:#}");
        assert!(candidate["paper"]["operations"].as_u64().unwrap() > 0, "{candidate:#}");
    }
    let harm = ["system-fails", "exit-differs", "output-differs", "crash-under"];
    let kinds: Vec<_> = list(&result, "/warnings").iter().map(|one| one["kind"].as_str().unwrap()).collect();
    assert!(!kinds.iter().any(|kind| harm.contains(kind)), "{:#}", result["warnings"]);
    assert_eq!(std::fs::read_to_string(errors).unwrap(), "");
}

#[test]
fn an_allocator_of_the_users_own_reaches_no_child_of_another_libc() {
    let world = World::new();
    let own = world.work().join("libown.so");
    std::fs::copy(lib_dir().join("allocators/libhoard.so"), &own).unwrap();
    world.add_library("own", &own, "");
    let others: Vec<_> =
        programs(&world.work()).into_iter().filter(|program| !program.ends_with("32-bit")).collect();
    assert_as_plain(&world, "own", &["sh", "-c", &script(&others)]);
    let who = build::program("who", &world.work()).display().to_string();
    assert_serves(&follow(&world, "own", &["sh", "-c", &format!("{who}; exit $?")]), "hoard");
}

/// Two sandboxes. The libraries are visible in the first one. In the second one they are not, and the dynamic
/// linker prints a line for each.
#[test]
fn children_start_in_a_sandbox() {
    let world = World::new();
    let whole = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev"];
    if !Command::new(whole[0]).args(&whole[1..]).arg("true").output().is_ok_and(|made| made.status.success())
    {
        return skipped("bwrap is missing, or may make no namespaces here");
    }
    let script = script(&programs(&world.work()));
    let inside = ["sh", "-c", &script];
    assert_as_plain(&world, "jemalloc", &[&whole[..], &inside[..]].concat());
    let narrow =
        "bwrap --ro-bind /usr /usr --symlink usr/lib /lib --symlink usr/lib64 /lib64 --symlink usr/bin /bin";
    let words: Vec<&str> = narrow.split(' ').chain(["sh", "-c", "echo inside; exit 3"]).collect();
    let ours = follow(&world, "jemalloc", &words);
    assert_eq!((stdout(&ours).as_str(), ours.status.code()), ("inside\n", Some(3)), "{}", describe(&ours));
    let lines = stderr(&ours);
    assert!(
        lines.lines().count() == 2 && lines.lines().all(|line| line.contains("cannot open shared")),
        "{lines}"
    );
}

/// An installation without the folder of links for children, such as a copy of the libraries.
#[test]
fn without_the_links_the_plain_paths_are_used() {
    let world = World::new();
    let copy = world.work().join("copy");
    std::fs::create_dir_all(copy.join("allocators")).unwrap();
    for file in ["libimas.so", "libimas-guard.so", "catalogue.toml", "allocators/libhoard.so"] {
        std::fs::copy(lib_dir().join(file), copy.join(file)).unwrap();
    }
    let who = build::program("who", &world.work()).display().to_string();
    let script = format!("{who}; echo \"$LD_PRELOAD\"");
    let mut imas = world.imas(["run", "--follow", "--candidate", "hoard", "--", "sh", "-c", &script]);
    let ours = output(imas.env("IMAS_LIB_DIR", &copy));
    assert_serves(&ours, "hoard");
    let preload = format!("{0}/libimas-guard.so:{0}/allocators/libhoard.so", copy.display());
    assert_eq!(stdout(&ours).lines().last(), Some(preload.as_str()));
}

/// `$LIB` in `LD_PRELOAD` must survive programs that pass the environment on. Without `--follow` the program
/// must see no `LD_PRELOAD`.
#[test]
fn the_preload_is_handed_on_as_it_is() {
    let world = World::new();
    let echo = "printf '%s\\n' \"$LD_PRELOAD\"";
    std::fs::write(world.work().join("Makefile"), "all:\n\t@printf '%s\\n' \"$$LD_PRELOAD\"\n").unwrap();
    let direct = stdout(&follow(&world, "jemalloc", &["sh", "-c", echo]));
    assert!(direct.contains("/preload/$LIB/libimas-guard.so:"), "{direct}");
    let python = format!("import subprocess; subprocess.run(['sh', '-c', {echo:?}])");
    for words in [&["make", "-s"][..], &["env", "make", "-s"], &["python3", "-c", &python]] {
        assert_eq!(stdout(&follow(&world, "jemalloc", words)), direct, "{words:?}");
    }
    let alone = output(&mut world.imas(["run", "--candidate", "jemalloc", "--", "sh", "-c", echo]));
    assert_eq!(stdout(&alone), "\n");
}

/// Some programs behave differently when GLIBC_TUNABLES exists, even if it is empty.
#[test]
fn tunables_are_set_only_for_candidates_that_have_some() {
    let world = World::new();
    let words = ["sh", "-c", "sh -c 'echo ${GLIBC_TUNABLES-unset}'"];
    assert_eq!(stdout(&follow(&world, "jemalloc", &words)), "unset\n");
    assert!(stdout(&follow(&world, "glibc:lean", &words)).starts_with("glibc.malloc."));
    let alone = output(world.imas(["run", "--candidate", "glibc:lean", "--"]).args(words));
    assert_eq!(stdout(&alone), "unset\n");
}

/// A program of Go that becomes another one enters the kernel by itself: its own file has the candidate only if the
/// variables stay. Another program of Go sees none of them.
#[test]
fn go_that_executes_itself_keeps_the_candidate() {
    if Command::new("go").arg("version").output().is_err() {
        return skipped("go is not installed");
    }
    let world = World::new();
    let built = |tag: &str| {
        let program = world.work().join(tag);
        let mut build = Command::new("go");
        build.current_dir(workspace().join("tests/programs/execs_itself")).env("CGO_ENABLED", "1");
        let done = output(build.args(["build", "-trimpath", "-tags", tag, "-o"]).arg(&program).arg("."));
        assert!(done.status.success(), "{}", describe(&done));
        program
    };
    for (tag, expected) in
        [("plain", "2 mimalloc false\n"), ("again", "2 mimalloc true\n1 mimalloc true\n0 mimalloc true\n")]
    {
        let program = built(tag);
        let named = output(world.imas(["run", "--candidate", "mimalloc", "--"]).arg(&program).arg("2"));
        assert_eq!(stdout(&named), expected, "{tag}: {}", describe(&named));
        let program = program.to_str().unwrap();
        world.check(["pin", program, "mimalloc"]).success();
        for _ in 0..2 {
            let started = world.start([program, "2"]);
            assert_eq!(stdout(&started), expected, "{tag}, decided, then settled: {}", describe(&started));
        }
    }
}

/// A program that executes its own file by an instruction of its own, once; then it waits for its input to end.
#[cfg(target_arch = "x86_64")]
const EXECUTES_ITSELF: &str = r#"
#include <unistd.h>
extern char **environ;
int main(int count, char **words) {
    if (count > 1) {
        char *again[] = {words[0], 0};
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "0"(59L), "D"(words[0]), "S"(again), "d"(environ) : "rcx", "r11", "memory");
        return 1;
    }
    char byte;
    return write(1, "runs\n", 5) != 5 || read(0, &byte, 1) != 0;
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
fn a_candidate_that_is_lost_by_an_exec_unseen_is_shown_until_the_end() {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    let world = World::new();
    let program = imas_testing::compiled(&world.work(), "executes-itself", EXECUTES_ITSELF, &[]);
    world.check(["pin", program.to_str().unwrap(), "mimalloc"]).success();
    for (words, is_lost) in [(&["again"][..], true), (&[][..], false)] {
        let mut run = world.imas(["run", "--"]);
        let mut child =
            run.arg(&program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        for _ in 0..2 {
            let status = parsed(&output(&mut world.imas(["status", "--json"])));
            let lost = status["lost"].as_array().unwrap().iter().find(|one| one["pid"] == child.id());
            assert_eq!(lost.map(|one| &one["candidate"]), is_lost.then_some(&"mimalloc".into()), "{status}");
            // Each start collects the pages of processes that have ended.
            assert!(world.start(["true"]).status.success());
        }
        drop(child.stdin.take());
        assert!(child.wait().unwrap().success());
    }
}
