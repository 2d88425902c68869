// SPDX-License-Identifier: Apache-2.0
//! Children with another libc or word size, under `imas run --follow` and `imas bench`. They must start as
//! they do without IMAS.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{
    World, build, built, default_set, describe, lib_dir, list, output, parsed, stderr, stdout, succeeded,
    workspace,
};
use imas_testing::skipped;

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
