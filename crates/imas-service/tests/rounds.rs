// SPDX-License-Identifier: Apache-2.0
//! The loop over rounds, services and candidates, with runs that are made up. The signal in it is a real one.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use anyhow::Result;
use imas_linux::catalogue::CatalogueCandidate;
use imas_runs::interruption::Interruption;
use imas_runs::runner::{NextStep, SessionEnd};
use imas_runs::schedule::Step;
use imas_service::{
    Failure, RoundService, ServiceElimination, ServiceError, ServiceRounds, ServiceRun, ServiceSession, Stage,
};
use nix::sys::signal::{Signal, raise};

/// What a made-up run comes to.
#[derive(Clone, Copy, PartialEq)]
enum Outcome {
    Good,
    Failed,
    Crashed,
    NotMade,
    Interrupted,
}

type Script = fn(service: &str, candidate: &str, round: Option<u32>) -> Outcome;

struct Scripted<'a> {
    services: Vec<RoundService<'a>>,
    script: Script,
    /// What was done, in order: for runs, service, candidate and round.
    log: Vec<String>,
    skipped: usize,
    rounds_left: usize,
    cannot_prepare: Option<&'a str>,
}

impl Scripted<'_> {
    fn names(&self, step: &Step) -> (&str, &str) {
        let service = &self.services[step.subject];
        (service.name, &service.candidates[step.candidate].name)
    }
}

impl ServiceSession for Scripted<'_> {
    fn before_round(&mut self, _service: usize) -> NextStep {
        let left = self.rounds_left;
        self.rounds_left = left.saturating_sub(1);
        if left == 0 { NextStep::Stop } else { NextStep::Make }
    }

    fn prepare(&mut self, service: usize) -> Result<(), ServiceError> {
        match self.cannot_prepare {
            Some(name) if name == self.services[service].name => Err(ServiceError::Definition(name.into())),
            _ => Ok(()),
        }
    }

    fn make(&mut self, step: &Step) -> Result<ServiceRun, ServiceError> {
        let round = step.kind.kept().map(|(_, round)| round);
        let (service, candidate) = self.names(step);
        let failure = |signal| {
            let (stage, what, server) = (Stage::Died, String::new(), String::new());
            Some(Failure { stage, what, signal, server })
        };
        let failure = match (self.script)(service, candidate, round) {
            Outcome::Good => None,
            Outcome::Failed => failure(None),
            Outcome::Crashed => failure(Some(11)),
            Outcome::NotMade => return Err(ServiceError::Definition("not made".into())),
            Outcome::Interrupted => {
                // To this thread: it has arrived when this returns.
                raise(Signal::SIGTERM).unwrap();
                failure(None)
            }
        };
        let (service, candidate) = (service.to_owned(), candidate.to_owned());
        self.log.push(format!("{service} {candidate} {}", round.map_or(-1, i64::from)));
        Ok(ServiceRun {
            service,
            candidate,
            round: round.unwrap_or_default(),
            failure,
            ..ServiceRun::default()
        })
    }

    fn skipped(&mut self, _step: &Step) {
        self.skipped += 1;
    }

    fn after(&mut self, _step: &Step, run: &ServiceRun) -> Result<()> {
        self.log.push(format!("kept {} {} {}", run.service, run.candidate, run.round));
        Ok(())
    }

    fn not_prepared(&mut self, service: usize, _error: ServiceError) -> Result<()> {
        self.log.push(format!("{} is not prepared", self.services[service].name));
        Ok(())
    }

    fn not_made(&mut self, step: &Step, _error: ServiceError) -> Result<()> {
        let (service, candidate) = self.names(step);
        let line = format!("{service} {candidate} is not made");
        self.log.push(line);
        Ok(())
    }
}

struct Setting {
    services: &'static [&'static str],
    elimination: ServiceElimination,
    warmup: u32,
    rounds_left: usize,
    cannot_prepare: Option<&'static str>,
}

const ONE: Setting = Setting {
    services: &["web"],
    elimination: ServiceElimination::FirstCrash,
    warmup: 0,
    rounds_left: usize::MAX,
    cannot_prepare: None,
};

struct Made {
    end: SessionEnd,
    runs: Vec<ServiceRun>,
    log: Vec<String>,
    skipped: usize,
}

impl Made {
    fn of(&self, candidate: &str) -> Vec<u32> {
        let of = self.runs.iter().filter(|run| run.candidate == candidate);
        of.map(|run| run.round).collect()
    }
}

/// Four rounds of `system`, `a` and `b`, after what was run `before`.
fn four_rounds(setting: &Setting, before: &[ServiceRun], script: Script) -> Made {
    let interruption = Interruption::watch().unwrap();
    let candidates: Vec<CatalogueCandidate> = ["system", "a", "b"]
        .map(|name| CatalogueCandidate { name: name.into(), ..CatalogueCandidate::default() })
        .into();
    let services: Vec<RoundService<'_>> = setting
        .services
        .iter()
        .map(|name| RoundService { name, order_key: name, candidates: candidates.iter().collect() })
        .collect();
    let mut session = Scripted {
        services: services.clone(),
        script,
        log: vec![],
        skipped: 0,
        rounds_left: setting.rounds_left,
        cannot_prepare: setting.cannot_prepare,
    };
    let rounds = ServiceRounds {
        services,
        warmup: setting.warmup,
        rounds: 4,
        seed: 1,
        elimination: setting.elimination,
        interruption: &interruption,
    };
    let mut runs = before.to_vec();
    let end = rounds.run(&mut runs, &mut session).unwrap();
    Made { end, runs, log: session.log, skipped: session.skipped }
}

