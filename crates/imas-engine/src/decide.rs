// SPDX-License-Identifier: Apache-2.0
//! The next start of a program: the one place that decides it, for `imas run`, imasd and its index, and for all
//! that shows a program.
//!
//! ```text
//! Giving: what its executable can be given --+
//! ProfileView: trials, pin, exclusion -------+-> decide -> NextStart -> after_others: a trial is not made twice
//! Conditions of the machine -----------------+
//! ```

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use imas_cli::format::when;
use imas_core::decision::{self, Conditions, Decision, Evidence, RestsOn, decide_production};
use imas_core::quarantine::Quarantine;
use imas_core::{ProfileView, Reason, SYSTEM};
use imas_linux::host::now_unix_s;
use imas_linux::ingest::ExpectedPage;
use imas_linux::{page, process};
use imas_store::decisions::Decided;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};
use serde::Serialize;

use crate::context::Context;
use crate::inspect::ExecutableFacts;
use crate::outside;
use crate::runtime_command::{is_served_by_settings, unfit_reason};

/// Who starts the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Starter {
    /// `imas run`.
    Run,
    /// `imas run --follow`: the processes that it starts get the same candidate.
    RunFollowed,
    /// The stub, by the index of imasd.
    Stub,
}

/// Ways in which the program's executable lets something be given to it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Giving {
    /// Our libraries are loaded: the hook counts in trials, the guard watches other starts.
    #[default]
    Loaded,
    /// Nothing of ours for glibc is loaded. It gets settings of its runtime, or an allocator that is built for musl, and
    /// trials are measured from outside.
    Outside {
        /// Why nothing is loaded.
        unfit: String,
        /// Why no trial can be measured now; None where one can.
        no_trials: Option<String>,
    },
    /// Nothing.
    Nothing {
        /// Why.
        why: String,
    },
}

impl Giving {
    /// Way in which something can be given to a program of that executable by who starts it.
    #[must_use]
    pub fn of(executable: &ExecutableFacts, starter: Starter) -> Self {
        let Some(unfit) = executable.unfit.clone() else { return Self::Loaded };
        let children = "its children may have another (--follow)";
        match starter {
            Starter::Stub => Self::Nothing { why: unfit_reason(executable).unwrap_or(unfit) },
            _ if !outside::is_measurable(executable) => Self::Nothing { why: unfit },
            Starter::Run => Self::Outside { unfit, no_trials: outside::folder().err() },
            Starter::RunFollowed if is_served_by_settings(executable) => {
                Self::Outside { unfit, no_trials: Some(children.to_owned()) }
            }
            // A child of glibc would not start: its loader finds no libc.so for these libraries.
            Starter::RunFollowed => Self::Nothing { why: format!("{unfit}, and {children}") },
        }
    }

    /// Why nothing can be given.
    #[must_use]
    pub fn nothing(&self) -> Option<&str> {
        match self {
            Self::Nothing { why } => Some(why),
            Self::Loaded | Self::Outside { .. } => None,
        }
    }

    /// Whether trials are measured from outside.
    #[must_use]
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Outside { .. })
    }
}

/// Plan of a program's next starts.
#[derive(Debug, Clone, PartialEq)]
pub struct NextStart {
    /// The decision: a trial, if one is due.
    pub decision: Decision,
    /// The decision for every start that is not that trial.
    pub production: Decision,
    /// Part of the machine's state on which the production decision rests.
    pub rests_on: RestsOn,
    /// Whether the tests are done and their answer stands, or a person has given it.
    pub is_settled: bool,
}

/// Decides the next start of a program. One process runs a trial; all others start as if none were due.
#[must_use]
pub fn decide(profile: &ProfileView, giving: &Giving, conditions: &Conditions) -> NextStart {
    match giving {
        Giving::Loaded => NextStart::by_policy(profile, conditions),
        Giving::Outside { unfit, no_trials } => {
            let lacks = || {
                profile
                    .policy
                    .counts_calls()
                    .then(|| "policy paper counts malloc calls, which nothing can in this program".to_owned())
            };
            let no_trials = no_trials.clone().or_else(lacks);
            NextStart::by_policy(profile, conditions).measured_outside(unfit, no_trials.as_deref())
        }
        Giving::Nothing { why } => NextStart::untouched(Reason::NoCandidate, why),
    }
}

