// SPDX-License-Identifier: Apache-2.0
//! A settled start reads one small file and opens no store; every change of what it rests on is seen. Then the default policy
//! with real starts under the real hook.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use imas_testing::skipped;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::runtimes::go_program;
use crate::support::{
    World, build, describe, install, json, lib_dir, output, printed, stderr, stdout, wait_until,
};

/// A program that is pinned to a candidate, in a world of its own.
struct Pinned {
    world: World,
    program: PathBuf,
    lib_dir: PathBuf,
}

impl Pinned {
    fn new() -> Self {
        Self::of("who")
    }

    fn of(source: &str) -> Self {
        let world = World::new();
        let program = build::program(source, &world.work());
        Self::to(world, program, "mimalloc")
    }

    fn to(world: World, program: PathBuf, candidate: &str) -> Self {
        world.tests_six("");
        let lib_dir = own_installation(&world);
        let pinned = Self { world, program, lib_dir };
        assert!(output(pinned.run(&[]).arg("10")).status.success());
        pinned.pin(candidate);
        pinned
    }

    fn imas(&self, words: &[&str]) -> Command {
        let mut imas = self.world.imas(words);
        imas.env("IMAS_LIB_DIR", &self.lib_dir);
        imas
    }

    fn run(&self, options: &[&str]) -> Command {
        let program = self.program.to_str().unwrap();
        self.imas(&[&["run"], options, &["--", program]].concat())
    }

    fn pin(&self, candidate: &str) {
        let done = output(&mut self.imas(&["pin", self.program.to_str().unwrap(), candidate]));
        assert!(done.status.success(), "{}", describe(&done));
    }

    fn settle(&self) {
        wait_until("a settled start", || !self.opens_the_store(&mut self.run(&[])).0);
    }

    /// Whether the start opens the store, and what it printed.
    fn opens_the_store(&self, start: &mut Command) -> (bool, Output) {
        let watch = watch(&self.world.store_path());
        let done = output(start);
        assert!(done.status.success(), "{}", describe(&done));
        (has_event(&watch), done)
    }

    /// Number of pages that wait.
    fn pages(&self) -> usize {
        imas_linux::page::list(&self.world.pages()).unwrap().len()
    }

    fn small_file(&self) -> PathBuf {
        let files: Vec<_> =
            std::fs::read_dir(self.world.pages().join("settled")).unwrap().flatten().collect();
        assert_eq!(files.len(), 1);
        files[0].path()
    }
}

/// The built installation, with a catalogue and libraries that a test may change.
fn own_installation(world: &World) -> PathBuf {
    let folder = crate::support::installation(world, "");
    for file in ["catalogue.toml", "libimas-guard.so"] {
        std::fs::remove_file(folder.join(file)).unwrap();
        std::fs::copy(lib_dir().join(file), folder.join(file)).unwrap();
    }
    folder
}

fn watch(file: &std::path::Path) -> OwnedFd {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, file, WatchFlags::OPEN).unwrap();
    watch
}

fn has_event(watch: &OwnedFd) -> bool {
    rustix::io::read(watch, &mut [0_u8; 4096]).is_ok()
}

#[test]
fn a_settled_start_opens_no_store_and_is_watched_all_the_same() {
    let pinned = Pinned::new();
    pinned.settle();
    let pages = || pinned.pages();
    let before = pages();
    let (opened, done) = pinned.opens_the_store(&mut pinned.run(&[]));
    assert!(!opened && stdout(&done).starts_with("mimalloc "), "{}", describe(&done));
    assert_eq!(pages(), before + 1, "its end is noted");
    let (opened, done) = pinned.opens_the_store(pinned.run(&[]).env("IMAS_DISABLE", "1"));
    assert!(!opened && stdout(&done).starts_with("libc"), "{}", describe(&done));
}

#[test]
fn many_clean_ends_are_harvested_at_last() {
    let pinned = Pinned::new();
    let mut most = 0;
    for _ in 0..80 {
        assert!(output(&mut pinned.run(&[])).status.success());
        most = most.max(pinned.pages());
    }
    assert!((10..60).contains(&most), "{most} pages");
}

