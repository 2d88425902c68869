// SPDX-License-Identifier: Apache-2.0
//! The paper's policy to the letter, as pure functions: Algorithms 1, 8, 9, 10 and Eq. 2 of "The intelligent
//! memory allocator selector" (Ülgen and Avci, 2015). Where the paper is silent the rule is in the docs
//! of the function.
//!
//! ```text
//! fold (8, Eq. 2) -> TrialSummary -> analyse (9) -> Picks -> choose (1)
//!                          |-------> next_test (10)
//! ```

use serde::{Deserialize, Serialize};

use crate::candidate::{Candidate, CountedSample, TrialRecord, count, in_order_of_time};

#[cfg(test)]
mod tests;

/// The two constants of Algorithms 8 and 10.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug)]
#[serde(default)]
pub struct Limits {
    /// `MAX_TEST_AMOUNT`: tests per candidate.
    pub max_tests: u32,
    /// `MIN_TIME_TO_RETEST`: seconds between two tests of one candidate; 0 is allowed.
    pub retest_s: f64,
}

impl Default for Limits {
    /// The paper's five tests; one hour.
    fn default() -> Self {
        Self { max_tests: 5, retest_s: 3600.0 }
    }
}

impl Limits {
    /// True when `now_s` is at least the waiting time after `last_s`; None has no wait. A last test in the
    /// future (a clock set back) is as good as none, else it would hold up the tests until the clock caught
    /// up.
    pub fn wait_is_over(&self, last_s: Option<f64>, now_s: f64) -> bool {
        last_s.is_none_or(|last_s| last_s > now_s || now_s - last_s >= self.retest_s)
    }
}

/// Summary of a program's tests under one candidate.
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

/// Average of `count + 1` values, given the `average` of the first `count` and the next one, `x` (Eq. 2). It
/// keeps no sum, so nothing overflows however large the values.
pub fn average(average: f64, count: u32, x: f64) -> f64 {
    let count = f64::from(count);
    average * (count / (count + 1.0)) + x / (count + 1.0)
}

/// The three picks, as indices into the list of candidates.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Picks {
    /// Least time per operation.
    pub fastest: usize,
    /// Least fragmentation.
    pub leanest: usize,
    /// Highest sum of both ranks.
    pub balanced: usize,
}

impl Picks {
    /// The index of one pick.
    pub fn get(&self, pick: Pick) -> usize {
        match pick {
            Pick::Fastest => self.fastest,
            Pick::Leanest => self.leanest,
            Pick::Balanced => self.balanced,
        }
    }
}

/// Picks among the candidates that have data and are `eligible` (same length as `summaries`); None when there
/// is none.
///
/// Candidates are sorted by time and by fragmentation, worst first; the place is the rank, the last is the
/// pick. Balanced is the highest sum of ranks, going through the candidates in order; of equal sums the one
/// of higher memory rank.
///
/// The paper is silent on two points. Equal values: the sort is stable in the reverse order of the
/// candidates, so the one that stands first in the catalogue (`system`) ranks best among equals and is not
/// displaced by its like. Candidates without data: they do not take part (the paper's zeros would make an
/// untested candidate the fastest).
pub fn analyse(summaries: &[TrialSummary], eligible: &[bool]) -> Option<Picks> {
    let is_eligible = |i: &usize| eligible.get(*i).copied().unwrap_or(false);
    let known: Vec<usize> =
        (0..summaries.len()).filter(is_eligible).filter(|&i| summaries[i].has_data()).collect();
    let by_time = worst_first(&known, |i| summaries[i].ns_per_op);
    let by_frag = worst_first(&known, |i| summaries[i].frag);
    let rank = |sorted: &[usize], i: usize| sorted.iter().position(|&j| j == i);
    let balanced = known.iter().copied().reduce(|best, i| {
        let key = |i| {
            let (time, frag) = (rank(&by_time, i), rank(&by_frag, i));
            (time.zip(frag).map(|(time, frag)| time + frag), frag)
        };
        if key(i) > key(best) { i } else { best }
    })?;
    Some(Picks { fastest: *by_time.last()?, leanest: *by_frag.last()?, balanced })
}

/// Indices by descending value; of equal values the earlier candidate stands later, that is better.
fn worst_first(known: &[usize], value: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut sorted: Vec<usize> = known.iter().rev().copied().collect();
    sorted.sort_by(|&a, &b| value(b).total_cmp(&value(a)));
    sorted
}

/// Load from which on CPU counts as short, per cent.
const SHORT_CPU_PCT: f64 = 75.0;

/// One of the three picks.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// Least time per operation.
    Fastest,
    /// Least fragmentation.
    Leanest,
    /// Highest sum of both ranks.
    Balanced,
}

/// Five-minute load average per CPU, per cent. 0 CPUs count as 1.
pub fn cpu_load_pct(load5: f64, cpus: u32) -> f64 {
    load5 / f64::from(cpus.max(1)) * 100.0
}

/// Lines 16 to 22 of Algorithm 1. `fastest_heap_bytes` and `leanest_heap_bytes` are the average heaps of the
/// program under these two picks (`avg_mem[0]` and `avg_mem[1]`).
pub fn choose(
    cpu_load_pct: f64,
    free_ram_bytes: f64,
    fastest_heap_bytes: f64,
    leanest_heap_bytes: f64,
) -> Pick {
    if cpu_load_pct >= SHORT_CPU_PCT && free_ram_bytes >= fastest_heap_bytes {
        Pick::Fastest
    } else if cpu_load_pct < SHORT_CPU_PCT && free_ram_bytes < leanest_heap_bytes {
        Pick::Leanest
    } else {
        Pick::Balanced
    }
}

/// The next candidate to test: from the one after `last` (index of the last tested) onwards, cyclic, the
/// first that is `eligible`, has tests left and whose wait is over. None switches the test mode off.
///
/// Trials that yielded nothing take part in both rules, beyond the paper: they too start the wait, and as
/// many of them as tests are allowed end the candidate's tests ([`TrialSummary::void`]).
///
/// Without a last one, or where it has left the catalogue, the search starts with the first candidate.
pub fn next_test(
    summaries: &[TrialSummary],
    last: Option<usize>,
    eligible: &[bool],
    limits: &Limits,
    now_s: f64,
) -> Option<usize> {
    let len = summaries.len();
    let start = last.filter(|&last| last < len).map_or(0, |last| last + 1);
    (0..len).map(|i| (start + i) % len).find(|&i| {
        let summary = &summaries[i];
        eligible.get(i).copied().unwrap_or(false)
            && !summary.is_spent(limits)
            && limits.wait_is_over(summary.last_trial_s(), now_s)
    })
}

/// The policy's knowledge of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct PaperState {
    /// Picks among all candidates with data, usable or not.
    pub picks: Option<Picks>,
    /// Picks among the usable ones.
    pub usable_picks: Option<Picks>,
    /// Candidate due for a trial; None: test mode is off.
    pub next_test: Option<usize>,
}
