// SPDX-License-Identifier: Apache-2.0
//! From trials to decisions: what a program is started under, and why.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use imas_core::candidate::NotCounted;
use imas_core::paper::Limits;
use imas_core::profile::IneligibleCause;
use imas_core::sample::{Ended, MemoryFigures, OpFigures, PageKind, Sample};
use imas_core::{Candidate, Conditions, Decision, History, Policy, ProfileView, Reason, TrialRecord, decide};

const IDLE: Conditions = Conditions::new(0.0, 4, 1 << 40);
const BUSY: Conditions = Conditions { load5: 3.0, ..IDLE };
const FULL: Conditions = Conditions { mem_available_bytes: 10, ..IDLE };

/// A program's past and the operator's overrides.
struct Program {
    records: Vec<TrialRecord>,
    candidates: Vec<Candidate>,
    pinned: Option<&'static str>,
    excluded: bool,
    unblocked_at: BTreeMap<String, f64>,
    build_id: &'static str,
    now_unix_s: f64,
}

impl Program {
    fn new() -> Self {
        let other = |name| Candidate::new(name, "1", &[name]);
        Self {
            records: vec![],
            candidates: vec![Candidate::system("2.36"), other("hoard"), other("jemalloc")],
            pinned: None,
            excluded: false,
            unblocked_at: BTreeMap::new(),
            build_id: "b1",
            now_unix_s: 10_000.0,
        }
    }

    /// All tests done. system: 30 ns, 30 %; hoard: 20 ns, 10 %; jemalloc: 10 ns, 20 %. Ranks: 1 + 1, 2 + 3, 3
    /// + 2: a tie that hoard's memory rank decides.
    fn settled() -> Self {
        let mut program = Self::new();
        for (name, ns, live) in [("system", 30.0, 700), ("hoard", 20.0, 900), ("jemalloc", 10.0, 800)] {
            (0..5).for_each(|_| program.trial(name, ns, live));
        }
        program
    }

    fn trial(&mut self, candidate: &str, ns_per_op: f64, live: u64) {
        let time_s = self.records.len() as f64;
        self.records.push(TrialRecord {
            sample: Sample {
                trial_id: format!("t{time_s}"),
                candidate: candidate.into(),
                served: candidate.into(),
                made_unix_s: time_s,
                ended: Ended::Clean { status: Some(0) },
                malloc: OpFigures { calls: 9, sampled: 1, mean_ns: 4.0 * ns_per_op, ..OpFigures::default() },
                memory: MemoryFigures {
                    snapshots: 1,
                    heap_mean: 1000,
                    live_mean: live,
                    ..MemoryFigures::default()
                },
                ..Sample::default()
            },
            build_id: "b1".into(),
            allocator_version: if candidate == "system" { "2.36" } else { "1" }.into(),
            retest_s: None,
        });
    }

    fn crash(&mut self, candidate: &str) {
        self.trial(candidate, 1.0, 1);
        self.last().ended = Ended::Signal { signal: 11 };
    }

    fn last(&mut self) -> &mut Sample {
        &mut self.records.last_mut().unwrap().sample
    }

    fn view(&self) -> ProfileView {
        let history = History {
            build_id: self.build_id,
            pinned: self.pinned,
            excluded: self.excluded,
            unblocked_at: &self.unblocked_at,
            limits: Limits { max_tests: 5, retest_s: 0.0 },
            now_unix_s: self.now_unix_s,
            ..History::of(&self.records, &self.candidates)
        };
        ProfileView::under(&history, &Policy::Paper)
    }

    fn decision(&self, conditions: Conditions) -> Decision {
        decide(&self.view(), &conditions)
    }

    #[track_caller]
    fn decides(&self, conditions: Conditions, candidate: &str, reason: Reason) {
        let decision = self.decision(conditions);
        assert_eq!((decision.candidate.as_str(), decision.reason), (candidate, reason));
        assert_eq!(decision.trial, reason == Reason::TrialDue);
    }
}

#[test]
fn conditions_choose_among_the_picks() {
    let program = Program::settled();
    program.decides(IDLE, "hoard", Reason::Balanced);
    program.decides(BUSY, "jemalloc", Reason::FastestCpuShort);
    program.decides(FULL, "hoard", Reason::LeanestMemoryShort);
    program.decides(Conditions { load5: 3.0, ..FULL }, "hoard", Reason::Balanced);
}

