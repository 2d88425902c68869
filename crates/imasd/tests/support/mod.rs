// SPDX-License-Identifier: Apache-2.0
//! A private environment for each test: a run folder, a store, an imasd, and programs that carry the real
//! libimas-preload.so. Nothing on the machine itself is changed.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]
#![allow(clippy::print_stderr, reason = "a failing test shows the daemon's log")]

use std::ffi::OsStr;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_linux::catalogue_table::CatalogueTable;
use imas_linux::index::Index;
use imas_store::Store;
use imas_store::samples::StoredProgram;
use imas_testing::{Running, skipped};

/// Folder of the libraries that `make build` has built.
pub(crate) fn lib_dir() -> PathBuf {
    let folder = std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/lib/imas"));
    let folder = folder.expect("build/lib/imas is missing: run 'make build'");
    for file in
        ["libimas.so", "libimas-guard.so", "libimas-settings.so", "libimas-preload.so", "catalogue.toml"]
    {
        assert!(folder.join(file).exists(), "{file} is missing: run 'make build'");
    }
    folder
}

pub(crate) fn me() -> u32 {
    nix::unistd::geteuid().as_raw()
}

pub(crate) struct World {
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    polls: bool,
    lib: PathBuf,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(
            "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 1\ncandidates = [\"jemalloc\"]\n",
        )
    }

    pub(crate) fn with(config: &str) -> Self {
        // Pages belong on tmpfs. Libraries on tmpfs may not be approved, so those stay where they were built.
        let folder = tempfile::Builder::new().prefix("imasd-test-").tempdir_in("/dev/shm").unwrap();
        let world = Self { folder, daemon: None, polls: false, lib: lib_dir() };
        for name in ["run", "db", "work"] {
            std::fs::create_dir(world.path(name)).unwrap();
        }
        world.configure(config);
        world
    }

    /// This world with an imasd that gets no process events of the kernel.
    pub(crate) fn polling(mut self) -> Self {
        self.polls = true;
        self
    }

    /// Simulates the installation of another package: the same libraries in that folder, and a catalogue with
    /// this default set (without `system`).
    pub(crate) fn install(&mut self, folder: &Path, set: &[&str]) {
        std::fs::create_dir_all(folder).unwrap();
        for file in ["libimas.so", "libimas-guard.so", "libimas-settings.so", "libimas-preload.so"] {
            std::fs::copy(lib_dir().join(file), folder.join(file)).unwrap();
        }
        let built = std::fs::read_to_string(lib_dir().join("catalogue.toml")).unwrap();
        let libraries = format!("library = \"{}/", lib_dir().display());
        let mut is_in = false;
        let line = |line: &str| {
            if let Some(name) = line.strip_prefix("name = ") {
                is_in = name == "\"system\"" || set.iter().any(|one| name == format!("\"{one}\""));
            }
            let is_default = line.starts_with("default = ");
            if is_default {
                format!("default = {is_in}\n")
            } else {
                line.replace("library = \"", &libraries) + "\n"
            }
        };
        std::fs::write(folder.join("catalogue.toml"), built.lines().map(line).collect::<String>()).unwrap();
        self.lib = folder.to_owned();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.path("imasd.toml"), text).unwrap();
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.path("db/imas.db")
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.store_path()).unwrap()
    }

    pub(crate) fn index(&self) -> Index {
        Index::read(&self.path("run/state/index")).unwrap()
    }

    /// Folder of this user's pages.
    pub(crate) fn pages(&self) -> PathBuf {
        self.path("run/state/u").join(me().to_string())
    }

    /// `imasd` for this world, not yet started.
    pub(crate) fn imasd(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_imasd"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        command
            .args(["--user", "--retest", "0"])
            .args(self.polls.then_some("--poll"))
            .arg("--run-dir")
            .arg(self.path("run"))
            .arg("--store")
            .arg(self.store_path())
            .arg("--config")
            .arg(self.path("imasd.toml"))
            .arg("--lib-dir")
            .arg(&self.lib)
            .env_remove("JOURNAL_STREAM")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// `imas VERB` on this world's store.
    pub(crate) fn imas(&self, verb: &str) -> Command {
        let mut command = Command::new(imas());
        command.arg(verb).arg("--store").arg(self.store_path()).arg("--lib-dir").arg(lib_dir());
        command.stdin(Stdio::null());
        command
    }

    /// Starts imasd and waits until it serves.
    pub(crate) fn start(&mut self) {
        let _ = std::fs::remove_file(self.path("run/state/status.json"));
        self.daemon = Some(self.imasd().spawn().unwrap());
        self.wait("imasd serves", || self.path("run/state/status.json").exists());
    }

    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.daemon_pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Stops imasd until it gets SIGCONT.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
        let stat = format!("/proc/{}/stat", self.daemon_pid());
        self.wait("imasd stands still", || std::fs::read_to_string(&stat).unwrap().contains(") T "));
    }

    /// Ends imasd with that signal. Returns its exit status.
    pub(crate) fn stop(&mut self, signal: &str) -> std::process::ExitStatus {
        self.signal(signal);
        self.daemon.take().unwrap().wait().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// State that imasd writes to `status.json`; null without the file.
    pub(crate) fn status(&self) -> serde_json::Value {
        let text = std::fs::read(self.path("run/state/status.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// A counter of `state/status.json`.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.status()["counters"][name].as_u64().unwrap_or(0)
    }

    /// Waits for something to become true.
    pub(crate) fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let (begin, limit) = (Instant::now(), imas_testing::deadline(120));
        while !holds() {
            assert!(begin.elapsed() < limit, "timed out: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Writes a Python program into the world.
    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let file = self.path("work").join(name);
        std::fs::write(&file, text).unwrap();
        file
    }

    /// A command that carries the stub, as every program does when /etc/ld.so.preload names it.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_PRELOAD", lib_dir().join("libimas-preload.so"))
            .env("IMAS_RUN", self.path("run"))
            .current_dir(self.path("work"))
            .stdin(Stdio::null());
        command
    }

    /// The command that starts a script; a program is started as it is.
    pub(crate) fn start_of(&self, script: &Path) -> Command {
        let interpreter = match script.extension().and_then(OsStr::to_str) {
            Some("py") => python(),
            Some("js") => node().unwrap(),
            _ => return self.command(script),
        };
        let mut command = self.command(&interpreter);
        command.arg(script);
        command
    }

    /// Starts a script that keeps running.
    pub(crate) fn linger(&self, script: &Path) -> Running {
        Running(self.start_of(script).arg("linger").stdout(Stdio::null()).spawn().unwrap())
    }

    /// Starts a script that keeps running, and waits until imasd has identified its trial.
    pub(crate) fn take_trial(&self, script: &Path) -> Running {
        let running = self.linger(script);
        self.wait("the trial is taken", || !self.store().witnesses().unwrap().is_empty());
        running
    }

    /// Runs a script to its end.
    pub(crate) fn python(&self, script: &Path) -> Output {
        self.start_of(script).output().unwrap()
    }

    /// The script's program in the store, if it is there.
    pub(crate) fn program(&self, script: &Path) -> Option<StoredProgram> {
        let script = script.to_string_lossy().into_owned();
        self.store().programs().unwrap().into_iter().find(|p| p.detail == script || p.path == script)
    }

    /// Runs a script until it is noticed, and waits until its first trial is on offer.
    pub(crate) fn notice(&self, script: &Path) -> StoredProgram {
        let mut running = self.linger(script);
        self.wait("the program is noticed", || {
            // On an emulated machine that may take longer than it lives: imasd has a second for a look.
            if running.0.try_wait().unwrap().is_some() {
                running = self.linger(script);
            }
            self.program(script).is_some()
        });
        drop(running);
        let program = self.program(script).unwrap();
        self.wait("a trial is on offer", || self.offer(&program).is_some());
        program
    }

    /// Writes the script, and lets imasd notice it.
    pub(crate) fn notices(&self, name: &str, text: &str) -> (PathBuf, StoredProgram) {
        let script = self.script(name, text);
        let program = self.notice(&script);
        (script, program)
    }

    /// Starts imasd, writes the script, and lets imasd notice it.
    pub(crate) fn noticed(mut self, name: &str, text: &str) -> (Self, PathBuf, StoredProgram) {
        self.start();
        let (script, program) = self.notices(name, text);
        (self, script, program)
    }

    /// Candidate id and token of the trial on offer in the index.
    pub(crate) fn offer(&self, program: &StoredProgram) -> Option<(u16, u64)> {
        let id = u64::try_from(program.id).unwrap();
        let index = self.index();
        let entry = index.entries().find(|entry| entry.program_id == id && entry.trial_candidate != 0)?;
        Some((entry.trial_candidate, entry.trial_token))
    }

    /// Candidate of a production start, 1 for `system`.
    pub(crate) fn production(&self, program: &StoredProgram) -> u16 {
        let id = u64::try_from(program.id).unwrap();
        let index = self.index();
        index.entries().find(|entry| entry.program_id == id).map_or(1, |entry| entry.candidate)
    }

    /// A candidate's number in the catalogue table of the index.
    pub(crate) fn id_of(&self, candidate: &str) -> u16 {
        CatalogueTable::read(&self.path("run/catalogue")).unwrap().id_of(candidate).unwrap()
    }

    /// Pins the program, and waits until that is published.
    pub(crate) fn pin(&self, program: &StoredProgram, candidate: &str) {
        self.store().pin(program.id, candidate, 1.0).unwrap();
        let wanted = self.id_of(candidate);
        self.wait("the pin is published", || {
            self.production(program) == wanted && self.offer(program).is_none()
        });
    }

    /// Waits until the store has the next decision and the index agrees with it. Returns the candidate of the
    /// next trial, if one is due.
    pub(crate) fn next_trial(&self, program: &StoredProgram) -> Option<u16> {
        let mut next = None;
        self.wait("the next decision is stored and published", || {
            let store = self.store();
            let stored = store.offers().unwrap().into_iter().find(|offer| offer.program == program.id);
            let offered = self.offer(program);
            if let Some(stored) = stored {
                next = offered.filter(|(_, token)| format!("{token:016x}") == stored.token);
                return next.is_some();
            }
            // Between a sample and the next offer the newest decision is still the trial's.
            let decided = store.latest(program.id).unwrap().filter(|decided| !decided.trial);
            let published = |candidate: &str| self.production(program) == self.id_of(candidate);
            offered.is_none() && decided.is_some_and(|decided| published(&decided.candidate))
        });
        next.map(|(candidate, _)| candidate)
    }

    /// Starts a script that has no trials left, by its decision. Returns its output and the candidate. If the
    /// decision changes during the start, it starts the script again.
    pub(crate) fn as_decided(&self, script: &Path, program: &StoredProgram) -> (String, String) {
        for _ in 0..20 {
            self.settle(script, program);
            let decided = self.store().latest(program.id).unwrap().unwrap();
            let holds = || {
                let is_published = self.production(program) == self.id_of(&decided.candidate);
                is_published && self.offer(program).is_none()
            };
            let held = !decided.trial && holds();
            let printed = String::from_utf8(self.python(script).stdout).unwrap();
            if held && holds() {
                return (printed, decided.candidate);
            }
        }
        panic!("the decision changed during every start\n{}", self.log());
    }

    /// Runs the script as the trial on offer, and waits until the trial is stored. A busy imasd may miss so
    /// short a life. The trial is then on offer again, with another token.
    pub(crate) fn run_trial(&self, script: &Path, program: &StoredProgram, stored: impl Fn() -> bool) {
        let mut token = self.offer(program).map(|(_, token)| token);
        self.python(script);
        self.wait("the trial is stored", || {
            let offered = self.offer(program).map(|(_, token)| token);
            if !stored() && offered.is_some() && offered != token {
                token = offered;
                self.python(script);
            }
            stored()
        });
    }

    /// The newest decisions of each program, for the report of a failed test. A store that cannot be read gives
    /// none: a second panic would hide the first.
    fn newest_decisions(&self) -> String {
        let Ok(store) = Store::open(&self.store_path()) else { return String::new() };
        let programs = store.programs().unwrap_or_default();
        let of = |program: &StoredProgram| store.decisions(program.id, 20).unwrap_or_default();
        let line = |one: imas_store::decisions::Decided| {
            format!("{:.3} {} trial={}: {}\n", one.at_s, one.candidate, one.trial, one.because)
        };
        programs.iter().flat_map(of).map(line).collect()
    }

    /// Starts the script until no more trial is on offer. Returns the number of starts.
    pub(crate) fn settle(&self, script: &Path, program: &StoredProgram) -> u32 {
        let mut starts = 0;
        let stored = || self.store().trials(program.id).unwrap().len();
        while self.next_trial(program).is_some() {
            let before = stored();
            self.run_trial(script, program, || stored() > before);
            starts += 1;
            assert!(starts < 50, "the program does not settle\n{}", self.log());
        }
        starts
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- log of imasd\n{}", self.log());
            eprintln!("{}", std::fs::read_to_string(self.path("run/state/status.json")).unwrap_or_default());
            eprintln!("--- decisions, newest first\n{}", self.newest_decisions());
        }
    }
}

/// Runs the ignored test `MODULE::NAME` in a mount namespace. `more` has the `unshare` options for further namespaces.
/// Skipped if none can be created.
pub(crate) fn alone(test: &str, more: &[&str]) {
    let unshare = |command: &Path| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation", "private"]).args(more).arg(command);
        unshare
    };
    if !unshare(Path::new("true")).status().is_ok_and(|status| status.success()) {
        return skipped("mount namespaces cannot be made here");
    }
    let myself = std::env::current_exe().unwrap();
    let output = unshare(&myself).args(["--ignored", "--exact", test]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("1 passed"), "{printed}");
}

