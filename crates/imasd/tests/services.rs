// SPDX-License-Identifier: Apache-2.0
//! Two services of one executable are two programs, from the first look at a process to the start by the stub. Then
//! replicas: they have their trials at the same time, each under
//! another candidate.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use imas_core::TrialRecord;
use imas_core::sample::PageKind;
use imas_linux::index::{OfferedTrial, offered};
use imas_store::samples::StoredProgram;
use imas_testing::{Group, Running, skipped};

use crate::support::{World, answers, has_loaded, python};

/// Needs a PID namespace, with a stand-in for systemd as process 1, and control groups.
fn alone(test: &str) {
    if Group::new(&format!("imasd-test-{}-{test}.service", std::process::id())).is_none() {
        return skipped("control groups cannot be made here");
    }
    crate::support::alone(&format!("services::{test}"), &["--pid", "--fork", "--mount-proc"]);
}

#[test]
fn two_services_of_one_executable_are_two_programs() {
    alone("services");
}

/// `foo@1` and `foo@2` are one program, and replicas of each other.
#[test]
fn instances_of_a_template_unit_are_one_program() {
    alone("instances");
}

/// The shell that enters the control group does not have the world's environment. Otherwise it would be a
/// program of its own, with its own trials.
fn start(world: &World, group: Option<&Group>) -> Running {
    let place =
        group.map_or_else(String::new, |group| format!("echo $$ > {}/cgroup.procs && ", group.0.display()));
    let of_world = world.command(&cat());
    let variables =
        of_world.get_envs().map(|(name, value)| [name, value.unwrap()].map(|it| it.to_str().unwrap()));
    let variables: Vec<_> = variables.map(|pair| pair.join("=")).collect();
    let script = format!("{place}exec env {} {}", variables.join(" "), cat().display());
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(script).current_dir(world.path("work"));
    Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
}

/// A program that is no interpreter and not excluded, and that ends when its standard input is closed.
fn cat() -> PathBuf {
    std::fs::canonicalize("/usr/bin/cat").unwrap()
}

fn known(world: &World, detail: &str) -> Option<StoredProgram> {
    let path = cat();
    let programs = world.store().programs().unwrap();
    programs.into_iter().find(|program| Path::new(&program.path) == path && program.detail == detail)
}

#[test]
#[ignore = "run by a test above, in namespaces of its own"]
fn instances() {
    let settings = "worth_cpu_s = 0.0\nworth_life_s = 0.1\n";
    let mut world = World::with(&format!("{settings}candidates = [\"jemalloc\", \"mimalloc\"]\n"));
    world.start();
    let own = world.path("").file_name().unwrap().to_string_lossy().into_owned();
    let groups = ["1", "2"].map(|instance| Group::new(&format!("{own}@{instance}.service")).unwrap());
    // One that starts when the other is noticed already would take a trial.
    world.freeze();
    let mut running = groups.each_ref().map(|group| start(&world, Some(group)));
    running.iter_mut().for_each(answers);
    world.signal("-CONT");
    let template = format!("unit {own}@.service");
    world.wait("the template is noticed", || known(&world, &template).is_some());
    let program = known(&world, &template).unwrap();
    let id = u64::try_from(program.id).unwrap();
    let offers = || world.index().entries().filter(|entry| entry.program_id == id).flat_map(offered).count();
    world.wait("a trial for each instance", || offers() == 2);
    drop(running);
    let mut again = groups.each_ref().map(|group| start(&world, Some(group)));
    again.iter_mut().for_each(answers);
    world.wait("both are taken", || {
        let tried = again.iter().filter(|service| has_loaded(service, "libimas.so")).count();
        assert_eq!(tried, 2, "each instance runs a trial");
        world.store().witnesses().unwrap().iter().filter(|seen| seen.program == program.id).count() == 2
    });
    let programs = world.store().programs().unwrap();
    assert_eq!(programs.iter().filter(|program| Path::new(&program.path) == cat()).count(), 1);
    drop(again);
    world.stop("-TERM");
}

