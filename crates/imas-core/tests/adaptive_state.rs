// SPDX-License-Identifier: Apache-2.0
//! Promises of the default policy about a program's life: when trials expire, when a settled answer is looked
//! at again, when the pick steps back.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::board::JudgedTrial;
use imas_core::adaptive::{AdaptiveState, Board, Expired, HostTurn, Point, Proof, Role, Settings, Status};
use imas_core::candidate::Candidate;
use imas_core::compare::Answer;
use imas_core::fleet_prior::{FleetCandidate, FleetPrior, GroupDifference};
use imas_core::paper::Limits;
use imas_core::sample::{MEASURED_BY_BENCH, MemoryFigures, OpFigures, Sample, Usage};
use imas_core::{Conditions, Decision, History, Policy, ProfileView, TrialRecord, decide};

const DAY_S: f64 = 24.0 * 3600.0;
const HERE: &str = "pages 4096, huge madvise, cpus 0-1";
/// Weight of CPU in the score: CPU and memory count alike.
const W: f64 = 0.5;

struct Life {
    records: Vec<TrialRecord>,
    candidates: Vec<Candidate>,
    build_id: &'static str,
    machine: &'static str,
    fleet: Option<FleetPrior>,
    turn: Option<HostTurn>,
    retest_s: f64,
    now_s: f64,
}

impl Life {
    fn new() -> Self {
        let candidates = vec![
            Candidate::system("2.36"),
            Candidate::new("lean", "1", &[]),
            Candidate::new("fat", "1", &[]),
        ];
        Self {
            records: vec![],
            candidates,
            build_id: "b1",
            machine: HERE,
            fleet: None,
            turn: None,
            retest_s: 0.0,
            now_s: 1e9,
        }
    }

    /// `lean` takes 20 % less memory, proven in the fewest rounds.
    fn settled() -> Self {
        let mut life = Self::new();
        while let Some(next) = life.next() {
            life.trial(next, [100.0, 80.0, 130.0][next]);
            assert!(life.records.len() < 30, "no answer");
        }
        assert_eq!(life.pick(), 1);
        life
    }

    /// A program whose pick is settled, with good retests of it for that number of weeks.
    fn watched(weeks: u32) -> Self {
        let mut life = Self::settled();
        (0..weeks).for_each(|_| life.look(80.0));
        life
    }

    /// A week later both are looked at.
    fn look(&mut self, lean: f64) {
        self.now_s += 7.0 * DAY_S;
        for _ in 0..2 {
            let next = self.next().unwrap();
            self.trial(next, [100.0, lean][next]);
        }
    }

    /// A trial, a minute after what was before.
    fn trial(&mut self, candidate: usize, mebibytes: f64) {
        self.now_s += 60.0;
        let off = 1.0 + 0.001 * f64::from(u8::try_from(self.records.len() % 5).unwrap());
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
        let bytes = (mebibytes * off * f64::from(1 << 20)) as u64;
        let candidate = &self.candidates[candidate];
        let memory = MemoryFigures {
            snapshots: 1,
            resident_over_time: bytes,
            live_mean: 1 << 20,
            ..MemoryFigures::default()
        };
        self.records.push(TrialRecord {
            sample: Sample {
                trial_id: format!("t{}", self.records.len()),
                candidate: candidate.name.clone(),
                made_unix_s: self.now_s,
                malloc: OpFigures { calls: 1000, sampled: 9, mean_ns: 20.0, ..OpFigures::default() },
                memory,
                usage: Some(Usage { user_s: off, ..Usage::default() }),
                machine: self.machine.to_owned(),
                ..Sample::default()
            },
            build_id: self.build_id.to_owned(),
            allocator_version: candidate.version.clone(),
            retest_s: None,
        });
    }

    fn known(&self) -> AdaptiveState {
        let roles = vec![Role::Tested; self.candidates.len()];
        let mut known = self.judged(|history| AdaptiveState::new(history, &roles, &Settings::default()));
        known.turn.clone_from(&self.turn);
        known
    }

