// SPDX-License-Identifier: Apache-2.0
//! imasd in a fleet: real daemons, real programs, exchange folders. The agent and the servers are not needed.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_core::sample::{Ended, MemoryFigures, OpFigures, Sample, Usage};
use imas_fleet::exchange::{Exchange, file_name};
use imas_fleet::{Aggregate, FleetStatistics};
use imas_store::samples::StoredProgram;
use support::{WORKER, World, alone, python};

const SETTINGS: &str = "worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\", \"mimalloc\"]\n";

/// A host of a fleet: a world with an exchange folder.
struct Host {
    world: World,
    exchange: Exchange,
}

impl Host {
    fn new() -> Self {
        let host = Self::without_folder();
        std::fs::create_dir(host.world.path("exchange")).unwrap();
        host
    }

    fn without_folder() -> Self {
        let world = World::with(SETTINGS);
        let folder = world.path("exchange");
        world.configure(&format!("{SETTINGS}[fleet]\nenabled = true\nexchange = \"{}\"\n", folder.display()));
        Self { exchange: Exchange::new(folder), world }
    }

    /// What waits in the outbox.
    fn outbox(&self) -> Vec<Aggregate> {
        let waiting = self.exchange.waiting(10_000).unwrap_or_default();
        waiting.iter().map(|one| Aggregate::read(&one.bytes).unwrap()).collect()
    }

    /// The subject of the only program.
    fn subject(&self) -> String {
        let mut subjects = vec![];
        self.world.wait("the fleet is asked of the program", || {
            subjects = self.exchange.wanted().map(|wanted| wanted.subjects).unwrap_or_default();
            subjects.len() == 1
        });
        subjects.remove(0)
    }

