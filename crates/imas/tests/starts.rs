// SPDX-License-Identifier: Apache-2.0
//! A program that is started by `imas run` finds what it would find without: its environment
//! entry by entry, its signals, a start under tight limits, and the malloc that its user preloads.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::build::program;
use crate::support::{
    World, assert_printed, built, describe, output, piped, printed, real, stderr, stdout, succeeded,
    write_script,
};

fn imas() -> String {
    built("imas").display().to_string()
}

fn compile_source(world: &World, name: &str, source: &Path, flags: &[&str]) -> PathBuf {
    let file = world.work().join(name);
    succeeded(output(Command::new("cc").args(flags).arg("-o").arg(&file).arg(source)));
    file
}

fn script(world: &World, name: &str, text: &str) -> PathBuf {
    let file = world.work().join(name);
    write_script(&file, text);
    file
}

/// The entries that no start by IMAS sets.
fn not_ours(environment: &str) -> Vec<&str> {
    let is_ours = |line: &&str| line.starts_with("IMAS_") || line.starts_with("LD_PRELOAD=");
    environment.lines().filter(|line| !is_ours(line)).collect()
}

#[test]
fn the_environment_is_as_it_was() {
    let world = World::new();
    let show = program("start_environment", &world.work()).display().to_string();
    let imas = imas();
    let started = |words: &[&str]| printed(&output(world.command(&show).args(words).arg(&show)));
    let untouched = started(&[]);
    assert!(untouched.ends_with("\nno_equals_sign\nALPHA=2\nMODE=second\n=nameless\n\n"), "{untouched}");
    for how in [
        &["run", "--candidate", "system", "--"][..],
        &["run", "--candidate", "mimalloc", "--"],
        &["run", "--candidate", "glibc:arena1", "--"],
        &["run", "--"],
        &["run", "--", "/usr/bin/nice", "-n", "0"],
    ] {
        let words: Vec<&str> = std::iter::once(imas.as_str()).chain(how.iter().copied()).collect();
        let under = started(&words);
        assert_eq!(under, untouched, "{how:?}");
    }
}

#[test]
fn the_environment_of_a_measured_program_is_as_it_was() {
    let world = World::new();
    let show = program("start_environment", &world.work()).display().to_string();
    let (imas, file) = (imas(), world.work().join("environment"));
    let file = file.display().to_string();
    let entries = |words: &[&str]| {
        succeeded(output(world.command(&show).args(words).args([&show, "-o", &file])));
        std::fs::read_to_string(&file).unwrap()
    };
    let untouched = entries(&[]);
    assert!(untouched.ends_with("\nno_equals_sign\nALPHA=2\nMODE=second\n=nameless\n\n"), "{untouched}");
    for candidate in ["system", "mimalloc"] {
        let words =
            [&imas, "bench", "--runs", "1", "--warmup", "0", "--with", candidate, "--"].map(|word| word);
        // Children of a measured program are on its candidate too.
        assert_eq!(not_ours(&entries(&words)), not_ours(&untouched), "{candidate}");
    }
}

#[test]
fn a_program_starts_under_a_limit_for_the_size_of_files() {
    for limit in [0, 4096, 65536, 262_144] {
        for how in ["run --", "run --candidate mimalloc --"] {
            let world = World::new();
            let text = format!("exec prlimit --fsize={limit} {} {how} /bin/echo hello", imas());
            let started = output(world.command("/bin/sh").args(["-c", &text]));
            assert_eq!(stdout(&started), "hello\n", "{limit} {how}: {}", describe(&started));
            assert!(started.status.success(), "{limit} {how}: {}", describe(&started));
        }
    }
}

#[test]
fn the_signal_of_that_limit_still_kills_the_program() {
    let world = World::new();
    let write = "exec dd if=/dev/zero of=file bs=1M count=1 2>&1";
    let text = format!("exec prlimit --fsize=1000 {} run --candidate mimalloc -- sh -c '{write}'", imas());
    let started = output(world.command("/bin/sh").args(["-c", &text]));
    let untouched =
        output(world.command("/bin/sh").args(["-c", &format!("exec prlimit --fsize=1000 sh -c '{write}'")]));
    assert_eq!(started.status, untouched.status, "{}", describe(&started));
}

#[test]
fn streams_that_are_closed_stay_closed() {
    let world = World::new();
    let imas = imas();
    for stream in 0..3 {
        let status = |how: &str| {
            let text = format!("exec {how} /usr/bin/test -e /proc/self/fd/{stream} {stream}>&-");
            output(world.command("/bin/sh").args(["-c", &text])).status.code()
        };
        assert_eq!(status(""), Some(1), "{stream}");
        for how in ["run --", "run --candidate mimalloc --", "run -- nice -n 0"] {
            assert_eq!(status(&format!("{imas} {how}")), Some(1), "{stream}: {how}");
        }
    }
}

/// The longest last argument with which the command starts.
fn longest(start: impl Fn(usize) -> bool) -> usize {
    let (mut fits, mut too_long) = (0, 130_000);
    while too_long - fits > 1 {
        let middle = usize::midpoint(fits, too_long);
        if start(middle) { fits = middle } else { too_long = middle }
    }
    fits
}

