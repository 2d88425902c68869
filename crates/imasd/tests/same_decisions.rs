// SPDX-License-Identifier: Apache-2.0
//! `imas run` and imasd decide alike: the same scenarios, with real programs, through both binaries.
//!
//! Three things are compared. First, the decisions on the same history: after each trial that imasd has
//! stored, `imas` decides from a copy of those trials in a store of its own. Second, on histories of their
//! own, what each of the two has stored of the program and of its trials: candidate, version of the
//! allocator, build, end, waiting time. Third, the number of trials of each kind until both are done. That is
//! compared under the policy `paper`, which chooses trials without regard to figures.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::{VICTIM, WORKER, World, lib_dir, python};
use imas_core::TrialRecord;
use imas_core::sample::PageKind;
use imas_linux::catalogue::{Catalogue, INSTALLED};
use imas_store::Store;
use imas_store::samples::StoredProgram;

/// A scenario and the result that both must reach.
struct Scenario {
    name: &'static str,
    /// Settings in both configuration files.
    settings: &'static str,
    /// Text of the program.
    program: &'static str,
    /// The operator's override of the program, and the reason of the decision that follows.
    override_of: Option<(Operator, &'static str)>,
    /// Number of trials of each candidate until it is done. Empty if that depends on figures.
    trials: &'static [(&'static str, usize)],
}

/// Writes an override into a store.
type Operator = fn(&Store, &StoredProgram);

const SCENARIOS: [Scenario; 9] = [
    Scenario {
        name: "paper",
        settings: "policy = 'paper'\nmax_tests = 2\nretest_s = 0\ncandidates = ['jemalloc', 'mimalloc']",
        program: WORKER,
        override_of: None,
        trials: &[("jemalloc", 2), ("mimalloc", 2), ("system", 2)],
    },
    Scenario {
        name: "a library of the distribution, whose version its glue does not know",
        settings: "policy = 'paper'\nmax_tests = 2\nretest_s = 0\ncandidates = ['distro-jemalloc', 'jemalloc']",
        program: WORKER,
        override_of: None,
        trials: &[("distro-jemalloc", 2), ("jemalloc", 2), ("system", 2)],
    },
    Scenario {
        name: "settings of glibc",
        settings: "policy = 'paper'\nmax_tests = 1\nretest_s = 0\ncandidates = ['glibc:arena1']",
        program: WORKER,
        override_of: None,
        trials: &[("glibc:arena1", 1), ("system", 1)],
    },
    Scenario {
        name: "waiting time between two tests",
        settings: "policy = 'paper'\nmax_tests = 2\nretest_s = 3600\ncandidates = ['jemalloc']",
        program: WORKER,
        override_of: None,
        trials: &[("jemalloc", 1), ("system", 1)],
    },
    Scenario {
        name: "quarantine",
        settings: "policy = 'paper'\nmax_tests = 2\nretest_s = 0\ncandidates = ['jemalloc', 'mimalloc']",
        program: VICTIM,
        override_of: None,
        trials: &[("jemalloc", 1), ("mimalloc", 2), ("system", 2)],
    },
    Scenario {
        name: "pin",
        settings: "policy = 'paper'\nretest_s = 0\ncandidates = ['jemalloc']",
        program: WORKER,
        override_of: Some((pin, "pinned")),
        trials: &[],
    },
    Scenario {
        name: "exclusion",
        settings: "policy = 'adaptive'\nretest_s = 0\ncandidates = ['jemalloc']",
        program: WORKER,
        override_of: Some((exclude, "excluded")),
        trials: &[],
    },
    Scenario {
        name: "adaptive",
        settings: "retest_s = 0\ncandidates = ['jemalloc', 'mimalloc']\n[overrides]\nobjective = 'cpu'",
        program: WORKER,
        override_of: None,
        trials: &[],
    },
    Scenario {
        name: "adaptive, with quarantine and a library of the distribution",
        settings: "retest_s = 0\ncandidates = ['jemalloc', 'distro-tcmalloc']\n[overrides]\nobjective = 'memory'",
        program: VICTIM,
        override_of: None,
        trials: &[],
    },
];