impl NextStart {
    fn by_policy(profile: &ProfileView, conditions: &Conditions) -> Self {
        let decision = decision::decide(profile, conditions);
        let production =
            if decision.trial { decide_production(profile, conditions) } else { decision.clone() };
        Self {
            rests_on: RestsOn::of(profile, conditions),
            is_settled: !decision.trial && decision::is_settled(profile, conditions),
            decision,
            production,
        }
    }

    /// Start of a program with nothing loaded, with the reason as evidence; no trial where none can be
    /// measured.
    fn measured_outside(mut self, unfit: &str, no_trials: Option<&str>) -> Self {
        if no_trials.is_some() {
            self.decision = self.production.clone();
        }
        for decision in [&mut self.decision, &mut self.production] {
            if decision.reason != Reason::Pinned {
                outside::add_evidence(decision, unfit, no_trials);
            }
        }
        self
    }

    /// Every start is left as it is.
    #[must_use]
    pub fn untouched(reason: Reason, why: &str) -> Self {
        let decision = untouched(reason, why);
        Self { production: decision.clone(), decision, rests_on: RestsOn::Nothing, is_settled: false }
    }

    /// Candidate of the next trial, if one is due.
    #[must_use]
    pub fn trial(&self) -> Option<&str> {
        self.decision.trial.then_some(self.decision.candidate.as_str())
    }

    /// The candidate of every start until something changes; None while tests are not done.
    #[must_use]
    pub fn settled(&self) -> Option<&str> {
        self.is_settled.then_some(self.decision.candidate.as_str())
    }
}

/// A decision to leave a program as it is; `why` is the evidence, if there is any.
#[must_use]
pub fn untouched(reason: Reason, why: &str) -> Decision {
    let evidence = Evidence { name: "the program".to_owned(), value: why.to_owned() };
    Decision {
        candidate: SYSTEM.to_owned(),
        trial: false,
        reason,
        evidence: if why.is_empty() { vec![] } else { vec![evidence] },
    }
}

/// The decision as it is stored. `begun` is the id of the trial that it begins, and the waiting time between
/// tests then in force, in seconds.
#[must_use]
pub fn decided(decision: &Decision, begun: Option<(String, f64)>) -> Decided {
    Decided {
        at_s: now_unix_s(),
        candidate: decision.candidate.clone(),
        trial: begun.is_some(),
        reason: decision.reason.id().to_owned(),
        because: decision.text(),
        begun,
    }
}

/// When the plan may change by time alone, Unix time: the end of the first waiting time between two tests, or
/// of this host's turn in its fleet; within an hour in any case, since trials grow old.
#[must_use]
pub fn valid_until_s(profile: &ProfileView, now_unix_s: f64) -> f64 {
    const HOUR_S: f64 = 3600.0;
    let waits = profile.candidates.iter().filter(|view| view.is_usable());
    let ends =
        waits.filter_map(|view| view.summary.last_trial_s()).map(|last_s| last_s + profile.limits.retest_s);
    let turn = profile.adaptive().and_then(|adaptive| adaptive.turn.as_ref());
    let ends = ends.chain(turn.map(|turn| turn.until_s));
    ends.filter(|end_s| *end_s > now_unix_s).fold(now_unix_s + HOUR_S, f64::min)
}

/// The quarantines of this program that began after that time.
pub fn quarantines_since(profile: &ProfileView, since_unix_s: f64) -> impl Iterator<Item = &Quarantine> {
    let quarantined = profile.candidates.iter().filter_map(|view| view.quarantine.as_ref());
    quarantined.filter(move |quarantine| quarantine.since_unix_s > since_unix_s)
}

/// The state of the machine and of this control group, in which the program will run, from /proc. Without it
/// no decision is made, and the program is started untouched.
///
/// # Errors
/// When /proc cannot be read.
pub fn conditions() -> Result<Conditions> {
    let machine = imas_linux::host::conditions().context("the machine's load and memory")?;
    let mut now = imas_linux::control_group::narrowed(machine);
    now.weight_before =
        weight_file().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    Ok(now)
}

/// Where the weight between CPU and memory is kept for the hysteresis of the next start: in the user's own
/// folder of the session; without one there is no damping.
#[must_use]
pub fn weight_file() -> Option<PathBuf> {
    Some(page::runtime_folder()?.join("imas.weight"))
}

/// A trial that is under way.
#[derive(Debug, Clone, Serialize)]
pub struct UnderWay {
    /// Id of the trial, and name of its page.
    pub trial_id: String,
    /// Name of the candidate on trial.
    pub candidate: String,
    /// The process that makes it. None if no process was found.
    pub pid: Option<u32>,
    /// Begin of the trial, Unix time in seconds. None for a trial that imasd had on offer.
    pub since_unix_s: Option<f64>,
    /// At this time another trial is made, even if this one did not end; Unix time in seconds. None under
    /// imasd, which waits for the end.
    pub waited_for_until_unix_s: Option<f64>,
}