    /// Decision for the next start on an idle machine.
    fn decision(&self) -> Decision {
        let policy = Policy::Adaptive(Settings::default());
        let mut profile = self.judged(|history| ProfileView::under(history, &policy));
        profile.adaptive_mut().unwrap().turn = self.turn.clone();
        decide(&profile, &Conditions::default())
    }

    fn judged<T>(&self, judge: impl FnOnce(&History<'_>) -> T) -> T {
        judge(&History {
            build_id: self.build_id,
            limits: Limits { retest_s: self.retest_s, ..Limits::default() },
            now_unix_s: self.now_s,
            machine: self.machine,
            fleet: self.fleet.as_ref(),
            ..History::of(&self.records, &self.candidates)
        })
    }

    fn next(&self) -> Option<usize> {
        self.known().judge(W).next
    }

    fn pick(&self) -> usize {
        self.known().judge(W).pick
    }
}

/// A change that `advise`, `top` and `serve` show is the one that the policy decided: they ask the same
/// judge.
#[test]
fn a_change_is_proven_where_the_policy_picks_it() {
    let mut life = Life::new();
    let mut before = 0;
    while let Some(next) = life.next() {
        life.trial(next, [100.0, 80.0, 130.0][next]);
        let known = life.known();
        for w in [0.0, W, 1.0] {
            let pick = known.judge(w).pick;
            let proven = |to: usize| known.change(0, to, w).answer == Answer::Better;
            assert_eq!((1..3).any(proven), pick != 0, "{} trials, weight {w}", life.records.len());
            assert!(pick == 0 || proven(pick));
        }
        before += 1;
        assert!(before < 30, "no answer");
    }
    let change = life.known().change(0, 1, W);
    let memory = change.memory.unwrap();
    assert!(memory.lo < 0.8 && memory.hi > 0.79 && memory.hi < 1.0, "{change:?}");
    assert_eq!(life.known().change(1, 0, W).answer, Answer::NotShown, "back to system is no gain");
    let back = life.known().change(1, 0, W).memory.unwrap();
    assert!((back.mid * memory.mid - 1.0).abs() < 1e-9);
}

/// The way back to `system` is the same question with all signs turned, so it takes the same gain.
#[test]
fn a_change_back_to_system_takes_as_much_as_one_to_a_candidate() {
    let answer = |lead: f64, sign: f64, [from, to]: [usize; 2]| {
        let noise = [0.09, -0.06, 0.03, -0.09, 0.06, -0.03];
        let costs = noise.iter().flat_map(|noise| [(0, 0.0), (1, lead + noise)]);
        let point = |memory: f64| Some(Point { cpu: 0.0, memory: sign * memory });
        let trials: Vec<JudgedTrial> =
            costs.map(|(candidate, memory)| JudgedTrial { candidate, point: point(memory) }).collect();
        let mut known = Life::new().known();
        known.board = Board::new(&trials, 3, 0);
        known.change(from, to, 0.0).answer
    };
    let leads = || (0..=20).map(|part| f64::from(part) / 100.0);
    let back: Vec<Answer> = leads().map(|lead| answer(lead, 1.0, [1, 0])).collect();
    let there: Vec<Answer> = leads().map(|lead| answer(lead, -1.0, [0, 1])).collect();
    assert_eq!(back, there);
    assert_eq!((back[0], back[20]), (Answer::NotShown, Answer::Better));
}

/// `lean` was quarantined, say. What is better than `system` may be worse than it.
#[test]
fn a_change_from_a_candidate_that_may_not_be_used_is_no_change_from_system() {
    let round = |round: u32| {
        let noise = 0.01 * f64::from(round % 2);
        [(0, noise), (1, -0.5), (2, -0.3)]
    };
    let point = |memory: f64| Some(Point { cpu: 0.0, memory });
    let trial = |(candidate, memory): (usize, f64)| JudgedTrial { candidate, point: point(memory) };
    let trials: Vec<JudgedTrial> = (0..6).flat_map(round).map(trial).collect();
    let mut known = Life::new().known();
    known.board = Board::new(&trials, 3, 0);
    known.roles[1] = Role::Ineligible;
    assert_eq!(known.change(0, 2, 0.0).answer, Answer::Better);
    assert_eq!(known.change(1, 2, 0.0).answer, Answer::NotShown);
}

#[test]
fn an_answer_stands_until_something_changes() {
    let life = Life::settled();
    assert_eq!((life.next(), life.known().expired), (None, Expired::default()));
    assert_eq!(life.records.iter().filter(|record| record.sample.candidate == "fat").count(), 1);
}

#[test]
fn a_new_build_begins_anew() {
    let mut life = Life::settled();
    life.build_id = "b2";
    assert_eq!((life.pick(), life.next().is_some(), life.known().board.trials()), (0, true, 0));
}

/// The trials begin anew at once, not when some later trial happens to be made there.
#[test]
fn other_pages_or_cpus_begin_anew() {
    let mut life = Life::settled();
    let trials = life.records.len();
    life.machine = "pages 4096, huge madvise, cpus 0-63";
    assert_eq!((life.pick(), life.next().is_some()), (0, true));
    assert_eq!(life.known().expired, Expired { by_age: 0, by_machine: trials });
    life.machine = HERE;
    assert_eq!(life.pick(), 1, "back again: what was measured here counts again");
    life.machine = "";
    assert_eq!(life.pick(), 1, "the state of the machine is unknown");
}

#[test]
fn trials_of_a_settled_program_expire_by_age() {
    let mut life = Life::settled();
    let trials = life.records.len();
    life.now_s += 91.0 * DAY_S;
    assert_eq!((life.pick(), life.next().is_some()), (0, true));
    assert_eq!(life.known().expired, Expired { by_age: trials, by_machine: 0 });
}

#[test]
fn a_settled_answer_is_watched_every_week() {
    let mut life = Life::settled();
    let due = life.known().next_trial(W).unwrap();
    assert!(due.is_watch && !due.is_now && due.at_s > life.now_s + 6.9 * DAY_S, "{due:?}");
    life.look(80.0);
    assert_eq!((life.next(), life.pick()), (None, 1), "both had their look, and it holds");
}

/// Two more looks follow the first bad one at once, not in two and three weeks.
#[test]
fn a_pick_that_has_become_worse_steps_back_within_three_looks() {
    let mut life = Life::watched(6);
    life.now_s += 7.0 * DAY_S;
    let before_s = life.now_s;
    let mut looks = 0;
    while let Some(next) = life.next() {
        life.trial(next, [100.0, 125.0][next]);
        looks += 1;
        assert!(looks <= 7, "it goes on and on");
    }
    assert_eq!(life.pick(), 0, "{looks} looks");
    assert_eq!(life.known().judge(W).standings[1].status, Status::Regressed);
    assert!(life.now_s - before_s < 3600.0, "{} s", life.now_s - before_s);
}

#[test]
fn a_bad_look_causes_exactly_one_further_look() {
    let mut life = Life::watched(6);
    life.look(125.0);
    for _ in 0..2 {
        let next = life.next().unwrap();
        life.trial(next, [100.0, 80.0][next]);
    }
    assert_eq!((life.next(), life.pick()), (None, 1));
}

#[test]
fn looks_without_figures_come_to_an_end() {
    let mut life = Life::watched(6);
    life.look(125.0);
    let mut looks = 0;
    while let Some(next) = life.next() {
        life.trial(next, 100.0);
        if next == 1 {
            life.records.last_mut().unwrap().sample.memory.snapshots = 0;
        }
        looks += 1;
        assert!(looks <= 8, "it goes on and on");
    }
    assert!(looks >= 2 && life.pick() == 1, "{looks}");
}

/// Weeks of looks have used up the rounds of the allocators that were there from the beginning, not the
/// rounds of one that comes later.
#[test]
fn a_new_version_of_an_allocator_is_tried_however_many_rounds_were_made() {
    let mut life = Life::watched(9);
    assert_eq!((life.next(), life.pick()), (None, 1));
    life.candidates[2].version = "2".to_owned();
    let mut tried = vec![];
    while let Some(next) = life.next() {
        tried.push(next);
        life.trial(next, [100.0, 80.0, 40.0][next]);
        assert!(tried.len() < 30, "no answer: {tried:?}");
    }
    assert!(tried.contains(&2) && life.pick() == 2, "{tried:?}");
    // An upgrade of the pick itself: trials of the old version do not count for the new one.
    life.candidates[2].version = "3".to_owned();
    assert_eq!(life.pick(), 1);
    assert!(life.next().is_some());
}

/// The host is slower than when the settled answer was last looked at: that is no doing of an allocator that
/// is tried for the first time now.
#[test]
fn a_new_candidate_is_compared_with_recent_rounds() {
    let slow = |life: &mut Life, next: usize| {
        life.trial(next, [100.0, 80.0, 40.0][next]);
        life.records.last_mut().unwrap().sample.usage.as_mut().unwrap().user_s *= 1.5;
    };
    let mut life = Life::watched(3);
    life.candidates[2].version = "2".to_owned();
    life.now_s += 6.0 * DAY_S;
    // The newcomer's trial comes before the one of `system`.
    slow(&mut life, 2);
    assert_eq!(life.known().judge(W).standings[2].rounds, 0, "its round waits for system");
    let mut tried = vec![];
    while let Some(next) = life.next() {
        tried.push(next);
        slow(&mut life, next);
        let newcomer = life.known().judge(W).standings[2];
        assert!(newcomer.cpu.abs() < 0.1, "{tried:?}: {newcomer:?}");
        assert!(tried.len() < 30, "no answer: {tried:?}");
    }
    assert_eq!(life.pick(), 2, "{tried:?}");
}

#[test]
fn open_questions_are_distinguished_from_answered_ones() {
    let mut life = Life::new();
    life.retest_s = 3600.0;
    for candidate in [0, 1, 2] {
        life.trial(candidate, [100.0, 80.0, 130.0][candidate]);
    }
    let due = life.known().next_trial(W).unwrap();
    assert!(!due.is_now && !due.is_watch && due.at_s > life.now_s, "{due:?}");
    assert_eq!(life.next(), None);
    life.now_s += 3600.0;
    assert!(life.known().next_trial(W).unwrap().is_now);
}

/// Twelve groups of other hosts, which agree: of `lean` this much more memory, of `fat` a third more.
fn fleet(lean: f64) -> FleetPrior {
    let of = |name: &str, memory: f64| {
        let off = |group: u8| 0.001 * f64::from(group % 5);
        let group = |group| GroupDifference { cpu: 0.01 * off(group), memory: memory + off(group) };
        FleetCandidate {
            name: name.to_owned(),
            version: "1".to_owned(),
            groups: (0..12).map(group).collect(),
            ..FleetCandidate::default()
        }
    };
    FleetPrior { hosts: 12, counted: 12, scatter: None, candidates: vec![of("lean", lean), of("fat", 0.26)] }
}

#[test]
fn a_new_host_starts_on_what_the_fleet_proved() {
    let mut life = Life::new();
    life.fleet = Some(fleet(-0.22));
    life.turn = Some(HostTurn::default());
    let judged = life.known().judge(W);
    assert_eq!((judged.pick, judged.next), (1, None), "{judged:?}");
    assert_eq!(judged.standings[1].proof, Some(Proof::Fleet));
    assert_eq!(judged.standings[2].status, Status::Worse);
    let decision = life.decision();
    assert_eq!((decision.candidate.as_str(), decision.trial), ("lean", false), "{}", decision.text());
    assert!(decision.text().contains("proven by 12 hosts of the fleet"), "{}", decision.text());
    (life.fleet, life.turn) = (None, None);
    assert!(life.decision().trial, "on its own it has to try");
}

#[test]
fn what_the_fleet_does_not_prove_is_no_pick() {
    let mut life = Life::new();
    life.fleet = Some(fleet(-0.03));
    assert_eq!(life.pick(), 0, "below the margin");
    let few = life.fleet.as_mut().unwrap();
    *few = fleet(-0.22);
    few.candidates[0].groups.truncate(4);
    assert_eq!(life.pick(), 0, "four groups");
    life.fleet = Some(fleet(-0.22));
    life.candidates[1].version = "2".to_owned();
    assert_eq!(life.pick(), 0, "of another version");
}

#[test]
fn the_hosts_own_trials_win() {
    let mut life = Life::settled();
    life.fleet = Some(fleet(0.30));
    assert_eq!(life.pick(), 1, "proven here, worse elsewhere");
    let mut life = Life::new();
    life.fleet = Some(fleet(-0.08));
    assert_eq!(life.pick(), 1);
    for _ in 0..2 {
        [0, 1].into_iter().for_each(|i| life.trial(i, [100.0, 125.0][i]));
    }
    assert_eq!(life.pick(), 0, "better elsewhere, worse here");
}

#[test]
fn a_candidate_that_crashed_on_three_hosts_is_used_on_none() {
    let mut life = Life::new();
    let mut fleet = fleet(-0.22);
    fleet.candidates[0].crashed_groups = 3;
    assert_eq!(fleet.quarantines(&life.candidates[1]), Some(3));
    fleet.candidates[0].crashed_groups = 2;
    assert_eq!(fleet.quarantines(&life.candidates[1]), None);
    fleet.candidates[0].crashed_groups = 9;
    life.candidates[1].version = "2".to_owned();
    assert_eq!(fleet.quarantines(&life.candidates[1]), None, "an upgrade ends it");
}

/// A host of a fleet in which the question is still open.
fn in_open_fleet() -> Life {
    let mut life = Life::new();
    let mut known = fleet(-0.22);
    known.candidates.iter_mut().for_each(|candidate| candidate.groups.truncate(2));
    life.fleet = Some(known);
    life
}

impl Life {
    /// Begins this host's turn for that candidate.
    fn begin_turn(&mut self, candidate: Option<usize>) {
        self.turn = Some(HostTurn { candidate, begin_s: self.now_s, ..HostTurn::default() });
    }
}

#[test]
fn in_its_turn_a_host_makes_one_pair() {
    let mut life = in_open_fleet();
    assert!(life.next().is_some(), "the question is open");
    life.begin_turn(None);
    assert_eq!(life.next(), None, "others have their turn");
    life.begin_turn(Some(2));
    assert_eq!(life.next(), Some(2));
    assert_eq!(life.decision().candidate, "fat");
    life.trial(2, 130.0);
    assert_eq!(life.next(), Some(0), "system beside it");
    life.begin_turn(None);
    life.now_s += DAY_S;
    assert_eq!(life.next(), Some(0), "a pair is completed after the turn, too");
    life.trial(0, 100.0);
    assert_eq!(life.next(), None);
    life.begin_turn(Some(1));
    assert_eq!(life.next(), Some(1));
    life.trial(1, 80.0);
    life.trial(0, 100.0);
    assert_eq!(life.next(), None, "once a turn");
    life.now_s += 600.0;
    life.begin_turn(Some(1));
    assert_eq!(life.next(), Some(1), "and once in the next");
}

#[test]
fn each_turn_is_compared_with_its_own_system() {
    let mut life = in_open_fleet();
    life.begin_turn(Some(2));
    [(2, 130.0), (0, 100.0)].into_iter().for_each(|(i, size)| life.trial(i, size));
    life.now_s += DAY_S;
    life.trial(1, 160.0);
    assert_eq!(life.next(), Some(0), "that of yesterday does not count");
    life.trial(0, 200.0);
    let board = life.known().board;
    assert!((board.pairs[1].mean_y - 0.8_f64.ln()).abs() < 0.02, "{:?}", board.pairs[1]);
    assert_eq!((board.rounds, board.pairs[2].count), (2, 1));
}

#[test]
fn what_no_other_host_knows_a_host_tries_by_itself() {
    let mut life = in_open_fleet();
    life.candidates.push(Candidate::new("mine", "1", &[]));
    life.begin_turn(None);
    assert_eq!(life.next(), None);
    life.turn.as_mut().unwrap().is_own = vec![false, false, false, true];
    assert_eq!(life.next(), Some(3));
    life.trial(3, 120.0);
    assert_eq!(life.next(), Some(0));
}

#[test]
fn what_is_bad_here_is_not_tried_for_others() {
    let mut life = in_open_fleet();
    for _ in 0..3 {
        [(2, 200.0), (0, 100.0)].into_iter().for_each(|(i, size)| life.trial(i, size));
    }
    life.now_s += 600.0;
    life.begin_turn(Some(2));
    let judged = life.known().judge(W);
    assert_eq!((judged.standings[2].status, judged.next), (Status::Worse, None));
}

#[test]
fn replicas_make_the_pair_at_the_same_time() {
    let mut life = in_open_fleet();
    life.begin_turn(Some(1));
    let mut pair = life.known().side_by_side(W, &[], 8);
    pair.sort_unstable();
    assert_eq!(pair, [0, 1], "one pair, however many replicas");
    assert!(life.known().side_by_side(W, &[], 1).is_empty());
    assert!(life.known().side_by_side(W, &[1], 7).is_empty(), "it runs already");
    life.begin_turn(None);
    assert!(life.known().side_by_side(W, &[], 8).is_empty());
}

#[test]
fn what_the_fleet_alone_proved_is_checked_by_few() {
    let mut life = Life::new();
    life.fleet = Some(fleet(-0.22));
    life.turn = Some(HostTurn { checks_begin_s: life.now_s, ..HostTurn::default() });
    life.now_s += 60.0;
    assert_eq!((life.pick(), life.next()), (1, None), "others check it");
    life.turn.as_mut().unwrap().checks = vec![false, true, false];
    for _ in 0..2 {
        let next = life.next().unwrap();
        life.trial(next, [100.0, 80.0][next]);
    }
    assert_eq!((life.pick(), life.next()), (1, None), "once in a period");
    life.now_s += 8.0 * DAY_S;
    life.turn.as_mut().unwrap().checks = vec![];
    assert_eq!(life.next(), None, "others check it now");
    life.turn.as_mut().unwrap().checks = vec![true; 3];
    life.turn.as_mut().unwrap().checks_begin_s = life.now_s;
    life.now_s += 60.0;
    for _ in 0..2 {
        let next = life.next().unwrap();
        life.trial(next, [100.0, 140.0][next]);
    }
    assert!(life.next().is_some(), "worse: the next looks follow without delay");
    let mut alone = Life::new();
    alone.fleet = Some(fleet(-0.22));
    assert!(alone.next().is_some(), "the fleet is gone: it checks by itself");
}

#[test]
fn what_a_host_proved_itself_it_checks_each_week_itself() {
    let mut life = Life::settled();
    life.fleet = Some(fleet(-0.22));
    life.turn = Some(HostTurn::default());
    assert_eq!(life.next(), None);
    life.look(80.0);
    assert_eq!(life.next(), None);
}

/// Twelve rounds of a bench, in which nothing is counted, after one trial of each kind under the hook that did other work.
#[test]
fn what_a_bench_has_proven_needs_no_trial() {
    let mut life = Life::new();
    life.trial(0, 300.0);
    life.trial(1, 300.0);
    for record in &mut life.records {
        record.sample.malloc.calls *= 7;
    }
    life.trial(2, 300.0);
    for _ in 0..12 {
        for (candidate, mebibytes) in [(0, 100.0), (1, 80.0), (2, 130.0)] {
            life.trial(candidate, mebibytes);
            let sample = &mut life.records.last_mut().unwrap().sample;
            (sample.malloc, sample.served) = (OpFigures::default(), MEASURED_BY_BENCH.to_owned());
        }
    }
    assert_eq!((life.pick(), life.next()), (1, None));
}
