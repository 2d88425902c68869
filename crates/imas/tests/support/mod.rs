// SPDX-License-Identifier: Apache-2.0
//! A private environment for each test. Store, pages, configuration and home are in temporary folders. The
//! environment variables start empty. So nothing on the machine is changed, and nothing of the developer's
//! has an effect.

#![allow(dead_code, reason = "every test binary uses its own part")]
#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

pub(crate) mod build;

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde_json::Value;
use tempfile::TempDir;

/// A fixed candidate set, in the catalogue's order, for tests that need certain candidates.
/// [`World::tests_six`] sets it in place of the catalogue's default set. No test may assume what the default
/// set contains ([`default_set`] reads it).
pub(crate) const SIX: [&str; 6] = ["system", "glibc:arena1", "jemalloc", "tcmalloc", "hoard", "mimalloc"];

/// Candidates of [`SIX`] with a library of their own.
pub(crate) const LIBRARIES: [&str; 4] = ["jemalloc", "tcmalloc", "hoard", "mimalloc"];

/// The catalogue's default set: the candidates that are tested if the user names none.
pub(crate) fn default_set() -> Vec<CatalogueCandidate> {
    let catalogue = Catalogue::read(&[lib_dir().join("catalogue.toml")]);
    assert!(catalogue.problems().is_empty(), "{:?}", catalogue.problems());
    let set: Vec<_> = catalogue.candidates().iter().filter(|candidate| candidate.default).cloned().collect();
    assert!(set.len() >= 3 && set[0].is_system(), "{set:?}");
    set
}

/// The name that a candidate's library reports, up to the version. It begins with the file name, because an
/// allocator may have several files.
pub(crate) fn calls_itself(candidate: &CatalogueCandidate) -> String {
    let file = candidate.library.as_deref().and_then(Path::file_stem).unwrap_or_default().to_string_lossy();
    format!("{} ", file.trim_start_matches("lib"))
}

/// The names of candidates.
pub(crate) fn names_of(set: &[CatalogueCandidate]) -> Vec<&str> {
    set.iter().map(|candidate| candidate.name.as_str()).collect()
}

/// PATH for the tests. It has the system's folders only, so that a developer's own tools change nothing.
pub(crate) const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin";

/// Root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// Folder of the libraries that `make build` has built; nothing here can be tested without it.
pub(crate) fn lib_dir() -> PathBuf {
    let folder = workspace().join("build/lib/imas");
    let parts = "libimas.so libimas-guard.so libimas-settings.so catalogue.toml allocators";
    for file in parts.split(' ') {
        assert!(folder.join(file).exists(), "{} is missing: run 'make build'", folder.join(file).display());
    }
    folder
}

/// A command of the project. Cargo builds the one that these tests belong to. The other one must be built
/// before.
pub(crate) fn built(name: &str) -> PathBuf {
    let ours = option_env!("CARGO_BIN_EXE_imas").or(option_env!("CARGO_BIN_EXE_imas-lab"));
    let command = Path::new(ours.unwrap()).with_file_name(name);
    assert!(command.is_file(), "{} is missing: run 'cargo build' for the whole workspace", command.display());
    command
}

