// SPDX-License-Identifier: Apache-2.0
//! The state of the adaptive policy, computed from a program's stored trials.

use crate::candidate::{Candidate, Cost, CountedSample, NotCounted, TrialRecord, cost, count};
use crate::history::{History, trials};
use crate::paper::Limits;

use super::board::{JudgedTrial, RECENT};
use super::judge::{Asked, side_by_side};
use super::judge::{CandidateChange, change};
use super::lives::{self, MemoryUnit};
use super::round::{Division, Round, Span, divided};
use super::{Board, HostTurn, Judgement, Point, Proof, Role, Settings, Status, Untouched, judge};

/// Once `system` has this number of trials, a candidate without any is taken to have joined later.
const FIRST_ROUNDS: u32 = 2;

/// Longest time in seconds, in a fleet, between a candidate's trial and the trial of `system` that it is compared
/// with. So `system` ran in the candidate's own turn, and not in an earlier one.
const PAIR_S: f64 = 3600.0;

/// Ratio up to which the number of allocation calls may differ between trials of the same work.
const SAME_WORK: f64 = 1.02;

/// Everything the policy needs, apart from the machine's conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct AdaptiveState {
    /// Rounds and pairs.
    pub board: Board,
    /// The user's settings.
    pub settings: Settings,
    /// Role of each candidate: whether it may be tried and used. A candidate above the memory limit may not.
    pub roles: Vec<Role>,
    /// Trials that no longer count.
    pub expired: Expired,
    /// Trials that are this host's, where a fleet shares them out; None where the host tries as if it were
    /// alone.
    pub turn: Option<HostTurn>,
    /// Time of each candidate's latest trial, seconds since the epoch. None where it had none.
    last_s: Vec<Option<f64>>,
    limits: Limits,
    now_s: f64,
}

impl AdaptiveState {
    /// State from the history. `roles` says whether each candidate may be tried and used; the memory limit is
    /// applied here.
    pub fn new(history: &History<'_>, roles: &[Role], settings: &Settings) -> Self {
        let len = history.candidates.len();
        let made = made(history, settings);
        let mut last_s = vec![None; len];
        // After a clock was set back, trials with a time in the future would put off every retest until then.
        for one in made.iter().filter(|one| one.record.sample.made_unix_s <= history.now_unix_s) {
            last_s[one.candidate] = Some(one.record.sample.made_unix_s);
        }
        let peak = |i: usize| {
            let peaks = made.iter().filter(|one| one.candidate == i).filter_map(|one| one.cost);
            peaks.map(|cost| cost.peak_bytes).max().unwrap_or(0)
        };
        let fits = |i: usize| settings.max_memory_bytes.is_none_or(|most| peak(i) <= most);
        let system = history.candidates.iter().position(Candidate::is_system).unwrap_or(0);
        let divided = DividedTrials::of(&made, history, settings);
        let mut board = Board::of(&divided.rounds, len, system);
        board.untouched = divided.untouched;
        board.places = history.candidates.iter().map(|one| one.place).collect();
        let is_newcomer = |i: usize| roles[i] == Role::Tested && board.trials_of(i) == 0;
        let first_of_round = made.len().saturating_sub(board.in_round.len());
        let is_stale =
            made.get(first_of_round).is_some_and(|one| is_pause(one, history.now_unix_s, settings));
        if is_stale
            && !is_shared_out(history)
            && board.counted[system] >= FIRST_ROUNDS
            && (0..len).any(is_newcomer)
        {
            board.in_round = (0..len).collect(); // closed: a newcomer begins one of its own
        }
        board.fleet = history.fleet.map(|fleet| fleet.evidence(history.candidates));
        Self {
            board,
            settings: *settings,
            roles: (0..len).map(|i| if fits(i) { roles[i] } else { Role::Ineligible }).collect(),
            expired: expired(history, settings),
            turn: None,
            last_s,
            limits: history.limits,
            now_s: history.now_unix_s,
        }
    }

    /// The judgement at weight `w`. Its `next` is the trial that is due now. There is none while the
    /// candidate's waiting time lasts. Once the answer is settled, `system` and the pick are retested from
    /// time to time.
    pub fn judge(&self, w: f64) -> Judgement {
        let mut judgement = self.judge_at_leisure(w);
        judgement.next = self.due(&judgement, w).filter(|due| due.is_now).map(|due| due.candidate);
        judgement
    }

