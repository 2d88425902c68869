// SPDX-License-Identifier: Apache-2.0
//! A candidate that crashes a program is not used for it again. A program that crashes under `system`, too,
//! quarantines none.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Output;

use crate::support::{
    World, assert_printed, build, candidate, describe, list, output, printed, stdout, text,
};
use imas_core::sample::{Ended, PageKind};
use imas_testing::Running;
use serde_json::Value;

/// The names of the signals in C, their names in `behave`, and their numbers.
const CRASHES: [(&str, &str, i32); 5] = [
    ("SIGSEGV", "segv", 11),
    ("SIGABRT", "abort", 6),
    ("SIGILL", "ill", 4),
    ("SIGBUS", "bus", 7),
    ("SIGSYS", "sys", 31),
];

/// A program that no other test uses.
struct Patient {
    world: World,
    program: PathBuf,
}

impl Patient {
    fn new(configuration: &str) -> Self {
        let world = World::new();
        world.configure(configuration);
        Self { program: build::program("behave", &world.work()), world }
    }

    fn name(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// Starts the program once; it does `act` if the allocator is `under`.
    fn start(&self, act: &str, under: &str) -> Output {
        self.world.start([self.name().as_str(), "3000", act, under])
    }

    fn shown(&self) -> Value {
        self.world.json(["show", &self.name(), "--json"])
    }

    fn explained(&self) -> String {
        printed(&output(&mut self.world.imas(["explain", &self.name()])))
    }

    /// Names of the quarantined candidates.
    fn quarantined(&self) -> Vec<String> {
        let explained = self.world.json(["explain", &self.name(), "--json"]);
        list(&explained, "/quarantined").iter().map(|q| text(q, "/candidate").to_owned()).collect()
    }
}

/// `system` and one other candidate, two tests each.
const ONE_OTHER: &str = "candidates = [\"tcmalloc\"]\nmax_tests = 2\nretest_s = 0";

#[test]
fn one_crash_is_enough() {
    for (name, act, signal) in CRASHES {
        let patient = Patient::new(ONE_OTHER);
        assert!(patient.start(act, "tcmalloc").status.success(), "the first trial must be under system");
        let crashed = patient.start(act, "tcmalloc");
        assert_eq!(crashed.status.signal(), Some(signal), "{name}: {}", describe(&crashed));
        assert_eq!(stdout(&crashed), "worked\n", "{name}");
        // From now on every start must succeed.
        for start in 0..6 {
            let output = patient.start(act, "tcmalloc");
            assert!(output.status.success(), "{name}, start {start}: {}", describe(&output));
        }
        assert_eq!(patient.quarantined(), ["tcmalloc"], "{name}");
        let explained = patient.explained();
        assert!(
            explained.contains("tcmalloc is quarantined") && explained.contains(name),
            "{name}: {explained}"
        );
        assert!(explained.contains("imas pin --unblock "), "{explained}");
        let shown = patient.shown();
        assert_ne!(text(&shown, "/next/candidate"), "tcmalloc");
        assert_eq!(candidate(&shown, "tcmalloc")["left_out"][0]["why"], "crashed");
    }
}

#[test]
fn every_library_candidate_is_watched() {
    let patient = Patient::new("");
    patient.world.tests_six("max_tests = 1\nretest_s = 0");
    // Crashes under every allocator that has a name, so under each of the four libraries.
    for act in ["ok", "ok", "segv", "abort", "ill", "bus"] {
        patient.start(act, "all");
    }
    assert_eq!(patient.quarantined(), crate::support::LIBRARIES);
    assert!(patient.start("ok", "all").status.success());
    assert!(["system", "glibc:arena1"].contains(&text(&patient.shown(), "/next/candidate")));
}

#[test]
fn another_build_ends_a_quarantine() {
    let patient = Patient::new(ONE_OTHER);
    patient.start("segv", "tcmalloc");
    patient.start("segv", "tcmalloc");
    assert_eq!(patient.quarantined(), ["tcmalloc"]);
    build::program_with("cc", "behave", &["-DANOTHER_BUILD", "-O2", "-fno-inline"], &patient.program);
    assert_eq!(patient.quarantined(), [""; 0]);
    // system, then tcmalloc once more: a new build ends the quarantine.
    assert!(patient.start("segv", "tcmalloc").status.success());
    assert_eq!(patient.start("segv", "tcmalloc").status.signal(), Some(11));
    assert_eq!(patient.quarantined(), ["tcmalloc"]);
}

#[test]
fn unblock_ends_a_quarantine() {
    let patient = Patient::new(ONE_OTHER);
    patient.start("abort", "tcmalloc");
    patient.start("abort", "tcmalloc");
    assert_eq!(patient.quarantined(), ["tcmalloc"]);
    // A pin does not end a quarantine.
    patient.world.check(["pin", &patient.name(), "tcmalloc"]).success();
    assert!(patient.start("abort", "tcmalloc").status.success());
    assert_eq!(text(&patient.shown(), "/next/reason"), "pinned-quarantined");
    patient.world.check(["pin", "--unblock", &patient.name(), "tcmalloc"]).success();
    assert_eq!(patient.quarantined(), [""; 0]);
    assert_eq!(patient.start("abort", "tcmalloc").status.signal(), Some(6), "pinned and unblocked");
    assert_eq!(patient.quarantined(), ["tcmalloc"], "the flight page must record the crash");
    assert!(patient.start("abort", "tcmalloc").status.success());
}

/// A production start without the hook: the flight page records the crash.
#[test]
fn a_crash_in_production_is_noticed() {
    for (name, act, signal) in CRASHES {
        let patient = Patient::new("candidates = [\"mimalloc\"]\nmax_tests = 1\nretest_s = 0");
        patient.world.check(["pin", &patient.name(), "mimalloc"]).success();
        assert!(patient.start("ok", "all").status.success());
        assert_eq!(patient.start(act, "mimalloc").status.signal(), Some(signal), "{name}");
        let trials = patient.world.trials();
        let flights: Vec<_> = trials.iter().map(|trial| (trial.sample.kind, trial.sample.ended)).collect();
        let signal = u32::try_from(signal).unwrap();
        assert_eq!(
            flights.last(),
            Some(&(PageKind::Flight, Ended::Signal { signal })),
            "{name}: {flights:?}"
        );
        assert!(flights.iter().all(|(kind, _)| *kind == PageKind::Flight), "{name}: {flights:?}");
        assert_eq!(patient.quarantined(), ["mimalloc"], "{name}");
        assert!(patient.start(act, "mimalloc").status.success(), "{name}");
        assert!(patient.explained().contains("1 of 2 starts"), "{}", patient.explained());
    }
}

#[test]
fn a_program_that_crashes_by_itself_disables_no_candidate() {
    let patient = Patient::new("candidates = [\"tcmalloc\", \"hoard\"]\nmax_tests = 1\nretest_s = 0");
    for start in 0..6 {
        assert_eq!(patient.start("segv", "all").status.signal(), Some(11), "start {start}");
    }
    assert_eq!(patient.quarantined(), [""; 0]);
    assert!(!patient.explained().contains("quarantined"), "{}", patient.explained());
    let tried: Vec<_> = patient.world.trials().iter().map(|trial| trial.sample.candidate.clone()).collect();
    assert!(
        tried.starts_with(&["system".to_owned(), "tcmalloc".to_owned(), "hoard".to_owned()]),
        "{tried:?}"
    );
}

/// A kill from outside, an exit and a fault in the program's arithmetic are not caused by the allocator.
#[test]
fn other_ends_are_neutral() {
    for (act, signal, status) in
        [("kill", Some(9), None), ("term", Some(15), None), ("fpe", Some(8), None), ("exit3", None, Some(3))]
    {
        let patient = Patient::new(ONE_OTHER);
        for _ in 0..4 {
            let output = patient.start(act, "tcmalloc");
            if output.status.success() {
                continue;
            }
            assert_eq!((output.status.signal(), output.status.code()), (signal, status), "{act}");
        }
        assert_eq!(patient.quarantined(), [""; 0], "{act}");
        let trials = patient.world.trials();
        assert_eq!(trials.iter().filter(|trial| trial.sample.candidate == "tcmalloc").count(), 2, "{act}");
    }
}

/// The page is prepared before exec. So it also records a death before any code of the libraries runs, even
/// while no imas runs.
#[test]
fn a_library_that_dies_before_us_is_quarantined() {
    let patient = Patient::new("candidates = [\"dies-early\"]\nmax_tests = 2\nretest_s = 0");
    let library = build::library("dies_early", &patient.world.work());
    patient.world.add_library("dies-early", &library, "version = '1'");
    let listing = patient.world.json(["list", "--json"]);
    assert_eq!(candidate(&listing, "dies-early")["available"], true, "the probe cannot detect this crash");
    assert!(patient.start("ok", "all").status.success(), "the first trial must be under system");
    let died = patient.start("ok", "all");
    assert_eq!((died.status.signal(), stdout(&died).as_str()), (Some(11), ""), "{}", describe(&died));
    let trials = patient.world.trials();
    assert_eq!(trials.last().unwrap().sample.ended, Ended::NeverEntered);
    assert_eq!(patient.quarantined(), ["dies-early"]);
    assert!(patient.explained().contains("death before its first instruction"), "{}", patient.explained());
    for _ in 0..4 {
        assert!(patient.start("ok", "all").status.success());
    }
    // The same with the guard: pinned, unblocked, and dead again.
    patient.world.check(["pin", "--unblock", &patient.name(), "dies-early"]).success();
    assert_eq!(patient.start("ok", "all").status.signal(), Some(11));
    assert_eq!(patient.world.trials().last().unwrap().sample.kind, PageKind::Flight);
    assert_eq!(patient.quarantined(), ["dies-early"]);
    assert!(patient.start("ok", "all").status.success());
}

/// A signal that the program handles and survives is no crash. The program's handler must stay in place.
#[test]
fn a_program_that_handles_its_signals_keeps_them() {
    let world = World::new();
    world.configure(ONE_OTHER);
    let code = "import signal, os\nsignal.signal(signal.SIGABRT, lambda *_: print('handled', flush=True))\n\
        os.kill(os.getpid(), signal.SIGABRT)\nprint('on')";
    for _ in 0..4 {
        let output = world.start(["python3", "-c", code]);
        assert_printed(&output, 0, "handled\non\n");
    }
    let explained = world.json(["explain", "python3", "--json"]);
    assert_eq!(list(&explained, "/quarantined").len(), 0, "{explained:#}");
}

/// The crash of a child is no crash of the program: only the program itself has a page.
#[test]
fn a_crashing_child_is_not_the_programs_crash() {
    let world = World::new();
    world.configure(ONE_OTHER);
    let behave = build::program("behave", &world.work());
    let code = format!("{} 100 segv all; (kill -ABRT $BASHPID); echo done", behave.display());
    for _ in 0..4 {
        let mut imas = world.imas(["run", "--retest", "0", "--", "bash", "-c", &code]);
        let output = output(imas.stderr(std::process::Stdio::null()));
        assert!(output.status.success() && stdout(&output).ends_with("done\n"), "{}", describe(&output));
    }
    let explained = world.json(["explain", "bash", "--json"]);
    assert_eq!(list(&explained, "/quarantined").len(), 0, "{explained:#}");
    assert!(world.trials().iter().all(|trial| matches!(trial.sample.ended, Ended::Clean { .. })));
}

/// Starts the program, which does `act` if the allocator is `under`. Returns while it runs.
fn on_its_way(patient: &Patient, act: &str, under: &str) -> Running {
    let mut command = patient.world.imas(["run", "--retest", "0", "--"]);
    command.args([patient.name().as_str(), "3000", act, under]).stdout(std::process::Stdio::null());
    Running(command.spawn().unwrap())
}

fn end_by(running: &mut Running, signal: &str) {
    let pid = running.0.id().to_string();
    assert!(std::process::Command::new("kill").args([signal, &pid]).status().unwrap().success());
    running.0.wait().unwrap();
}

/// Calls imas until its record of the process shows more than that many seconds, as lifetime or as
/// idle time.
fn wait_for_observed(patient: &Patient, what: &str, seconds: f64) {
    crate::support::wait_until("it is seen", || {
        patient.world.ingest();
        let seen = patient.world.page_files().into_iter().find(|file| file.ends_with(".seen"));
        let text = seen.and_then(|file| std::fs::read_to_string(patient.world.pages().join(file)).ok());
        let seen: Option<Value> = text.and_then(|text| serde_json::from_str(&text).ok());
        seen.is_some_and(|seen| seen[what].as_f64().unwrap() > seconds)
    });
}

fn with_a_candidate_that_hangs() -> Patient {
    let patient = Patient::new("candidates = [\"system\"]\nmax_tests = 2\nretest_s = 0");
    let library = build::library("hangs", &patient.world.work());
    patient.world.add_library("hangs", &library, "version = '1'");
    patient
}

/// IMAS does not end a program that hangs. A program that waited for a lock until it was killed counts as
/// hung.
#[test]
fn a_hang_is_harm() {
    let patient = with_a_candidate_that_hangs();
    for start in 0..2 {
        assert!(patient.start("ok", "all").status.success(), "{start}");
    }
    patient.world.configure("candidates = [\"hangs\"]\nmax_tests = 2\nretest_s = 0");
    let longest = patient.world.trials().iter().map(|trial| trial.sample.wall_s).fold(0.0, f64::max);
    let mut running = on_its_way(&patient, "ok", "all");
    wait_for_observed(&patient, "still_s", imas_core::hang::hang_threshold_s(longest) + 0.1);
    assert_eq!(running.0.try_wait().unwrap(), None, "imas must not end it");
    end_by(&mut running, "-KILL");
    assert_eq!(patient.quarantined(), ["hangs"]);
    let trials = patient.world.trials();
    assert_eq!(
        trials.last().unwrap().sample.ended,
        Ended::Unknown,
        "the page of a killed program has no exit status"
    );
    assert!(patient.explained().contains("hung: it was idle for "), "{}", patient.explained());
    let table = printed(&output(&mut patient.world.imas(["show", &patient.name()])));
    assert!(table.contains("quarantined: hung"), "{table}");
    assert!(patient.world.page_files().is_empty(), "{:?}", patient.world.page_files());
    for start in 0..3 {
        assert!(patient.start("ok", "all").status.success(), "{start}");
    }
}

/// A program that only waits, as a server does, has neither hung nor crashed when a user or a watchdog ends
/// it.
#[test]
fn a_waiting_program_that_is_killed_neither_hung_nor_crashed() {
    let patient = Patient::new("candidates = [\"system\"]\nmax_tests = 2\nretest_s = 0");
    for start in 0..2 {
        assert!(patient.start("hang", "tcmalloc").status.success(), "{start}");
    }
    patient.world.configure("candidates = [\"tcmalloc\"]\nmax_tests = 2\nretest_s = 0");
    for signal in ["-KILL", "-ABRT"] {
        let mut running = on_its_way(&patient, "hang", "tcmalloc");
        wait_for_observed(&patient, "lived_s", imas_core::hang::MIN_THRESHOLD_S + 0.1);
        end_by(&mut running, signal);
        assert_eq!(patient.quarantined(), [""; 0], "{signal}: {}", patient.explained());
    }
    let trials = patient.world.trials();
    assert_eq!(trials.last().unwrap().sample.ended, Ended::Killed { signal: 6 });
}