impl UnderWay {
    /// The trial and its begin, in words.
    #[must_use]
    pub fn words(&self) -> String {
        let name = &self.candidate;
        let since = self.since_unix_s.map_or_else(String::new, |at_s| format!(" since {}", when(at_s)));
        match self.pid {
            Some(pid) => format!("a trial of {name} is under way{since} (process {pid})"),
            None => {
                format!("a trial of {name} is under way{since}; process not found, exit status unknown")
            }
        }
    }

    /// When the next trial can be made, in words.
    #[must_use]
    pub fn again(&self) -> String {
        let ended = format!("when the trial of {} that is under way has ended", self.candidate);
        match self.waited_for_until_unix_s {
            Some(at_s) => format!("{ended}, and from {} on in any case", when(at_s)),
            None => ended,
        }
    }
}

/// The next start by the plan, and the trial under way that keeps it from being a trial. `seen` is the newest trial in
/// the profile ([`Store::newest_trial`]).
///
/// # Errors
/// When the store cannot be read.
pub fn after_others(
    (context, store): (&Context, &Store),
    (program, seen): (&StoredProgram, RowId),
    plan: NextStart,
) -> Result<(Decision, Option<UnderWay>)> {
    let under_way = match program.domain.is_own() {
        _ if !plan.decision.trial => None,
        true => begun_by_run(context, store, (program.id, seen), &plan.decision.candidate)?,
        false => watched_by_daemon(store, program.id)?,
    };
    Ok((if under_way.is_some() { plan.production } else { plan.decision }, under_way))
}

/// A trial that `imas run` began, by the rule of [`Store::begin`].
fn begun_by_run(
    context: &Context,
    store: &Store,
    (program, seen): (RowId, RowId),
    candidate: &str,
) -> Result<Option<UnderWay>> {
    let retest_s = context.limits.retest_s;
    let begun = store.under_way(program, candidate, now_unix_s(), retest_s, seen)?;
    Ok(begun.map(|begun| UnderWay {
        pid: process_of(context, &begun.trial_id),
        candidate: candidate.to_owned(),
        since_unix_s: Some(begun.at_s),
        waited_for_until_unix_s: Some(begun.at_s + retest_s),
        trial_id: begun.trial_id,
    }))
}

/// The process of a trial, from its page. None if the process has ended.
fn process_of(context: &Context, trial_id: &str) -> Option<u32> {
    let expected = ExpectedPage { uid: nix::unistd::getuid().as_raw(), now_unix_s: now_unix_s() };
    let file = context.page_place().join(format!("{trial_id}.page"));
    let page = imas_linux::ingest::read_page_file(&file, &expected).ok()?;
    process::is_running(page.pid, page.process_start_ticks).then_some(page.pid)
}

/// The process that took the trial on offer of imasd.
fn watched_by_daemon(store: &Store, program: RowId) -> Result<Option<UnderWay>> {
    let witness = store.witness_of_offer(program)?;
    // A trial without its process has ended, even if imasd has not processed the page yet.
    let runs = witness.filter(|witness| process::is_running(witness.pid, witness.start_ticks));
    Ok(runs.map(|witness| UnderWay {
        trial_id: witness.page.trim_end_matches(".page").to_owned(),
        candidate: witness.candidate,
        pid: Some(witness.pid),
        since_unix_s: None,
        waited_for_until_unix_s: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_stored_as_a_trial_only_if_one_begins() {
        let decision = Decision { trial: true, ..untouched(Reason::TrialDue, "") };
        assert!(!decided(&decision, None).trial, "a start beside the trial");
        let stored = decided(&decision, Some(("t".to_owned(), 60.0)));
        assert_eq!((stored.trial, stored.begun), (true, Some(("t".to_owned(), 60.0))));
    }

    #[test]
    fn a_program_is_left_as_it_is_with_the_reason_as_evidence() {
        let plan = NextStart::untouched(Reason::NoCandidate, "it is static");
        assert_eq!((plan.trial(), plan.production.candidate.as_str()), (None, SYSTEM));
        assert_eq!(plan.decision.evidence[0].value, "it is static");
        assert_eq!(untouched(Reason::NoData, "").evidence, []);
    }
}