/// Links everything in `from`, except `but`, into `to`.
fn link_all(from: &Path, to: &Path, but: &str) {
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        if entry.file_name() != but {
            symlink(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

/// An installation like the built one, with a suite of the test's own.
pub(crate) fn installation(world: &World, suite: &str) -> PathBuf {
    let folder = world.work().join("lib");
    std::fs::create_dir_all(folder.join("workloads/input")).unwrap();
    link_all(world.lib_dir(), &folder, "workloads");
    std::fs::write(folder.join("workloads/suite.toml"), suite).unwrap();
    folder
}

/// Path of a program of the system. If it is missing, the test fails with the command that installs it.
pub(crate) fn real(name: &str) -> PathBuf {
    let found = std::env::split_paths(PATH).map(|folder| folder.join(name)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run 'make setup-test'"))
}

/// An input file of `tests/programs/inputs`.
pub(crate) fn input(name: &str) -> PathBuf {
    workspace().join("tests/programs/inputs").join(name)
}

pub(crate) struct World {
    folder: TempDir,
    runtime: TempDir,
    /// In no folder of `prefix`: what is preloaded may have no space in its path.
    libraries: TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::named("imas-test-")
    }

    /// A world whose folder names begin with `prefix`.
    pub(crate) fn named(prefix: &str) -> Self {
        let named = |parent: &Path| tempfile::Builder::new().prefix(prefix).tempdir_in(parent).unwrap();
        // Pages belong on tmpfs.
        let memory = Some(Path::new("/dev/shm")).filter(|folder| folder.is_dir());
        let temporary = std::env::temp_dir();
        let world = Self {
            folder: named(&temporary),
            runtime: named(memory.unwrap_or(&temporary)),
            libraries: tempfile::Builder::new().prefix("imas-test-").tempdir().unwrap(),
        };
        for folder in ["home", "data", "config/imas/catalogue.d", "work"] {
            std::fs::create_dir_all(world.folder.path().join(folder)).unwrap();
        }
        link_all(&lib_dir(), world.lib_dir(), "contract");
        world.has_kit(&["aligned"]);
        world
    }

    /// Gives the conformance kit of the installation these programs; `tuning`, the quickest, stands for the others.
    /// `imas list` and others run the kit under each library of the distribution, once a store: the whole kit costs
    /// seconds of CPU, which only a test of the contract needs.
    pub(crate) fn has_kit(&self, programs: &[&str]) {
        let (kit, built) = (self.lib_dir().join("contract"), lib_dir().join("contract"));
        let _ = std::fs::remove_dir_all(&kit);
        std::fs::create_dir(&kit).unwrap();
        for program in std::fs::read_dir(&built).unwrap().flatten() {
            let is_in = programs.iter().any(|name| program.file_name() == *name);
            let runs = if is_in { program.path() } else { built.join("tuning") };
            symlink(runs, kit.join(program.file_name())).unwrap();
        }
    }

    /// The installation of this world: links to the built one.
    pub(crate) fn lib_dir(&self) -> &Path {
        self.libraries.path()
    }

    /// An empty folder, the working directory of every command.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.folder.path().join("data/imas/imas.db")
    }

    pub(crate) fn runtime(&self) -> &Path {
        self.runtime.path()
    }

    /// Folder of the trial pages of this world's store.
    pub(crate) fn pages(&self) -> PathBuf {
        self.pages_of(&self.store_path())
    }

    /// Folder of the trial pages of that store.
    pub(crate) fn pages_of(&self, store: &Path) -> PathBuf {
        let store = imas_engine::folders::real_store(store);
        self.runtime.path().join("imas").join(imas_linux::page::store_folder_name(&store))
    }

    /// Writes the user's `imas.toml`.
    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.folder.path().join("config/imas/imas.toml"), text).unwrap();
    }

    /// Writes the user's `imas.toml` with [`SIX`] as the candidate set.
    pub(crate) fn tests_six(&self, text: &str) {
        self.configure(&format!("candidates = {SIX:?}\n{text}"));
    }

    /// Writes a file of the user's `catalogue.d`.
    pub(crate) fn add_catalogue(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join("config/imas/catalogue.d").join(name), text).unwrap();
    }

    /// Adds a candidate with that library, and with these further lines.
    pub(crate) fn add_library(&self, name: &str, library: &Path, more: &str) {
        let entry = format!("name = '{name}'\nlibrary = '{}'\n{more}\n", library.display());
        self.add_catalogue(&format!("{name}.toml"), &format!("schema = 1\n[[candidate]]\n{entry}"));
    }

    /// Adds the candidate `cpython:own`: Python's objects come from malloc, out of a library of the catalogue if one
    /// is named.
    pub(crate) fn add_settings_of_python(&self, library: Option<&str>) {
        let file = |name: &str| self.lib_dir().join("allocators").join(name);
        let library = library.map_or_else(String::new, |name| {
            format!("library = '{}'\nversion = '1'\n", file(name).display())
        });
        let entry = "runtime = 'cpython'\nversions = '>=3.6'\nyields_to = ['-E', '-I', 'PYTHONDEVMODE']\n\
                     environment = { PYTHONMALLOC = 'malloc' }\n";
        let text = format!("schema = 1\n[[candidate]]\nname = 'cpython:own'\n{entry}{library}");
        self.add_catalogue("python.toml", &text);
    }

    /// Any program, with this world's environment.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let below = |name: &str| self.folder.path().join(name);
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", PATH)
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .env("HOME", below("home"))
            .env("TMPDIR", below("work"))
            .env("XDG_DATA_HOME", below("data"))
            .env("XDG_CONFIG_HOME", below("config"))
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .env("IMAS_LIB_DIR", self.lib_dir())
            // The paper's round robin makes every step predictable, so tests can check each. `adaptive.rs`
            // sets its own policy.
            .env("IMAS_POLICY", "paper")
            .env("IMAS_STORE", self.store_path())
            .current_dir(self.work())
            .stdin(Stdio::null());
        command
    }

    /// `imas` with these arguments, not yet started.
    pub(crate) fn imas<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(built("imas"));
        command.args(arguments);
        command
    }

    /// `imas-lab` with these arguments, not yet started.
    pub(crate) fn lab<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.command(built("imas-lab"));
        command.args(arguments);
        command
    }

    /// `imas` with these arguments, for assert_cmd.
    pub(crate) fn check<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> assert_cmd::assert::Assert {
        assert_cmd::Command::from_std(self.imas(arguments)).assert()
    }

    /// `imas run --retest 0 -- COMMAND`: a trial if one is due.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, command: impl IntoIterator<Item = S>) -> Output {
        let mut imas = self.imas(["run", "--retest", "0", "--"]);
        output(imas.args(command))
    }

    /// Standard output of a command that only reads and must succeed, as JSON.
    pub(crate) fn json<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        json(&output(&mut self.imas(arguments)))
    }

    /// Stores what has ended: `imas forget` does so before it looks for the program, here one that nobody knows.
    pub(crate) fn ingest(&self) {
        assert_nobody_known(&output(&mut self.imas(INGEST)));
    }

    /// All stored trials, ordered by program and time. Finished pages are stored first.
    pub(crate) fn trials(&self) -> Vec<TrialRecord> {
        self.ingest();
        let store = Store::open_read_only(&self.store_path()).unwrap();
        let programs = store.programs().unwrap();
        programs.iter().flat_map(|program| store.trials(program.id).unwrap()).collect()
    }

    /// The first program of the store, stored anew without its trials.
    pub(crate) fn forgotten_program(&self) -> (Store, StoredProgram) {
        let mut store = Store::open(&self.store_path()).unwrap();
        let known = store.programs().unwrap().remove(0);
        store.forget(known.id).unwrap();
        let program = store.program(&known.path, &known.detail).unwrap();
        (store, program)
    }

    /// Names of the files in the folder of pages. Those that are only there where memory is limited are left out.
    pub(crate) fn page_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.pages()).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.ends_with(".kills")).collect()
    }
}