/// Something that a decision rests on, and how it changes.
type Change = (&'static str, fn(&Pinned));

const CHANGES: [Change; 9] = [
    ("the store", |pinned| pinned.pin("jemalloc")),
    ("the executable", |pinned| {
        let copy = pinned.program.with_extension("new");
        install(&pinned.program, &copy);
        std::fs::rename(&copy, &pinned.program).unwrap();
    }),
    ("the configuration", |pinned| pinned.world.tests_six("max_tests = 7")),
    ("an added catalogue", |pinned| pinned.world.add_catalogue("own.toml", "")),
    ("the catalogue", |pinned| append(&pinned.lib_dir.join("catalogue.toml"))),
    ("the guard", |pinned| {
        let guard = pinned.lib_dir.join("libimas-guard.so");
        std::fs::remove_file(&guard).unwrap();
        std::fs::copy(lib_dir().join("libimas-guard.so"), &guard).unwrap();
    }),
    ("a damaged file", |pinned| {
        let file = pinned.small_file();
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }),
    ("a file that others may write", |pinned| {
        std::fs::set_permissions(pinned.small_file(), std::fs::Permissions::from_mode(0o666)).unwrap();
    }),
    ("a file of another user", |pinned| {
        // Only root can give a file away: for others there is none like it, and the file is missing instead.
        let file = pinned.small_file();
        if std::os::unix::fs::chown(&file, Some(12_345), None).is_err() {
            std::fs::remove_file(&file).unwrap();
        }
    }),
];

fn append(file: &std::path::Path) {
    use std::io::Write;
    let mut file = std::fs::File::options().append(true).open(file).unwrap();
    file.write_all(b"\n# changed\n").unwrap();
}

#[test]
fn every_change_of_what_a_decision_rests_on_is_seen() {
    let pinned = Pinned::new();
    for (what, change) in CHANGES {
        pinned.settle();
        change(&pinned);
        let (opened, done) = pinned.opens_the_store(&mut pinned.run(&[]));
        assert!(opened, "{what} has changed: {}", describe(&done));
    }
    pinned.settle();
    assert!(stdout(&output(&mut pinned.run(&[]))).starts_with("jemalloc "), "the new pin is followed");
}

#[test]
fn options_and_what_the_user_loads_go_the_long_way() {
    let pinned = Pinned::new();
    pinned.settle();
    let long = |start: &mut Command| pinned.opens_the_store(start).0;
    assert!(long(&mut pinned.run(&["--verbose"])));
    assert!(long(&mut pinned.run(&["--retest", "0"])));
    assert!(long(pinned.run(&[]).env("LD_LIBRARY_PATH", "/nowhere")));
    assert!(long(pinned.run(&[]).env("XDG_CONFIG_HOME", pinned.world.work())));
    pinned.settle();
}

#[test]
fn a_crash_of_a_settled_start_counts_at_the_next_one() {
    let pinned = Pinned::of("behave");
    let act = |act: &str| {
        let mut run = pinned.run(&[]);
        run.args(["10", act]);
        run
    };
    wait_until("a settled start", || !pinned.opens_the_store(&mut act("ok")).0);
    assert!(!output(&mut act("segv")).status.success());
    let (opened, _) = pinned.opens_the_store(&mut act("ok"));
    assert!(opened, "the crash is stored");
    let program = pinned.program.to_str().unwrap();
    let explained = stdout(&output(&mut pinned.imas(&["explain", program])));
    assert!(explained.contains("mimalloc is quarantined"), "{explained}");
}

/// Prints figures of Python's own allocator to standard error, where it is used.
const PYTHON: &str = "#!/usr/bin/python3\nimport sys\nsys._debugmallocstats()\n";

#[test]
fn settings_of_a_runtime_are_settled_while_the_command_would_get_the_same() {
    let world = World::new();
    let (source, script) = (world.work().join("source"), world.work().join("script.py"));
    std::fs::write(&source, PYTHON).unwrap();
    install(&source, &script);
    world.add_settings_of_python(None);
    let pinned = Pinned::to(world, script, "cpython:own");
    pinned.settle();
    let is_lean = |done: &Output| !stderr(done).contains("arenas allocated total");
    let (opened, done) = pinned.opens_the_store(pinned.run(&[]).arg("-E").env("PYTHONUTF8", "1"));
    assert!(!opened && is_lean(&done), "{}", describe(&done));
    let (opened, done) = pinned.opens_the_store(pinned.run(&[]).env("PYTHONMALLOC", "pymalloc"));
    assert!(opened && !is_lean(&done), "the user's own value wins: {}", describe(&done));
    pinned.settle();
    assert!(is_lean(&output(&mut pinned.run(&[]))));
}

#[test]
fn settings_of_a_program_into_which_nothing_is_loaded_are_settled() {
    let world = World::new();
    let Some(program) = go_program(&world, "percent", &[]) else { return skipped("go is not installed") };
    let pinned = Pinned::to(world, program, "go:gogc400");
    pinned.settle();
    let (opened, done) = pinned.opens_the_store(&mut pinned.run(&[]));
    assert!(!opened && stdout(&done) == "400\n", "{}", describe(&done));
    assert_eq!(pinned.pages(), 0, "nothing in the program would take a page");
    let (opened, done) = pinned.opens_the_store(pinned.run(&[]).env("GOGC", "50"));
    assert!(opened && stdout(&done) == "50\n", "the user's own value wins: {}", describe(&done));
    pinned.settle();
    assert_eq!(stdout(&output(&mut pinned.run(&[]))), "400\n");
}

/// The policy tests candidates in rounds and ends with an answer. The output gives the answer, its reason,
/// and when it is looked at again.
#[test]
fn a_program_settles_and_the_answer_is_explained() {
    // Fixed, because by default the machine's load selects the objective and could change the answer between
    // two calls.
    const RULES: [&str; 4] = ["--policy", "adaptive", "--objective", "balanced"];
    let world = World::new();
    world.configure("retest_s = 0\ncandidates = ['mimalloc', 'glibc:arena1']\n");
    let start = || {
        let command = ["--", "/usr/bin/sort", "--parallel=1", "/etc/services"];
        printed(&world.imas(["run"]).args(RULES).args(command).output().unwrap())
    };
    let explain = || json(&world.imas(["explain", "--json", "/usr/bin/sort"]).args(RULES).output().unwrap());
    // Each candidate but the pick has eight trials at most, one in a round of its own at worst. The pick and `system` run
    // beside it.
    let most = 8 * 2 * 3;
    let untouched = start();
    let mut starts = 1;
    while explain()["next"]["trial"] == true {
        assert_eq!(start(), untouched, "the output must be the same under every candidate");
        starts += 1;
        assert!(starts <= most + 1, "no answer after {starts} starts");
    }
    let answer = explain();
    assert!(starts >= 3, "{starts}: a round has three candidates");
    assert!(answer["standings"][0]["rounds"].as_u64().unwrap() >= 1, "{answer}");
    assert!(answer["looked_at_again"].as_str().unwrap().contains("change"), "{answer}");
    assert_eq!(answer["confidence"], 0.95);
    let page = printed(&world.imas(["explain", "/usr/bin/sort"]).args(RULES).output().unwrap());
    // No figure of three trials means much: the page is one line then.
    let is_one_line = page.contains("nothing proven") && page.trim_end().lines().count() == 1;
    let gains = answer["expected_gain"].as_array().unwrap();
    let picks: Vec<_> = gains.iter().map(|one| one["pick"].as_str().unwrap()).collect();
    assert_eq!(picks, ["fastest", "leanest", "balanced"], "{answer}");
    for one in gains {
        let interval = one["interval"].as_array();
        assert_eq!(interval.is_none(), one["candidate"] == "system", "{one}");
        if let Some([lo, hi]) = interval.map(Vec::as_slice) {
            assert!(lo.as_f64() < one["gain"].as_f64() && one["gain"].as_f64() < hi.as_f64(), "{one}");
        }
        let is_there = page.contains(&format!("expected under the {}", one["pick"].as_str().unwrap()));
        assert!(is_there || is_one_line, "{page}");
    }
    assert!(is_one_line || (page.contains("looked at again") && page.contains("score")), "{page}");
}

/// Between two trials the question is open, not answered for 90 days. An operator's decision is not looked at
/// again. Commands print which store they use.
#[test]
fn explain_names_the_next_review_and_the_store_that_undoes_a_decision() {
    let world = World::new();
    world.configure("retest_s = 3600\ncandidates = ['mimalloc']\n");
    let start = || {
        let words = ["run", "--policy", "adaptive", "--", "/usr/bin/sort", "/etc/services"];
        printed(&world.imas(words).output().unwrap())
    };
    let explain = |more: &[&str]| {
        let words = [&["explain", "--json", "/usr/bin/sort"], more].concat();
        json(&world.imas(words).output().unwrap())
    };
    (0..2).for_each(|_| drop(start()));
    let trials = world.trials();
    assert_eq!(trials.len(), 2);
    let (store, sort) = world.forgotten_program();
    // A saving of a third of the memory, seen once, justifies another round at any load of the machine.
    for mut trial in trials {
        let mebibytes = if trial.sample.candidate == "system" { 90 } else { 60 };
        trial.sample.memory.resident_over_time = mebibytes << 20;
        trial.sample.usage.as_mut().unwrap().user_s = 1.0;
        assert!(store.add_trial(sort.id, &trial).unwrap(), "{trial:?}");
    }
    drop(store);
    let waiting = explain(&["--policy", "adaptive", "--objective", "memory"]);
    assert_eq!(waiting["next"]["trial"], false, "{waiting}");
    let again = waiting["looked_at_again"].as_str().unwrap();
    assert!(again.starts_with("from ") && again.contains("open: a trial of"), "{again}");
    let paper = explain(&["--policy", "paper"]);
    assert!(paper["looked_at_again"].as_str().unwrap().contains("open: a trial of"), "{paper}");
    printed(&world.imas(["pin", "/usr/bin/sort", "mimalloc"]).output().unwrap());
    let pinned = explain(&[]);
    assert_eq!(
        (&pinned["looked_at_again"], &pinned["undo"]),
        (&"not before it is unpinned".into(), &"imas unpin sort".into())
    );
    let elsewhere = world.work().join("else where.db");
    let words = ["pin", "--store", elsewhere.to_str().unwrap(), "/usr/bin/sort", "mimalloc"];
    printed(&world.imas(words).output().unwrap());
    let named = explain(&["--store", elsewhere.to_str().unwrap()]);
    let undo = named["undo"].as_str().unwrap();
    let words = shell_words::split(undo).unwrap();
    assert_eq!(words[..3], ["imas", "--store", elsewhere.to_str().unwrap()], "{undo}");
    printed(&world.imas(&words[1..]).output().unwrap());
    assert_ne!(explain(&["--store", elsewhere.to_str().unwrap()])["next"]["reason"], "pinned");
    assert_eq!(explain(&[])["next"]["reason"], "pinned", "the other store must not change");
}