/// A candidate that left the set is tested no more. With all its tests it is picked as before, with fewer it
/// is not.
#[test]
fn a_candidate_that_left_the_set_counts_if_it_had_all_its_tests() {
    let mut program = Program::settled();
    program.candidates[1].tested = false;
    program.decides(IDLE, "hoard", Reason::Balanced);
    assert!(
        program.decision(IDLE).text().contains("hoard: is no longer in the set"),
        "{:?}",
        program.decision(IDLE)
    );
    program.candidates.push(Candidate::new("tcmalloc", "1", &["tcmalloc"]));
    program.decides(IDLE, "tcmalloc", Reason::TrialDue);

    let mut program = Program::new();
    program.candidates[1].tested = false;
    program.trial("hoard", 1.0, 999);
    for _ in 0..5 {
        program.trial("system", 30.0, 700);
        assert_ne!(program.decision(IDLE).candidate, "hoard");
        program.trial("jemalloc", 10.0, 800);
    }
    program.decides(IDLE, "jemalloc", Reason::Balanced);
}

#[test]
fn tests_go_round_until_all_are_done() {
    let mut program = Program::new();
    program.decides(IDLE, "system", Reason::TrialDue);
    for round in 0..5 {
        for name in ["system", "hoard", "jemalloc"] {
            program.decides(IDLE, name, Reason::TrialDue);
            let evidence = program.decision(IDLE).evidence;
            assert_eq!(evidence[0].value, format!("{round} of 5"));
            program.trial(name, 10.0, 500);
        }
    }
    program.decides(IDLE, "system", Reason::Balanced);
}

#[test]
fn a_pin_stands_above_an_exclusion_above_everything() {
    let mut program = Program::settled();
    program.excluded = true;
    program.decides(BUSY, "system", Reason::Excluded);
    program.pinned = Some("jemalloc");
    program.decides(IDLE, "jemalloc", Reason::Pinned);
    program.pinned = Some("system");
    program.decides(IDLE, "system", Reason::Pinned);
}

#[test]
fn a_pin_that_cannot_be_honoured_is_reported() {
    let mut program = Program::settled();
    program.pinned = Some("scudo");
    program.decides(IDLE, "system", Reason::PinnedUnavailable);
    program.pinned = Some("hoard");
    program.candidates[1].available = false;
    program.decides(IDLE, "system", Reason::PinnedUnavailable);
    program.candidates[1].available = true;
    program.crash("hoard");
    program.decides(IDLE, "system", Reason::PinnedQuarantined);
    let text = program.decision(IDLE).text();
    assert!(text.contains("crashed 1 of 6 starts, first by signal 11 in trial t15"), "{text}");
}

#[test]
fn a_quarantined_pick_gives_way_to_the_next() {
    let mut program = Program::settled();
    program.crash("hoard");
    program.decides(IDLE, "jemalloc", Reason::Quarantined);
    program.decides(BUSY, "jemalloc", Reason::FastestCpuShort);
    let text = program.decision(IDLE).text();
    assert!(text.contains("hoard: crashed 1 of 6 starts"), "{text}");
    program.crash("jemalloc");
    program.decides(IDLE, "system", Reason::Quarantined);
    program.unblocked_at.insert("hoard".into(), 15.0);
    program.decides(IDLE, "hoard", Reason::Balanced);
}

#[test]
fn a_pick_that_is_gone_gives_way_to_the_next() {
    let mut program = Program::settled();
    program.candidates[1].available = false;
    program.decides(IDLE, "jemalloc", Reason::PickUnavailable);
}

#[test]
fn a_quarantined_candidate_is_not_tested() {
    let mut program = Program::new();
    program.trial("system", 10.0, 500);
    program.crash("hoard");
    program.decides(IDLE, "jemalloc", Reason::TrialDue);
    program.trial("jemalloc", 10.0, 500);
    program.decides(IDLE, "system", Reason::TrialDue);
}

#[test]
fn a_program_that_crashes_under_everything_ends_its_tests() {
    let mut program = Program::new();
    for _ in 0..5 {
        ["system", "hoard", "jemalloc"].into_iter().for_each(|name| program.crash(name));
    }
    program.decides(IDLE, "system", Reason::NoData);
}

#[test]
fn a_program_with_its_own_malloc_is_left_alone_for_a_week() {
    let mut program = Program::new();
    program.trial("system", 10.0, 500);
    program.last().pass_reason = Some("own-malloc".into());
    program.decides(IDLE, "system", Reason::OwnMalloc);
    assert_eq!(program.view().ineligible, Some(IneligibleCause::OwnMalloc));
    program.last().pass_reason = Some("allocator-interface".into());
    program.decides(IDLE, "system", Reason::AllocatorInterface);
    program.last().pass_reason = Some("sanitizer".into());
    program.decides(IDLE, "system", Reason::Sanitizer);
    program.now_unix_s = 7.0 * 24.0 * 3600.0;
    program.decides(IDLE, "hoard", Reason::TrialDue);
}