    /// The change from candidate `from` to candidate `to` at weight `w`, by the judge that makes the pick.
    pub fn change(&self, from: usize, to: usize, w: f64) -> CandidateChange {
        change(&self.board, &self.roles, (from, to), w, &self.settings)
    }

    /// The next trial at weight `w`, due now or later; None where the answer is settled and nothing is to be
    /// watched.
    pub fn next_trial(&self, w: f64) -> Option<Due> {
        self.due(&self.judge_at_leisure(w), w)
    }

    /// The trials that are due at weight `w` in `room` starts at about the same time, beside the trials of
    /// `running`, in random order: `system` and those that it is to be compared with. Empty where nothing is
    /// due, or `room` is too small for a comparison.
    pub fn side_by_side(&self, w: f64, running: &[usize], room: usize) -> Vec<usize> {
        let may_start = |i: &usize| self.limits.wait_is_over(self.last_s[*i], self.now_s);
        let judgement = self.judge_at_leisure(w);
        if let Some(turn) = &self.turn {
            return self.pair_of_turn(turn, &judgement, w, running, room);
        }
        if judgement.next.is_none() {
            let is_due = self.due(&judgement, w).is_some_and(|due| due.is_now);
            return if is_due && room >= 2 { vec![judgement.pick, self.board.system] } else { vec![] };
        }
        side_by_side(
            &self.board,
            &self.roles,
            w,
            &self.settings,
            &Asked { running, room, may_start: &may_start },
        )
    }

    /// The judgement without waiting times.
    fn judge_at_leisure(&self, w: f64) -> Judgement {
        if self.roles.is_empty() {
            return Judgement { standings: vec![], next: None, pick: 0 };
        }
        judge(&self.board, &self.roles, self.board.system, w, &self.settings)
    }

    fn due(&self, judgement: &Judgement, w: f64) -> Option<Due> {
        let of = |candidate: usize, is_watch| Due {
            candidate,
            is_watch,
            at_s: self.last_s[candidate].map_or(self.now_s, |last_s| last_s + self.limits.retest_s),
            is_now: self.limits.wait_is_over(self.last_s[candidate], self.now_s),
        };
        let next = match &self.turn {
            Some(turn) => self.next_of_turn(turn, judgement),
            None => judgement.next,
        };
        if let Some(next) = next {
            return Some(of(next, false));
        }
        let watch_at_s = self.watch_at_s(judgement, w)?;
        let due = of(self.older(judgement.pick), true);
        Some(Due { at_s: due.at_s.max(watch_at_s), is_now: due.is_now && self.now_s >= watch_at_s, ..due })
    }

    /// The trial of this host's turn. A candidate that was tried gets its `system` in any case: without it
    /// the trial would show nothing.
    fn next_of_turn(&self, turn: &HostTurn, judgement: &Judgement) -> Option<usize> {
        let (system, begun) = (self.board.system, &self.board.in_round);
        if !begun.is_empty() && !begun.contains(&system) {
            return Some(system);
        }
        judgement.next?;
        let is_next_own =
            |i: &usize| turn.is_own(*i) && is_open(judgement, *i) && self.may_try(*i, judgement);
        self.shared_trial(turn, judgement).or_else(|| (0..self.roles.len()).find(is_next_own))
    }

    /// The candidate of the turn, unless it had its trial.
    fn shared_trial(&self, turn: &HostTurn, judgement: &Judgement) -> Option<usize> {
        let is_first = |i: usize| self.last_s[i].is_none_or(|last_s| last_s < turn.begin_s);
        turn.candidate.filter(|&i| is_first(i) && self.may_try(i, judgement))
    }

    /// Whether the host may try what the fleet lacks. Its own trials win over what the fleet would like to
    /// know.
    fn may_try(&self, i: usize, judgement: &Judgement) -> bool {
        let is_out = match judgement.standings[i].status {
            Status::Void | Status::Ineligible | Status::Left | Status::Regressed => true,
            Status::Worse => self.board.counted[i] > 0,
            _ => false,
        };
        i != self.board.system
            && self.roles[i] == Role::Tested
            && !is_out
            && self.board.trials_of(i) < self.settings.max_rounds
    }

