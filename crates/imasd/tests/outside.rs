// SPDX-License-Identifier: Apache-2.0
//! Trials of a program into which nothing is loaded: `imas run` makes them, imasd has the kernel's accounts.
//!
//! Settings of language runtimes, from the learner to the start by the stub.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_core::TrialRecord;
use imas_core::sample::{Ended, MEASURED_OUTSIDE, PageKind, Sample};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use imas_testing::{Running, compiled, skipped};

use crate::support::{World, imas, lib_dir, me, node};

const CONFIGURATION: &str = "worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = ['jemalloc']\n";

/// A user of `imas run` with a store of his own, beside the imasd of a world.
struct User<'a> {
    world: &'a World,
    program: PathBuf,
    /// Another uid than the test's.
    uid: Option<u32>,
}

/// Whether imasd never got the account: the kernel drops accounts while imasd gets no CPU.
fn is_missed(sample: &Sample) -> bool {
    sample.pass_reason.as_deref() == Some("no-account")
}

/// Output of a start of the program.
struct Printed {
    setting: String,
    cpu_s: f64,
}

impl<'a> User<'a> {
    fn of(world: &'a World) -> Self {
        let program = compiled_outside(world, "cc", &["-static", "-Wl,--build-id"]).unwrap();
        Self::with(world, program, "go:gogc200")
    }

    /// A user who tries that candidate alone.
    fn with(world: &'a World, program: PathBuf, candidate: &str) -> Self {
        for below in ["config/imas", "runtime", "home"] {
            std::fs::create_dir_all(world.path(below)).unwrap();
        }
        std::fs::set_permissions(world.path("runtime"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let settings = format!("candidates = ['{candidate}']\n");
        std::fs::write(world.path("config/imas/imas.toml"), settings).unwrap();
        Self { world, program, uid: None }
    }

    fn imas(&self, words: &[&str]) -> Command {
        let mut command = self.uid.map_or_else(|| Command::new(imas()), |uid| as_uid(uid, &imas()));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.world.path("home"))
            .env("XDG_CONFIG_HOME", self.world.path("config"))
            .env("XDG_RUNTIME_DIR", self.world.path("runtime"))
            .env("IMAS_LIB_DIR", lib_dir())
            .env("IMAS_STORE", self.store_path())
            .env("IMAS_RUN", self.world.path("run"))
            .env("IMAS_RETEST", "0")
            .stdin(Stdio::null());
        command
    }

    fn store_path(&self) -> PathBuf {
        self.world.path("home/imas.db")
    }

    fn trials(&self) -> Vec<TrialRecord> {
        let store = Store::open(&self.store_path()).unwrap();
        let program = store.program(&self.program.to_string_lossy(), "").unwrap();
        store.trials(program.id).unwrap()
    }

    /// Stores what has ended: `imas forget` does so before it looks for the program, here one that nobody knows.
    fn ingest(&self) {
        let done = self.imas(&["forget", "/no/such/program"]).output().unwrap();
        assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    }

    /// Names of the files in the user's folder of pages.
    fn page_files(&self) -> Vec<String> {
        let store =
            imas_linux::page::store_folder_name(&imas_engine::folders::real_store(&self.store_path()));
        let entries = std::fs::read_dir(self.world.path("runtime").join("imas").join(store));
        let entries = entries.into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Output of `imas VERB` about the program.
    fn says(&self, verb: &str) -> String {
        let done = self.imas(&[verb]).arg(&self.program).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    }

    /// Starts the program with these arguments, after the options of `imas run`, and waits until what it left is stored.
    fn starts(&self, options: &[&str], arguments: &[&str], status: i32) -> Printed {
        let mut command = self.imas(&[&["run"][..], options, &["--"]].concat());
        let child = command.arg(&self.program).args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let done = child.wait_with_output().unwrap();
        assert_eq!(done.status.code(), Some(status));
        let text = String::from_utf8(done.stdout).unwrap();
        let words: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(words[0], pid.to_string(), "nobody stands between the program and its parent");
        self.world.wait("the account is stored", || {
            self.ingest();
            let left = self.page_files();
            assert!(!left.iter().any(|name| name.ends_with(".damaged")), "{left:?}");
            !left.iter().any(|name| name.ends_with(".page"))
        });
        Printed { setting: words[1].to_owned(), cpu_s: words[2].parse().unwrap() }
    }
}

/// The program of `tests/programs`; None where there is no such compiler.
fn compiled_outside(world: &World, compiler: &str, flags: &[&str]) -> Option<PathBuf> {
    let program = world.path("work").join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/without_a_hook.c");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]).args(flags);
    let done = command.arg("-o").arg(&program).arg(source).status().ok()?;
    assert!(done.success(), "{compiler}");
    Some(program)
}

/// The command that starts the program under that uid, with the pid that it was given itself.
fn as_uid(uid: u32, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()]);
    command.arg(program);
    command
}

