// SPDX-License-Identifier: Apache-2.0
//! What the stored trials of a program say to the policy.

use crate::candidate::{Candidate, Cost, NotCounted, cost};
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
        let costs: Vec<Cost> = made.iter().filter_map(|(_, _, cost)| *cost).collect();
        let per_operation = !same_work(&costs);
        let of = |(candidate, _, cost): &(usize, f64, Option<Cost>)| Trial {
            candidate: *candidate,
            point: cost.and_then(|cost| point(&cost, per_operation)),
        };
        let mut last_s = vec![None; len];
        for (candidate, at_s, _) in &made {
            last_s[*candidate] = Some(*at_s);
        }
        let peak = |i: usize| {
            let peaks = made.iter().filter(|(candidate, ..)| *candidate == i).filter_map(|(.., cost)| *cost);
            peaks.map(|cost| cost.peak_bytes).max().unwrap_or(0)
        };
        let fits = |i: usize| settings.max_memory_bytes.is_none_or(|most| peak(i) <= most);
        let system = history.candidates.iter().position(Candidate::is_system).unwrap_or(0);
        Self {
            board: Board::new(&made.iter().map(of).collect::<Vec<_>>(), len, system),
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

/// Trials that speak for the program as it is now, in order of time: candidate, time, and cost where there is one.
fn made(history: &History<'_>, settings: &Settings) -> Vec<(usize, f64, Option<Cost>)> {
    let is_fresh = |record: &&TrialRecord| {
        let age_s = history.now_unix_s - record.sample.made_unix_s;
        age_s <= settings.max_age_s
    };
    let machine = newest_machine(history);
    let of = |record: &TrialRecord| {
        if !is_of_machine(record, machine) {
            return None;
        }
        let i = history.candidates.iter().position(|c| c.name == record.sample.candidate)?;
        match cost(record, &history.candidates[i], history.build_id) {
            Ok(cost) => Some((i, record.sample.made_unix_s, Some(cost))),
            Err(NotCounted::OtherVersion | NotCounted::OtherBuild) => None,
            Err(why) => why.is_candidates_doing().then_some((i, record.sample.made_unix_s, None)),
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

fn same_work(costs: &[Cost]) -> bool {
    let calls = || costs.iter().map(|cost| cost.calls as f64);
    let (least, most) = (calls().fold(f64::INFINITY, f64::min), calls().fold(0.0, f64::max));
    most <= least * SAME_WORK
}

fn point(cost: &Cost, per_operation: bool) -> Option<Point> {
    if per_operation {
        Point::new(cost.cpu_s / cost.calls as f64, cost.bytes / cost.live_bytes as f64)
    } else {
        Point::new(cost.cpu_s, cost.bytes)
    }
}