/// Under the policy `paper`, the load of the machine changes the picks. All starts by the picks are compared
/// as this one reason.
const BY_THE_PICKS: &str = "by the picks";

fn pin(store: &Store, program: &StoredProgram) {
    store.pin(program.id, "mimalloc", 1.0).unwrap();
}

fn exclude(store: &Store, program: &StoredProgram) {
    assert!(store.exclude(&program.detail, 1.0).unwrap());
}

#[test]
fn the_command_and_the_daemon_decide_alike() {
    let catalogue = Catalogue::read(&[lib_dir().join("catalogue.toml")]);
    // In parallel, because each mostly waits for its daemon.
    std::thread::scope(|scope| {
        for scenario in &SCENARIOS {
            let missing = ["distro-jemalloc", "distro-tcmalloc"]
                .into_iter()
                .find(|name| scenario.settings.contains(name) && catalogue.find(name).is_none());
            match missing {
                Some(missing) => {
                    eprintln!("SKIPPED: {}: the library of {missing} is not installed", scenario.name);
                }
                None => drop(scope.spawn(|| run(scenario))),
            }
        }
    });
}

fn run(scenario: &Scenario) {
    let daemons = format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{}", scenario.settings);
    let world = World::with(&daemons).with_configured_retests();
    let (world, script, program) = world.noticed("worker.py", scenario.program);
    if let Some((operator, reason)) = scenario.override_of {
        operator(&world.store(), &program);
        world.wait("the override is in force", || {
            world.store().latest(program.id).unwrap().is_some_and(|decided| decided.reason == reason)
        });
    }
    let user = User::new(&world, scenario);
    let mut starts = 0;
    loop {
        let next = world.next_trial(&program);
        agree(scenario, &world, &user, &program, starts);
        if next.is_none() {
            break;
        }
        let stored = || world.store().trials(program.id).unwrap().len();
        let before = stored();
        world.run_trial(&script, &program, || stored() > before);
        starts += 1;
        assert!(starts < 40, "{}: the trials do not end\n{}", scenario.name, world.log());
    }
    if scenario.override_of.is_none() {
        let theirs = History::stored_in(&world.store(), &program);
        same_history(scenario, &theirs, &user.history_until_done(&script));
    }
}

/// What each of the two stored by itself.
fn same_history(scenario: &Scenario, theirs: &History, ours: &History) {
    let name = scenario.name;
    assert_eq!(theirs.program, ours.program, "{name}: the program");
    if scenario.trials.is_empty() {
        let kinds = |of: &History| of.trials.keys().cloned().collect::<BTreeSet<_>>();
        assert_eq!(kinds(theirs), kinds(ours), "{name}: imasd's trials and those of imas");
    } else {
        let expected: BTreeMap<_, _> =
            scenario.trials.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        assert_eq!(theirs.tally(), expected, "{name}: imasd");
        assert_eq!(ours.tally(), expected, "{name}: imas");
        assert_eq!(theirs.trials, ours.trials, "{name}: imasd's trials and those of imas");
    }
    // Equal, and both wrong, would be no better.
    for trial in ours.trials.keys() {
        let version = trial.allocator_version.as_str();
        // What glibc itself serves has none in the catalogue.
        let has_none = trial.candidate == imas_core::SYSTEM || trial.candidate.starts_with("glibc:");
        assert!(version != INSTALLED, "{name}: {trial:?}: not the version that served");
        assert!(has_none || !version.is_empty(), "{name}: {trial:?} has no version");
    }
}

/// Compares imasd's decision with that of `imas` on the same history.
fn agree(scenario: &Scenario, world: &World, user: &User, program: &StoredProgram, starts: u32) {
    let decided = world.store().latest(program.id).unwrap().unwrap();
    let theirs = (decided.candidate, decided.trial, decided.reason);
    let ours = user.decides(&world.store(), program);
    let comparable = |(candidate, trial, reason): (String, bool, String)| {
        let by_picks = scenario.settings.contains("'paper'") && !trial && scenario.override_of.is_none();
        if by_picks { (BY_THE_PICKS.to_owned(), trial, String::new()) } else { (candidate, trial, reason) }
    };
    assert_eq!(comparable(theirs), comparable(ours), "{}, after {starts} trials", scenario.name);
}

