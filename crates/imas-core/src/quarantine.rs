// SPDX-License-Identifier: Apache-2.0
//! Candidates that crashed a program and are not given to it again.
//!
//! A crash under a candidate quarantines it at once, unless this build of the program has also crashed under
//! `system`. Then crashing may be the program's own fault, and the candidate is quarantined only when it
//! crashes significantly more often (Fisher's exact test, one-sided). Only trials of the present build of the
//! program and the present version of the allocator count: the quarantine ends when either changes. The
//! operator can end it for crashes up to a time.
//!
//! A death before our constructor ran may be caused by the allocator, or by a user who killed the program
//! in its first milliseconds. Two in a row count as a crash. A single one is ignored for a candidate that has
//! served this build before. For any other candidate it is unexplained: the candidate is not given to the
//! program for a day, and then tried once more.
//!
//! A start that hung ([`crate::hang`]) or took many times what it takes under `system` ([`crate::hang`]) counts
//! as a crash does.
//!
//! Starts that failed count too under settings of a runtime: a program that is out of memory ends with an exit status.
//! Such a status may as well be the answer of a program that is asked something else this time. So the candidate is
//! quarantined when its trials fail significantly more often than trials of `system`, however seldom these
//! do. Trials alone count: they are made in turn with trials of `system`, and production goes on through days
//! on which every start fails.
//!
//! Only the trials are stored. The answer is computed from all of them each time, so a crash under `system`
//! that is recorded later can clear a candidate.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use statrs::stats_tests::{Alternative, fishers_exact};

use crate::candidate::{Candidate, SYSTEM, TrialRecord, in_order_of_time};
use crate::hang::{self, Excess, Hang, Usual};
use crate::sample::{Ended, PageKind, Sample};

/// Level at which a candidate's crash rate counts as higher than the system's.
pub const SIGNIFICANCE: f64 = 0.05;

/// A single unexplained death keeps a candidate away for this time, seconds (a day).
pub const UNEXPLAINED_LASTS_S: f64 = 24.0 * 3600.0;

/// A candidate that is not given to the program, and why.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub struct Quarantine {
    /// Name in the catalogue.
    pub candidate: String,
    /// Time of the first crash that counts, seconds since the epoch.
    pub since_unix_s: f64,
    /// Trial that crashed first.
    pub trial_id: String,
    /// End of the start that caused the quarantine.
    pub ended: Ended,
    /// Hang of the program, where it hung: seconds for which it was seen idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hung: Option<Hang>,
    /// Excess of the program, where it took many times what it takes under `system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excess: Option<Excess>,
    /// End of the quarantine, seconds since the epoch; None: until the program or the allocator changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_unix_s: Option<f64>,
    /// Build of the program that crashed.
    pub build_id: String,
    /// Version of the allocator that it crashed under.
    pub allocator_version: String,
    /// Starts under this candidate, and how many of them crashed.
    pub under_candidate: Crashes,
    /// Starts under `system`, and how many of them crashed.
    pub under_system: Crashes,
    /// Probability of this many crashes if the candidate were no worse than `system`; None when `system` has
    /// never crashed and no test was needed.
    pub p_value: Option<f64>,
}

impl Quarantine {
    /// Whether the first evidence against the candidate was a hang.
    #[must_use]
    pub fn is_hang(&self) -> bool {
        self.hung.is_some() || self.ended == Ended::Hung
    }

    /// Whether the program failed with an exit status.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        let has_status = matches!(self.ended, Ended::Clean { .. } | Ended::Failed { .. });
        has_status && !self.is_hang() && !self.is_excess()
    }

    /// Whether the program took too much.
    #[must_use]
    pub fn is_excess(&self) -> bool {
        self.excess.is_some() || self.ended == Ended::Excess
    }

    /// Verb for the harm under the candidate, such as `hung`.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match (self.is_hang(), self.is_excess()) {
            (true, _) => "hung",
            (_, true) => "took far too much",
            _ if self.is_failure() => "failed",
            _ => "crashed",
        }
    }
}

/// How often a program crashed.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crashes {
    /// Starts that ended in a crash.
    pub crashed: u64,
    /// All starts.
    pub starts: u64,
}