/// Waits until imasd has a folder for this user: it makes one when it sees a process that is worth it. And until the
/// kernel sends it accounts: that begins with the first request.
fn welcomed(world: &World) {
    let long = Running(Command::new("sleep").arg("100").env("IMAS_RUN", world.path("run")).spawn().unwrap());
    world.wait("imasd has made a folder for this user", || world.pages().exists());
    drop(long);
    first_asked(world, &world.pages());
}

/// Makes the first request, which imasd refuses. It names no process.
fn first_asked(world: &World, folder: &Path) {
    let request = folder.join("1-1.account");
    std::fs::write(&request, "").unwrap();
    world.wait("the first request is refused", || !request.exists());
}

#[test]
fn a_static_program_is_tried_and_starts_on_what_is_best() {
    let mut world = World::with(CONFIGURATION);
    {
        let user = User::of(&world);
        // Asked for with an option, so that nothing is settled by it.
        for _ in 0..3 {
            assert_eq!(user.starts(&["--retest", "0"], &["1"], 0).setting, "-");
        }
        assert_eq!(user.trials(), [], "there is no imasd");
        let explained = user.says("explain");
        let has_reason = ["no trials: it is statically linked", "and imasd does not run"];
        assert!(has_reason.iter().all(|part| explained.contains(part)), "{explained}");
    }
    world.start();
    let accounts = world.status()["accounts"].clone();
    if accounts != "kernel" {
        return skipped(&format!("imasd has no accounts of processes: {accounts}"));
    }
    welcomed(&world);
    let user = User { world: &world, program: world.path("work").join("program"), uid: None };

    assert_eq!(user.starts(&["--policy", "paper"], &["1"], 0).setting, "-");
    assert_eq!(user.trials(), [], "paper counts calls");

    let (mut under, mut exact) = (vec![], 0);
    for start in 0..60 {
        let ends_with = if start == 0 { 7 } else { 0 };
        let before = user.trials().len();
        let printed = user.starts(&[], &["2", &ends_with.to_string()], ends_with);
        let trials = user.trials();
        let Some(trial) = trials.get(before).filter(|trial| trial.sample.kind == PageKind::Trial) else {
            // It started as decided: under what was proven better, at some time.
            match printed.setting.as_str() {
                "200" => break,
                _ => continue,
            }
        };
        let sample = &trial.sample;
        if is_missed(sample) {
            continue;
        }
        assert_eq!(sample.served, MEASURED_OUTSIDE);
        assert_eq!(sample.ended, Ended::Clean { status: Some(ends_with) }, "{sample:?}");
        let expected = if sample.candidate == "system" { "-" } else { "200" };
        assert_eq!(printed.setting, expected, "under {}", sample.candidate);
        let cpu_s = sample.usage.as_ref().unwrap().user_s;
        // The program counts neither its exec nor its end, which take more where the CPU is slow at the moment.
        let off_s = (cpu_s - printed.cpu_s).abs();
        assert!(off_s < 0.045, "{cpu_s} s, by itself {} s", printed.cpu_s);
        exact += usize::from(off_s < f64::max(0.01, 0.1 * printed.cpu_s));
        let memory = &sample.memory;
        assert!(memory.resident_peak >= 32 << 20 && memory.resident() > 8 << 20, "{memory:?}");
        under.push(sample.candidate.clone());
    }
    assert!(under.iter().any(|name| name == "system") && under.iter().any(|name| name == "go:gogc200"));
    assert!(under.len() < 60, "the program did not settle: {under:?}");
    assert!(exact * 2 > under.len(), "{exact} of {} within 10 % or 10 ms", under.len());

    for verb in ["explain", "show"] {
        let said = user.says(verb);
        assert!(said.contains("measured from outside") && said.contains("go:gogc200"), "{said}");
    }
    let left = || std::fs::read_dir(world.pages()).unwrap().count();
    world.wait("what was fetched is removed", || left() == 0);
}