/// Words of a command that stores what has ended, and then finds that nobody knows the program.
pub(crate) const INGEST: [&str; 2] = ["forget", "/no/such/program"];

/// The command of [`INGEST`] ended as it should.
#[track_caller]
pub(crate) fn assert_nobody_known(output: &Output) {
    assert_eq!(output.status.code(), Some(2), "{}", describe(output));
    assert!(stderr(output).contains("/no/such/program: nothing is known"), "{}", describe(output));
}

/// Copies a file to an executable file. Another process does the writing: a file that is open for writing
/// cannot be executed (ETXTBSY), and a child that another thread forks holds the open file until its exec.
pub(crate) fn install(from: &Path, to: &Path) {
    succeeded(output(Command::new("install").args(["-m", "755"]).arg(from).arg(to)));
}

/// Writes an executable script, as [`install`] does.
pub(crate) fn write_script(file: &Path, text: &str) {
    let written = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(written.path(), text).unwrap();
    install(written.path(), file);
}

/// Runs the command to its end.
pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

/// All output of a command that must succeed.
pub(crate) fn succeeded(output: Output) -> Output {
    assert!(output.status.success(), "{}", describe(&output));
    output
}

/// Output of a command that must succeed.
pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", describe(output));
    stdout(output)
}

/// The JSON that a command printed that must succeed.
pub(crate) fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", describe(output));
    parsed(output)
}

