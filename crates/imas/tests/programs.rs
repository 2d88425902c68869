// SPDX-License-Identifier: Apache-2.0
//! Real programs under every candidate, in production and in trial. Output and exit status must be those without IMAS. A
//! second check proves which allocator served, because a silent fall-back to glibc's would pass the first. Then huge pages as
//! a candidate: programs that print what the kernel says of them, dynamic and static.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_core::sample::Ended;
use imas_linux::catalogue::CatalogueCandidate;
use imas_testing::skipped;

use crate::support::build::{self, Testimony, Witness, program_with};
use crate::support::{
    LIBRARIES, World, assert_hinted, candidate, default_set, describe, input, names_of, output, parsed,
    printed, real, stderr, stdout, succeeded,
};

/// A program with real input.
struct Real {
    command: Vec<String>,
    stdin: Option<PathBuf>,
    environment: Vec<(&'static str, &'static str)>,
    /// The program starts other programs, which `--follow` must reach.
    tree: bool,
    /// The files that it leaves in its working directory, as text to compare.
    result: fn(&Path) -> String,
}

impl Real {
    fn new(name: &str, arguments: &[&str]) -> Self {
        let program = real(name).to_string_lossy().into_owned();
        Self {
            command: std::iter::once(program).chain(arguments.iter().map(|&word| word.to_owned())).collect(),
            stdin: None,
            environment: vec![],
            tree: false,
            result: |_| String::new(),
        }
    }

    fn on(name: &str, script: &str) -> Self {
        Self::new(name, &[&input(script).to_string_lossy()])
    }

    fn reading(mut self, name: &str) -> Self {
        self.stdin = Some(input(name));
        self
    }

    fn with(mut self, variable: &'static str, value: &'static str) -> Self {
        self.environment.push((variable, value));
        self
    }

    fn a_tree(mut self) -> Self {
        self.tree = true;
        self
    }

    fn leaving(mut self, result: fn(&Path) -> String) -> Self {
        self.result = result;
        self
    }

    /// Runs the command that `start` returns. Returns all observable results.
    fn seen(&self, world: &World, start: impl Fn(&[String]) -> Command) -> String {
        let folder = tempfile::tempdir_in(world.work()).unwrap();
        let mut command = start(&self.command);
        command.current_dir(folder.path()).envs(self.environment.iter().copied());
        if let Some(file) = &self.stdin {
            command.stdin(Stdio::from(std::fs::File::open(file).unwrap()));
        }
        let output = output(&mut command);
        format!("{}result: {}", describe(&output), (self.result)(folder.path()))
    }

    /// With every candidate of the default set, which is what a user meets who names none.
    fn under_every_candidate(&self) {
        let world = World::new();
        let witness = Witness::new(&world.work());
        let want = self.seen(&world, |words| {
            let mut command = world.command(&words[0]);
            command.args(&words[1..]);
            command
        });
        for candidate in &default_set() {
            self.in_production(&world, &witness, candidate, &want);
        }
        self.in_trials(&world, &want);
    }

    fn in_production(&self, world: &World, witness: &Witness, candidate: &CatalogueCandidate, want: &str) {
        let name = candidate.name.as_str();
        for follow in if self.tree { &[false, true][..] } else { &[false][..] } {
            let seen = self.seen(world, |words| {
                let mut command = world.imas(["run", "--candidate", name]);
                command.args(follow.then_some("--follow")).arg("--").args(words);
                witness.watch(&mut command);
                command
            });
            assert_eq!(seen, *want, "under {name}, follow {follow}");
            self.check_witness(&witness.take(), candidate, *follow);
        }
    }