/// Facts that a trial leaves in the store beside its figures.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct StoredTrial {
    candidate: String,
    allocator_version: String,
    build_id: String,
    /// The signal of a crash, the exit status, or another end.
    ended: String,
    /// Waiting time between two tests, seconds.
    retest_s: Option<String>,
}

/// History of one program in a store.
#[derive(Debug)]
struct History {
    /// Path, and the script.
    program: (String, String),
    trials: BTreeMap<StoredTrial, usize>,
}

impl History {
    fn stored_in(store: &Store, program: &StoredProgram) -> Self {
        let mut trials = BTreeMap::new();
        for trial in store.trials(program.id).unwrap() {
            if trial.sample.kind == PageKind::Trial {
                *trials.entry(StoredTrial::of(trial)).or_default() += 1;
            }
        }
        Self { program: (program.path.clone(), program.detail.clone()), trials }
    }

    /// Trials by candidate.
    fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for (trial, count) in &self.trials {
            *tally.entry(trial.candidate.clone()).or_default() += count;
        }
        tally
    }
}

impl StoredTrial {
    fn of(trial: TrialRecord) -> Self {
        Self {
            candidate: trial.sample.candidate,
            allocator_version: trial.allocator_version,
            build_id: trial.build_id,
            ended: format!("{:?}", trial.sample.ended),
            retest_s: trial.retest_s.map(|seconds| seconds.to_string()),
        }
    }
}

/// A user of `imas run` with the same settings.
struct User {
    folder: PathBuf,
    override_of: Option<(Operator, &'static str)>,
}

impl User {
    fn new(world: &World, scenario: &Scenario) -> Self {
        let folder = world.path("user");
        for below in ["config/imas", "runtime", "home"] {
            std::fs::create_dir_all(folder.join(below)).unwrap();
        }
        std::fs::set_permissions(folder.join("runtime"), std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::write(folder.join("config/imas/imas.toml"), scenario.settings).unwrap();
        Self { folder, override_of: scenario.override_of }
    }

    fn imas(&self, verb: &str, store: &Path) -> Command {
        let mut command = Command::new(crate::support::imas());
        command
            .arg(verb)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.join("home"))
            .env("XDG_CONFIG_HOME", self.folder.join("config"))
            .env("XDG_RUNTIME_DIR", self.folder.join("runtime"))
            .env("IMAS_LIB_DIR", lib_dir())
            .env("IMAS_STORE", store)
            .stdin(Stdio::null());
        command
    }

    /// Candidate, whether it is a trial, and the reason, from a copy of that program's trials and overrides.
    fn decides(&self, from: &Store, program: &StoredProgram) -> (String, bool, String) {
        let file = self.folder.join("copy.db");
        for name in ["copy.db", "copy.db-wal", "copy.db-shm"] {
            let _ = std::fs::remove_file(self.folder.join(name));
        }
        let store = Store::open(&file).unwrap();
        let copy = store.program(&program.path, &program.detail).unwrap();
        for trial in from.trials(program.id).unwrap() {
            assert!(store.add_trial(copy.id, &trial).unwrap());
        }
        if let Some((operator, _)) = self.override_of {
            operator(&store, &copy);
        }
        drop(store);
        let output = self.imas("show", &file).args(["--json", &copy.id.to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let shown: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let word = |key: &str| shown["next"][key].as_str().unwrap().to_owned();
        (word("candidate"), shown["next"]["trial"].as_bool().unwrap(), word("reason"))
    }

    /// Starts the script with `imas run` until a start is no trial. Returns what `imas` has stored by then.
    fn history_until_done(&self, script: &Path) -> History {
        let file = self.folder.join("imas.db");
        for _ in 0..40 {
            // A crash is a valid result of a start.
            let _ = self.imas("run", &file).arg("--").arg(python()).arg(script).output().unwrap();
            let store = Store::open(&file).unwrap();
            let programs = store.programs().unwrap();
            let [program] = programs.as_slice() else { panic!("one program was started: {programs:?}") };
            if !store.latest(program.id).unwrap().unwrap().trial {
                return History::stored_in(&store, program);
            }
        }
        panic!("the trials do not end");
    }
}
