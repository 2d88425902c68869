// SPDX-License-Identifier: Apache-2.0
//! Whatever mergers, servers and hostile hosts do: the statistics are made of the stream, each aggregate
//! once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use imas_core::stats::Moments;
use imas_exchange::aggregate::{self, VERSION};
use imas_exchange::seats::{CLIP, MOST_OF_SEAT};
use imas_exchange::statistics::{MAX_BYTES, MAX_CANDIDATES};
use imas_exchange::{
    Aggregate, BadAggregate, BadPayload, BadStatistics, CandidateAggregate, Environment, FleetStatistics,
    ProgramKey, ThreadsClass, key,
};
use imas_fleet::memory_bus::BusTrouble;
use imas_fleet::{
    BusError, FleetBus, FleetMergeError, MemoryBus, MergeCounts, StreamEntry, fold, merge, merge_counting,
};
use proptest::prelude::*;

fn environment() -> Environment {
    Environment {
        architecture: "x86_64".into(),
        page_bytes: 4096,
        huge_pages: "madvise".into(),
        cpus: 8,
        threads: Some(ThreadsClass::One),
    }
}

fn program() -> ProgramKey {
    ProgramKey::new("build-id", &["ab"])
}

fn subject() -> String {
    key::subject(&program(), &environment())
}

fn new() -> FleetStatistics {
    FleetStatistics::new(program(), environment())
}

fn aggregate(host: u32, batch: u64, candidates: &[(&str, f64)]) -> Aggregate {
    let of = |(name, cpu): &(&str, f64)| {
        let pairs = Moments { count: 2, ..Moments::of(*cpu, -cpu) };
        ((*name).to_owned(), CandidateAggregate { version: "1".into(), pairs, void: 0, crashes: 0 })
    };
    Aggregate {
        v: VERSION,
        host: String::from(ProgramKey::new("host", &[&host.to_string()])),
        boot: "boot-1".into(),
        batch,
        program: program(),
        environment: environment(),
        candidates: candidates.iter().map(of).collect::<BTreeMap<_, _>>(),
        residual: Moments { xx: 0.02, yy: 0.01, xy: 0.001, ..Moments::default() },
        freedom: 3.0,
    }
}

fn bytes(aggregate: &Aggregate) -> Vec<u8> {
    serde_json::to_vec(aggregate).unwrap()
}

fn entry(sequence: u64, payload: Vec<u8>) -> StreamEntry {
    StreamEntry { sequence, at_unix_s: 0, payload }
}

/// The entry, moved to a day after 1970-01-01.
fn on_day(day: u64, entry: StreamEntry) -> StreamEntry {
    StreamEntry { at_unix_s: day * 86_400 + 7, ..entry }
}

/// The bus in memory never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

fn publish(bus: &MemoryBus, one: &Aggregate) {
    now(bus.publish(&subject(), &one.id(), bytes(one))).unwrap();
}

fn stored(bus: &MemoryBus) -> FleetStatistics {
    let stored = now(bus.statistics(&subject())).unwrap().unwrap();
    FleetStatistics::read_of(&subject(), &stored.value).unwrap()
}