    /// Candidates of the trials of two starts at about the same time, in this host's turn. It is the
    /// candidate whose trial is due, and `system` beside it. Where `system` alone is due, it is the turn's
    /// candidate. Empty where no trial is due, there is no room for two, or the candidate has a trial that
    /// runs.
    fn pair_of_turn(
        &self,
        turn: &HostTurn,
        judgement: &Judgement,
        w: f64,
        running: &[usize],
        room: usize,
    ) -> Vec<usize> {
        let due = self.due(judgement, w).filter(|due| due.is_now && room >= 2);
        let candidate = due.and_then(|due| match due.is_watch {
            true => Some(judgement.pick),
            // In a deployment the candidate gets a `system` beside it, whatever an earlier one still lacks.
            false if due.candidate == self.board.system => self.shared_trial(turn, judgement),
            false => Some(due.candidate),
        });
        let Some(candidate) = candidate.filter(|candidate| !running.contains(candidate)) else {
            return vec![];
        };
        // The first that starts may get the first requests.
        let mut pair = vec![candidate, self.board.system];
        pair.rotate_left(self.board.rounds as usize % 2);
        pair
    }

    /// When the settled answer is retested, seconds since the epoch; None where nothing is to be watched.
    fn watch_at_s(&self, judgement: &Judgement, w: f64) -> Option<f64> {
        let pick = judgement.pick;
        if pick == self.board.system {
            return None;
        }
        let both_s = self.last_s[pick].zip(self.last_s[self.board.system]);
        let older_s = both_s.map(|(pick_s, system_s)| pick_s.min(system_s));
        // None of it was tried here, or the clock was set back: a look is due.
        let last_s = older_s.unwrap_or(f64::NEG_INFINITY);
        if self.is_unproven(pick, w) {
            return Some(last_s);
        }
        // A pick that the fleet alone proves is watched by it: a small share of its hosts in each period.
        let fleet = self.turn.as_ref().filter(|_| judgement.standings[pick].proof == Some(Proof::Fleet));
        match fleet {
            Some(turn) => turn.is_check_due(pick, older_s).then_some(turn.checks_begin_s),
            None => Some(last_s + self.settings.watch_s),
        }
    }

    /// Whether retests of the pick follow each other without delay: its newest retest was worse. Three such
    /// retests make the pick step back. Retests that yield no figures decide nothing; after three of these
    /// the usual interval applies again.
    fn is_unproven(&self, pick: usize, w: f64) -> bool {
        let is_worse = self.board.recent[pick].last().is_some_and(|newest| newest.score(w) > 0.0);
        is_worse && (self.board.unanswered[pick] as usize) < RECENT
    }

    /// Index of `system` or the pick: the candidate whose last trial is older. The other follows by the same
    /// rule.
    fn older(&self, pick: usize) -> usize {
        let last_s = |i: usize| self.last_s[i].unwrap_or(0.0);
        if last_s(pick) < last_s(self.board.system) { pick } else { self.board.system }
    }
}

/// A future trial.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Due {
    /// Index of its candidate.
    pub candidate: usize,
    /// Earliest time, seconds since the epoch.
    pub at_s: f64,
    /// Whether the time of the trial has come.
    pub is_now: bool,
    /// Whether the trial is a retest of a settled answer.
    pub is_watch: bool,
}

fn is_open(judgement: &Judgement, i: usize) -> bool {
    matches!(judgement.standings[i].status, Status::Open | Status::Proven)
}

/// The trials as the policy sees them, in order of time, each with the paper's figures where it has them. For
/// the simulator, which replays them.
pub fn replayed(history: &History<'_>, settings: &Settings) -> Vec<(JudgedTrial, Option<CountedSample>)> {
    let made = made(history, settings);
    let counted =
        |one: &Made<'_>| count(one.record, &history.candidates[one.candidate], history.build_id).ok();
    points(&made, !same_work(&made)).into_iter().zip(made.iter().map(counted)).collect()
}

/// A trial of a round, with its name.
pub(super) struct NumberedTrial {
    pub(super) trial_id: String,
    pub(super) judged: JudgedTrial,
}

