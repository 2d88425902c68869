// SPDX-License-Identifier: Apache-2.0
//! The whole loop with the real library and real programs: notice, test, settle, place; crashes; signals.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{VICTIM, WORKER, World, python, trial};
use imas_core::sample::PageKind;
use imas_store::samples::StoredProgram;
use imas_testing::{Running, skipped};

#[test]
fn a_program_is_noticed_tried_settled_and_then_placed() {
    let (world, script, program) = World::new().noticed("worker.py", WORKER);
    assert_eq!(program.path, python().to_string_lossy());
    world.settle(&script, &program);
    let tried: Vec<_> =
        world.store().trials(program.id).unwrap().into_iter().map(|t| t.sample.candidate).collect();
    assert_eq!(tried.len(), 2, "{tried:?}");
    assert!(tried.contains(&"system".to_owned()) && tried.contains(&"jemalloc".to_owned()));

    // The pin makes the outcome independent of the pick. It also shows that the daemon reads what other
    // processes store.
    world.pin(&program, "jemalloc");
    let printed = String::from_utf8(world.python(&script).stdout).unwrap();
    assert!(
        printed.contains("libjemalloc")
            && printed.contains("libimas-guard")
            && !printed.contains("'libimas.so'"),
        "{printed}"
    );
    // Without process events, a busy imasd may miss so short a life. Then it drops the page and counts it in
    // `dropped_unwitnessed`.
    let mut missed = 0;
    world.wait("its end is stored", || {
        let dropped = world.counter("dropped_unwitnessed");
        if dropped > missed {
            missed = dropped;
            world.python(&script);
        }
        world.counter("flights_stored") > 0
    });
    world.wait("pages go when they are stored", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
}

/// The library of a distro candidate has no version of its own. A trial under it counts nevertheless.
#[test]
fn trials_of_a_library_of_the_distribution_count() {
    let configuration = "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 2\n\
                         candidates = [\"distro-jemalloc\", \"jemalloc\"]\n";
    let catalogue =
        imas_linux::catalogue::Catalogue::read(&[crate::support::lib_dir().join("catalogue.toml")]);
    if catalogue.find("distro-jemalloc").is_none() {
        return skipped("the distribution's libjemalloc.so.2 is not installed");
    }
    let (world, script, program) = World::with(configuration).noticed("worker.py", WORKER);
    assert_eq!(world.settle(&script, &program), 6, "two starts of each of three candidates");
    let trials = world.store().trials(program.id).unwrap();
    let of = |name: &str| trials.iter().filter(|trial| trial.sample.candidate == name).count();
    assert_eq!((of("system"), of("distro-jemalloc"), of("jemalloc")), (2, 2, 2));
    // The version that served, not the catalogue's word for "whatever is installed".
    for trial in trials.iter().filter(|trial| trial.sample.candidate != imas_core::SYSTEM) {
        let version = &trial.allocator_version;
        assert!(!version.is_empty() && version != imas_linux::catalogue::INSTALLED, "{trial:?}");
    }
}

fn starts_as_decided(world: &World, script: &Path, program: &StoredProgram) {
    let (printed, decided) = world.as_decided(script, program);
    for candidate in ["jemalloc", "mimalloc"] {
        let serves = printed.contains(&format!("lib{candidate}.so"));
        assert_eq!(serves, decided == candidate, "{decided} / {printed}");
    }
    assert!(!printed.contains("'libimas.so'"), "no trial may be due any more: {printed}");
}

/// The objective is fixed. By default the machine's load selects it, and with it the decision.
const BALANCED: &str = "[overrides]\nobjective = \"balanced\"\n";

/// The adaptive policy ends with a pick or with `system`. The daemon follows it round by round.
#[test]
fn the_adaptive_rules_settle_too() {
    let settings = "worth_cpu_s = 0.0\nworth_life_s = 0.1\n";
    let candidates = "candidates = [\"jemalloc\", \"mimalloc\"]\n";
    let world = World::with(&format!("{settings}{candidates}{BALANCED}"));
    let (world, script, program) = world.noticed("worker.py", WORKER);
    let starts = world.settle(&script, &program);
    let mut tried = world.store().trials(program.id).unwrap();
    tried.retain(|trial| trial.sample.kind == PageKind::Trial);
    let of = |name: &str| tried.iter().filter(|trial| trial.sample.candidate == name).count();
    // Eight trials at most, but for `system` and the pick: they run beside a candidate that has trials left.
    for candidate in ["system", "jemalloc", "mimalloc"] {
        assert!((1..=8 * 2).contains(&of(candidate)), "{candidate}: {} of {starts}", of(candidate));
    }
    assert!(of("jemalloc").min(of("mimalloc")) <= 8, "{starts}: {tried:?}");
    starts_as_decided(&world, &script, &program);
}

/// An upgrade adds an allocator to the default set. The decision holds while the new allocator is tested.
#[test]
fn a_decision_outlives_a_change_of_the_default_set() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("set-{}/imas", std::process::id()));
    let mut world = World::with(&format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{BALANCED}"));
    world.install(&folder, &["mimalloc"]);
    let (mut world, script, program) = world.noticed("worker.py", WORKER);
    world.stop("-TERM");
    let build_id = imas_linux::elf::ElfImage::read(&python()).unwrap().build_id.unwrap_or_default();
    for at in 0..10 {
        let (candidate, share) = [("system", 1.0), ("mimalloc", 0.25)][at % 2];
        assert!(world.store().add_trial(program.id, &trial(candidate, &build_id, at, share)).unwrap());
    }
    world.start();
    world.wait("mimalloc is the decision", || world.production(&program) == world.id_of("mimalloc"));
    world.wait("no trial is due any more", || world.offer(&program).is_none());
    world.stop("-TERM");

    world.install(&folder, &["jemalloc"]);
    world.start();
    world.wait("a trial is on offer", || world.offer(&program).is_some());
    let of = |world: &World, name: &str| {
        let trials = world.store().trials(program.id).unwrap();
        trials.iter().filter(|trial| trial.sample.candidate == name).count()
    };
    while of(&world, "jemalloc") == 0 {
        assert_eq!(
            world.production(&program),
            world.id_of("mimalloc"),
            "every start but the trial uses the decision"
        );
        let tried = world.next_trial(&program).unwrap();
        assert_ne!(tried, world.id_of("mimalloc"));
        let stored = || world.store().trials(program.id).unwrap().len();
        let before = stored();
        world.run_trial(&script, &program, || stored() > before);
    }
    assert_eq!(of(&world, "mimalloc"), 5, "no trial was added or lost");
    assert_eq!(world.production(&program), world.id_of("mimalloc"));
    drop(world);
    std::fs::remove_dir_all(folder.parent().unwrap()).unwrap();
}