fn trouble() -> impl Strategy<Value = BusTrouble> {
    prop_oneof![
        4 => Just(BusTrouble::None),
        1 => Just(BusTrouble::AnswerLost),
        1 => Just(BusTrouble::CallLost),
        1 => Just(BusTrouble::Lagging),
        1 => Just(BusTrouble::WriteLost),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Mergers that interleave with each other and with hosts, lost calls and answers, followers that lag, writes
    /// that are acknowledged and lost (the watermark goes back), repetitions of every message.
    #[test]
    fn any_course_of_events_gives_the_same_statistics(
        reports in prop::collection::vec((0..40u32, -3.0..3.0f64), 1..260),
        courses in prop::collection::vec(prop::collection::vec(trouble(), 0..12), 1..20),
    ) {
        let bus = MemoryBus::default();
        let step = reports.len().div_ceil(courses.len());
        for (chunk, (new, course)) in reports.chunks(step).zip(&courses).enumerate() {
            for (at, (host, cpu)) in new.iter().enumerate() {
                let one = aggregate(*host, (chunk * step + at) as u64, &[("jemalloc", *cpu), ("hoard", -cpu)]);
                publish(&bus, &one);
                publish(&bus, &one);
            }
            bus.trouble(course);
            let result = now(merge(&bus, &subject()));
            bus.trouble(&[]); // the rest of this course is for nobody
            prop_assert!(matches!(result, Ok(_) | Err(FleetMergeError::Bus(BusError::Timeout(_)))), "{:?}", result);
        }
        now(merge(&bus, &subject())).unwrap();
        let all = now(bus.aggregates(&subject(), 0, usize::MAX)).unwrap();
        prop_assert_eq!(all.len(), reports.len());
        let (want, counts) = fold(&new(), &all);
        prop_assert_eq!(counts.folded, reports.len() as u64);
        prop_assert_eq!(stored(&bus), want);
    }

    /// Lost answers and lost calls change no count: what a merger wrote is counted once.
    #[test]
    fn what_is_written_is_counted_though_answers_are_lost(
        reports in prop::collection::vec((0..40u32, -3.0..3.0f64), 1..460),
        lost in prop::collection::vec(prop_oneof![
            Just(BusTrouble::None), Just(BusTrouble::AnswerLost), Just(BusTrouble::CallLost)
        ], 0..40),
    ) {
        let bus = MemoryBus::default();
        for (at, (host, cpu)) in reports.iter().enumerate() {
            publish(&bus, &aggregate(*host, at as u64, &[("a", *cpu)]));
        }
        let mut counts = MergeCounts::default();
        for course in lost.chunks(5) {
            bus.trouble(course);
            now(merge_counting(&bus, &subject(), |new| counts = counts.and(new))).unwrap();
            bus.trouble(&[]);
        }
        now(merge_counting(&bus, &subject(), |new| counts = counts.and(new))).unwrap();
        prop_assert_eq!(counts.folds.folded, reports.len() as u64);
        prop_assert_eq!(counts.conflicts, 0);
    }

    /// Folding in pieces, twice, in any order within a piece, gives the same statistics.
    #[test]
    fn folding_in_pieces_is_folding_at_once(
        reports in prop::collection::vec((0..300u32, -3.0..3.0f64), 1..80),
        at in 0..80usize,
        again in 0..80usize,
    ) {
        let of = |(at, (host, cpu)): (usize, &(u32, f64))| {
            let one = entry(at as u64 + 1, bytes(&aggregate(*host, at as u64, &[("a", *cpu)])));
            on_day(at as u64 / 9, one)
        };
        let all: Vec<_> = reports.iter().enumerate().map(of).collect();
        let (want, _) = fold(&new(), &all);
        let (first, second) = all.split_at(at.min(all.len()));
        let mut backwards: Vec<_> = first.iter().rev().cloned().collect();
        backwards.extend_from_within(..);
        let (half, _) = fold(&new(), &backwards);
        let (half, counts) = fold(&half, &first[again.min(first.len())..]);
        prop_assert_eq!(counts.folded, 0, "they are contained");
        let (whole, _) = fold(&half, second);
        prop_assert_eq!(&whole, &want);
        prop_assert_eq!(FleetStatistics::read(&whole.to_bytes()).unwrap(), want);
    }

    #[test]
    fn hostile_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Aggregate::read(&bytes);
        let _ = FleetStatistics::read(&bytes);
        let (after, counts) = fold(&new(), &[entry(5, bytes)]);
        prop_assert_eq!((after.upto_seq, after.folded, counts.folded), (5, 0, 0));
    }

    /// A readable aggregate with bytes changed: refused, or within the clip.
    #[test]
    fn changed_aggregates_move_nothing_beyond_the_clip(
        cpu in prop_oneof![-12.0..12.0f64, any::<f64>()],
        count in any::<u32>(),
        at in 0..700usize,
        byte in any::<u8>(),
    ) {
        let mut one = aggregate(7, 1, &[("jemalloc", 0.1)]);
        let pairs = &mut one.candidates.get_mut("jemalloc").unwrap().pairs;
        (pairs.mean_x, pairs.count) = (cpu, count);
        let mut hostile = bytes(&one);
        if let Some(place) = hostile.get_mut(at) {
            *place = byte;
        }
        let others: Vec<_> = (100..140u32).map(|i| entry(u64::from(i), bytes(&aggregate(i, 1, &[("jemalloc", 0.1)])))).collect();
        let (before, _) = fold(&new(), &others);
        let (after, _) = fold(&before, &[entry(1000, hostile)]);
        let values = |s: &FleetStatistics| -> Vec<f64> { s.candidates[0].pairs.iter().map(|seat| seat.x).collect() };
        prop_assert!(after.candidates.iter().all(|one| one.pairs.iter().all(
            |seat| seat.x.abs() <= CLIP && seat.y.abs() <= CLIP && seat.count <= MOST_OF_SEAT
        )));
        let honest = |s: &FleetStatistics| values(s).iter().filter(|x| (**x - 0.1).abs() < 1e-9).count();
        prop_assert!(honest(&after) + 1 >= honest(&before), "one host moves one group");
        prop_assert!(FleetStatistics::read(&after.to_bytes()).is_ok());
    }
}