#[test]
fn a_program_of_musl_is_tried_under_what_is_built_for_it() {
    let mut world = World::with(CONFIGURATION);
    let is_built = lib_dir().join("musl/allocators/libjemalloc.so").exists();
    let Some(program) = compiled_outside(&world, "musl-gcc", &["-DOF_MUSL"]).filter(|_| is_built) else {
        return skipped("musl-gcc, or what 'make musl' builds, is missing");
    };
    world.start();
    if world.status()["accounts"] != "kernel" {
        return skipped("imasd has no accounts of processes");
    }
    welcomed(&world);
    let user = User::with(&world, program, "jemalloc");
    let mut under = BTreeSet::new();
    for _ in 0..30 {
        let before = user.trials().len();
        let printed = user.starts(&[], &["1"], 0);
        let trials = user.trials();
        let trial = trials.get(before).map(|trial| &trial.sample);
        if let Some(sample) = trial.filter(|one| one.kind == PageKind::Trial && !is_missed(one)) {
            let loaded = if sample.candidate == "system" { "-" } else { "libjemalloc.so" };
            assert_eq!((printed.setting.as_str(), sample.served.as_str()), (loaded, MEASURED_OUTSIDE));
            assert!(sample.usage.as_ref().is_some_and(|usage| usage.user_s > 0.09), "{sample:?}");
            under.insert(sample.candidate.clone());
        }
        if under.len() == 2 {
            break;
        }
    }
    assert_eq!(under.into_iter().collect::<Vec<_>>(), ["jemalloc", "system"]);
}

#[test]
fn every_start_of_a_pinned_program_is_watched() {
    let Some(world) = accounting() else { return skipped("imasd has no accounts of processes") };
    let user = User::of(&world);
    let pinned = user.imas(&["pin"]).arg(&user.program).arg("go:gogc200").output().unwrap();
    assert!(pinned.status.success(), "{pinned:?}");
    for starts in 1..=3 {
        assert_eq!(user.starts(&[], &["1"], 0).setting, "200");
        let trials = user.trials();
        assert_eq!(trials.len(), starts, "from the first on");
        let sample = &trials[starts - 1].sample;
        assert_eq!((sample.kind, sample.served.as_str()), (PageKind::Flight, MEASURED_OUTSIDE));
        assert!(is_missed(sample) || sample.ended == Ended::Clean { status: Some(0) }, "{sample:?}");
    }
}

/// A uid without an account.
const SOMEBODY: u32 = 12_345;