/// Works without end, like a service. On request it dies of a signal that suggests a damaged heap.
const SERVICE: &str = "
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: os.kill(os.getpid(), signal.SIGSEGV))
while sys.argv[1:]:
    kept = [str(i) * 3 for i in range(20000)]
    time.sleep(0.05)
";

#[test]
fn a_service_under_trial_gives_its_sample_while_it_lives() {
    let (mut world, script, program) =
        World::with(&format!("{TWO_TESTS}sample_after_s = 1.0\n")).noticed("service.py", SERVICE);
    let store = world.store();
    let stored = || store.trials(program.id).unwrap();
    let first = world.linger(&script);
    world.wait("its sample is stored", || stored().len() == 1);
    let sample = stored()[0].sample.clone();
    assert!(sample.usage.is_some_and(|usage| usage.user_s + usage.system_s > 0.0 && usage.max_rss_bytes > 0));
    assert!(sample.malloc.calls > 0 && sample.memory.snapshots > 0);
    // The next start is the next trial, although the first process still runs.
    assert!(world.next_trial(&program).is_some());
    let mut second = world.linger(&script);
    world.wait("its sample is stored too", || stored().len() == 2);
    // The witness survives a restart of imasd, and the sample is not taken twice.
    world.stop("-KILL");
    world.start();
    assert!(world.next_trial(&program).is_some());
    drop(first);
    let usr1 = Command::new("kill").args(["-USR1", &second.0.id().to_string()]).status().unwrap();
    assert!(usr1.success() && second.0.wait().unwrap().code().is_none());
    world.wait("the crash is stored, the clean end is not", || stored().len() == 3);
    assert!(stored()[2].sample.ended.is_crash());
    world.wait("no page is left", || std::fs::read_dir(world.pages()).unwrap().count() == 0);
    assert_eq!(stored().len(), 3);
}