#[test]
#[ignore = "run by a test above, in namespaces of its own"]
fn services() {
    let mut world = World::new();
    world.start();
    // Process ids restart in a namespace and may repeat. The names of worlds do not.
    let own = world.path("").file_name().unwrap().to_string_lossy().into_owned();
    let names = ["a", "b"].map(|name| format!("{own}-{name}.service"));
    let groups = names.each_ref().map(|name| Group::new(name).unwrap());
    let places = [Some(&groups[0]), Some(&groups[1]), None];
    let details = [format!("unit {}", names[0]), format!("unit {}", names[1]), String::new()];
    let running = places.map(|place| start(&world, place));
    for detail in &details {
        world.wait(detail, || known(&world, detail).is_some());
    }
    drop(running);
    let programs = details.each_ref().map(|detail| known(&world, detail).unwrap());
    assert_eq!(world.store().programs().unwrap().iter().filter(|p| Path::new(&p.path) == cat()).count(), 3);

    // Each program gets its own decision: the first service and the process without a service jemalloc, the
    // other service `system`.
    world.store().pin(programs[0].id, "jemalloc", 1.0).unwrap();
    world.store().pin(programs[1].id, "system", 1.0).unwrap();
    world.store().pin(programs[2].id, "jemalloc", 1.0).unwrap();
    let placed = |program: &StoredProgram| world.production(program) != 1 && world.offer(program).is_none();
    world.wait("the pins are published", || {
        placed(&programs[0]) && placed(&programs[2]) && world.offer(&programs[1]).is_none()
    });
    for (place, expected) in places.into_iter().zip([true, false, true]) {
        let mut service = start(&world, place);
        answers(&mut service);
        assert_eq!(has_loaded(&service, "libjemalloc"), expected);
        // The process must be identified before it ends. Without process events of the kernel, its page could
        // not be attributed otherwise.
        let is_seen = || world.store().witnesses().unwrap().iter().any(|seen| seen.pid == service.0.id());
        world.wait("its process is identified", || is_seen() == expected);
    }
    world.wait("both ends are stored", || world.counter("flights_stored") == 2);
    assert_eq!(world.counter("dropped_forged"), 0);
    let flights = |program: &StoredProgram| {
        let trials = world.store().trials(program.id).unwrap();
        trials.iter().filter(|trial| trial.sample.kind == PageKind::Flight).count()
    };
    for (program, expected) in programs.iter().zip([1, 0, 1]) {
        assert_eq!(flights(program), expected);
    }
    world.stop("-TERM");
}

fn start_as(world: &World, name: &str) -> Running {
    let mut command = world.command(&world.path("work").join(name));
    let mut running = Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    answers(&mut running);
    running
}

fn known_as(world: &World, detail: &str) -> Option<StoredProgram> {
    let is_it = |program: &StoredProgram| {
        Path::new(&program.path).file_name() == Some("many-names".as_ref()) && program.detail == detail
    };
    world.store().programs().unwrap().into_iter().find(is_it)
}

#[test]
fn two_names_of_one_file_are_two_programs() {
    let mut world = World::new();
    let folder = world.path("work");
    imas_testing::copy_program(Path::new("/usr/bin/cat"), &folder.join("many-names"));
    for name in ["server", "sentinel"] {
        std::os::unix::fs::symlink("many-names", folder.join(name)).unwrap();
    }
    world.start();
    for (name, detail) in [("server", "as server"), ("many-names", "")] {
        let _running = start_as(&world, name);
        world.wait(name, || known_as(&world, detail).is_some());
    }
    let [server, file] = ["as server", ""].map(|detail| known_as(&world, detail).unwrap());
    world.store().pin(server.id, "jemalloc", 1.0).unwrap();
    world.store().pin(file.id, "system", 1.0).unwrap();
    world.wait("the pins are published", || world.production(&server) != 1 && world.offer(&file).is_none());
    for (name, is_placed) in [("server", true), ("many-names", false), ("sentinel", false)] {
        let running = start_as(&world, name);
        assert_eq!(has_loaded(&running, "libjemalloc"), is_placed, "{name}");
        let is_seen = || world.store().witnesses().unwrap().iter().any(|seen| seen.pid == running.0.id());
        world.wait("its process is identified", || is_seen() == is_placed);
    }
    world.wait("its end is stored", || world.counter("flights_stored") == 1);
    assert_eq!(world.store().trials(server.id).unwrap().len(), 1, "{}", world.log());
    world.stop("-TERM");
}

/// Works, prints a letter, then waits until its standard input is closed.
const WORKER: &str = "
import sys
kept = [[str(i) for i in range(2000)] for _ in range(20)]
print('x', flush=True)
sys.stdin.read()
";

struct Worker(Running);

impl Worker {
    fn start(world: &World, script: &Path) -> Self {
        let mut command = world.command(&python());
        Self(Running(command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()))
    }

    /// Waits until the worker has worked.
    fn has_worked(&mut self) {
        self.0.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    }

