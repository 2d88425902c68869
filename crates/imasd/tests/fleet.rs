// SPDX-License-Identifier: Apache-2.0
//! imasd in a fleet: real daemons, real programs, exchange folders. The agent and the servers are not needed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{WORKER, World, alone, python, trial};
use imas_exchange::exchange::{Exchange, file_name};
use imas_exchange::share::WANTED;
use imas_exchange::{
    Aggregate, Environment, FleetStatistics, Lack, ProgramKey, ThreadsClass, TrialTurn, trial_of,
};
use imas_store::samples::StoredProgram;

/// The objective is fixed. With `auto` the answer depends on the machine's load, which changes whenever another
/// test begins or ends. A round could then lack its trial of `system`, and a settled program could get further
/// trials.
const SETTINGS: &str = "worth_cpu_s = 0.0\nworth_life_s = 0.1\ncandidates = [\"jemalloc\", \"mimalloc\"]\n\
                        [overrides]\nobjective = \"balanced\"\n";

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

    /// Messages that wait in the outbox.
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

    /// A program with its first trials as if they had been made an hour ago: `pairs` rounds in which mimalloc
    /// needs a quarter. imasd does not run.
    fn with_history(&mut self, script: &Path, pairs: usize) -> StoredProgram {
        self.world.start();
        let program = self.world.notice(script);
        self.world.stop("-TERM");
        (0..2 * pairs).for_each(|at| self.add_trial(&program, at));
        program
    }

    fn add_trial(&self, program: &StoredProgram, at: usize) {
        let (candidate, share) = [("system", 1.0), ("mimalloc", 0.25)][at % 2];
        let build_id = imas_linux::elf::ElfImage::read(&python()).unwrap().build_id.unwrap_or_default();
        let mut trial = trial(candidate, &build_id, at, share);
        trial.sample.wall_s = 0.5; // one after the other
        assert!(self.world.store().add_trial(program.id, &trial).unwrap());
    }
}

fn pairs(messages: &[Aggregate], candidate: &str) -> u32 {
    messages.iter().filter_map(|one| one.candidates.get(candidate)).map(|one| one.pairs.count).sum()
}

/// Trials that are published, those without figures included.
fn shown(messages: &[Aggregate], candidate: &str) -> u32 {
    let void = messages.iter().filter_map(|one| one.candidates.get(candidate)).map(|one| one.void);
    pairs(messages, candidate) + void.sum::<u32>()
}

#[test]
fn what_trials_show_is_in_the_outbox_and_nothing_that_names_anyone() {
    let mut host = Host::new();
    host.world.start();
    let (script, program) = host.world.notices("secret-worker.py", WORKER);
    host.world.settle(&script, &program);
    let trials = host.world.store().trials(program.id).unwrap();
    let of = |name: &str| trials.iter().filter(|trial| trial.sample.candidate == name).count();
    assert!(of("system") > 0);
    host.world.wait("all of it is published", || {
        let published = host.outbox();
        ["jemalloc", "mimalloc"].iter().all(|name| shown(&published, name) as usize == of(name))
    });
    let messages = host.outbox();
    let subject = host.subject();
    let own_name = host.world.status()["fleet"]["host"].as_str().unwrap().to_owned();
    for (at, message) in messages.iter().enumerate() {
        assert_eq!((message.batch, message.host.as_str()), (at as u64, own_name.as_str()));
        assert_eq!(imas_exchange::key::subject(&message.program, &message.environment), subject);
        assert!(message.candidates.keys().all(|name| ["jemalloc", "mimalloc"].contains(&name.as_str())));
        // Random names may contain a short name of this machine by chance.
        let random = [message.host.as_str(), message.boot.as_str(), message.program.as_str()];
        let text = serde_json::to_string(message).unwrap();
        let text = random.iter().fold(text, |text, name| text.replace(name, ""));
        println!("{text}");
        let home = std::env::var("HOME").unwrap_or_default();
        let node = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let boot = imas_linux::process::boot_id().unwrap();
        for name in ["/", "secret", "worker", "python", "root", &home, node.trim(), &boot] {
            assert!(name.is_empty() || !text.contains(name), "{name}: {text}");
        }
    }
    host.world.wait("the state shows it", || host.world.status()["fleet"]["waiting"] == messages.len());
    assert_eq!(host.world.counter("fleet_written"), messages.len() as u64);
}

