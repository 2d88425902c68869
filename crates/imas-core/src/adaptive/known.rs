// SPDX-License-Identifier: Apache-2.0
//! What the stored trials of a program say to the policy.

use crate::candidate::{Candidate, Cost, Counted, NotCounted, cost, count};
use crate::paper::Limits;
use crate::profile::{History, trials};
use crate::record::TrialRecord;

use super::board::Trial;
use super::{Board, Judgement, Point, Settings, judge};

/// Calls of malloc and its kin may differ by so much from trial to trial, as a ratio, and the trials still did the same work.
const SAME_WORK: f64 = 1.02;

/// All that the policy needs, apart from the machine's state.
#[derive(Clone, PartialEq, Debug)]
pub struct Known {
    /// Rounds and pairs.
    pub board: Board,
    /// The user's settings.
    pub settings: Settings,
    /// By candidate: may it be used and is it within the memory limit.
    pub eligible: Vec<bool>,
    /// The trials did different amounts of work, so that their figures are taken per call and per live byte.
    pub per_operation: bool,
    /// By candidate: time of the latest trial, seconds since the epoch.
    last_s: Vec<Option<f64>>,
    limits: Limits,
    now_s: f64,
}

impl Known {
    /// From the history; `usable` says which candidates may be used at all.
    pub fn new(history: &History<'_>, usable: &[bool], settings: &Settings) -> Self {
        let len = history.candidates.len();
        let made = made(history, settings);
        let per_operation = !same_work(&made);
        let mut last_s = vec![None; len];
        for one in &made {
            last_s[one.candidate] = Some(one.record.sample.made_unix_s);
        }
        let peak = |i: usize| {
            let peaks = made.iter().filter(|one| one.candidate == i).filter_map(|one| one.cost);
            peaks.map(|cost| cost.peak_bytes).max().unwrap_or(0)
        };
        let fits = |i: usize| settings.max_memory_bytes.is_none_or(|most| peak(i) <= most);
        let system = history.candidates.iter().position(Candidate::is_system).unwrap_or(0);
        Self {
            board: Board::new(&points(&made, per_operation), len, system),
            settings: *settings,
            eligible: (0..len).map(|i| usable[i] && fits(i)).collect(),
            per_operation,
            last_s,
            limits: history.limits,
            now_s: history.now_unix_s,
        }
    }

    /// The judgement at weight `w`. Its `next` is due now: not while the candidate's wait lasts; and once the answer is known, `system` and the pick
    /// are looked at again from time to time.
    pub fn judge(&self, w: f64) -> Judgement {
        if self.eligible.is_empty() {
            return Judgement { standings: vec![], next: None, pick: 0 };
        }
        let mut judgement = judge(&self.board, &self.eligible, self.board.system, w, &self.settings);
        let next = judgement.next.or_else(|| self.watched(judgement.pick));
        judgement.next = next.filter(|&next| self.limits.wait_is_over(self.last_s[next], self.now_s));
        judgement
    }

    /// When the settled answer is looked at again, seconds since the epoch; None where there is nothing to watch.
    pub fn watch_at_s(&self, pick: usize) -> Option<f64> {
        if pick == self.board.system {
            return None;
        }
        let last_s = self.last_s[pick].into_iter().chain(self.last_s[self.board.system]).fold(None, least);
        last_s.map(|last_s| last_s + self.settings.watch_s)
    }

    fn watched(&self, pick: usize) -> Option<usize> {
        if self.now_s < self.watch_at_s(pick)? {
            return None;
        }
        // Whose last trial is the older one; the other follows by the same rule.
        [self.board.system, pick]
            .into_iter()
            .min_by(|&a, &b| self.last_s[a].unwrap_or(0.0).total_cmp(&self.last_s[b].unwrap_or(0.0)))
    }
}

fn least(least: Option<f64>, one: f64) -> Option<f64> {
    Some(least.map_or(one, |least| least.min(one)))
}

/// The trials as the policy sees them, in order of time, each with the paper's figures where it has them: what the laboratory replays.
pub(crate) fn replayed(history: &History<'_>, settings: &Settings) -> Vec<(Trial, Option<Counted>)> {
    let made = made(history, settings);
    let counted =
        |one: &Made<'_>| count(one.record, &history.candidates[one.candidate], history.build_id).ok();
    points(&made, !same_work(&made)).into_iter().zip(made.iter().map(counted)).collect()
}

/// A trial of a candidate, and what it cost if it yielded figures.
struct Made<'a> {
    candidate: usize,
    record: &'a TrialRecord,
    cost: Option<Cost>,
}

/// Trials that speak for the program as it is now, in order of time.
fn made<'a>(history: &History<'a>, settings: &Settings) -> Vec<Made<'a>> {
    let is_fresh = |record: &&TrialRecord| {
        let age_s = history.now_unix_s - record.sample.made_unix_s;
        age_s <= settings.max_age_s
    };
    let machine = newest_machine(history);
    let of = |record: &'a TrialRecord| {
        if !is_of_machine(record, machine) {
            return None;
        }
        let candidate = history.candidates.iter().position(|c| c.name == record.sample.candidate)?;
        match cost(record, &history.candidates[candidate], history.build_id) {
            Ok(cost) => Some(Made { candidate, record, cost: Some(cost) }),
            Err(NotCounted::OtherVersion | NotCounted::OtherBuild) => None,
            Err(why) => why.is_candidates_doing().then_some(Made { candidate, record, cost: None }),
        }
    };
    trials(history).into_iter().filter(is_fresh).filter_map(of).collect()
}

/// Trials under other page settings or CPUs than the newest one's say nothing of this machine.
fn newest_machine<'a>(history: &History<'a>) -> &'a str {
    trials(history).last().map_or("", |record| record.sample.machine.as_str())
}

fn is_of_machine(record: &TrialRecord, machine: &str) -> bool {
    record.sample.machine.is_empty() || machine.is_empty() || record.sample.machine == machine
}

fn same_work(made: &[Made<'_>]) -> bool {
    let calls = || made.iter().filter_map(|one| one.cost).map(|cost| cost.calls as f64);
    let (least, most) = (calls().fold(f64::INFINITY, f64::min), calls().fold(0.0, f64::max));
    most <= least * SAME_WORK
}

fn points(made: &[Made<'_>], per_operation: bool) -> Vec<Trial> {
    let of = |one: &Made<'_>| one.cost.and_then(|cost| point(&cost, per_operation));
    made.iter().map(|one| Trial { candidate: one.candidate, point: of(one) }).collect()
}

fn point(cost: &Cost, per_operation: bool) -> Option<Point> {
    if per_operation {
        Point::new(cost.cpu_s / cost.calls as f64, cost.bytes / cost.live_bytes as f64)
    } else {
        Point::new(cost.cpu_s, cost.bytes)
    }
}