    /// The allocator that the hook counts for; None without the hook.
    fn under_trial(&self) -> Option<String> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.0.0.id())).unwrap_or_default();
        // libc is mapped after all that is preloaded: before that, the allocator may be missing yet.
        let is_hooked = maps.contains("/libimas.so") && maps.contains("/libc.so.6");
        let name = ["jemalloc", "mimalloc", "hoard"]
            .into_iter()
            .find(|name| maps.contains(&format!("lib{name}.so")));
        is_hooked.then(|| name.unwrap_or("system").to_owned())
    }

    /// Closes standard input, so that the worker ends.
    fn end(mut self) {
        drop(self.0.0.stdin.take());
        assert!(self.0.0.wait().unwrap().success());
    }
}

/// Offers of the program in the index: candidate ids and tokens.
fn offers(world: &World, program: &StoredProgram) -> Vec<OfferedTrial> {
    let id = u64::try_from(program.id).unwrap();
    let index = world.index();
    index.entries().filter(|entry| entry.program_id == id).flat_map(offered).collect()
}

fn start_workers(world: &World, script: &Path, count: usize) -> Vec<Worker> {
    (0..count).map(|_| Worker::start(world, script)).collect()
}

/// Candidates that these workers run under, once all of them run a trial.
fn all_under_trial(world: &World, workers: &[Worker]) -> Vec<String> {
    let under = || workers.iter().map(Worker::under_trial).collect::<Option<Vec<_>>>();
    world.wait("all run a trial", || under().is_some());
    let mut under = under().unwrap();
    under.sort();
    under
}

/// First workers of a program, which only show that it has `count` replicas: the script, the program with a
/// trial on offer for each worker of the next deployment, and the workers, which still run.
fn first_deployment(world: &World, count: usize) -> (PathBuf, StoredProgram, Vec<Worker>) {
    let script = world.script("worker.py", WORKER);
    // One that starts when the others are noticed already would take a trial.
    world.freeze();
    let mut workers = start_workers(world, &script, count);
    workers.iter_mut().for_each(Worker::has_worked);
    world.signal("-CONT");
    world.wait("the program is noticed", || world.program(&script).is_some());
    let program = world.program(&script).unwrap();
    world.wait("a trial for each worker", || offers(world, &program).len() == count);
    (script, program, workers)
}

/// The program and the workers of its second deployment: each may take a trial.
fn second_deployment(world: &World, count: usize) -> (StoredProgram, Vec<Worker>) {
    let (script, program, before) = first_deployment(world, count);
    before.into_iter().for_each(Worker::end);
    (program, start_workers(world, &script, count))
}

/// Four workers with four candidates: every start of a deployment has a trial of its own, though all start
/// before imasd can publish anything, and `system` runs beside the others.
#[test]
fn workers_that_start_at_once_have_each_another_candidate() {
    let candidates = "candidates = [\"jemalloc\", \"mimalloc\", \"hoard\"]\n";
    let mut world = World::with(&format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{candidates}"));
    world.start();
    let (program, workers) = second_deployment(&world, 4);
    assert_eq!(all_under_trial(&world, &workers), ["hoard", "jemalloc", "mimalloc", "system"]);
    world.wait("no trial is left", || offers(&world, &program).is_empty());
    workers.into_iter().for_each(Worker::end);
    world.wait("all are stored", || world.counter("trials_stored") == 4);
    let trials = world.store().trials(program.id).unwrap();
    let begins = trials.iter().map(|trial| trial.sample.made_unix_s).fold(0.0, f64::max);
    let is_beside = |trial: &TrialRecord| trial.sample.made_unix_s + trial.sample.wall_s > begins;
    assert!(trials.iter().all(is_beside), "they ran at the same time");
    let newest = || world.store().decisions(program.id, 1).unwrap().remove(0);
    world.wait("another deployment or a decision", || {
        let offers = offers(&world, &program).len();
        // The offers are of candidates that are not eliminated by now; one of them is `system`.
        (2..=4).contains(&offers) || (offers == 0 && !newest().trial)
    });
}

/// imasd that is started again goes on with the deployment: no trial is run twice.
#[test]
fn a_deployment_survives_a_restart_of_imasd() {
    let candidates = "candidates = [\"jemalloc\", \"mimalloc\"]\n";
    let mut world = World::with(&format!("worth_cpu_s = 0.0\nworth_life_s = 0.1\n{candidates}"));
    world.start();
    let (program, workers) = second_deployment(&world, 3);
    assert_eq!(all_under_trial(&world, &workers), ["jemalloc", "mimalloc", "system"]);
    world.wait("all are taken", || offers(&world, &program).is_empty());
    world.stop("-TERM");
    world.start();
    workers.into_iter().for_each(Worker::end);
    world.wait("all are stored", || world.store().trials(program.id).unwrap().len() == 3);
}