    /// The program itself runs under the candidate. With `--follow` its children do, too; without it they run
    /// as if IMAS were absent.
    fn check_witness(&self, testimonies: &[Testimony], candidate: &CatalogueCandidate, follow: bool) {
        let name = &candidate.name;
        let root = testimonies.first().expect("the witness recorded no process");
        assert!(root.is_under(candidate), "{name}: {root:?}");
        let children: Vec<_> = testimonies.iter().filter(|each| each.pid != root.pid).collect();
        assert!(!self.tree || !children.is_empty(), "no children seen in {testimonies:?}");
        let system = &default_set()[0];
        let for_children = if follow { candidate } else { system };
        for child in children {
            assert!(child.is_under(for_children), "{name}, follow {follow}: {child:?}");
        }
    }

    /// Makes one trial of each candidate in turn, then checks the stored samples.
    fn in_trials(&self, world: &World, want: &str) {
        for CatalogueCandidate { name, .. } in &default_set() {
            let seen = self.seen(world, |words| {
                let mut command = world.imas(["run", "--retest", "0"]);
                command.args(self.tree.then_some("--follow")).arg("--").args(words);
                command
            });
            assert_eq!(seen, *want, "trial of {name}");
        }
        check_trials(world, "libc.so.6");
    }
}

/// One trial for each candidate of the default set: the right library served it, and it has figures. `own` is
/// the library that serves the untouched program.
fn check_trials(world: &World, own: &str) {
    let trials = world.trials();
    let candidates: Vec<_> = trials.iter().map(|trial| trial.sample.candidate.as_str()).collect();
    let set = default_set();
    assert_eq!(candidates, names_of(&set));
    for (trial, candidate) in trials.iter().zip(&set) {
        let sample = &trial.sample;
        let name = &sample.candidate;
        let served = &sample.served;
        match &candidate.library {
            None => assert_eq!(served, own, "{name}"),
            Some(_) => {
                assert!(
                    served.starts_with(&crate::support::calls_itself(candidate)),
                    "{name} served by {served}"
                )
            }
        }
        assert_eq!(sample.pass_reason, None, "{name}");
        assert!(matches!(sample.ended, Ended::Clean { .. }), "{name}: {:?}", sample.ended);
        assert!(sample.malloc.calls > 100 && sample.free.calls > 10, "{name}: {sample:?}");
        assert!(sample.ns_per_op().is_some() && sample.frag_virtual().is_some(), "{name}: {sample:?}");
    }
}

#[test]
fn bash() {
    Real::on("bash", "work.sh").reading("work.sql").a_tree().under_every_candidate();
}

#[test]
fn python_with_threads() {
    Real::on("python3", "work.py").with("PYTHONMALLOC", "malloc").under_every_candidate();
}

#[test]
fn perl() {
    Real::on("perl", "work.pl").reading("work.sql").under_every_candidate();
}

#[test]
fn sqlite() {
    Real::new("sqlite3", &[":memory:"]).reading("work.sql").under_every_candidate();
}

#[test]
fn git() {
    let script = "!f() { set -e; git init -q -b main repo; cd repo; seq 1 20000 >numbers; git add .; git commit -q -m first; \
        seq 2 3 20000 >numbers; git commit -q -a -m second; git gc -q --aggressive; git fsck; git log --stat --format=%H; }; f";
    Real::new("git", &["-c", &format!("alias.work={script}"), "work"])
        .with("GIT_AUTHOR_NAME", "a")
        .with("GIT_AUTHOR_EMAIL", "a@example.org")
        .with("GIT_COMMITTER_NAME", "c")
        .with("GIT_COMMITTER_EMAIL", "c@example.org")
        .with("GIT_AUTHOR_DATE", "2020-01-01T00:00:00Z")
        .with("GIT_COMMITTER_DATE", "2020-01-01T00:00:00Z")
        .a_tree()
        .leaving(|folder| format!("{:?}", folder.join("repo/.git/packed-refs").is_file()))
        .under_every_candidate();
}

#[test]
fn cpp_compiler() {
    let source = input("work.cpp").to_string_lossy().into_owned();
    Real::new("g++", &["-std=c++17", "-O0", "-o", "compiled", &source])
        .a_tree()
        .leaving(|folder| describe(&output(&mut Command::new(folder.join("compiled")))))
        .under_every_candidate();
}