/// The rounds as the policy divides the trials, with the name of each trial.
pub(super) fn numbered_rounds(history: &History<'_>, settings: &Settings) -> Vec<Vec<NumberedTrial>> {
    let made = made(history, settings);
    let divided = DividedTrials::of(&made, history, settings);
    let named = |(at, judged): (&usize, &JudgedTrial)| NumberedTrial {
        trial_id: made[*at].record.sample.trial_id.clone(),
        judged: *judged,
    };
    let rounds = divided.divisions.iter().zip(&divided.rounds);
    rounds.map(|(of, round)| of.members.iter().zip(&round.trials).map(named).collect()).collect()
}

/// All trials as rounds, with the figures by which the trials of each round are compared.
struct DividedTrials {
    divisions: Vec<Division>,
    rounds: Vec<Round>,
    /// Scatter of untouched replicas, where that is the noise of all these rounds.
    untouched: Option<Untouched>,
}

impl DividedTrials {
    fn of(made: &[Made<'_>], history: &History<'_>, settings: &Settings) -> Self {
        // Where the trials did different amounts of work, their figures are taken per call and per live byte.
        let per_operation = !same_work(made);
        let system = history.candidates.iter().position(Candidate::is_system).unwrap_or(0);
        let spans: Vec<Span> = made.iter().map(Made::span).collect();
        let ends = |from, at| ends(made, (from, at), system, (history, settings));
        let judged = points(made, per_operation);
        let divisions = divided(&judged, &spans, ends, system);
        let untouched = Untouched::of(history.untouched);
        let round = |division: &Division| {
            let plain = division.round(&judged);
            let memory = match per_operation && !(division.is_side_by_side && untouched.is_some()) {
                true => MemoryUnit::OfLiveBytes,
                false => MemoryUnit::Bytes,
            };
            let has_system = plain.trials.iter().any(|one| one.candidate == system && one.point.is_some());
            let lived =
                has_system.then(|| of_lives(made, division, &plain, (memory, per_operation))).flatten();
            lived.unwrap_or(plain)
        };
        let rounds: Vec<Round> = divisions.iter().map(round).collect();
        // Figures of another kind have another noise.
        let is_measured_alike = |round: &Round| {
            (round.is_side_by_side && round.is_of_lives) || round.trials.iter().all(|one| one.point.is_none())
        };
        let untouched = untouched.filter(|_| rounds.iter().all(is_measured_alike));
        Self { divisions, rounds, untouched }
    }
}

/// The round by the lives of its processes; None where they have none in common.
fn of_lives(
    made: &[Made<'_>],
    division: &Division,
    plain: &Round,
    (memory, per_call): (MemoryUnit, bool),
) -> Option<Round> {
    let counted: Vec<usize> =
        (0..plain.trials.len()).filter(|at| plain.trials[*at].point.is_some()).collect();
    let lives: Vec<_> =
        counted.iter().map(|at| made[division.members[*at]].record.sample.life.as_ref()).collect();
    let points = lives::points(&lives, memory, per_call)?;
    let mut round = Round { is_of_lives: true, ..plain.clone() };
    for (at, point) in counted.into_iter().zip(points) {
        round.trials[at].point = point;
    }
    Some(round)
}

/// A trial of a candidate, and what it cost if it yielded figures.
struct Made<'a> {
    candidate: usize,
    record: &'a TrialRecord,
    cost: Option<Cost>,
}

impl Made<'_> {
    fn span(&self) -> Span {
        let sample = &self.record.sample;
        Span { begin_s: sample.made_unix_s, end_s: sample.made_unix_s + sample.wall_s }
    }
}