/// imasd serves the whole machine here, and not the tree of the user that it runs as.
#[test]
fn a_program_of_an_ordinary_user_is_measured() {
    if me() != 0 {
        return skipped("root alone starts programs as somebody else");
    }
    let world = World::with(CONFIGURATION);
    let user = User { uid: Some(SOMEBODY), ..User::of(&world) };
    std::fs::set_permissions(world.path(""), std::fs::Permissions::from_mode(0o711)).unwrap();
    ["home", "runtime"].iter().for_each(|name| chown(world.path(name), Some(SOMEBODY), None).unwrap());
    if !user.imas(&["--version"]).output().is_ok_and(|done| done.status.success()) {
        return skipped("imas lies where others may not read it, or there is no setpriv");
    }
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_imasd"));
    daemon.arg("--run-dir").arg(world.path("run")).arg("--store").arg(world.store_path());
    daemon.arg("--config").arg(world.path("imasd.toml")).arg("--lib-dir").arg(lib_dir());
    daemon.env_remove("NOTIFY_SOCKET").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = Running(daemon.spawn().unwrap());
    world.wait("imasd serves", || world.path("run/state/status.json").exists());
    if world.status()["accounts"] != "kernel" {
        return skipped("imasd has no accounts of processes");
    }
    let folder = world.path("run/state/u").join(SOMEBODY.to_string());
    let lingers = Running(as_uid(SOMEBODY, Path::new("sleep")).arg("1000").spawn().unwrap());
    world.wait("imasd has made a folder for this user", || folder.exists());
    drop(lingers);
    first_asked(&world, &folder);

    let mut tries = (0..10).map(|_| (user.starts(&[], &["2"], 0), user.trials().pop().unwrap().sample));
    let (printed, sample) = tries.find(|(_, sample)| !is_missed(sample)).unwrap();
    assert_eq!((sample.served.as_str(), sample.ended), (MEASURED_OUTSIDE, Ended::Clean { status: Some(0) }));
    let cpu_s = sample.usage.unwrap().user_s;
    assert!((cpu_s - printed.cpu_s).abs() < 0.045, "{cpu_s} s, by itself {} s", printed.cpu_s);

    let foreign = Running(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = foreign.0.id();
    let start_ticks = imas_linux::process::start_ticks(pid).unwrap();
    let request = folder.join(format!("{pid}-{start_ticks}.account"));
    assert!(as_uid(SOMEBODY, Path::new("touch")).arg(&request).status().unwrap().success());
    world.wait("nobody asks for a process of root's", || !request.exists());
}

/// A world whose imasd has accounts of processes; None where the kernel gives none.
fn accounting() -> Option<World> {
    let mut world = World::with(CONFIGURATION);
    world.start();
    let has_accounts = world.status()["accounts"] == "kernel";
    has_accounts.then(|| {
        welcomed(&world);
        world
    })
}

#[test]
fn a_crash_is_seen_and_a_stopped_start_has_no_figures() {
    let Some(world) = accounting() else { return skipped("imasd has no accounts of processes") };
    let user = User::of(&world);
    // The crash is last: its candidate is quarantined, and nothing is left to try.
    for (signal, ended) in [("-TERM", Ended::Unknown), ("-SEGV", Ended::Signal { signal: 11 })] {
        let dies = |_| {
            let before = user.trials().len();
            let mut started = user.imas(&["run", "--retest", "0", "--"]);
            let mut child = started.arg(&user.program).args(["8"]).stdout(Stdio::null()).spawn().unwrap();
            let program = format!("/proc/{}/exe", child.id());
            let runs = || std::fs::read_link(&program).is_ok_and(|exe| exe == user.program);
            world.wait("the program runs", runs);
            assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
            child.wait().unwrap();
            world.wait("the end is stored", || {
                user.ingest();
                user.trials().len() > before
            });
            user.trials().pop().unwrap().sample
        };
        // On a busy machine the program may end before the signal comes.
        let has_died = |one: &Sample| !is_missed(one) && !matches!(one.ended, Ended::Clean { .. });
        let sample = (0..3).map(dies).find(has_died).unwrap();
        assert_eq!((sample.ended, sample.usage), (ended, None));
        assert_eq!((sample.served.as_str(), sample.pass_reason), (MEASURED_OUTSIDE, None));
    }
}

#[test]
fn an_account_that_imasd_has_missed_is_not_waited_for() {
    let Some(world) = accounting() else { return skipped("imasd has no accounts of processes") };
    let user = User::of(&world);
    let mut started = user.imas(&["run", "--"]);
    let mut child = started.arg(&user.program).args(["8"]).stdout(Stdio::null()).spawn().unwrap();
    world.wait("imasd is asked", || std::fs::read_dir(world.pages()).unwrap().count() > 0);
    world.signal("-KILL");
    child.wait().unwrap();
    user.ingest();
    let sample = user.trials().pop().unwrap().sample;
    assert_eq!((sample.ended, sample.usage), (Ended::Unknown, None));
    assert_eq!(sample.pass_reason.as_deref(), Some("no-account"), "its candidate is not to blame");
}

const OF_RUNTIMES: &str = "policy = 'paper'\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 1\n\
                             candidates = ['node:semi8', 'node:limit', 'ruby:slow-growth', 'go:gogc50', 'jvm:serial']\n";

fn tried(world: &World, program: &StoredProgram) -> Vec<String> {
    let trials = world.store().trials(program.id).unwrap();
    let mut tried: Vec<_> = trials.into_iter().map(|trial| trial.sample.candidate).collect();
    tried.sort();
    tried
}

const JOB: &str = r"
const kept = [];
for (let i = 0; i < 200000; i++) kept.push(Buffer.from(String(i)));
const shown = {
    limit: require('v8').getHeapStatistics().heap_size_limit,
    options: process.env.NODE_OPTIONS ?? null,
    names: Object.keys(process.env).filter(name => /NODE|IMAS_[^R]/.test(name)),
    child: /NODE_OPTIONS|IMAS_[^R]/.test(require('child_process').execFileSync('/usr/bin/env')),
    given: require('fs').readFileSync('/proc/self/maps').includes('libimas-settings'),
};
console.log(JSON.stringify(shown));
if (process.argv.length > 2) setTimeout(() => {}, 300000);
";

fn shown(command: &mut Command) -> serde_json::Value {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn node_is_tried_under_its_settings_and_then_placed() {
    let Some(node) = node() else { return skipped("node is not installed") };
    let (world, script, program) = World::with(OF_RUNTIMES).noticed("job.js", JOB);
    world.settle(&script, &program);
    assert_eq!(tried(&world, &program), ["node:semi8", "system"]);
    let mut ended = world.store().trials(program.id).unwrap().into_iter().map(|trial| trial.sample.ended);
    assert!(ended.all(|ended| ended == Ended::Clean { status: Some(0) }));

    world.pin(&program, "node:semi8");
    let plain = shown(Command::new(&node).arg(&script));
    let placed = shown(&mut world.start_of(&script));
    assert!(placed["limit"].as_u64() < plain["limit"].as_u64(), "{placed} {plain}");
    assert_eq!(placed["given"], true);
    let unseen = ["options", "names", "child"];
    assert!(unseen.iter().all(|name| placed[name] == plain[name]), "{placed} {plain}");
    let own = shown(world.start_of(&script).env("NODE_OPTIONS", "--no-warnings"));
    assert!(own["given"] == false && own["options"] == "--no-warnings", "{own}");
    let own = shown(world.command(&node).arg("--max_semi_space_size=32").arg(&script));
    assert!(own["given"] == false && own["limit"].as_u64() > plain["limit"].as_u64(), "{own}");
}

/// A program with the symbols of Node.js and nothing else of it.
const LIKE_NODE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int _ZN4node5StartEiPPc(void) { return 0; }
#ifdef NEW
int node_api_create_external_string_latin1(void) { return 0; }
#endif
int main(int argc, char **argv) {
    for (int i = 0; i < 200000; i++)
        free(malloc(i % 2000 + 1));
    puts(getenv("NODE_OPTIONS") != NULL ? argv[0] : "-");
    fflush(stdout);
    if (argc > 1)
        pause();
    return 0;
}
"#;

/// An older Node.js does not start with this option, so where the file does not show the version nothing is offered.
#[test]
fn what_an_unknown_version_may_refuse_is_not_tried() {
    let mut world = World::with(&OF_RUNTIMES.replace("[", "['jemalloc', "));
    world.start();
    for (name, flag, expected) in [
        ("nodeold", "-DOLD", &["jemalloc", "system"][..]),
        ("nodenew", "-DNEW", &["jemalloc", "node:semi8", "system"]),
    ] {
        let file = compiled(&world.path("work"), name, LIKE_NODE, &["-rdynamic", "-fno-builtin", flag]);
        let program = world.notice(&file);
        world.settle(&file, &program);
        assert_eq!(tried(&world, &program), expected, "{name}");
    }
}