/// The command, built beside the daemon.
pub(crate) fn imas() -> PathBuf {
    let imas = Path::new(env!("CARGO_BIN_EXE_imasd")).with_file_name("imas");
    assert!(imas.exists(), "imas is missing: run 'cargo build -p imas'");
    imas
}

/// The interpreter itself, not a shim in front of it.
pub(crate) fn python() -> PathBuf {
    let python = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
    let found = python.into_iter().find(|path| path.exists());
    std::fs::canonicalize(found.expect("python3 is missing: run 'make setup-test'")).unwrap()
}

/// Whether the process has loaded such a library.
pub(crate) fn has_loaded(process: &Running, library: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{}/maps", process.0.id())).unwrap().contains(library)
}

/// Waits for an answer of `cat`. A process that answers has finished its exec and loaded its libraries.
pub(crate) fn answers(process: &mut Running) {
    process.0.stdin.as_mut().unwrap().write_all(b"x").unwrap();
    process.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
}

/// Node.js, if it is installed.
pub(crate) fn node() -> Option<PathBuf> {
    ["/usr/bin/node", "/usr/local/bin/node"].into_iter().find_map(|path| std::fs::canonicalize(path).ok())
}

/// A program that prints which of IMAS's libraries it has loaded. With an argument it keeps running for a
/// while.
pub(crate) const WORKER: &str = "
import sys, time
kept = [str(i) * 3 for i in range(60000)]
print(sorted({line.split('/')[-1].strip() for line in open('/proc/self/maps') if '/imas/' in line}))
if sys.argv[1:]:
    time.sleep(300)
";

/// A program that dies of SIGSEGV when jemalloc serves it. With an argument it keeps running for a while.
pub(crate) const VICTIM: &str = "
import os, signal, sys, time
if 'libjemalloc' in open('/proc/self/maps').read():
    os.kill(os.getpid(), signal.SIGSEGV)
if sys.argv[1:]:
    time.sleep(300)
";

/// The trial of that number as if it had been made an hour ago, in which the candidate needed that share of
/// what the program needs.
pub(crate) fn trial(candidate: &str, build_id: &str, number: usize, share: f64) -> TrialRecord {
    let wobble = 1.0 + 0.002 * (number % 3) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole bytes are meant")]
    let bytes = (f64::from(100 << 20) * share * wobble) as u64;
    let mut made = imas_testing::trial(candidate, build_id, number, bytes, share * wobble);
    made.sample.made_unix_s = imas_linux::host::now_unix_s() - 3600.0 + number as f64;
    made
}