#[test]
fn php() {
    Real::on("php", "work.php").under_every_candidate();
}

/// Shows why the guard and the hook strip RTLD_DEEPBIND. If this test fails, PHP has changed and the test
/// above proves less.
#[test]
fn php_dies_under_a_plain_preload() {
    let world = World::new();
    for name in LIBRARIES {
        let library = crate::support::lib_dir().join(format!("allocators/lib{name}.so"));
        let mut command = world.command(real("php"));
        let output = output(command.arg(input("work.php")).env("LD_PRELOAD", library));
        assert_eq!(output.status.code(), None, "PHP does not die under {name}: {}", describe(&output));
    }
}

#[test]
fn java() {
    let source = input("Work.java").to_string_lossy().into_owned();
    Real::new("java", &["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", &source]).under_every_candidate();
}

#[test]
fn node() {
    Real::on("node", "work.js").under_every_candidate();
}

#[test]
fn a_program_finds_sigpipe_as_it_was() {
    // SIGPIPE as a shell leaves it, and as systemd does.
    for (before, trap) in [("", "trap - PIPE"), ("ignored", "trap '' PIPE")] {
        let world = World::new();
        let seen = |words: &[&str]| {
            let mut shell = world.command("/bin/sh");
            shell.args(["-c", &format!("{trap}; exec \"$@\""), "sh"]).args(words);
            shell.args("/bin/grep -a -E IMAS_SIG|SigIgn /proc/self/status /proc/self/environ".split(' '));
            describe(&output(&mut shell))
        };
        let imas = env!("CARGO_BIN_EXE_imas");
        let want = seen(&["/usr/bin/env"]);
        assert_eq!(seen(&[imas, "run", "--candidate", "jemalloc", "--"]), want, "{before}: production");
        assert_eq!(seen(&[imas, "run", "--retest", "0", "--"]), want, "{before}: trial");
        assert_eq!(seen(&["/usr/bin/env", "IMAS_DISABLE=1", imas, "run", "--"]), want, "{before}: untouched");
    }
}

/// An allocator's setting against huge pages could apply to the whole process and to all that it starts.
#[test]
fn a_candidate_without_huge_pages_does_not_disable_them_for_others() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let Some(before) = status.lines().find(|line| line.starts_with("THP_enabled:")) else {
        return skipped("the kernel's /proc/self/status has no THP_enabled");
    };
    for candidate in ["mimalloc2:small", "mimalloc2:tight"] {
        let world = World::new();
        let mut command = world.imas(["run", "--candidate", candidate, "--"]);
        let seen = output(command.args(["/bin/grep", "THP_enabled:", "/proc/self/status"]));
        assert_eq!(crate::support::stdout(&seen).trim_end(), before, "{candidate}: {}", describe(&seen));
    }
}

/// glibc's settings have no library to look for. Their effect is the proof.
#[test]
fn one_arena_is_one_arena() {
    let world = World::new();
    let who = build::program("who", &world.work());
    for (candidate, want) in [("system", "libc\nseveral arenas\n"), ("glibc:arena1", "libc\none arena\n")] {
        let mut command = world.imas(["run", "--candidate", candidate, "--"]);
        assert_eq!(crate::support::stdout(&output(command.arg(&who).arg("arenas"))), want, "{candidate}");
    }
}