#[test]
fn a_crash_is_published() {
    let mut host = Host::new();
    host.world.start();
    let (script, program) = host.world.notices("victim.py", crate::support::VICTIM);
    let crashes = |published: &[Aggregate]| -> u32 {
        published.iter().filter_map(|one| one.candidates.get("jemalloc")).map(|one| one.crashes).sum()
    };
    host.world.wait("the crash is published", || {
        if host.world.offer(&program).is_some() {
            host.world.python(&script);
        }
        crashes(&host.outbox()) == 1
    });
}

/// imasd is killed at any moment, again and again, while an agent takes messages away. A message may come
/// twice, as it was. No trial is in two messages, and none is in no message.
#[test]
fn killed_at_any_moment_imasd_publishes_each_trial_once() {
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
    host.world.wait("every trial is published", || take(&host) as usize > kills);
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
fn without_its_folder_imasd_works_as_without_a_fleet_and_shows_it() {
    let mut host = Host::without_folder();
    host.world.start();
    let (script, program) = host.world.notices("worker.py", WORKER);
    host.world.settle(&script, &program);
    host.world.wait("the state shows it", || {
        let fleet = &host.world.status()["fleet"];
        fleet["trouble"].as_str().is_some_and(|why| why.contains("is imas-fleet installed?"))
            && fleet["unwritten"].as_u64() > Some(0)
    });
    std::fs::create_dir(host.world.path("exchange")).unwrap();
    host.world.wait("what waited is written", || pairs(&host.outbox(), "jemalloc") > 0);
    host.world.wait("the state shows it", || {
        let fleet = &host.world.status()["fleet"];
        fleet["trouble"].is_null() && fleet["unwritten"] == 0 && fleet["wanted"] == 1
    });
}

#[test]
fn a_full_or_read_only_folder_loses_nothing() {
    alone("fleet::full_and_read_only", &[]);
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
        host.world.status()["fleet"]["trouble"].as_str().is_some_and(|why| why.contains(what))
    };
    host.world.start();
    host.world.wait("the folder is full", || trouble(&host, "No space left"));
    assert_eq!(host.outbox(), []);
    std::fs::remove_file(&filler).unwrap();
    host.world.wait("what waited is written", || pairs(&host.outbox(), "mimalloc") == 4);
    host.world.wait("it works again", || host.world.status()["fleet"]["trouble"].is_null());
    host.world.stop("-TERM");

    (8..16).for_each(|at| host.add_trial(&program, at));
    mount(&["-o", "remount,ro"]);
    host.world.start();
    host.world.wait("the folder is read-only", || trouble(&host, "Read-only"));
    mount(&["-o", "remount,rw"]);
    host.world.wait("what waited is written", || pairs(&host.outbox(), "mimalloc") == 8);
}

#[test]
fn a_host_that_could_not_be_named_at_its_start_joins_later() {
    let mut host = Host::new();
    let obstacle = host.world.path("db/fleet-host.new");
    std::fs::create_dir_all(&obstacle).unwrap();
    host.world.start();
    let trouble =
        |host: &Host| host.world.status()["fleet"]["trouble"].as_str().unwrap_or_default().to_owned();
    host.world.wait("the status says so", || trouble(&host).contains("imasd takes no part in the fleet: "));
    host.world.wait("it tries again", || host.world.log().contains("it tries again"));
    std::fs::remove_dir(&obstacle).unwrap();
    host.world
        .wait("it takes part", || host.world.path("db/fleet-host").exists() && trouble(&host).is_empty());
    host.world.notices("worker.py", WORKER);
    host.subject();
}