fn every_run_is_kept_and_what_was_made_is_not_made_again() {
    let made = four_rounds(&Setting { warmup: 2, ..ONE }, &[], |_, _, _| Outcome::Good);
    assert_eq!((made.end, made.runs.len()), (SessionEnd::Finished, 12));
    assert_eq!(made.log[..2], ["web system -1"; 2], "warm-ups come first and are not kept");
    assert_eq!(made.log.len(), 2 + 24);
    let again = four_rounds(&ONE, &made.runs[..7], |_, _, _| Outcome::Good);
    assert_eq!(again.runs, made.runs, "the same order, from where it was");
    assert_eq!((again.log.len(), again.skipped), (10, 7));
}

fn a_candidate_that_crashes_or_fails_twice_is_eliminated() {
    let script: Script = |_, candidate, round| match (candidate, round) {
        ("a", _) => Outcome::Crashed,
        ("b", _) | ("system", Some(1..=2)) => Outcome::Failed,
        _ => Outcome::Good,
    };
    let made = four_rounds(&ONE, &[], script);
    assert_eq!((made.end, made.skipped), (SessionEnd::Finished, 5));
    assert_eq!((made.of("a"), made.of("b")), (vec![0], vec![0, 1]));
    assert_eq!(made.of("system"), [0, 1, 2, 3], "system is never eliminated");
    let made = four_rounds(&Setting { elimination: ServiceElimination::Failures, ..ONE }, &[], script);
    assert_eq!((made.of("a"), made.of("b")), (vec![0, 1], vec![0, 1]), "a crash is a failure like others");
    assert_eq!(made.of("system"), [0, 1, 2], "and so is system");
    // Failures of earlier sessions count, and those of another service do not.
    let other: Vec<ServiceRun> =
        made.runs.iter().map(|run| ServiceRun { service: "other".into(), ..run.clone() }).collect();
    let good: Script = |_, _, _| Outcome::Good;
    assert_eq!(four_rounds(&ONE, &made.runs, good).of("a"), [0, 1]);
    assert_eq!(four_rounds(&ONE, &other, good).runs.len(), other.len() + 12);
}

fn a_service_that_fails_untouched_is_not_measured() {
    let script: Script =
        |_, candidate, _| if candidate == "system" { Outcome::Failed } else { Outcome::Good };
    let made = four_rounds(&ONE, &[], script);
    assert_eq!(made.end, SessionEnd::Stopped);
    assert_eq!(made.runs.last().map(|run| run.candidate.as_str()), Some("system"));
    let each = four_rounds(&Setting { elimination: ServiceElimination::Failures, ..ONE }, &[], script);
    assert_eq!((each.end, each.runs.len()), (SessionEnd::Finished, 10), "the laboratory goes on");
}

fn services_take_turns_and_one_that_cannot_run_does_not_stop_the_others() {
    let two = Setting { services: &["web", "db"], elimination: ServiceElimination::Failures, ..ONE };
    let made = four_rounds(&two, &[], |_, _, _| Outcome::Good);
    for round in 0..4 {
        let of_round = &made.runs[round * 6..round * 6 + 6];
        assert!(of_round.iter().all(|run| run.round as usize == round));
        assert!(of_round[..3].iter().all(|run| run.service == of_round[0].service), "side by side");
    }
    let script: Script = |_, candidate, _| if candidate == "a" { Outcome::NotMade } else { Outcome::Good };
    let made = four_rounds(&Setting { cannot_prepare: Some("web"), ..two }, &[], script);
    let reported = |line: &str| made.log.iter().filter(|logged| *logged == line).count();
    assert_eq!((reported("web is not prepared"), reported("db a is not made")), (4, 4), "{:?}", made.log);
    assert!(made.runs.len() == 8 && made.runs.iter().all(|run| run.service == "db"));
    let made = four_rounds(&Setting { rounds_left: 3, ..two }, &[], |_, _, _| Outcome::Good);
    assert_eq!((made.end, made.runs.len()), (SessionEnd::Stopped, 9), "the time is over");
}

fn a_signal_ends_it_and_keeps_what_was_measured() {
    if sigterm_is_ignored() {
        return imas_testing::skipped("SIGTERM is ignored here");
    }
    let script: Script = |_, candidate, round| {
        if (candidate, round) == ("a", Some(1)) { Outcome::Interrupted } else { Outcome::Good }
    };
    let made = four_rounds(&ONE, &[], script);
    assert_eq!(made.end, SessionEnd::Interrupted(Signal::SIGTERM as i32));
    let cut_short = made.log.iter().position(|line| line == "web a 1").unwrap();
    assert_eq!(cut_short + 1, made.log.len(), "nothing is made or kept after it: {:?}", made.log);
    assert!(made.of("a") == [0] && made.runs.len() >= 3);
    let in_warmup: Script = |_, _, round| if round.is_none() { Outcome::Interrupted } else { Outcome::Good };
    let made = four_rounds(&Setting { warmup: 3, ..ONE }, &[], in_warmup);
    assert_eq!((made.log.len(), made.runs.len()), (1, 0));
}

fn sigterm_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & (1 << (Signal::SIGTERM as i32 - 1)) != 0
}

/// One after the other: a signal is for the whole process.
#[test]
fn services_are_measured_in_rounds() {
    every_run_is_kept_and_what_was_made_is_not_made_again();
    a_candidate_that_crashes_or_fails_twice_is_eliminated();
    a_service_that_fails_untouched_is_not_measured();
    services_take_turns_and_one_that_cannot_run_does_not_stop_the_others();
    a_signal_ends_it_and_keeps_what_was_measured();
}