#[test]
fn arguments_that_just_fit_start_the_program_untouched() {
    let world = World::new();
    let long = "x".repeat(100_000);
    let start = |before: &[&str], last: usize| {
        let mut command = Command::new(imas());
        command.env_clear().env("PATH", crate::support::PATH).env("HOME", world.work());
        command.env("IMAS_LIB_DIR", crate::support::lib_dir()).env("IMAS_STORE", world.store_path());
        command.args(before).arg("/bin/true").args(std::iter::repeat_n(&long, 20)).arg("y".repeat(last));
        command.output()
    };
    let plain = ["run", "--candidate", "system", "--"];
    let most = longest(|last| start(&plain, last).is_ok_and(|made| made.status.success()));
    for how in [
        &["run", "--candidate", "mimalloc", "--"][..],
        &["run", "--follow", "--candidate", "mimalloc", "--"],
        &["run", "--"],
    ] {
        let room = plain.iter().map(|word| word.len() + 9).sum::<usize>();
        let used = how.iter().map(|word| word.len() + 9).sum::<usize>();
        for less in [20, 120, 200] {
            let made = start(how, most + room - used - less).unwrap();
            assert!(made.status.success(), "{less} bytes less, {how:?}: {}", describe(&made));
        }
    }
}

#[test]
fn scripts_that_the_kernel_does_not_take_end_as_env_ends_them() {
    let world = World::new();
    let long = script(&world, "long", &format!("#!/{}\necho by sh\n", "x".repeat(300)));
    let plain = script(&world, "plain", "echo by sh\nexit 3\n");
    let empty = script(&world, "empty", "");
    let lost = script(&world, "lost", "#!/no/such/interpreter\necho never\n");
    for file in [long, plain, empty, lost] {
        let by_env = output(world.command("/usr/bin/env").arg(&file));
        for how in [&["run", "--"][..], &["run", "--candidate", "mimalloc", "--"]] {
            let by_imas = output(world.imas(how).arg(&file));
            let is = (by_imas.status.code(), stdout(&by_imas));
            assert_eq!(is, (by_env.status.code(), stdout(&by_env)), "{how:?} {}", describe(&by_imas));
        }
    }
}

const CHECKER: &str = r#"
#include <stddef.h>
#include <unistd.h>
extern void *__libc_malloc(size_t);
void *malloc(size_t size) {
    static int once;
    if (once++ == 0)
        write(2, "checker\n", 8);
    return __libc_malloc(size);
}
"#;

#[test]
fn a_malloc_that_the_user_preloads_is_left_alone() {
    let world = World::new();
    let source = world.work().join("checker.c");
    std::fs::write(&source, CHECKER).unwrap();
    let checker = compile_source(&world, "checker.so", &source, &["-shared", "-fPIC"]);
    let preload = format!("LD_PRELOAD={}", checker.display());
    for how in [&["run", "--"][..], &["run", "--"], &["run", "--candidate", "mimalloc", "--"]] {
        let made = output(world.imas(how).args(["env", &preload, "/bin/ls", "/"]));
        let said = stderr(&made);
        assert!(made.status.success() && said.contains("checker\n"), "{how:?} {}", describe(&made));
        assert!(said.contains("checker.so in LD_PRELOAD defines malloc"), "{how:?} {said}");
    }
    for (name, value) in [("LD_PRELOAD", checker.display().to_string()), ("LD_AUDIT", "libaudit.so".into())] {
        let refused = output(world.imas(["bench", "--runs", "1", "--", "/bin/true"]).env(name, value));
        let said = stderr(&refused);
        assert!(said.contains("nothing can be compared"), "{said}");
        assert!(said.contains(&format!("env -u {name}")), "{said}");
    }
    let bench = output(world.imas(["bench", "--runs", "1", "--", "/bin/ls"]).env("LD_PRELOAD", &checker));
    let said = stderr(&bench);
    assert!(!bench.status.success() && said.contains("env -u LD_PRELOAD"), "{}", describe(&bench));
}

/// Notes each signal that a user may send, and ends at the first with 7.
const LISTENER: &str = r#"
$| = 1;
for my $name (qw(TERM HUP INT QUIT USR1 USR2 WINCH ALRM NUM40)) {
    $SIG{$name} = sub { print "got $name\n"; exit 7 };
}
print "ready\n";
sleep 1 for 1 .. 120;
print "nobody told me\n";
"#;

#[test]
fn a_signal_to_bench_reaches_the_program_that_runs() {
    let world = World::new();
    let perl = real("perl").display().to_string();
    let mut imas = world.imas("bench --show-output --runs 1 --warmup 0 --ignore-failure --".split(' '));
    imas.args([perl.as_str(), "-e", LISTENER]);
    let mut child = imas.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id().to_string();
    let mut got = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        match line.unwrap().as_str() {
            "ready" => {
                assert!(Command::new("/bin/kill").args(["-s", "USR1", &pid]).status().unwrap().success())
            }
            "got USR1" => got += 1,
            _ => {}
        }
    }
    let status = child.wait().unwrap();
    assert!(got > 0 && status.code().is_some(), "{got} {status}");
}

/// Before a start, a helper of ours looks at the programs that run.
#[test]
fn a_program_begins_without_children() {
    let world = World::new();
    let perl = real("perl").display().to_string();
    let mut imas = world.imas(["run", "--retest", "0", "--", &perl, "-e", "$| = 1; print 'r'; <STDIN>"]);
    let running = piped::start(&mut imas);
    succeeded(world.start(["/usr/bin/sort", "/etc/services"])); // its page makes a harvest due
    let started = world.start([perl.as_str(), "-e", "print wait()"]);
    piped::end(running);
    assert_printed(&started, 0, "-1");
}