impl Crashes {
    fn of(harms: &[Option<Harm>]) -> Self {
        Self { crashed: harms.iter().flatten().count() as u64, starts: harms.len() as u64 }
    }

    fn survived(self) -> u64 {
        self.starts - self.crashed
    }
}

/// Harm of a start to the program.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Harm {
    Crash,
    Hang(Hang),
    Excess(Excess),
    Unexplained,
    /// An end that may as well be the answer of a program that is asked something else this time: a kill at the limit of
    /// its memory and, under settings of a runtime, a failing exit status. It counts where it is significantly more
    /// frequent than under `system`.
    Failure,
}

/// Quarantined candidates, in the order of `candidates`. `build_id` is the program's present build;
/// `unblocked_at` gives by candidate the time (seconds since the epoch) up to which the operator has cleared
/// crashes.
pub fn quarantined(
    records: &[TrialRecord],
    candidates: &[Candidate],
    build_id: &str,
    unblocked_at: &BTreeMap<String, f64>,
    now_unix_s: f64,
) -> Vec<Quarantine> {
    let ordered = in_order_of_time(records);
    let of_build: Vec<&TrialRecord> = ordered.into_iter().filter(|r| r.is_of_build(build_id)).collect();
    let under_system: Vec<_> = of_build.iter().copied().filter(|r| r.sample.candidate == SYSTEM).collect();
    let system = Crashes::of(&harms(&under_system, &Reference::default()));
    let system_failed = Crashes::of(&failures(&trials(&under_system)));
    let reference = Reference::of(&under_system);
    let judge_one = |candidate: &Candidate| {
        let after_s = unblocked_at.get(&candidate.name).copied().unwrap_or(f64::NEG_INFINITY);
        let starts = starts_under(&of_build, candidate, after_s);
        let trials = trials(&starts);
        let failed = || judge(&trials, &failures(&trials), system_failed, now_unix_s);
        let harmed = judge(&starts, &harms(&starts, &reference), system, now_unix_s);
        harmed.or_else(|| candidate.of_runtime.then(failed).flatten())
    };
    candidates.iter().filter(|c| !c.is_system()).filter_map(judge_one).collect()
}

/// The starts that crashed or hung and count against their candidate, as [`quarantined`]: index of the
/// candidate and name of the start. An unexplained death is none.
pub(crate) fn crashed_starts(
    records: &[TrialRecord],
    candidates: &[Candidate],
    build_id: &str,
    unblocked_at: &BTreeMap<String, f64>,
    now_unix_s: f64,
) -> Vec<(usize, String)> {
    let blamed = quarantined(records, candidates, build_id, unblocked_at, now_unix_s);
    let is_blamed = |candidate: &Candidate| blamed.iter().any(|q| q.candidate == candidate.name);
    let ordered = in_order_of_time(records);
    let of_build: Vec<&TrialRecord> = ordered.into_iter().filter(|r| r.is_of_build(build_id)).collect();
    let under_system: Vec<_> = of_build.iter().copied().filter(|r| r.sample.candidate == SYSTEM).collect();
    let reference = Reference::of(&under_system);
    let mut crashed = vec![];
    for (at, candidate) in candidates.iter().enumerate().filter(|(_, candidate)| is_blamed(candidate)) {
        let after_s = unblocked_at.get(&candidate.name).copied().unwrap_or(f64::NEG_INFINITY);
        let starts = starts_under(&of_build, candidate, after_s);
        for (start, harm) in starts.iter().zip(harms(&starts, &reference)) {
            if harm.is_some_and(|harm| harm != Harm::Unexplained) {
                crashed.push((at, start.sample.trial_id.clone()));
            }
        }
    }
    crashed
}

/// Starts that count for `candidate`. Where the injected code did nothing, the candidate did not serve.
fn starts_under<'a>(
    records: &[&'a TrialRecord],
    candidate: &Candidate,
    after_s: f64,
) -> Vec<&'a TrialRecord> {
    let speaks = |record: &&&TrialRecord| {
        let sample = &record.sample;
        sample.candidate == candidate.name
            && sample.pass_reason.is_none()
            && sample.made_unix_s > after_s
            && record.is_of_version(&candidate.version)
    };
    records.iter().filter(speaks).copied().collect()
}

/// Behaviour of the program under `system`; by default, nothing is known of it.
#[derive(Default)]
struct Reference<'a> {
    usual: Option<Usual>,
    starts: Vec<&'a Sample>,
}

