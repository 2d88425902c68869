// SPDX-License-Identifier: Apache-2.0
//! An observer of real processes under several candidates, started by `imas run` on a store of the test's.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use imas_engine::flags::Places;
use imas_engine::live::ProcessObserver;
use imas_engine::live::snapshot::{LiveProcess, ProcessState};
use imas_linux::serving::Injected;

/// Allocates, says that it has, grows when it reads a line, and ends with its input.
const WORK: &str = "import sys\nx = [bytes(1000) for _ in range(20000)]\nprint('ready', flush=True)\n\
    for line in sys.stdin:\n x += [bytes(1000) for _ in range(40000)]\n print('grown', flush=True)\n";
const DEADLINE_S: u64 = 120;

/// A store, the page folder and the script of one test.
struct World {
    folder: tempfile::TempDir,
}

/// A worker that has allocated.
struct Worker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Worker {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn grow(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"more\n").unwrap();
        assert_eq!(self.answer(), "grown");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("work.py"), WORK).unwrap();
        Self { folder }
    }

    fn places(&self) -> Places {
        Places { lib_dir: Some(lib_dir()), store: Some(self.store()), ..Places::default() }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("imas.db")
    }

    fn imas(&self) -> Command {
        let mut command = Command::new(imas());
        command.arg("--lib-dir").arg(lib_dir()).arg("--store").arg(self.store());
        command
    }

    /// The worker under `imas run`, or as it is.
    fn start(&self, run: Option<&[&str]>) -> Worker {
        let mut command = match run {
            Some(options) => {
                let mut command = self.imas();
                command.arg("run").args(options).args(["--", "python3"]);
                command
            }
            None => Command::new("python3"),
        };
        command.arg(self.folder.path().join("work.py"));
        command.env_remove("LD_PRELOAD").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut worker = Worker { child, answers };
        assert_eq!(worker.answer(), "ready");
        worker
    }
}

fn lib_dir() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/lib/imas");
    assert!(folder.join("catalogue.toml").is_file(), "run 'make build'");
    std::fs::canonicalize(folder).unwrap()
}

/// The command, of the same build as this test.
fn imas() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let imas = own.ancestors().nth(2).unwrap().join("imas");
    assert!(imas.is_file(), "{} is missing: run 'cargo build' for the whole workspace", imas.display());
    imas
}

/// Looks until the process is as wanted.
fn until(observer: &mut ProcessObserver, pid: u32, is_wanted: impl Fn(&LiveProcess) -> bool) -> LiveProcess {
    let begun = Instant::now();
    loop {
        let look = observer.look().unwrap();
        let found = look.processes.into_iter().find(|process| process.pid == pid);
        match found {
            Some(process) if is_wanted(&process) => return process,
            found => assert!(begun.elapsed() < imas_testing::deadline(DEADLINE_S), "{found:#?}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn processes_under_several_candidates_are_distinguished() {
    let world = World::new();
    let plain = world.start(None);
    let jemalloc = world.start(Some(&["--candidate", "jemalloc"]));
    let arenas = world.start(Some(&["--candidate", "glibc:arena1"]));
    let mut observer = ProcessObserver::new(&world.places()).unwrap();
    let of = |observer: &mut ProcessObserver, worker: &Worker| until(observer, worker.child.id(), |_| true);
    let [plain, jemalloc, arenas] = [&plain, &jemalloc, &arenas].map(|worker| of(&mut observer, worker));
    assert_eq!((plain.allocator.as_str(), plain.injected), ("glibc", Injected::Nothing));
    assert_eq!(plain.candidate.as_deref(), Some("system"));
    assert_eq!((jemalloc.allocator.as_str(), jemalloc.injected), ("jemalloc", Injected::Guard));
    assert_eq!(arenas.allocator, "glibc");
    assert_eq!(arenas.candidate.as_deref(), Some("glibc:arena1"), "{arenas:?}");
    assert!(!arenas.settings.as_ref().unwrap().is_empty(), "{arenas:?}");
    for process in [&plain, &jemalloc, &arenas] {
        assert!(process.detail.ends_with("work.py"), "{}", process.detail);
        assert!(process.resident_bytes > 20 << 20 && process.threads == 1, "{process:?}");
    }
}

#[test]
fn a_trial_a_pin_and_an_exclusion_are_seen_when_they_begin() {
    let world = World::new();
    let trial = world.start(Some(&[]));
    let pid = trial.child.id();
    let mut observer = ProcessObserver::new(&world.places()).unwrap();
    let seen = until(&mut observer, pid, |process| process.live_bytes.is_some());
    assert_eq!(seen.injected, Injected::Hook);
    assert!(matches!(seen.state, ProcessState::Trial { number: 1, .. }), "{:?}", seen.state);
    assert!(seen.live_bytes.unwrap() <= seen.resident_bytes, "{seen:?}");
    let point = observer.memory(pid).unwrap();
    assert!(point.in_use.is_some() && point.resident > 20 << 20, "{point:?}");
    let plain = world.start(None);
    let pid = plain.child.id();
    let other = until(&mut observer, pid, |process| process.number.is_some());
    assert!(matches!(other.state, ProcessState::Testing { .. }), "{:?}", other.state);
    let number = other.number.unwrap().to_string();
    assert!(world.imas().args(["pin", &number, "jemalloc"]).status().unwrap().success());
    until(&mut observer, pid, |process| matches!(process.state, ProcessState::Pinned { .. }));
    let script = world.folder.path().join("work.py");
    assert!(world.imas().args(["unpin", &number]).status().unwrap().success());
    assert!(world.imas().args(["exclude", "add"]).arg(&script).status().unwrap().success());
    until(&mut observer, pid, |process| process.state == ProcessState::Excluded);
}

#[test]
fn growth_cpu_and_an_exec_are_followed() {
    let world = World::new();
    let mut observer = ProcessObserver::new(&world.places()).unwrap();
    let mut worker = world.start(None);
    let pid = worker.child.id();
    let before = until(&mut observer, pid, |_| true).resident_bytes;
    worker.grow();
    let after = until(&mut observer, pid, |process| process.resident_bytes > before + (20 << 20));
    assert!(after.cpu_share.unwrap() >= 0.0);
    let mut child = Command::new("sh")
        .args(["-c", "read line; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id();
    until(&mut observer, pid, |process| !process.path.ends_with("/cat"));
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    until(&mut observer, pid, |process| process.path.ends_with("/cat"));
    drop(child.stdin.take());
    child.wait().unwrap();
    let gone = observer.look().unwrap();
    assert!(gone.processes.iter().all(|process| process.pid != pid));
}