#[test]
fn a_service_gives_its_sample_after_the_set_number_of_calls() {
    let (world, script, program) =
        World::with(&format!("{TWO_TESTS}sample_after_operations = 5000\n")).noticed("service.py", SERVICE);
    let mut service = world.linger(&script);
    world.wait("its sample is stored", || world.store().trials(program.id).unwrap().len() == 1);
    let sample = world.store().trials(program.id).unwrap()[0].sample.clone();
    let calls: u64 = sample.classes().iter().map(|class| class.calls).sum();
    assert!(
        calls >= 5000 && service.0.try_wait().unwrap().is_none(),
        "{calls} calls, and the service must still run"
    );
}

#[test]
fn another_program_of_the_same_interpreter_is_another_program() {
    let (world, _, _) = World::new().noticed("worker.py", WORKER);
    let other = world.script("other.py", WORKER);
    let printed = String::from_utf8(world.python(&other).stdout).unwrap();
    assert!(!printed.contains("libimas.so") && !printed.contains("guard"), "{printed}");
}

/// A crash also counts as a test. With a single test, a candidate that crashed once would have no tests left,
/// and this could not show its quarantine.
const TWO_TESTS: &str =
    "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\nmax_tests = 2\ncandidates = [\"jemalloc\"]\n";

#[test]
fn a_crash_quarantines_at_once_and_for_good() {
    let (mut world, script, program) = World::with(TWO_TESTS).noticed("victim.py", VICTIM);
    world.settle(&script, &program);
    // The counter is updated once a second.
    world.wait("the crash is counted", || world.counter("crashes") == 1);
    assert_eq!(world.production(&program), 1, "the program must start untouched");
    assert!(world.log().contains("quarantined"), "{}", world.log());
    assert!(world.python(&script).status.success());
    // The quarantine survives a restart of the daemon.
    assert!(world.stop("-KILL").code().is_none());
    world.start();
    assert!(world.offer(&program).is_none());
    assert!(world.python(&script).status.success());
    // It lasts until the operator ends it.
    world.store().unblock(program.id, "jemalloc", 1e12).unwrap();
    world.wait("it is tried again", || world.offer(&program).is_some());
}

/// The process sends the signal to itself after it removed the hook's signal handler. So the page does not
/// record the crash.
const SILENT_VICTIM: &str = "
import os, signal, sys, time
if 'libjemalloc' in open('/proc/self/maps').read():
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGSEGV)
if sys.argv[1:]:
    time.sleep(300)
";

/// A parent may learn of the end before the kernel's event reports the exit status.
#[test]
fn a_crash_that_only_the_kernel_reports_is_not_lost() {
    let mut world = World::with(TWO_TESTS);
    world.start();
    let status = std::fs::read_to_string(world.path("run/state/status.json")).unwrap();
    if !status.contains("\"events\":\"kernel\"") {
        return skipped("the kernel reports no process events here");
    }
    for name in ["one.py", "two.py", "three.py"] {
        let (script, program) = world.notices(name, SILENT_VICTIM);
        world.settle(&script, &program);
        let trials = world.store().trials(program.id).unwrap();
        let crashes = trials.iter().filter(|trial| trial.sample.ended.is_crash()).count();
        assert_eq!((trials.len(), crashes), (3, 1), "{trials:?}");
    }
}

#[test]
fn an_allocator_that_harms_three_programs_is_disabled_for_all() {
    let mut world = World::with(TWO_TESTS);
    world.start();
    for name in ["one.py", "two.py", "three.py"] {
        let (script, program) = world.notices(name, VICTIM);
        world.settle(&script, &program);
    }
    world.wait("it is disabled", || !world.store().disabled().unwrap().is_empty());
    let (healthy, program) = world.notices("healthy.py", WORKER);
    world.settle(&healthy, &program);
    let tried: Vec<_> =
        world.store().trials(program.id).unwrap().into_iter().map(|t| t.sample.candidate).collect();
    assert_eq!(tried, ["system", "system"]);
    assert!(world.store().enable("jemalloc", 1e12).unwrap());
    world.wait("a trial of it is on offer again", || world.offer(&program).is_some());
}