    fn status(&self) -> serde_json::Value {
        let text = std::fs::read(self.world.path("run/state/status.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// A program with its first trials as if they had been made an hour ago: `pairs` rounds in which mimalloc needs
    /// a quarter. imasd does not run.
    fn with_history(&mut self, script: &Path, pairs: usize) -> StoredProgram {
        self.world.start();
        let program = self.world.notice(script);
        self.world.stop("-TERM");
        (0..2 * pairs).for_each(|at| self.add_trial(&program, at));
        program
    }

    fn add_trial(&self, program: &StoredProgram, at: usize) {
        let (candidate, share) = [("system", 1.0), ("mimalloc", 0.25)][at % 2];
        assert!(self.world.store().add_trial(program.id, &trial(candidate, at, share)).unwrap());
    }
}

/// A trial that was made an hour ago.
fn trial(candidate: &str, number: usize, share: f64) -> TrialRecord {
    let wobble = 1.0 + 0.002 * (number % 3) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole bytes are meant")]
    let bytes = (f64::from(100 << 20) * share * wobble) as u64;
    let memory = MemoryFigures {
        snapshots: 9,
        heap_mean: bytes,
        live_mean: bytes / 2,
        live_peak: bytes / 2,
        resident_mean: bytes,
        resident_over_time: bytes,
        ..MemoryFigures::default()
    };
    let calls = OpFigures { calls: 500_000, sampled: 1000, mean_ns: 50.0, ..OpFigures::default() };
    let served = if candidate == "system" { "libc.so.6" } else { "libmimalloc.so" };
    let build_id = imas_linux::elf::ElfImage::read(&python()).unwrap().build_id.unwrap_or_default();
    TrialRecord {
        sample: Sample {
            trial_id: format!("given-{number}"),
            candidate: candidate.to_owned(),
            made_unix_s: imas_linux::clock::now_unix_s() - 3600.0 + number as f64,
            ended: Ended::Clean { status: Some(0) },
            served: served.to_owned(),
            malloc: calls.clone(),
            free: calls,
            memory,
            usage: Some(Usage { user_s: share * wobble, ..Usage::default() }),
            wall_s: 0.5,
            ..Sample::default()
        },
        build_id,
        allocator_version: String::new(),
        retest_s: Some(0.0),
    }
}

fn pairs(messages: &[Aggregate], candidate: &str) -> u32 {
    messages.iter().filter_map(|one| one.candidates.get(candidate)).map(|one| one.pairs.count).sum()
}

#[test]
fn what_trials_show_is_in_the_outbox_and_nothing_that_names_anyone() {
    let mut host = Host::new();
    host.world.start();
    let script = host.world.script("secret-worker.py", WORKER);
    let program = host.world.notice(&script);
    host.world.settle(&script, &program);
    let trials = host.world.store().trials(program.id).unwrap();
    let of = |name: &str| trials.iter().filter(|trial| trial.sample.candidate == name).count();
    assert!(of("system") > 0);
    host.world.wait("all of it is told", || {
        let told = host.outbox();
        pairs(&told, "jemalloc") as usize == of("jemalloc")
            && pairs(&told, "mimalloc") as usize == of("mimalloc")
    });
    let messages = host.outbox();
    let subject = host.subject();
    let own_name = host.status()["fleet"]["host"].as_str().unwrap().to_owned();
    for (at, message) in messages.iter().enumerate() {
        assert_eq!((message.batch, message.host.as_str()), (at as u64, own_name.as_str()));
        assert_eq!(imas_fleet::key::subject(&message.program, &message.environment), subject);
        assert!(message.candidates.keys().all(|name| ["jemalloc", "mimalloc"].contains(&name.as_str())));
        let text = serde_json::to_string(message).unwrap();
        println!("{text}");
        let home = std::env::var("HOME").unwrap_or_default();
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let boot = imas_linux::process::boot_id().unwrap();
        for name in ["/", "secret", "worker", "python", "root", &home, node.trim(), &boot] {
            assert!(name.is_empty() || !text.contains(name), "{name}: {text}");
        }
    }
    host.world.wait("the state says so", || host.status()["fleet"]["waiting"] == messages.len());
    assert_eq!(host.world.counter("fleet_written"), messages.len() as u64);
}

#[test]
fn a_crash_is_told() {
    let mut host = Host::new();
    host.world.start();
    let script = host.world.script("victim.py", support::VICTIM);
    let program = host.world.notice(&script);
    let crashes = |told: &[Aggregate]| -> u32 {
        told.iter().filter_map(|one| one.candidates.get("jemalloc")).map(|one| one.crashes).sum()
    };
    host.world.wait("the crash is told", || {
        if host.world.offer(&program).is_some() {
            host.world.python(&script);
        }
        crashes(&host.outbox()) == 1
    });
}

/// imasd is killed at any moment, again and again, while an agent takes messages away. A message may come twice, as
/// it was. No trial is in two messages, and none is in no message.
#[test]
fn killed_at_any_moment_imasd_tells_of_each_trial_once() {
    let mut host = Host::new();
    let script = host.world.script("worker.py", WORKER);
    let program = host.with_history(&script, 1);
    let mut got: BTreeMap<String, Aggregate> = BTreeMap::new();
    let mut repeated = 0;
    let mut take = |host: &Host| {
        for one in host.exchange.waiting(1000).unwrap_or_default() {
            let message = Aggregate::read(&one.bytes).unwrap();
            match got.insert(message.id(), message.clone()) {
                Some(before) if before == message => repeated += 1,
                Some(before) => panic!("one id, two messages: {before:?} {message:?}"),
                None => {}
            }
            host.exchange.acknowledged(&one).unwrap();
        }
        pairs(&got.values().cloned().collect::<Vec<_>>(), "mimalloc")
    };
    let kills = 60;
    for round in 1..=kills {
        host.add_trial(&program, 2 * round);
        host.add_trial(&program, 2 * round + 1);
        let mut daemon = host.world.imasd().spawn().unwrap();
        // Moments spread over the whole start, and some after it.
        let begin = Instant::now();
        let lives = Duration::from_micros(1_500 * ((round as u64 * 37) % 61));
        while begin.elapsed() < lives {
            take(&host);
        }
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }
    host.world.start();
    host.world.wait("every trial is told", || take(&host) as usize > kills);
    host.world.stop("-TERM");
    host.world.start();
    host.world.stop("-TERM");
    assert_eq!(take(&host) as usize, kills + 1, "rounds");
    // Two runs a round, less one effect a round and one for the two candidates together.
    let freedom: f64 = got.values().map(|one| one.freedom).sum();
    assert_eq!(freedom, kills as f64, "the scatter of all rounds, once");
    println!("{kills} kills, {} messages, {repeated} of them twice", got.len());
}

#[test]
fn without_its_folder_imasd_works_as_without_a_fleet_and_says_so() {
    let mut host = Host::without_folder();
    host.world.start();
    let script = host.world.script("worker.py", WORKER);
    let program = host.world.notice(&script);
    host.world.settle(&script, &program);
    host.world.wait("it says so", || {
        let fleet = &host.status()["fleet"];
        fleet["trouble"].as_str().is_some_and(|why| why.contains("is imas-fleet installed?"))
            && fleet["unwritten"].as_u64() > Some(0)
    });
    std::fs::create_dir(host.world.path("exchange")).unwrap();
    host.world.wait("what waited is written", || pairs(&host.outbox(), "jemalloc") > 0);
    host.world.wait("it says so", || {
        let fleet = &host.status()["fleet"];
        fleet["trouble"].is_null() && fleet["unwritten"] == 0 && fleet["wanted"] == 1
    });
}

#[test]
fn a_full_or_read_only_folder_loses_nothing() {
    alone("full_and_read_only", &[]);
}

#[test]
#[ignore = "in a mount namespace of its own"]
fn full_and_read_only() {
    let mut host = Host::new();
    let folder = host.world.path("exchange");
    let mount = |arguments: &[&str]| {
        assert!(std::process::Command::new("mount").args(arguments).arg(&folder).status().unwrap().success());
    };
    mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"]);
    host.exchange.prepare().unwrap();
    let filler = folder.join("filler");
    while std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(&filler)
        .and_then(|mut file| std::io::Write::write_all(&mut file, &[0; 4096]))
        .is_ok()
    {}
    let script = host.world.script("worker.py", WORKER);
    let program = host.with_history(&script, 4);
    let trouble = |host: &Host, what: &str| {
        host.status()["fleet"]["trouble"].as_str().is_some_and(|why| why.contains(what))
    };
    host.world.start();
    host.world.wait("the folder is full", || trouble(&host, "No space left"));
    assert_eq!(host.outbox(), []);
    std::fs::remove_file(&filler).unwrap();
    host.world.wait("what waited is written", || pairs(&host.outbox(), "mimalloc") == 4);
    host.world.wait("it works again", || host.status()["fleet"]["trouble"].is_null());
    host.world.stop("-TERM");

    (8..16).for_each(|at| host.add_trial(&program, at));
    mount(&["-o", "remount,ro"]);
    host.world.start();
    host.world.wait("the folder is read-only", || trouble(&host, "Read-only"));
    mount(&["-o", "remount,rw"]);
    host.world.wait("what waited is written", || pairs(&host.outbox(), "mimalloc") == 8);
}

#[test]
fn hostile_deliveries_are_refused_and_counted() {
    let mut host = Host::new();
    host.world.start();
    let script = host.world.script("worker.py", WORKER);
    let program = host.world.notice(&script);
    let subject = host.subject();
    let file = host.exchange.inbox().join(file_name(&subject));
    let beside = host.world.path("beside");
    let own = {
        let (key, _) = subject.split_once('.').unwrap();
        let key = imas_fleet::ProgramKey::try_from(key.to_owned()).unwrap();
        FleetStatistics::new(
            key,
            imas_engine::fleet_key::environment(imas_linux::conditions::now().unwrap().cpus),
        )
    };
    assert_eq!(own.subject(), subject);
    let other = FleetStatistics::new(imas_fleet::ProgramKey::new("x", &[]), own.environment.clone());
    let mut elsewhere = own.environment.clone();
    elsewhere.cpus = if elsewhere.cpus == 64 { 32 } else { 64 };
    let elsewhere = FleetStatistics::new(own.program.clone(), elsewhere);
    let sound = String::from_utf8(own.to_bytes()).unwrap();
    let absurd = sound.replace(
        "\"candidates\":[]",
        "\"candidates\":[{\"name\":\"jemalloc\",\"version\":\"1\",\"reported_at\":-1}]",
    );
    assert_ne!(absurd, sound);
    let contents: [Vec<u8>; 7] = [
        vec![b'x'; 65 << 10],
        b"garbage".to_vec(),
        vec![],
        sound.replace("\"v\":1", "\"v\":2").into_bytes(),
        absurd.into_bytes(),
        other.to_bytes(),
        elsewhere.to_bytes(),
    ];
    let mut refused = 0;
    let mut is_refused = |host: &Host, what: &str| {
        refused += 1;
        host.world.wait(what, || host.world.counter("fleet_refused") == refused);
    };
    for (at, content) in contents.iter().enumerate() {
        std::fs::write(&beside, content).unwrap();
        std::fs::rename(&beside, &file).unwrap();
        is_refused(&host, &format!("content {at} is refused"));
    }
    std::fs::remove_file(&file).unwrap();
    let make: [&dyn Fn(); 3] = [
        &|| assert!(std::process::Command::new("mkfifo").arg(&beside).status().unwrap().success()),
        &|| std::os::unix::fs::symlink("/etc/passwd", &beside).unwrap(),
        &|| std::fs::create_dir(&beside).unwrap(),
    ];
    for (at, make) in make.iter().enumerate() {
        make();
        std::fs::rename(&beside, &file).unwrap();
        is_refused(&host, &format!("kind {at} is refused"));
        let _ = std::fs::remove_file(&file);
        let _ = std::fs::remove_dir(&file);
    }
    assert_eq!(host.world.counter("fleet_received"), 0);
    assert_eq!(host.world.production(&program), 1, "the program starts untouched");
    std::fs::write(&file, sound).unwrap();
    host.world.wait("what is sound is taken", || host.world.counter("fleet_received") == 1);
}