/// Whether an older round ends before a trial of a candidate that joined later. Paired with last week's
/// run of `system`, a new candidate would be charged with everything that has changed since. In a fleet every
/// candidate may come so late.
fn ends(
    made: &[Made<'_>],
    (from, at): (usize, usize),
    system: usize,
    (history, settings): (&History<'_>, &Settings),
) -> bool {
    let begin_s = |one: &Made<'_>| one.record.sample.made_unix_s;
    let is_shared = is_shared_out(history) && made[at].candidate != system;
    let is_past = |one: &Made<'_>| one.candidate == system && begin_s(&made[at]) - begin_s(one) > PAIR_S;
    if is_shared && made[from..at].iter().any(is_past) {
        return true;
    }
    // A run of a bench has no hook inside: it is compared with its own kind alone.
    if made[from].record.sample.is_of_bench() != made[at].record.sample.is_of_bench() {
        return true;
    }
    let of_system = made[..at].iter().filter(|one| one.candidate == system).count();
    let is_first = made[..at].iter().all(|one| one.candidate != made[at].candidate);
    is_first
        && of_system >= FIRST_ROUNDS as usize
        && is_pause(&made[from], made[at].record.sample.made_unix_s, settings)
}

fn is_shared_out(history: &History<'_>) -> bool {
    history.fleet.is_some_and(|fleet| fleet.hosts > 1)
}

fn is_pause(one: &Made<'_>, until_s: f64, settings: &Settings) -> bool {
    until_s - one.record.sample.made_unix_s > settings.watch_s / 2.0
}

/// Trials that are valid for the program as it is now, in order of time.
fn made<'a>(history: &History<'a>, settings: &Settings) -> Vec<Made<'a>> {
    let machine = machine(history);
    let of = |record: &'a TrialRecord| {
        if !is_fresh(record, history, settings) || !is_of_machine(record, machine) {
            return None;
        }
        let candidate = history.candidates.iter().position(|c| c.name == record.sample.candidate)?;
        match cost(record, &history.candidates[candidate], history.build_id) {
            Ok(cost) => Some(Made { candidate, record, cost: Some(cost) }),
            Err(NotCounted::OtherVersion | NotCounted::OtherBuild) => None,
            Err(why) => why.is_candidates_doing().then_some(Made { candidate, record, cost: None }),
        }
    };
    trials(history).into_iter().filter_map(of).collect()
}

fn is_fresh(record: &TrialRecord, history: &History<'_>, settings: &Settings) -> bool {
    history.now_unix_s - record.sample.made_unix_s <= settings.max_age_s
}

/// Trials under other page settings or another number of CPUs do not count. Where the present ones are
/// unknown, the newest trial's are taken.
fn machine<'a>(history: &History<'a>) -> &'a str {
    match history.machine {
        "" => trials(history).last().map_or("", |record| record.sample.machine.as_str()),
        now => now,
    }
}

/// Trials of this build that no longer count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Expired {
    /// Trials that are too old.
    pub by_age: usize,
    /// Made under other page settings or CPUs.
    pub by_machine: usize,
}

fn expired(history: &History<'_>, settings: &Settings) -> Expired {
    let machine = machine(history);
    trials(history).into_iter().fold(Expired::default(), |sum, record| {
        let (is_fresh, is_of_machine) = (is_fresh(record, history, settings), is_of_machine(record, machine));
        Expired {
            by_age: sum.by_age + usize::from(!is_fresh),
            by_machine: sum.by_machine + usize::from(is_fresh && !is_of_machine),
        }
    })
}

fn is_of_machine(record: &TrialRecord, machine: &str) -> bool {
    record.sample.machine.is_empty() || machine.is_empty() || record.sample.machine == machine
}

fn same_work(made: &[Made<'_>]) -> bool {
    // A run that was not counted says nothing of its calls.
    let counted = |cost: &Cost| cost.calls > 0;
    let calls = || made.iter().filter_map(|one| one.cost).filter(counted).map(|cost| cost.calls as f64);
    let (least, most) = (calls().fold(f64::INFINITY, f64::min), calls().fold(0.0, f64::max));
    most <= least * SAME_WORK
}

fn points(made: &[Made<'_>], per_operation: bool) -> Vec<JudgedTrial> {
    let of = |one: &Made<'_>| one.cost.and_then(|cost| point(&cost, per_operation));
    made.iter().map(|one| JudgedTrial { candidate: one.candidate, point: of(one) }).collect()
}

fn point(cost: &Cost, per_operation: bool) -> Option<Point> {
    if per_operation && cost.calls > 0 {
        Point::new(cost.cpu_s / cost.calls as f64, cost.bytes / cost.live_bytes as f64)
    } else {
        Point::new(cost.cpu_s, cost.bytes)
    }
}