impl<'a> Reference<'a> {
    fn of(under_system: &[&'a TrialRecord]) -> Self {
        let starts: Vec<&Sample> = under_system.iter().map(|record| &record.sample).collect();
        Self { usual: Usual::of(starts.iter().copied()), starts }
    }
}

/// Harm that each start did, None where it did none. The starts are all of one candidate and in order of
/// time.
fn harms(starts: &[&TrialRecord], reference: &Reference<'_>) -> Vec<Option<Harm>> {
    (0..starts.len()).map(|at| harm(starts, at, reference)).collect()
}

fn trials<'a>(starts: &[&'a TrialRecord]) -> Vec<&'a TrialRecord> {
    starts.iter().copied().filter(|start| start.sample.kind == PageKind::Trial).collect()
}

/// [`Harm::Failure`] for each start that failed, None for the others.
fn failures(starts: &[&TrialRecord]) -> Vec<Option<Harm>> {
    starts.iter().map(|start| start.sample.ended.is_failure().then_some(Harm::Failure)).collect()
}

fn harm(starts: &[&TrialRecord], at: usize, reference: &Reference<'_>) -> Option<Harm> {
    let sample = &starts[at].sample;
    if let Some(hang) = reference.usual.and_then(|usual| hang::hung(sample, &usual)) {
        return Some(Harm::Hang(hang));
    }
    if let Some(excess) = hang::exceeded(sample, reference.starts.iter().copied()) {
        return Some(Harm::Excess(excess));
    }
    match sample.ended {
        Ended::NeverEntered => never_entered(starts, at),
        // It may be the program's own: it leaks, or is asked for more than usual.
        Ended::OutOfMemory => Some(Harm::Failure),
        ended => ended.is_crash().then_some(Harm::Crash),
    }
}

fn never_entered(starts: &[&TrialRecord], at: usize) -> Option<Harm> {
    let is_one = |start: &TrialRecord| start.sample.ended == Ended::NeverEntered;
    let beside = |other: Option<usize>| other.and_then(|i| starts.get(i)).is_some_and(|start| is_one(start));
    let has_served = starts[..at].iter().any(|start| !is_one(start));
    match beside(at.checked_sub(1)) || beside(at.checked_add(1)) {
        true => Some(Harm::Crash),
        false => (!has_served).then_some(Harm::Unexplained),
    }
}

fn judge(
    starts: &[&TrialRecord],
    harms: &[Option<Harm>],
    under_system: Crashes,
    now_unix_s: f64,
) -> Option<Quarantine> {
    let at = harms.iter().position(Option::is_some)?;
    let (first, harm) = (starts[at], harms[at]);
    let unexplained = harms.iter().flatten().all(|harm| *harm == Harm::Unexplained);
    let until_unix_s = unexplained.then_some(first.sample.made_unix_s + UNEXPLAINED_LASTS_S);
    let under_candidate = Crashes::of(harms);
    let are_failures = harms.iter().flatten().all(|harm| *harm == Harm::Failure);
    let is_tested = under_system.crashed > 0 || are_failures;
    let p_value = is_tested.then(|| p_value(under_candidate, under_system));
    if p_value.is_some_and(|p| p >= SIGNIFICANCE) || until_unix_s.is_some_and(|until| now_unix_s >= until) {
        return None;
    }
    Some(Quarantine {
        candidate: first.sample.candidate.clone(),
        since_unix_s: first.sample.made_unix_s,
        trial_id: first.sample.trial_id.clone(),
        ended: first.sample.ended,
        hung: if let Some(Harm::Hang(hang)) = harm { Some(hang) } else { None },
        excess: if let Some(Harm::Excess(excess)) = harm { Some(excess) } else { None },
        until_unix_s,
        build_id: first.build_id.clone(),
        allocator_version: first.allocator_version.clone(),
        under_candidate,
        under_system,
        p_value,
    })
}