/// The JSON that a command printed, whatever its exit status.
pub(crate) fn parsed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", describe(output)))
}

/// Exit status and output of a command, for the message of a failed assertion.
pub(crate) fn describe(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\nstdout: {}\nstderr: {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The entries that no start by IMAS sets.
pub(crate) fn not_ours(environment: &str) -> Vec<&str> {
    let is_ours = |line: &&str| line.starts_with("IMAS_") || line.starts_with("LD_PRELOAD=");
    environment.lines().filter(|line| !is_ours(line)).collect()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The message must have the form of all messages to users: `imas: ...`, and a `hint: ...` on a line of its
/// own.
pub(crate) fn assert_hinted(output: &Output, what: &str) {
    let text = stderr(output);
    assert!(
        text.lines().any(|line| line.starts_with("imas: ") && line.contains(what)),
        "{}",
        describe(output)
    );
    assert!(text.lines().any(|line| line.starts_with("hint: ")), "no hint\n{}", describe(output));
}

/// The command was refused: exit status 2, with a hint.
#[track_caller]
pub(crate) fn assert_refused(output: &Output, what: &str) {
    assert_eq!(output.status.code(), Some(2), "{}", describe(output));
    assert_hinted(output, what);
}

/// The command ended with that status and printed exactly that.
#[track_caller]
pub(crate) fn assert_printed(output: &Output, status: i32, text: &str) {
    assert_eq!((stdout(output).as_str(), output.status.code()), (text, Some(status)), "{}", describe(output));
}

/// Waits until the condition holds. Fails after three minutes, because a test that hangs gives no message.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let (start, limit) = (Instant::now(), imas_testing::deadline(180));
    while !holds() {
        assert!(start.elapsed() < limit, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Answer of `imas explain --json --pid` that has read all of the heaps; after many tries, the last answer. On a busy
/// machine the time of a look may be over before, and the rest is estimated then, or nothing was read.
pub(crate) fn looked_at(explain: impl Fn() -> Value) -> Value {
    let (start, limit) = (Instant::now(), imas_testing::deadline(60));
    for tries in 1.. {
        let explained = explain();
        let heaps = &explained["heaps"];
        let is_whole = heaps["read"].is_u64() && heaps["read"] == heaps["held"];
        if is_whole || (tries >= 30 && start.elapsed() > limit) {
            return explained;
        }
    }
    Value::Null
}

/// The value at that place of a JSON document, as text.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer} in {value:#}"))
}

/// The array at that place of a JSON document.
pub(crate) fn list<'a>(value: &'a Value, pointer: &str) -> &'a Vec<Value> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .unwrap_or_else(|| panic!("no list at {pointer} in {value:#}"))
}

/// The candidate of that name in a document that has a list of candidates.
pub(crate) fn candidate<'a>(value: &'a Value, name: &str) -> &'a Value {
    let found = list(value, "/candidates").iter().find(|candidate| candidate["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {value:#}"))
}

/// The keys of an object.
pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}