/// Proves that the checks above can fail: the witness and the sample detect a library that loads but defines
/// no malloc.
#[test]
fn a_silent_fall_back_is_detected() {
    let world = World::new();
    let witness = Witness::new(&world.work());
    let library = build::library("empty", &world.work());
    world.add_library("empty", &library, "");
    world.configure("candidates = [\"empty\"]\nmax_tests = 1");
    let mut command = world.imas(["run", "--candidate", "empty", "--"]);
    assert!(output(witness.watch(command.arg(real("true")))).status.success());
    let testimonies = witness.take();
    let system = &default_set()[0];
    let empty = CatalogueCandidate {
        name: "empty".into(),
        allocator: "empty".into(),
        library: Some(library),
        ..system.clone()
    };
    assert!(testimonies[0].is_under(system) && !testimonies[0].is_under(&empty), "{testimonies:?}");
    for _ in 0..2 {
        assert!(world.start([real("sqlite3").to_str().unwrap(), ":memory:", "select 1"]).status.success());
    }
    let shown = world.json(["show", "sqlite3", "--json"]);
    let why =
        crate::support::text(crate::support::candidate(&shown, "empty"), "/left_out/0/why/foreign-served");
    assert_eq!(why, "libc.so.6");
}

mod redis {

    use super::{Command, Stdio, Witness, World, check_trials, default_set, output, real};
    use crate::support::{candidate, stdout, succeeded, wait_until};
    use imas_testing::Running;

    /// A port that is free at this moment.
    fn free_port() -> String {
        imas_runs::service::free_port().unwrap().to_string()
    }

    fn server_words(port: &str) -> Vec<String> {
        let words =
            ["--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--io-threads", "2"];
        let server = real("redis-server").to_string_lossy().into_owned();
        std::iter::once(server).chain(words.map(str::to_owned)).collect()
    }

    fn ask(world: &World, port: &str, words: &[&str]) -> String {
        let mut client = world.command(real("redis-cli"));
        stdout(&output(client.args(["-h", "127.0.0.1", "-p", port]).args(words)))
    }

    const FILL: &str = "for i = 1, 5000 do redis.call('SET', 'k'..i, string.rep('x', i % 900)); \
        redis.call('RPUSH', 'l', i * 7919 % 1009); redis.call('HSET', 'h', 'f'..i, i) end \
        local n = 0; for i = 1, 5000 do n = n + redis.call('STRLEN', 'k'..i) end return n";

    /// Runs redis-benchmark, then requests with known answers, then SHUTDOWN. Returns all answers and the
    /// exit status.
    fn served(world: &World, mut command: Command, port: &str) -> String {
        let mut server = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_until("the server", || ask(world, port, &["PING"]) == "PONG\n");
        let mut load = world.command(real("redis-benchmark"));
        load.args(["-h", "127.0.0.1", "-p", port, "-q", "-n", "3000", "-c", "20", "-P", "8", "-r", "1000"]);
        succeeded(output(load.args(["-t", "set,get,lpush,hset,zadd,mset"])));
        let mut answers = ask(world, port, &["FLUSHALL"]);
        answers += &ask(world, port, &["EVAL", FILL, "0"]);
        answers += &ask(world, port, &["SORT", "l", "LIMIT", "0", "9"]);
        answers += &ask(world, port, &["DBSIZE"]);
        ask(world, port, &["SHUTDOWN", "NOSAVE"]);
        let ended = server.0.wait().unwrap();
        format!("{answers}{ended}")
    }

    #[test]
    fn redis_under_load() {
        let world = World::new();
        let witness = Witness::new(&world.work());
        let mut want = None;
        let set = default_set();
        for candidate in &set {
            let (name, port) = (candidate.name.as_str(), free_port());
            let mut command = world.imas(["run", "--candidate", name, "--"]);
            witness.watch(command.args(server_words(&port)));
            let seen = served(&world, command, &port);
            assert_eq!(want.get_or_insert_with(|| seen.clone()), &seen, "{name}");
            let testimonies = witness.take();
            assert!(
                testimonies.first().expect("the witness recorded no process").is_under(candidate),
                "{name}: {testimonies:?}"
            );
        }
        for one in &set {
            let port = free_port();
            let mut command = world.imas(["run", "--retest", "0", "--"]);
            command.args(server_words(&port));
            assert_eq!(Some(served(&world, command, &port)), want, "trial of {}", one.name);
        }
        check_trials(&world, "libjemalloc.so.2");
        // glibc's settings have no effect on a program that brings jemalloc, so that trial must not count.
        let shown = world.json(["show", "redis-server", "--json"]);
        for one in &set {
            let why = candidate(&shown, &one.name).pointer("/left_out/0/why/foreign-served");
            assert_eq!(why.is_some(), one.allocator == "glibc", "{}: {shown:#}", one.name);
        }
    }
}

