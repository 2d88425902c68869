// SPDX-License-Identifier: Apache-2.0
//! Two services of one executable are two programs.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use imas_core::sample::PageKind;
use imas_store::samples::Program;
use support::World;

/// Needs a process 1 of its own, in place of systemd, and control groups; where these are not to be had, there is nothing to see.
#[test]
fn two_services_of_one_executable_are_two_programs() {
    if Group::new(&format!("imasd-test-{}.service", std::process::id())).is_some() {
        support::alone("services", &["--pid", "--fork", "--mount-proc"]);
    }
}

/// A control group with the name of a service, as systemd would make it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let unified = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let place = unified.filter(|words| words.get(2) == Some(&"cgroup2")).find_map(|words| {
            let folder = Path::new(words[1]).join(name);
            std::fs::create_dir(&folder).ok().map(|()| folder)
        });
        place.map(Self)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(20)); // its last process is on its way out
        }
    }
}

/// A running program, and where it runs. Dropped, it is ended.
struct Service(Child);

impl Service {
    fn start(world: &World, group: Option<&Group>) -> Self {
        let place = group
            .map_or_else(String::new, |group| format!("echo $$ > {}/cgroup.procs && ", group.0.display()));
        let mut command = world.command(Path::new("/bin/sh"));
        let child = command.arg("-c").arg(format!("{place}exec {}", cat().display()));
        Self(child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn has(&self, library: &str) -> bool {
        std::fs::read_to_string(format!("/proc/{}/maps", self.0.id())).unwrap_or_default().contains(library)
    }

    fn is_cat(&self) -> bool {
        std::fs::read_link(format!("/proc/{}/exe", self.0.id())).is_ok_and(|path| path == cat())
            && self.has("libc.so")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// No interpreter, on no list, and it ends when nobody writes to it any more.
fn cat() -> PathBuf {
    std::fs::canonicalize("/usr/bin/cat").unwrap()
}

fn known(world: &World, detail: &str) -> Option<Program> {
    let path = cat();
    let programs = world.store().programs().unwrap();
    programs.into_iter().find(|program| Path::new(&program.path) == path && program.detail == detail)
}

#[test]
#[ignore = "run by the test above, in namespaces of its own"]
fn services() {
    let mut world = World::new();
    world.start();
    // Process ids begin anew in a namespace, names of worlds do not repeat.
    let own = world.path("").file_name().unwrap().to_string_lossy().into_owned();
    let names = ["a", "b"].map(|name| format!("{own}-{name}.service"));
    let groups = names.each_ref().map(|name| Group::new(name).unwrap());
    let places = [Some(&groups[0]), Some(&groups[1]), None];
    let details = [format!("unit {}", names[0]), format!("unit {}", names[1]), String::new()];
    let running = places.map(|place| Service::start(&world, place));
    for detail in &details {
        world.wait(detail, || known(&world, detail).is_some());
    }
    drop(running);
    let programs = details.each_ref().map(|detail| known(&world, detail).unwrap());
    assert_eq!(world.store().programs().unwrap().iter().filter(|p| Path::new(&p.path) == cat()).count(), 3);

    // Each gets what was decided for it: one service, and what is no service, not what holds for the other.
    world.store().pin(programs[0].id, "jemalloc", 1.0).unwrap();
    world.store().pin(programs[1].id, "system", 1.0).unwrap();
    world.store().pin(programs[2].id, "jemalloc", 1.0).unwrap();
    let placed = |program: &Program| world.production(program) != 1 && world.offer(program).is_none();
    world.wait("the pins are published", || {
        placed(&programs[0]) && placed(&programs[2]) && world.offer(&programs[1]).is_none()
    });
    for (place, expected) in places.into_iter().zip([true, false, true]) {
        let service = Service::start(&world, place);
        world.wait("it runs", || service.is_cat());
        world.wait("it is as decided", || service.has("libjemalloc") == expected);
    }
    world.wait("their ends are theirs", || world.counter("flights_stored") == 2);
    assert_eq!(world.counter("dropped_forged"), 0);
    let flights = |program: &Program| {
        let trials = world.store().trials(program.id).unwrap();
        trials.iter().filter(|trial| trial.sample.kind == PageKind::Flight).count()
    };
    for (program, expected) in programs.iter().zip([1, 0, 1]) {
        assert_eq!(flights(program), expected);
    }
    world.stop("-TERM");
}
