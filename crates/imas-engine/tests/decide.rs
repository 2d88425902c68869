// SPDX-License-Identifier: Apache-2.0
//! The next start: every state of a program, with everything that its executable lets be given to it, under
//! both policies and on three machines.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::Settings;
use imas_core::decision::RestsOn;
use imas_core::paper::Limits;
use imas_core::sample::{Ended, MemoryFigures, OpFigures, Sample, Usage};
use imas_core::{Candidate, Conditions, History, Policy, ProfileView, Reason, SYSTEM, TrialRecord};
use imas_engine::decide::{Giving, NextStart, Starter, decide};
use imas_engine::inspect::ExecutableFacts;
use imas_linux::runtime::{FoundRuntime, Runtime, RuntimeEntry};

const IDLE: Conditions = Conditions::new(0.0, 4, 1 << 40);
const BUSY: Conditions = Conditions { load5: 4.0, cpu_some_pct: Some(90.0), ..IDLE };
const FULL: Conditions = Conditions { mem_available_bytes: 10, mem_total_bytes: Some(1 << 40), ..IDLE };
const MACHINES: [Conditions; 3] = [IDLE, BUSY, FULL];
const PAPER: Policy = Policy::Paper;

/// A program: its trials, and what a person said about it.
#[derive(Clone, Default)]
struct Program {
    records: Vec<TrialRecord>,
    pinned: Option<&'static str>,
    excluded: bool,
}

impl Program {
    /// `lean` takes 20 % less memory than `system`, proven, and half of the time in malloc; all tests of both policies are
    /// done.
    fn settled() -> Self {
        let mut program = Self::default();
        for _ in 0..12 {
            program.trial("lean", 80);
            program.trial(SYSTEM, 100);
        }
        program
    }

    fn trial(&mut self, candidate: &str, mebibytes: u64) -> &mut Sample {
        let n = self.records.len();
        let bytes = (mebibytes << 20) + 1024 * u64::try_from(n % 5).unwrap();
        let memory = MemoryFigures {
            snapshots: 1,
            resident_over_time: bytes,
            heap_mean: bytes,
            live_mean: if candidate == SYSTEM { bytes / 2 } else { bytes / 10 * 9 },
            ..MemoryFigures::default()
        };
        let sample = Sample {
            trial_id: format!("t{n}"),
            candidate: candidate.to_owned(),
            served: candidate.to_owned(),
            made_unix_s: 1e9 + 60.0 * f64::from(u32::try_from(n).unwrap()),
            ended: Ended::Clean { status: Some(0) },
            malloc: OpFigures {
                calls: 1000,
                sampled: 9,
                mean_ns: if candidate == SYSTEM { 20.0 } else { 10.0 },
                ..OpFigures::default()
            },
            usage: Some(Usage {
                user_s: 1.0 + 0.001 * f64::from(u8::try_from(n % 5).unwrap()),
                ..Usage::default()
            }),
            memory,
            ..Sample::default()
        };
        let record = TrialRecord {
            sample,
            build_id: "b".to_owned(),
            allocator_version: "1".to_owned(),
            retest_s: Some(0.0),
        };
        self.records.push(record);
        &mut self.records.last_mut().unwrap().sample
    }

    fn crashed() -> Self {
        let mut program = Self::settled();
        program.trial("lean", 80).ended = Ended::Signal { signal: 11 };
        program
    }

    fn with_own_malloc() -> Self {
        let mut program = Self::default();
        program.trial("lean", 80).pass_reason = Some("own-malloc".to_owned());
        program
    }

    fn profile(&self, policy: &Policy) -> ProfileView {
        let candidates = [Candidate::system("1"), Candidate::new("lean", "1", &["lean"])];
        let history = History {
            build_id: "b",
            pinned: self.pinned,
            excluded: self.excluded,
            limits: Limits { max_tests: 5, retest_s: 3600.0 },
            now_unix_s: 1e9 + 60.0 * 30.0,
            ..History::of(&self.records, &candidates)
        };
        ProfileView::under(&history, policy)
    }
}