#[test]
fn what_no_host_sends_is_refused() {
    let good = aggregate(1, 1, &[("jemalloc", 0.1)]);
    assert_eq!(Aggregate::read(&bytes(&good)), Ok(good.clone()));
    let refused = |change: &dyn Fn(&mut Aggregate)| {
        let mut one = good.clone();
        change(&mut one);
        Aggregate::read(&bytes(&one)).unwrap_err()
    };
    let range = BadAggregate::OutOfRange;
    assert_eq!(refused(&|a| a.v = 2), BadPayload::UnknownVersion(2).into());
    assert_eq!(refused(&|a| a.host = "../../etc".into()), range("host"));
    assert_eq!(refused(&|a| a.boot = String::new()), range("boot"));
    assert_eq!(refused(&|a| a.environment.cpus = 3), range("environment"));
    assert_eq!(refused(&|a| a.environment.architecture = "x.>".into()), range("environment"));
    assert_eq!(refused(&|a| a.freedom = -1.0), range("residual"));
    assert_eq!(refused(&|a| a.residual.xx = 1e6), range("residual"));
    let one = |a: &mut Aggregate, change: &dyn Fn(&mut CandidateAggregate)| {
        a.candidates.values_mut().for_each(change);
    };
    assert_eq!(refused(&|a| one(a, &|c| c.pairs.mean_x = 11.0)), range("differences"));
    assert_eq!(refused(&|a| one(a, &|c| c.pairs.count = 100_000)), range("differences"));
    assert_eq!(refused(&|a| one(a, &|c| c.pairs.yy = -1.0)), range("differences"));
    assert_eq!(refused(&|a| one(a, &|c| c.pairs.xy = 1.0)), range("differences"));
    assert_eq!(refused(&|a| one(a, &|c| c.crashes = u32::MAX)), range("differences"));
    assert_eq!(refused(&|a| one(a, &|c| c.version = "a b".into())), range("versions"));
    let named = |name: String, a: &mut Aggregate| {
        let known = a.candidates["jemalloc"].clone();
        a.candidates.insert(name, known);
    };
    assert_eq!(refused(&|a| named("<script>".into(), a)), range("names"));
    assert_eq!(refused(&|a| named("x".repeat(65), a)), range("names"));
    assert_eq!(refused(&|a| (0..40).for_each(|i| named(format!("c{i}"), a))), range("candidates"));
    let mut nothing = String::from_utf8(bytes(&good)).unwrap();
    nothing = nothing.replace("\"mean_x\":0.1", "\"mean_x\":1e999");
    assert!(matches!(
        Aggregate::read(nothing.as_bytes()),
        Err(BadAggregate::Payload(BadPayload::Unreadable(_)))
    ));
    let large = vec![b' '; aggregate::MAX_BYTES + 1];
    assert!(matches!(Aggregate::read(&large), Err(BadAggregate::Payload(BadPayload::TooLarge(_)))));
}