#[test]
fn a_temporary_reason_to_pass_does_not_make_a_program_ineligible() {
    let mut program = Program::new();
    program.trial("system", 10.0, 500);
    program.last().pass_reason = Some("valgrind".into());
    program.decides(IDLE, "hoard", Reason::TrialDue);
    let view = program.view();
    assert_eq!(view.candidates[0].left_out[0].why, NotCounted::Passed("valgrind".into()));
    assert_eq!(view.candidates[0].summary.void, 0);
}

#[test]
fn a_program_whose_trial_a_filter_ended_is_never_tried_again() {
    let mut program = Program::new();
    program.trial("hoard", 10.0, 500);
    program.last().pass_reason = Some("own-filter".into());
    program.trial("system", 10.0, 500);
    program.decides(IDLE, "system", Reason::OwnFilter);
    program.now_unix_s = 365.0 * 24.0 * 3600.0;
    program.decides(IDLE, "system", Reason::OwnFilter);
}

/// Under a seccomp filter a trial gives no figures.
#[test]
fn a_program_whose_trials_all_stand_aside_is_left_alone_for_a_day() {
    let mut program = Program::new();
    for (name, reason) in [("system", "seccomp"), ("hoard", "seccomp"), ("hoard", "rlimit-as")] {
        assert_eq!(program.view().ineligible, None);
        program.trial(name, 10.0, 500);
        program.last().pass_reason = Some(reason.into());
    }
    program.decides(IDLE, "system", Reason::StoodAside);
    program.now_unix_s = program.last().made_unix_s + 24.0 * 3600.0;
    assert_eq!(program.view().ineligible, None);
    program.trial("hoard", 10.0, 500);
    assert_eq!(program.view().ineligible, None, "the newest counts");
}

#[test]
fn a_new_build_of_the_program_starts_over() {
    let mut program = Program::settled();
    program.crash("hoard");
    program.build_id = "b2";
    program.decides(IDLE, "system", Reason::TrialDue);
    assert!(program.view().candidates[1].quarantine.is_none());
}

#[test]
fn a_new_version_of_an_allocator_is_tested_anew() {
    let mut program = Program::settled();
    program.candidates[1].version = "2".into();
    program.decides(IDLE, "hoard", Reason::TrialDue);
}

#[test]
fn production_starts_are_not_counted_but_their_crashes_are() {
    let mut program = Program::settled();
    program.trial("hoard", 1.0, 1);
    program.last().kind = PageKind::Flight;
    let view = program.view();
    assert_eq!(view.candidates[1].summary.count, 5);
    assert!(view.candidates[1].left_out.is_empty());
    program.last().ended = Ended::Signal { signal: 11 };
    assert!(program.view().candidates[1].quarantine.is_some(), "but a crash in production is one");
    program.decides(IDLE, "jemalloc", Reason::Quarantined);
}

#[test]
fn a_production_start_takes_no_turn_in_the_round_of_tests() {
    let mut program = Program::new();
    program.trial("system", 10.0, 500);
    program.trial("hoard", 1.0, 1);
    program.last().kind = PageKind::Flight;
    program.decides(IDLE, "hoard", Reason::TrialDue);
}

#[test]
fn a_candidate_that_left_the_catalogue_is_no_error() {
    let mut program = Program::settled();
    program.candidates.truncate(2);
    program.decides(BUSY, "hoard", Reason::FastestCpuShort);
    program.candidates.clear();
    program.decides(IDLE, "system", Reason::NoCandidate);
}

#[test]
fn nothing_measured_and_nothing_to_measure() {
    let mut program = Program::new();
    program.candidates.iter_mut().for_each(|candidate| candidate.available = false);
    program.decides(IDLE, "system", Reason::NoCandidate);
}

#[test]
fn a_decision_reads_as_a_sentence() {
    let text = Program::settled().decision(BUSY).text();
    let expected = "CPU is short and memory suffices, so the fastest candidate is used. (CPU load: 75 %; memory \
        available: 1048576.0 MiB; mean heap of the fastest: 0.0 MiB; mean heap of the leanest: 0.0 MiB; jemalloc: 10.0 \
        ns per operation, 20.0 % fragmentation, 0.0 MiB heap over 5 tests)";
    assert_eq!(text, expected);
}

#[test]
fn a_decision_survives_the_store() {
    let decision = Program::settled().decision(IDLE);
    let text = serde_json::to_string(&decision).unwrap();
    assert!(text.contains(r#""reason":"balanced""#), "{text}");
    assert_eq!(serde_json::from_str::<Decision>(&text).unwrap(), decision);
}