#[test]
fn hostile_deliveries_are_refused_and_counted() {
    let mut host = Host::new();
    host.world.start();
    let (_, program) = host.world.notices("worker.py", WORKER);
    let subject = host.subject();
    let file = host.exchange.inbox().join(file_name(&subject));
    let beside = host.world.path("beside");
    let own = {
        let (key, _) = subject.split_once('.').unwrap();
        let key = imas_exchange::ProgramKey::try_from(key.to_owned()).unwrap();
        let machine = imas_engine::fleet_key::environment(imas_linux::host::conditions().unwrap().cpus);
        FleetStatistics::new(key, Environment { threads: Some(ThreadsClass::One), ..machine })
    };
    assert_eq!(own.subject(), subject);
    let other = FleetStatistics::new(imas_exchange::ProgramKey::new("x", &[]), own.environment.clone());
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
    // imasd may read one delivery twice: it may find the file before it reads the event of its arrival.
    let delivered_and_refused = |what: &str| {
        let before = host.world.counter("fleet_refused");
        std::fs::rename(&beside, &file).unwrap();
        host.world.wait(what, || host.world.counter("fleet_refused") > before);
    };
    for (at, content) in contents.iter().enumerate() {
        std::fs::write(&beside, content).unwrap();
        delivered_and_refused(&format!("content {at} is refused"));
    }
    std::fs::remove_file(&file).unwrap();
    let make: [&dyn Fn(); 3] = [
        &|| assert!(std::process::Command::new("mkfifo").arg(&beside).status().unwrap().success()),
        &|| std::os::unix::fs::symlink("/etc/passwd", &beside).unwrap(),
        &|| std::fs::create_dir(&beside).unwrap(),
    ];
    for (at, make) in make.iter().enumerate() {
        make();
        delivered_and_refused(&format!("kind {at} is refused"));
        let _ = std::fs::remove_file(&file);
        let _ = std::fs::remove_dir(&file);
    }
    assert_eq!(host.world.counter("fleet_received"), 0);
    assert_eq!(host.world.production(&program), 1, "the program starts untouched");
    std::fs::write(&file, sound).unwrap();
    host.world.wait("what is sound is taken", || host.world.counter("fleet_received") == 1);
}

/// Statistics in which `hosts` hosts have published that they run the program, and nothing else.
fn announced(subject: &str, hosts: u64) -> FleetStatistics {
    let (program, environment) = imas_exchange::key::of_subject(subject).unwrap();
    let mut statistics = FleetStatistics::new(program.clone(), environment.clone());
    for number in 0..hosts {
        let aggregate = Aggregate {
            v: imas_exchange::aggregate::VERSION,
            host: ProgramKey::new("host", &[&number.to_string()]).into(),
            boot: "b".to_owned(),
            batch: 0,
            program: program.clone(),
            environment: environment.clone(),
            candidates: BTreeMap::new(),
            residual: imas_core::stats::Moments::default(),
            freedom: 0.0,
        };
        statistics.upto_seq = number + 1;
        assert!(statistics.add_allowed(&aggregate, 0));
    }
    statistics
}

/// Name of a host that the rule of the fleet gives that candidate, in this turn and in the next one.
fn host_with_turn(statistics: &FleetStatistics, candidate: Option<&str>) -> String {
    let subject = statistics.subject();
    let prior = imas_exchange::prior(statistics);
    let need = WANTED + u32::try_from(imas_core::fleet_prior::liars(prior.counted)).unwrap();
    let lacks = ["jemalloc", "mimalloc"].map(|name| Lack { candidate: name.to_owned(), need });
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of the turn")]
    let now = (imas_linux::host::now_unix_s() / imas_engine::fleet_turn::TURN_S) as u64;
    let names = (0..).map(|number: u64| String::from(ProgramKey::new("test", &[&number.to_string()])));
    let is_it = |name: &String| {
        let turn =
            |epoch| TrialTurn { host: name, subject: &subject, epoch, hosts: prior.hosts, share: 0.05 };
        (now..now + 2).all(|epoch| trial_of(&turn(epoch), &lacks) == candidate)
    };
    names.into_iter().find(|name| is_it(name)).unwrap()
}