#[test]
fn bad_aggregates_are_passed_by_and_counted() {
    let mut newer = aggregate(1, 1, &[]);
    newer.v = 9;
    let mut elsewhere = aggregate(2, 1, &[("jemalloc", 0.1)]);
    elsewhere.environment.cpus = 4;
    let (after, counts) = fold(
        &new(),
        &[
            entry(3, bytes(&newer)),
            entry(4, bytes(&elsewhere)),
            entry(7, vec![0xff]),
            entry(9, bytes(&aggregate(3, 1, &[]))),
        ],
    );
    assert_eq!((counts.folded, counts.skipped, counts.rejected, after.upto_seq), (1, 1, 2, 9));
}

/// A merge that fails has counted what it wrote before.
#[test]
fn a_merge_that_fails_has_counted_what_it_wrote() {
    let bus = MemoryBus::default();
    (0..150).for_each(|at| publish(&bus, &aggregate(at, 1, &[])));
    // One batch of 100 is written; then nobody answers.
    bus.trouble(&[[BusTrouble::None; 3].as_slice(), &[BusTrouble::CallLost; 9]].concat());
    let mut folded = 0;
    assert!(now(merge_counting(&bus, &subject(), |new| folded += new.folds.folded)).is_err());
    assert_eq!(folded, 100);
}

#[test]
fn more_than_a_host_can_measure_in_a_day_is_dropped_and_counted() {
    let of = |host: u32, at: u64, count: u32| {
        let mut one = aggregate(host, at, &[("jemalloc", 0.1)]);
        one.candidates.get_mut("jemalloc").unwrap().pairs.count = count;
        entry(at, bytes(&one))
    };
    let flood: Vec<StreamEntry> = (1..=3000).map(|at| of(1, at, 1)).collect();
    let (after, counts) = fold(&new(), &flood);
    assert_eq!((counts.folded, counts.excessive), (1000, 2000));
    assert_eq!((after.folded, after.upto_seq), (1000, 3000));
    let (after, counts) =
        fold(&after, &[of(2, 4000, 900), of(2, 4001, 101), of(2, 4002, 100), of(3, 4003, 1001)]);
    assert_eq!((counts.folded, counts.excessive), (2, 2), "trials count, not messages");
    let (_, counts) =
        fold(&after, &[on_day(0, of(1, 5000, 1)), on_day(1, of(1, 5001, 1)), on_day(0, of(1, 5002, 1))]);
    assert_eq!((counts.folded, counts.excessive), (2, 1), "each day anew, and no day comes back");
    // In any pieces, and again from an earlier watermark: the same.
    let (mut in_pieces, mut excessive) = (new(), 0);
    for part in flood.chunks(7).chain([&flood[..]]) {
        let (after, counts) = fold(&in_pieces, part);
        (in_pieces, excessive) =
            (FleetStatistics::read(&after.to_bytes()).unwrap(), excessive + counts.excessive);
    }
    assert_eq!((in_pieces, excessive), (fold(&new(), &flood).0, 2000));
}