/// The line of a process without huge pages.
const OFF: &str = "THP_enabled:\t0\n";
const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Whether `thp:off` acts on this machine.
fn is_offered() -> bool {
    let mode = std::fs::read_to_string(FILE).unwrap_or_default();
    mode.contains("[always]") || mode.contains("[madvise]")
}

fn of_this_process() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status
        .lines()
        .find(|line| line.starts_with("THP_enabled:"))
        .map_or_else(String::new, |line| format!("{line}\n"))
}

#[test]
fn a_program_has_no_huge_pages_and_sees_nothing_else() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let (sh, print) =
        (real("sh"), "grep THP_enabled /proc/self/status; env; grep -c imas /proc/self/maps; true");
    let run = |candidate: &str| {
        let mut imas = world.imas(["run", "--candidate", candidate, "--"]);
        printed(&output(imas.arg(&sh).args(["-c", print])))
    };
    let (with, without) = (run("thp:off"), run("system"));
    assert!(with.starts_with(OFF), "{with}");
    assert!(without.starts_with(&of_this_process()), "{without}");
    assert_eq!(with.strip_prefix(OFF), without.strip_prefix(&of_this_process()), "environment and mappings");
    assert!(with.ends_with("\n0\n"), "nothing of ours is loaded: {with}");
}

#[test]
fn a_static_program_is_started_and_measured_without_huge_pages() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let program = program_with("cc", "thp", &["-static"], &world.work().join("thp"));
    let shown = output(world.imas(["run", "--candidate", "thp:off", "--"]).arg(&program));
    assert_eq!(stdout(&shown), OFF, "{}", stderr(&shown));
    let seen = world.work().join("seen");
    std::fs::write(&seen, "").unwrap();
    let line = format!("{} >>{}", program.display(), seen.display());
    let words = ["bench", "-n", "1", "-w", "0", "--json", "--with", "thp:off", "--"];
    let done = succeeded(output(world.imas(words).arg(real("sh")).args(["-c", &line])));
    candidate(&parsed(&done), "thp:off");
    let seen = std::fs::read_to_string(seen).unwrap();
    assert!(seen.contains(OFF) && seen.contains(&of_this_process()), "{seen}");
    let direct = succeeded(output(world.imas(words).arg(&program)));
    candidate(&parsed(&direct), "thp:off");
}

/// The second start reads the small file of the first.
#[test]
fn a_pinned_program_has_none_at_each_start() {
    if !is_offered() {
        return imas_testing::skipped("this machine gives no huge pages");
    }
    let world = World::new();
    let program = program_with("cc", "thp", &[], &world.work().join("thp"));
    succeeded(output(world.imas([Path::new("pin"), &program, Path::new("thp:off")]).env("NO_COLOR", "1")));
    for start in ["first", "second"] {
        let shown = world.start([&program]);
        assert_eq!(stdout(&shown), OFF, "{start}: {}", stderr(&shown));
    }
}

#[test]
fn what_no_variable_sets_is_refused_with_the_way() {
    let world = World::new();
    let list = printed(&output(&mut world.imas(["list"])));
    assert!(list.contains("thp:off") && list.contains("thp:advised"), "{list}");
    if is_offered() {
        assert_hinted(
            &output(&mut world.imas(["env", "--candidate", "thp:off"])),
            "no variable sets the huge pages",
        );
    }
    let mode = std::fs::read_to_string(FILE).unwrap_or_default();
    if mode.contains("[madvise]") {
        let refused = output(&mut world.imas(["run", "--candidate", "thp:advised", "--", "true"]));
        assert!(stderr(&refused).contains("only where they are asked for"), "{}", stderr(&refused));
    }
}