impl Host {
    /// A host of that name, with the script noticed, and the statistics delivered.
    fn named(name: &str, statistics: &FleetStatistics) -> (Self, StoredProgram, std::path::PathBuf) {
        let mut host = Self::new();
        std::fs::write(host.world.path("db/fleet-host"), name).unwrap();
        host.world.start();
        let (script, program) = host.world.notices("worker.py", WORKER);
        assert_eq!(host.subject(), statistics.subject(), "the same program on every host");
        host.exchange.deliver(&statistics.subject(), &statistics.to_bytes()).unwrap();
        host.world.wait("the statistics are taken", || host.world.counter("fleet_received") == 1);
        (host, program, script)
    }

    fn explained(&self, program: &StoredProgram) -> String {
        let output = self.world.imas("explain").arg(program.id.to_string()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Statistics of a fleet for the worker, as a host publishes it.
fn fleet_of(hosts: u64) -> FleetStatistics {
    let mut first = Host::new();
    first.world.start();
    first.world.notices("worker.py", WORKER);
    announced(&first.subject(), hosts)
}

#[test]
fn hosts_of_a_fleet_take_turns() {
    let statistics = fleet_of(41);
    for candidate in ["jemalloc", "mimalloc"] {
        let name = host_with_turn(&statistics, Some(candidate));
        let (host, program, script) = Host::named(&name, &statistics);
        let wanted = host.world.id_of(candidate);
        let offered = || host.world.offer(&program).map(|(candidate, _)| candidate);
        host.world.wait("the trial of the turn is offered", || offered() == Some(wanted));
        let store = host.world.store();
        let stored = || store.trials(program.id).unwrap();
        host.world.run_trial(&script, &program, || stored().len() == 1);
        host.world.wait("system follows", || offered() == Some(1));
        host.world.run_trial(&script, &program, || stored().len() == 2);
        let tried: Vec<String> = stored().into_iter().map(|trial| trial.sample.candidate).collect();
        assert_eq!(tried, [candidate, "system"]);
        host.world.wait("the pair is published", || pairs(&host.outbox(), candidate) == 1);
    }
    let name = host_with_turn(&statistics, None);
    let (mut host, program, _) = Host::named(&name, &statistics);
    host.world.wait("others have their turn", || host.world.offer(&program).is_none());
    let explained = host.explained(&program);
    assert!(explained.contains("hosts are in a trial at a time; this host's turn: "), "{explained}");

    // The fleet is gone for more than a week.
    host.world.stop("-TERM");
    let long_ago_s = imas_linux::host::now_unix_s() - imas_engine::fleet_turn::GONE_S - 1.0;
    host.world.store().note_fleet_reached(long_ago_s).unwrap();
    host.world.start();
    host.world.wait("it tries by itself", || host.world.offer(&program).is_some());
    let explained = host.explained(&program);
    assert!(explained.contains("tries as if it were alone"), "{explained}");
}

#[test]
fn a_program_is_announced_once_and_again_after_the_fleet_has_forgotten_it() {
    let statistics = fleet_of(41);
    let name = host_with_turn(&statistics, None);
    let (mut host, program, _) = Host::named(&name, &statistics);
    let announcements = |host: &Host| {
        let messages = host.outbox();
        assert!(messages.iter().all(|one| one.candidates.is_empty()), "{messages:?}");
        messages.len()
    };
    host.world.wait("it is announced", || announcements(&host) == 1);
    host.world.wait("others have their turn", || host.world.offer(&program).is_none());
    host.world.stop("-TERM");
    host.world.start();
    host.world.wait("it is judged again", || host.world.status()["fleet"]["wanted"] == 1);
    host.world.stop("-TERM");
    host.world.start();
    assert_eq!(announcements(&host), 1, "once");
    let file = host.exchange.inbox().join(file_name(&statistics.subject()));
    std::fs::remove_file(file).unwrap();
    host.world.wait("its statistics are dropped", || host.world.counter("fleet_forgotten") == 1);
    host.world.wait("it tries by itself", || host.world.offer(&program).is_some());
    assert_eq!(host.world.store().statistics(program.id).unwrap(), None);
    host.world.wait("it is announced again", || announcements(&host) == 2);
}