/// Statistics have long names, all groups are taken, and a liar makes candidates up.
#[test]
fn full_statistics_fit_and_made_up_candidates_displace_each_other() {
    let names: Vec<String> = (0..16).map(|i| format!("{i:x>60}")).collect();
    let of: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), -2.0)).collect();
    let mut all: Vec<StreamEntry> = vec![];
    for host in 0..1500u32 {
        let mut one = aggregate(host, 1, &of);
        one.candidates.values_mut().for_each(|c| (c.crashes, c.void, c.version) = (1, 1, "v".repeat(60)));
        all.push(entry(u64::from(host) + 1, bytes(&one)));
        let made_up: Vec<String> = (0..20).map(|i| format!("made-up-{host}-{i}")).collect();
        let made_up: Vec<(&str, f64)> = made_up.iter().map(|name| (name.as_str(), -2.0)).collect();
        // A day each, or most would be more than a host may send.
        let made_up = entry(10_000 + u64::from(host), bytes(&aggregate(77_777, u64::from(host), &made_up)));
        all.push(on_day(u64::from(host), made_up));
    }
    let (after, _) = fold(&new(), &all);
    assert_eq!(after.candidates.len(), MAX_CANDIDATES);
    let real = after.candidates.iter().filter(|one| names.contains(&one.name));
    assert!(real.clone().count() == 16 && real.clone().all(|one| one.pairs.len() > 70), "{:?}", real.count());
    // Another host's new candidate finds a place none the less.
    let is_counted = |host: &u32| {
        imas_exchange::group::is_counted(&aggregate(*host, 9, &[]).host, program().as_str(), "new", 3000)
    };
    let host = (0..).find(is_counted).unwrap();
    let (after, _) = fold(&after, &[entry(20_000, bytes(&aggregate(host, 9, &[("new", -0.1)])))]);
    assert!(after.candidates.iter().any(|one| one.name == "new"));
    assert!(after.to_bytes().len() <= MAX_BYTES, "{}", after.to_bytes().len());
    assert_eq!(FleetStatistics::read(&after.to_bytes()).unwrap(), after);
    let hosts = after.hosts.hosts();
    assert!((1100..1900).contains(&hosts), "{hosts}");
}

/// A host that does not know the program's class of threads yet publishes none.
#[test]
fn statistics_without_a_class_of_threads_are_folded() {
    let environment = Environment { threads: None, ..environment() };
    let mut one = aggregate(1, 1, &[("a", -0.3)]);
    one.environment = environment.clone();
    let before = FleetStatistics::new(program(), environment);
    let (after, counts) = fold(&before, &[entry(1, bytes(&one))]);
    assert_eq!(counts.folded, 1);
    let read = FleetStatistics::read_of(&before.subject(), &after.to_bytes()).unwrap();
    assert_eq!((read.folded, read.subject()), (1, before.subject()));
    let (_, counts) = fold(&read, &[entry(2, bytes(&one))]);
    assert_eq!(counts.folded, 1);
    // No figure of a program without that class is pooled with one that has it.
    let (_, counts) = fold(&new(), &[entry(1, bytes(&one))]);
    assert_eq!((counts.folded, counts.rejected), (0, 1));
    one.environment.threads = Some(ThreadsClass::Many);
    let (_, counts) = fold(&new(), &[entry(1, bytes(&one)), entry(2, bytes(&aggregate(1, 1, &[])))]);
    assert_eq!((counts.folded, counts.rejected), (1, 1));
}

#[test]
fn statistics_of_a_newer_version_are_left_alone() {
    let bus = MemoryBus::default();
    publish(&bus, &aggregate(1, 1, &[("jemalloc", 0.1)]));
    now(bus.compare_and_set(&subject(), 0, b"{\"v\":2}".to_vec())).unwrap();
    assert!(matches!(now(merge(&bus, &subject())), Err(FleetMergeError::UnknownVersion(2))));
    now(bus.compare_and_set(&subject(), 1, b"garbage".to_vec())).unwrap();
    let counts = now(merge(&bus, &subject())).unwrap();
    assert_eq!((counts.unreadable, counts.folds.folded, stored(&bus).folded), (1, 1, 1));
    let other = stored(&bus).to_bytes();
    let of_other = FleetStatistics::read_of("elsewhere", &other);
    assert_eq!(of_other, Err(BadStatistics::OtherSubject));
}
