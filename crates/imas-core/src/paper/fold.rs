// SPDX-License-Identifier: Apache-2.0
//! Algorithm 8: logs of tests become a summary per candidate.

use serde::{Deserialize, Serialize};

use super::{Limits, average};
use crate::candidate::{Candidate, CountedSample, count};
use crate::record::{TrialRecord, in_order_of_time};

/// What is known of a program under one candidate.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct TrialSummary {
    /// Tests in the averages.
    pub count: u32,
    /// Average of the tests' mean class means, ns.
    pub ns_per_op: f64,
    /// Average fragmentation over virtual sizes, 0 to 1.
    pub frag: f64,
    /// Average heap, bytes.
    pub heap_bytes: f64,
    /// Time of the last test that entered, seconds since the epoch; None before the first.
    pub last_test_s: Option<f64>,
    /// Trials that yielded nothing by the candidate's doing
    /// ([`crate::candidate::NotCounted::is_candidates_doing`]). The paper has no such count: there a program
    /// too short to measure stays in test mode for ever.
    pub void: u32,
    /// Time of the last trial that is counted in `void`.
    pub last_void_s: Option<f64>,
}

impl TrialSummary {
    /// True when the averages hold something.
    pub fn has_data(&self) -> bool {
        self.count > 0
    }

    /// True when no further test is due: as many as allowed entered, or as many yielded nothing.
    pub fn is_spent(&self, limits: &Limits) -> bool {
        self.count >= limits.max_tests || self.void >= limits.max_tests
    }

    /// Time of the latest trial, fruitful or not.
    pub fn last_trial_s(&self) -> Option<f64> {
        match (self.last_test_s, self.last_void_s) {
            (Some(test_s), Some(void_s)) => Some(test_s.max(void_s)),
            (test_s, void_s) => test_s.or(void_s),
        }
    }
}

/// Lines 23 to 33 of Algorithm 8: the test enters when the candidate has tests left and its wait is over.
/// Returns whether it did.
pub fn add(summary: &mut TrialSummary, test: &CountedSample, time_s: f64, limits: &Limits) -> bool {
    if summary.count >= limits.max_tests || !limits.wait_is_over(summary.last_test_s, time_s) {
        return false;
    }
    summary.ns_per_op = average(summary.ns_per_op, summary.count, test.ns_per_op);
    summary.frag = average(summary.frag, summary.count, test.frag);
    summary.heap_bytes = average(summary.heap_bytes, summary.count, test.heap_bytes);
    summary.count += 1;
    summary.last_test_s = Some(time_s);
    true
}

/// Summaries by candidate, in the order of `candidates`, from all trials in order of time. A test's time is
/// the moment its trial was made. Samples of candidates that the catalogue no longer has are left out; a
/// candidate without samples has the default summary.
pub fn fold(
    records: &[TrialRecord],
    candidates: &[Candidate],
    build_id: &str,
    limits: &Limits,
) -> Vec<TrialSummary> {
    let ordered = in_order_of_time(records);
    let summarise = |candidate| {
        let mut summary = TrialSummary::default();
        for record in &ordered {
            enter(&mut summary, record, candidate, build_id, limits);
        }
        summary
    };
    candidates.iter().map(summarise).collect()
}

/// Enters one record into one candidate's summary.
fn enter(
    summary: &mut TrialSummary,
    record: &TrialRecord,
    candidate: &Candidate,
    build_id: &str,
    limits: &Limits,
) {
    let time_s = record.sample.made_unix_s;
    // The waiting time of that day decides whether a test of that day counts: changing it now must not unmake
    // old tests.
    let limits = &Limits { retest_s: record.retest_s.unwrap_or(limits.retest_s), ..*limits };
    match count(record, candidate, build_id) {
        Ok(test) => {
            add(summary, &test, time_s, limits);
        }
        Err(reason) if reason.is_candidates_doing() => {
            summary.void += 1;
            summary.last_void_s = Some(time_s);
        }
        Err(_) => {}
    }
}
