// SPDX-License-Identifier: Apache-2.0
//! A trial that another start makes at this moment. Until it ends, no start makes another trial of its
//! candidate.

use crate::context::Context;
use crate::start_plan::StartPlan;
use anyhow::Result;
use imas_core::decision::Decision;
use imas_linux::clock::now_unix_s;
use imas_linux::ingest::ExpectedPage;
use imas_linux::process;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};
use serde::Serialize;

use imas_cli::when::when;

/// A trial that is under way.
#[derive(Debug, Clone, Serialize)]
pub struct UnderWay {
    /// Id of the trial, and name of its page.
    pub trial_id: String,
    /// What is tried.
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
pub fn next(
    (context, store): (&Context, &Store),
    (program, seen): (&StoredProgram, RowId),
    plan: StartPlan,
) -> Result<(Decision, Option<UnderWay>)> {
    let under_way = match program.domain.is_own() {
        _ if !plan.decision.trial => None,
        true => begun(context, store, (program.id, seen), &plan.decision.candidate)?,
        false => watched(store, program.id)?,
    };
    Ok((if under_way.is_some() { plan.production } else { plan.decision }, under_way))
}

/// A trial that `imas run` began, by the rule of [`Store::begin`].
fn begun(
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
fn watched(store: &Store, program: RowId) -> Result<Option<UnderWay>> {
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