fn facts(unfit: Option<&str>) -> ExecutableFacts {
    ExecutableFacts {
        unfit: unfit.map(str::to_owned),
        build_id: "b".to_owned(),
        defines: vec![],
        runtimes: vec![],
        fits_musl: false,
        execs_itself: false,
    }
}

fn of_go() -> ExecutableFacts {
    let found = FoundRuntime {
        runtime: Runtime::Go,
        version: Some("1.22".to_owned()),
        by: "its build".to_owned(),
        entry: RuntimeEntry::Own,
    };
    ExecutableFacts { runtimes: vec![found], ..facts(Some("it is static")) }
}

fn of_musl() -> ExecutableFacts {
    ExecutableFacts { fits_musl: true, ..facts(Some("it is of musl")) }
}

fn outside(no_trials: Option<&str>) -> Giving {
    Giving::Outside { unfit: "it is static".to_owned(), no_trials: no_trials.map(str::to_owned) }
}

fn nothing() -> Giving {
    Giving::Nothing { why: "it is static".to_owned() }
}

/// Candidate, whether it is a trial, reason, and whether that is settled.
fn answer(next: &NextStart) -> (&str, bool, Reason, bool) {
    (&next.decision.candidate, next.decision.trial, next.decision.reason, next.is_settled)
}

#[test]
fn every_state_of_a_program_has_its_answer() {
    let pinned = |to| Program { pinned: Some(to), ..Program::settled() };
    let excluded = Program { excluded: true, ..Program::settled() };
    let pinned_crashed = Program { pinned: Some("lean"), ..Program::crashed() };
    let adaptive = Policy::default();
    let cases = [
        ("no data", Program::default(), adaptive, Giving::Loaded, true, Reason::TrialDue, false),
        (
            "no data, no account",
            Program::default(),
            adaptive,
            outside(Some("no imasd")),
            false,
            Reason::NoData,
            false,
        ),
        ("no data, from outside", Program::default(), adaptive, outside(None), true, Reason::TrialDue, false),
        ("no data, static", Program::default(), adaptive, nothing(), false, Reason::NoCandidate, false),
        ("no data, paper", Program::default(), PAPER, Giving::Loaded, true, Reason::TrialDue, false),
        ("no data, paper, outside", Program::default(), PAPER, outside(None), false, Reason::NoData, false),
        ("settled", Program::settled(), adaptive, Giving::Loaded, false, Reason::Balanced, true),
        ("settled, from outside", Program::settled(), adaptive, outside(None), false, Reason::Balanced, true),
        ("settled, static", Program::settled(), adaptive, nothing(), false, Reason::NoCandidate, false),
        ("settled, paper", Program::settled(), PAPER, Giving::Loaded, false, Reason::Balanced, true),
        ("pinned", pinned("lean"), adaptive, Giving::Loaded, false, Reason::Pinned, true),
        ("pinned, outside", pinned("lean"), adaptive, outside(Some("no")), false, Reason::Pinned, true),
        ("pinned, static", pinned("lean"), adaptive, nothing(), false, Reason::NoCandidate, false),
        (
            "pinned to what is not there",
            pinned("x"),
            PAPER,
            Giving::Loaded,
            false,
            Reason::PinnedUnavailable,
            false,
        ),
        ("pinned, crashed", pinned_crashed, adaptive, outside(None), false, Reason::PinnedQuarantined, false),
        ("excluded", excluded, PAPER, Giving::Loaded, false, Reason::Excluded, false),
        ("crashed", Program::crashed(), adaptive, Giving::Loaded, false, Reason::NothingProven, true),
        ("own malloc", Program::with_own_malloc(), adaptive, Giving::Loaded, false, Reason::OwnMalloc, false),
    ];
    for (what, program, policy, giving, trial, reason, is_settled) in cases {
        let next = decide(&program.profile(&policy), &giving, &IDLE);
        let (candidate, ..) = answer(&next);
        assert_eq!(answer(&next), (candidate, trial, reason, is_settled), "{what}: {next:?}");
        let is_lean = matches!(reason, Reason::Balanced | Reason::Pinned);
        assert!(trial || (candidate == "lean") == is_lean, "{what}: {candidate}");
    }
}

