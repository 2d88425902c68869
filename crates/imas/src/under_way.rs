// SPDX-License-Identifier: Apache-2.0
//! A trial that another start is making at this moment: until it has ended, no start makes another of that candidate.

use anyhow::Result;
use imas_core::decision::{Conditions, Decision, decide_production};
use imas_core::{ProfileView, decide};
use imas_ingest::Expected;
use imas_linux::clock::now_unix_s;
use imas_linux::{page, process};
use imas_store::samples::Program;
use imas_store::{RowId, Store};
use serde::Serialize;

use crate::context::Context;
use crate::when::when;

/// What is known of it.
#[derive(Debug, Serialize)]
pub(crate) struct UnderWay {
    /// Names its page.
    trial_id: String,
    candidate: String,
    /// The process that makes it; None where none is found.
    pid: Option<u32>,
    /// When it began, Unix time in seconds; not known of one that imasd had on offer.
    since_unix_s: Option<f64>,
    /// From then on another is made, whatever became of it; Unix time in seconds. imasd waits for its end.
    waited_for_until_unix_s: Option<f64>,
}

impl UnderWay {
    /// What and since when, in words.
    pub(crate) fn words(&self) -> String {
        let name = &self.candidate;
        let since = self.since_unix_s.map_or_else(String::new, |at_s| format!(" since {}", when(at_s)));
        match self.pid {
            Some(pid) => format!("a trial of {name} is under way{since} (process {pid})"),
            None => {
                format!("a trial of {name} is under way{since}; its process is not found, its end not told")
            }
        }
    }

    /// When the next one can be made, in words.
    pub(crate) fn again(&self) -> String {
        let ended = format!("when the trial of {} that is under way has ended", self.candidate);
        match self.waited_for_until_unix_s {
            Some(at_s) => format!("{ended}, and from {} on in any case", when(at_s)),
            None => ended,
        }
    }
}

/// What the next start is to be, and the trial under way that keeps it from being one. `seen`: the newest trial that the profile was
/// made of ([`Store::newest_trial`]).
pub(crate) fn next(
    (context, store): (&Context, &Store),
    (program, seen): (&Program, RowId),
    profile: &ProfileView,
    conditions: &Conditions,
) -> Result<(Decision, Option<UnderWay>)> {
    let decision = decide(profile, conditions);
    let under_way = match program.domain.is_own() {
        _ if !decision.trial => None,
        true => begun(context, store, (program.id, seen), &decision.candidate)?,
        false => watched(store, program.id)?,
    };
    Ok((if under_way.is_some() { decide_production(profile, conditions) } else { decision }, under_way))
}

/// A trial that `imas run` began, by its own rule.
fn begun(
    context: &Context,
    store: &Store,
    (program, seen): (RowId, RowId),
    candidate: &str,
) -> Result<Option<UnderWay>> {
    let retest_s = context.limits.retest_s;
    let begun = store.under_way(program, candidate, now_unix_s(), retest_s, seen)?;
    Ok(begun.map(|begun| UnderWay {
        pid: process_behind(&begun.trial_id),
        candidate: candidate.to_owned(),
        since_unix_s: Some(begun.at_s),
        waited_for_until_unix_s: Some(begun.at_s + retest_s),
        trial_id: begun.trial_id,
    }))
}

/// Its page says so, while it runs.
fn process_behind(trial_id: &str) -> Option<u32> {
    let file = page::folder().ok()?.join(format!("{trial_id}.page"));
    let expected = Expected { uid: nix::unistd::getuid().as_raw(), now_unix_s: now_unix_s() };
    let page = imas_ingest::read_page_file(&file, &expected).ok()?;
    process::is_running(page.pid, page.process_start_ticks).then_some(page.pid)
}

/// A trial that imasd had on offer and saw a process take.
fn watched(store: &Store, program: RowId) -> Result<Option<UnderWay>> {
    let witness = store.witness_of_offer(program)?;
    // One that is gone is over, though imasd may not have dealt with it yet.
    let runs = witness.filter(|witness| process::is_running(witness.pid, witness.start_ticks));
    Ok(runs.map(|witness| UnderWay {
        trial_id: witness.page.trim_end_matches(".page").to_owned(),
        candidate: witness.candidate,
        pid: Some(witness.pid),
        since_unix_s: None,
        waited_for_until_unix_s: None,
    }))
}