/// Fisher's exact test, one-sided. A table that the test refuses (it cannot be: every row counts starts)
/// is taken as no evidence for the candidate, that is as significant.
fn p_value(candidate: Crashes, system: Crashes) -> f64 {
    let table = [candidate.crashed, candidate.survived(), system.crashed, system.survived()];
    fishers_exact(&table, Alternative::Greater).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: f64 = 100.0;
    const SEGV: Ended = Ended::Signal { signal: 11 };
    const CLEAN: Ended = Ended::Clean { status: Some(0) };

    fn record(time_s: f64, candidate: &str, ended: Ended) -> TrialRecord {
        TrialRecord {
            sample: Sample {
                trial_id: format!("t{time_s}"),
                candidate: candidate.into(),
                made_unix_s: time_s,
                ended,
                ..Sample::default()
            },
            build_id: "b1".into(),
            allocator_version: "1".into(),
            retest_s: None,
        }
    }

    fn catalogue() -> Vec<Candidate> {
        vec![
            Candidate::system("2.36"),
            Candidate::new("jemalloc", "1", &["jemalloc"]),
            Candidate::new("hoard", "1", &["hoard"]),
        ]
    }

    fn judged(records: &[TrialRecord]) -> Vec<String> {
        judged_with(records, "b1", &BTreeMap::new())
    }

    fn judged_with(
        records: &[TrialRecord],
        build_id: &str,
        unblocked: &BTreeMap<String, f64>,
    ) -> Vec<String> {
        quarantined(records, &catalogue(), build_id, unblocked, NOW_S)
            .into_iter()
            .map(|q| q.candidate)
            .collect()
    }

    #[test]
    fn one_crash_is_enough_when_system_never_crashed() {
        let records =
            [record(1.0, SYSTEM, CLEAN), record(2.0, "jemalloc", SEGV), record(3.0, "hoard", CLEAN)];
        assert_eq!(judged(&records), ["jemalloc"]);
        let q = &quarantined(&records, &catalogue(), "b1", &BTreeMap::new(), NOW_S)[0];
        assert_eq!((q.since_unix_s, q.trial_id.as_str(), q.ended), (2.0, "t2", SEGV));
        assert_eq!(q.under_candidate, Crashes { crashed: 1, starts: 1 });
        assert_eq!(q.p_value, None);
    }

    #[test]
    fn a_crash_counts_before_system_was_ever_tried() {
        assert_eq!(judged(&[record(1.0, "hoard", Ended::NeverEntered)]), ["hoard"]);
    }

    #[test]
    fn one_death_before_entry_is_neutral_once_the_candidate_has_served() {
        let never = Ended::NeverEntered;
        let mut records = vec![record(1.0, "hoard", CLEAN), record(2.0, "hoard", never)];
        assert!(judged(&records).is_empty());
        records.push(record(3.0, "hoard", CLEAN));
        records.push(record(4.0, "hoard", never));
        assert!(judged(&records).is_empty(), "not in a row");
        records.push(record(5.0, "hoard", never));
        assert_eq!(judged(&records), ["hoard"]);
    }

    #[test]
    fn an_unexplained_death_in_the_first_trial_keeps_the_candidate_away_for_a_day() {
        let never = Ended::NeverEntered;
        let at = |records: &[TrialRecord], now_s| {
            let found = quarantined(records, &catalogue(), "b1", &BTreeMap::new(), now_s);
            found.first().map(|quarantine| quarantine.until_unix_s)
        };
        let mut records = vec![record(1.0, "hoard", never)];
        assert_eq!(at(&records, 2.0), Some(Some(1.0 + UNEXPLAINED_LASTS_S)));
        assert_eq!(at(&records, 1.0 + UNEXPLAINED_LASTS_S), None, "once more");
        records.push(record(90_000.0, "hoard", never));
        assert_eq!(at(&records, 1e9), Some(None), "twice in a row is a crash, for good");
        records[1].sample.ended = CLEAN;
        assert_eq!(at(&records, 1e9), None, "it serves: the first was killed by a user");
        records[1].sample.ended = SEGV;
        assert_eq!(at(&records, 1e9), Some(None));
    }

    #[test]
    fn a_start_that_hung_counts_as_a_crash() {
        let usage = crate::sample::Usage { user_s: 0.5, ..Default::default() };
        let mut records = vec![
            record(1.0, SYSTEM, CLEAN),
            record(2.0, SYSTEM, CLEAN),
            record(3.0, "hoard", Ended::Unknown),
        ];
        for start in &mut records[..2] {
            (start.sample.usage, start.sample.wall_s) = (Some(usage.clone()), 1.0);
        }
        assert!(judged(&records).is_empty(), "killed without an observation");
        let seen = hang::ProcessActivity { lived_s: 65.0, still_s: 60.0, locked: true, ..Default::default() };
        records[2].sample.activity = Some(seen);
        assert_eq!(judged(&records), ["hoard"]);
        let q = &quarantined(&records, &catalogue(), "b1", &BTreeMap::new(), NOW_S)[0];
        assert_eq!(q.hung, Some(Hang { still_s: 60.0, longest_s: 1.0 }));
        assert_eq!(q.under_candidate, Crashes { crashed: 1, starts: 1 });
        records[1].sample.wall_s = 7.0;
        assert!(judged(&records).is_empty(), "under system it may live as long");
        records[2].sample.ended = Ended::Hung;
        assert_eq!(judged(&records), ["hoard"], "imas bench saw it");
    }

    #[test]
    fn a_start_that_took_far_too_much_counts_as_a_crash() {
        let took = |time_s, candidate, call_ms: f64| {
            let mut start = record(time_s, candidate, CLEAN);
            start.sample.malloc = crate::sample::OpFigures {
                calls: 60,
                sampled: 60,
                mean_ns: call_ms * 1e6,
                ..Default::default()
            };
            start
        };
        let mut records = vec![took(1.0, SYSTEM, 0.1), took(2.0, "hoard", 50.0)];
        assert!(judged(&records).is_empty(), "one start under system says little");
        records.push(took(3.0, SYSTEM, 0.1));
        assert_eq!(judged(&records), ["hoard"]);
        let q = &quarantined(&records, &catalogue(), "b1", &BTreeMap::new(), NOW_S)[0];
        assert!(matches!(q.excess, Some(Excess::Time { .. })) && q.hung.is_none(), "{q:?}");
        assert_eq!(q.verb(), "took far too much");
        records[1].sample.malloc.mean_ns = 1e6;
        assert!(judged(&records).is_empty(), "60 ms hurt nobody");
        records[1].sample.ended = Ended::Excess;
        assert_eq!(judged(&records), ["hoard"], "imas bench ended it");
    }

    #[test]
    fn ends_that_are_not_crashes_do_not_quarantine() {
        let by_watchdog = Ended::Killed { signal: 6 };
        let failed = Ended::Clean { status: Some(3) };
        for ended in [CLEAN, Ended::Unknown, Ended::Signal { signal: 8 }, failed, by_watchdog] {
            assert!(judged(&[record(1.0, "hoard", ended)]).is_empty(), "{ended:?}");
        }
    }

    #[test]
    fn settings_of_a_runtime_under_which_starts_fail_more_often_are_not_used() {
        const FAILED: Ended = Ended::Clean { status: Some(1) };
        let serial = Candidate { of_runtime: true, ..Candidate::new("jvm:serial", "", &[]) };
        let candidates = [Candidate::system(""), serial, Candidate::new("hoard", "1", &["hoard"])];
        let at = |records: &[TrialRecord]| {
            quarantined(records, &candidates, "b1", &BTreeMap::new(), NOW_S).first().cloned()
        };
        let mut records: Vec<_> = (0..6).map(|t| record(f64::from(t), SYSTEM, CLEAN)).collect();
        records.extend([record(10.0, "hoard", FAILED), record(11.0, "hoard", FAILED)]);
        records.push(record(12.0, "jvm:serial", FAILED));
        assert_eq!(at(&records), None, "it may have been asked something else: p = 1/7");
        let mut flight = record(13.0, "jvm:serial", FAILED);
        flight.sample.kind = PageKind::Flight;
        records.extend([flight.clone(), flight]);
        assert_eq!(at(&records), None, "production may fail all day, and under system would too");
        records.push(record(14.0, "jvm:serial", FAILED));
        let found = at(&records).unwrap(); // p = C(2,2)/C(8,2) = 1/28
        assert_eq!((found.verb(), found.since_unix_s, found.ended), ("failed", 12.0, FAILED));
        assert_eq!(found.under_candidate, Crashes { crashed: 2, starts: 2 });
        assert!((found.p_value.unwrap() - 1.0 / 28.0).abs() < 1e-12, "{:?}", found.p_value);
        records[0].sample.ended = FAILED;
        assert_eq!(at(&records), None, "it fails by itself too");
        records.truncate(6);
        records.push(record(12.0, "hoard", Ended::OutOfMemory));
        assert_eq!(at(&records), None, "killed at its limit once: the program may leak");
        records.push(record(13.0, "hoard", Ended::OutOfMemory));
        let found = at(&records).unwrap();
        assert_eq!((found.candidate.as_str(), found.ended), ("hoard", Ended::OutOfMemory));
        records.truncate(6);
        records.push(record(12.0, "jvm:serial", FAILED));
        records[6].sample.ended = Ended::Failed { status: 3 };
        let found = at(&records).unwrap();
        assert_eq!((found.verb(), found.p_value), ("failed", None), "imas bench ran the same command");
    }

    #[test]
    fn system_is_never_quarantined() {
        assert!(judged(&[record(1.0, SYSTEM, SEGV)]).is_empty());
        // It is not, even where its present version crashes far more often than the former did.
        let former = |t| TrialRecord { allocator_version: "2.31".into(), ..record(t, SYSTEM, CLEAN) };
        let present = |t| TrialRecord { allocator_version: "2.36".into(), ..record(t, SYSTEM, SEGV) };
        let records: Vec<_> = (0..9).map(f64::from).flat_map(|t| [former(t), present(t + 0.5)]).collect();
        assert!(judged(&records).is_empty());
    }

    #[test]
    fn a_program_that_crashes_anyway_needs_a_significant_difference() {
        let mut records = vec![record(1.0, SYSTEM, SEGV)];
        records.extend((2..11).map(|t| record(f64::from(t), SYSTEM, CLEAN)));
        // 1 of 10 under system. One of one under jemalloc: p = 2/11 = 0.18.
        records.push(record(20.0, "jemalloc", SEGV));
        assert!(judged(&records).is_empty());
        // Two of two: p = C(3,2)/C(12,2) = 3/66 = 0.045.
        records.push(record(21.0, "jemalloc", SEGV));
        assert_eq!(judged(&records), ["jemalloc"]);
        let q = &quarantined(&records, &catalogue(), "b1", &BTreeMap::new(), NOW_S)[0];
        assert!((q.p_value.unwrap() - 3.0 / 66.0).abs() < 1e-12, "{:?}", q.p_value);
        assert_eq!(q.under_system, Crashes { crashed: 1, starts: 10 });
        // Survivals under jemalloc clear it again.
        records.extend((30..40).map(|t| record(f64::from(t), "jemalloc", CLEAN)));
        assert!(judged(&records).is_empty());
    }

    #[test]
    fn a_crash_of_system_in_another_build_does_not_count() {
        let mut old = record(1.0, SYSTEM, SEGV);
        old.build_id = "b0".into();
        assert_eq!(judged(&[old, record(2.0, "hoard", SEGV)]), ["hoard"]);
    }

    #[test]
    fn a_new_build_or_version_ends_a_quarantine() {
        let records = [record(1.0, "hoard", SEGV)];
        assert!(judged_with(&records, "b2", &BTreeMap::new()).is_empty());
        let mut newer = catalogue();
        newer[2].version = "2".into();
        assert!(quarantined(&records, &newer, "b1", &BTreeMap::new(), NOW_S).is_empty());
        newer[2].version = String::new();
        assert_eq!(
            quarantined(&records, &newer, "b1", &BTreeMap::new(), NOW_S).len(),
            1,
            "unknown is not newer"
        );
    }

    #[test]
    fn unblock_holds_until_the_next_crash() {
        let unblocked = BTreeMap::from([("hoard".to_owned(), 5.0)]);
        let mut records = vec![record(1.0, "hoard", SEGV), record(5.0, "hoard", SEGV)];
        assert!(judged_with(&records, "b1", &unblocked).is_empty());
        records.push(record(6.0, "hoard", SEGV));
        assert_eq!(judged_with(&records, "b1", &unblocked), ["hoard"]);
    }

    #[test]
    fn a_crash_after_standing_aside_is_not_the_candidates() {
        let mut passed = record(1.0, "hoard", SEGV);
        passed.sample.pass_reason = Some("own-malloc".into());
        assert!(judged(&[passed]).is_empty());
    }
}