#[test]
fn what_holds_of_every_answer() {
    let pinned = Program { pinned: Some("lean"), ..Program::settled() };
    let excluded = Program { excluded: true, ..Program::default() };
    let programs = [
        Program::default(),
        Program::settled(),
        Program::crashed(),
        Program::with_own_malloc(),
        pinned,
        excluded,
    ];
    for (program, policy) in programs.iter().flat_map(|one| [(one, Policy::default()), (one, PAPER)]) {
        let profile = program.profile(&policy);
        for machine in MACHINES {
            let loaded = decide(&profile, &Giving::Loaded, &machine);
            let [counted, uncounted, left] = [outside(None), outside(Some("no")), nothing()]
                .map(|giving| decide(&profile, &giving, &machine));
            for next in [&loaded, &counted, &uncounted, &left] {
                assert!(!next.production.trial, "{next:?}");
                assert!(next.trial().is_none() || next.settled().is_none(), "{next:?}");
                assert!(next.decision.trial || next.decision == next.production, "{next:?}");
                let view = profile.candidate(&next.production.candidate);
                assert!(next.production.candidate == SYSTEM || view.unwrap().is_usable(), "{next:?}");
            }
            // The way into a program decides about trials and the evidence, never about the candidate.
            for next in [&counted, &uncounted] {
                assert_eq!(next.production.candidate, loaded.production.candidate);
                assert_eq!((next.rests_on, uncounted.trial()), (loaded.rests_on, None));
            }
            let is_counted = policy != PAPER;
            assert_eq!(counted.trial(), loaded.trial().filter(|_| is_counted), "{counted:?}");
            assert_eq!((left.production.candidate.as_str(), left.rests_on), (SYSTEM, RestsOn::Nothing));
        }
        // Where no policy decides, no machine changes the answer.
        let next = MACHINES.map(|machine| decide(&profile, &Giving::Loaded, &machine));
        if next[0].rests_on == RestsOn::Nothing {
            assert!(next.iter().all(|one| one.decision.candidate == next[0].decision.candidate));
        }
    }
}

#[test]
fn the_machine_chooses_among_the_picks() {
    let profile = Program::settled().profile(&Policy::Adaptive(Settings::default()));
    let [idle, busy, full] = MACHINES.map(|machine| decide(&profile, &Giving::Loaded, &machine));
    assert_eq!(answer(&idle), ("lean", false, Reason::Balanced, true));
    assert_eq!(answer(&full), ("lean", false, Reason::LeanestMemoryShort, true));
    assert_ne!(busy.rests_on, full.rests_on, "each weight is a basis of its own");
}

#[test]
fn the_executable_and_the_starter_say_what_can_be_given() {
    let fit = facts(None);
    for starter in [Starter::Run, Starter::RunFollowed, Starter::Stub] {
        assert_eq!(Giving::of(&fit, starter), Giving::Loaded);
        let of_static = Giving::of(&facts(Some("it is static")), starter);
        assert_eq!(of_static.nothing(), Some("it is static"));
    }
    assert!(Giving::of(&of_go(), Starter::Run).is_outside());
    assert!(Giving::of(&of_musl(), Starter::Run).is_outside());
    assert!(Giving::of(&of_go(), Starter::RunFollowed).is_outside(), "children inherit variables");
    let of_children = Giving::of(&of_musl(), Starter::RunFollowed);
    assert!(of_children.nothing().unwrap().contains("--follow"), "{of_children:?}");
    let by_stub = Giving::of(&of_go(), Starter::Stub);
    assert!(by_stub.nothing().unwrap().contains("served by settings of"), "{by_stub:?}");
    let dynamic = ExecutableFacts { unfit: None, ..of_go() };
    assert_eq!(Giving::of(&dynamic, Starter::Run), Giving::Loaded);
}