/// Both major versions of mimalloc are one allocator.
#[test]
fn the_version_that_harms_is_disabled_and_not_another_of_its_allocator() {
    let mut world = World::with(&TWO_TESTS.replace("jemalloc", "mimalloc2"));
    world.start();
    let victim = VICTIM.replace("libjemalloc", "libmimalloc2");
    for name in ["one.py", "two.py", "three.py"] {
        let (script, program) = world.notices(name, &victim);
        world.settle(&script, &program);
    }
    world.wait("it is disabled", || !world.store().disabled().unwrap().is_empty());
    let disabled = world.store().disabled().unwrap();
    let catalogue =
        imas_linux::catalogue::Catalogue::read(&[crate::support::lib_dir().join("catalogue.toml")]);
    let harmful = catalogue.find("mimalloc2").unwrap();
    assert_eq!(disabled[0].allocator, harmful.allocator);
    assert_eq!(Some(&disabled[0].version), harmful.version.as_ref());
}

/// Waits for a lock without end when jemalloc serves it.
const HANGING: &str = "
import sys, threading, time
if 'libjemalloc' in open('/proc/self/maps').read():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
kept = [str(i) * 3 for i in range(60000)]
if sys.argv[1:]:
    time.sleep(300)
";

/// Starts the script and kills it at that age, after imasd has looked at it once more.
fn killed_after(world: &World, script: &Path, seconds: f64) {
    let running = Running(world.start_of(script).spawn().unwrap());
    let start = imas_linux::process::start_ticks(running.0.id()).unwrap();
    while imas_linux::standstill::age_s(start).unwrap() <= seconds {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let looks = world.counter("looks");
    world.wait("imasd has looked at it", || seconds < 3.0 || world.counter("looks") > looks);
}

#[test]
fn a_hang_counts_as_harm_and_an_early_kill_does_not() {
    let (world, script, program) = World::with(TWO_TESTS).noticed("hanging.py", HANGING);
    let trials = || world.store().trials(program.id).unwrap();
    let usual =
        || trials().into_iter().filter(|trial| trial.sample.candidate == "system").collect::<Vec<_>>();
    let mut hung = 0;
    while let Some(next) = world.next_trial(&program) {
        let before = trials().len();
        if next == world.id_of("system") {
            world.run_trial(&script, &program, || trials().len() > before);
            continue;
        }
        assert_eq!(hung, 0, "a candidate under which it hung is tried again: {:?}", trials());
        let longest = usual().iter().map(|trial| trial.sample.wall_s).fold(0.0, f64::max);
        // The hang is measured from imasd's first look on, which comes within ten seconds.
        let (enough, threshold) = (usual().len() >= 2, imas_core::hang::hang_threshold_s(longest) + 20.0);
        killed_after(&world, &script, if enough { threshold } else { 0.5 });
        hung += usize::from(enough);
        world.wait("the end is stored", || trials().len() > before || world.next_trial(&program).is_some());
    }
    assert_eq!(hung, 1, "{:?}", trials());
    world.wait("the candidate is quarantined", || world.log().contains("the program hung under it"));
    assert!(!world.path("run/state/emergency").exists());
}

#[test]
fn five_failing_starts_stop_everything_until_root_ends_the_emergency() {
    five_failing_starts(World::new());
}

/// A container, or a daemon that has no privileges, gets no process events of the kernel.
#[test]
fn five_failing_starts_are_noticed_where_the_kernel_does_not_tell() {
    five_failing_starts(World::new().polling());
}

/// Dies of SIGSEGV when any of these allocators serves it.
const VICTIM_OF_ALL: &str = "
import os, signal, sys, time
maps = open('/proc/self/maps').read()
if any(name in maps for name in ('libjemalloc', 'libmimalloc', 'libtcmalloc')):
    os.kill(os.getpid(), signal.SIGSEGV)
if sys.argv[1:]:
    time.sleep(300)
";

fn five_failing_starts(mut world: World) {
    world.start();
    let script = world.script("healthy.py", WORKER);
    world.pin(&world.notice(&script), "jemalloc");
    // No allocator harms three programs, so none is disabled. Every start fails, even one that comes late.
    let hurt_by = ["jemalloc", "jemalloc", "mimalloc", "mimalloc", "tcmalloc"];
    let names = ["one.py", "two.py", "three.py", "four.py", "five.py"];
    let victims = names.map(|name| world.script(name, VICTIM_OF_ALL));
    for (victim, candidate) in victims.iter().zip(hurt_by) {
        world.pin(&world.notice(victim), candidate);
    }
    starts_that_die(&world, &victims);
    // Neither short lives nor simultaneous starts may hide the failures.
    world.wait("the emergency", || world.path("run/state/emergency").exists());
    assert!(world.index().facts().disabled);
    let printed = String::from_utf8(world.python(&script).stdout).unwrap();
    assert!(!printed.contains("jemalloc"), "{printed}");
    std::fs::remove_file(world.path("run/state/emergency")).unwrap();
    world.wait("the emergency has ended", || !world.index().facts().disabled);
}

/// Starts all scripts at the same time.
fn starts_that_die(world: &World, scripts: &[PathBuf]) {
    let start = |script: &PathBuf| world.command(&python()).arg(script).spawn().unwrap();
    let starts: Vec<_> = scripts.iter().map(start).collect();
    for mut start in starts {
        assert!(start.wait().unwrap().code().is_none(), "the program must die of a signal");
    }
}

#[test]
fn crashes_reported_late_and_all_at_once_count() {
    seen_late(World::new());
}

#[test]
fn crashes_reported_late_count_without_events_of_the_kernel() {
    seen_late(World::new().polling());
}

/// On a busy machine, all starts may be over before imasd looks. After the first three crashes, imasd
/// disables the allocator and withdraws its trials. It must still count the fourth crash.
fn seen_late(mut world: World) {
    world.start();
    let victims = ["one.py", "two.py", "three.py", "four.py"].map(|name| world.script(name, VICTIM));
    let programs = victims.each_ref().map(|victim| {
        let program = world.notice(victim);
        let stored = || world.store().trials(program.id).unwrap().len();
        world.run_trial(victim, &program, || stored() != 0); // under system
        assert!(world.next_trial(&program).is_some());
        program
    });
    world.freeze();
    starts_that_die(&world, &victims);
    world.signal("-CONT");
    world.wait("all crashes are counted", || world.counter("crashes") == 4);
    assert!(!world.store().disabled().unwrap().is_empty());
    for program in &programs {
        let trials = world.store().trials(program.id).unwrap();
        let crashed: Vec<_> = trials.iter().map(|trial| trial.sample.ended.is_crash()).collect();
        assert_eq!(crashed, [false, true], "{trials:?}");
    }
}

#[test]
fn hangup_reads_the_configuration_and_term_ends_with_zero() {
    let mut world = World::with("worth_cpu_s = 1e6\nworth_life_s = 1e6\ncandidates = [\"jemalloc\"]\n");
    world.start();
    world.configure("worth_cpu_s = nonsense");
    world.signal("-HUP");
    world.wait("the error is logged", || world.log().contains("stays as it was"));
    world.configure(
        "policy = \"paper\"\nworth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\"]\n",
    );
    world.signal("-HUP");
    world.wait("the configuration was read again", || world.log().contains("were read again"));
    world.notices("worker.py", WORKER);
    assert_eq!(world.stop("-TERM").code(), Some(0));
    assert!(world.index().entries().next().is_some(), "the last index must stay");
}

#[test]
fn once_ends_by_itself_and_a_wrong_folder_is_an_error_with_a_hint() {
    let world = World::new();
    assert_eq!(world.imasd().arg("--once").status().unwrap().code(), Some(0));
    assert_eq!(world.index().entries().count(), 0);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_imasd"))
        .args(["--run-dir", "/proc/nowhere", "--store", "/proc/nowhere/imas.db"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(printed.contains("imasd: ") && printed.contains("hint: "), "{printed}");
}
