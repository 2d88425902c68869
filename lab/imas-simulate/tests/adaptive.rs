// SPDX-License-Identifier: Apache-2.0
//! Promises of the default policy, on programs of known truth.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::adaptive::{
    Board, Judgement, Point, Proof, Role, Settings, Status, board::JudgedTrial, judge,
};
use imas_simulate::{Contender, Plan, SimulatedProgram, World, assess};
use proptest::prelude::*;

fn settle(program: &SimulatedProgram, seed: u64) -> (u32, usize) {
    let seen: Vec<usize> = (0..program.rounds.len()).collect();
    let outcome = Contender::Adaptive(Settings::default()).settle(program, &seen, 0.5, seed).unwrap();
    (outcome.trials, outcome.pick)
}

/// Share of programs that are left on `system` though all candidates are alike; the weight of CPU is 0, 1/2
/// and 1 in turn.
fn kept(world: World) -> f64 {
    let programs = World { indifferent: 1.0, rounds: 8, programs: 300, ..world }.programs(7);
    let seen: Vec<usize> = (0..8).collect();
    let stays = |(number, program): &(usize, &SimulatedProgram)| {
        let w = [0.5, 1.0, 0.0][number % 3];
        Contender::Adaptive(Settings::default()).settle(program, &seen, w, 3).unwrap().pick == 0
    };
    programs.iter().enumerate().filter(stays).count() as f64 / programs.len() as f64
}

/// Whatever is picked but `system` is an error: there may be one in twenty at any level of noise
/// (normal in the logarithms) and with any tails. At a single level 300 programs may by chance show a little
/// more.
#[test]
fn under_pure_noise_the_incumbent_is_kept() {
    const LEVELS: [f64; 3] = [0.02, 0.08, 0.20];
    let plain = World { outliers: 0.0, ..World::default() };
    let shapes = [
        ("normal", plain),
        ("outliers", World { outliers: 0.1, outlier: 3.0, ..plain }),
        ("heavy tails", World { tails: 2, ..plain }),
        ("uneven", World { uneven: 0.4, ..plain }),
        ("two candidates", World { candidates: 2, ..plain }),
        ("twelve candidates", World { candidates: 12, ..plain }),
    ];
    for (shape, world) in shapes {
        let at = |noise: f64| kept(World { cpu_noise: noise, memory_noise: 0.6 * noise, ..world });
        let kept = LEVELS.map(at);
        println!("{shape}: {kept:.3?} at {LEVELS:?}");
        assert!(kept.iter().sum::<f64>() >= 0.95 * 3.0, "{shape}: {kept:?}");
        assert!(kept.iter().all(|&kept| kept >= 0.93), "{shape}: {kept:?}");
    }
}

/// 33 % less memory is found, but for a program in twenty whose first rounds an odd run spoils, and 170 %
/// more is tried once.
#[test]
fn a_clear_winner_is_found_soon() {
    let world = World { indifferent: 1.0, programs: 100, ..World::default() };
    let mut found = 0;
    for mut program in world.programs(11) {
        for round in &mut program.rounds {
            round[2].as_mut().unwrap().memory -= 0.4;
            round[5].as_mut().unwrap().memory += 1.0;
        }
        let (trials, pick) = settle(&program, 1);
        found += u32::from(pick == 2);
        assert!(trials <= 24, "{}: {trials}", program.name);
    }
    assert!(found >= 95, "{found} of 100");
}

/// Rounds of two candidates on a loud machine: what the second costs over `system`, and how far CPU swings.
fn loud(cpu: f64, memory: f64, swing: f64) -> Vec<JudgedTrial> {
    let round = |round: i32| {
        let off = f64::from(round % 3 - 1);
        let point = |cpu, memory| Some(Point { cpu, memory });
        let little = 0.01 * f64::from(round % 2);
        [
            JudgedTrial { candidate: 0, point: point(swing * off, little) },
            JudgedTrial { candidate: 1, point: point(cpu - swing * off, memory - little) },
        ]
    };
    (0..8).flat_map(round).collect()
}

/// CPU that swings by a sixth does not hide a third less memory; memory that is paid for with CPU is none
/// gained.
#[test]
fn memory_is_proven_by_itself_and_cpu_still_counts() {
    let judged = |cpu, memory, swing| {
        judge(&Board::new(&loud(cpu, memory, swing), 2, 0), &[Role::Tested; 2], 0, 0.5, &Settings::default())
    };
    let found = judged(0.0, -0.30, 0.15);
    assert_eq!((found.pick, found.standings[1].proof), (1, Some(Proof::Memory)), "{found:?}");
    let (gain, within) = (found.standings[1].gain, found.standings[1].within);
    assert!(gain > 0.1 && within > 0.5 * gain, "{found:?}");
    assert_eq!(judged(0.22, -0.30, 0.15).pick, 0);
    assert_eq!(judged(0.0, 0.0, 0.15).pick, 0);
    assert_eq!(judged(0.0, -0.30, 0.001).standings[1].proof, Some(Proof::Score));
}

/// Rounds of candidates with these differences of ln CPU and ln memory, on a quiet machine.
fn quiet(candidates: &[(f64, f64)]) -> Board {
    let trial = |round: usize, candidate: usize, (cpu, memory): (f64, f64)| {
        let off = 0.002 * ((round * 7 + candidate * 3) % 5) as f64;
        JudgedTrial { candidate, point: Some(Point { cpu: cpu + off, memory: memory + off }) }
    };
    let of = |round: usize| {
        let others = candidates.iter().enumerate().map(move |(at, one)| trial(round, at + 1, *one));
        std::iter::once(trial(round, 0, (0.0, 0.0))).chain(others).collect::<Vec<_>>()
    };
    Board::new(&(0..6).flat_map(of).collect::<Vec<_>>(), candidates.len() + 1, 0)
}

/// 43 % less CPU for 237 % more memory, where another candidate has 40 % less for 5 % more.
#[test]
fn cpu_is_not_bought_with_any_amount_of_memory() {
    let board = quiet(&[(0.57_f64.ln(), 3.37_f64.ln()), (0.60_f64.ln(), 1.05_f64.ln())]);
    let judged = |settings: &Settings| judge(&board, &[Role::Tested; 3], 0, 1.0, settings);
    let found = judged(&Settings::default());
    assert_eq!((found.pick, found.standings[1].status), (2, Status::TooCostly), "{found:?}");
    assert_eq!(judged(&Settings { max_memory: 1e3, ..Settings::default() }).pick, 1);
    let alone = quiet(&[(0.57_f64.ln(), 3.37_f64.ln())]);
    assert_eq!(judge(&alone, &[Role::Tested; 2], 0, 1.0, &Settings::default()).pick, 0);
    let slow = quiet(&[(1.4_f64.ln(), 0.4_f64.ln()), (1.1_f64.ln(), 0.5_f64.ln())]);
    assert_eq!(judge(&slow, &[Role::Tested; 3], 0, 0.0, &Settings::default()).pick, 2);
}

/// Two candidates are as fast as each other: the pick is the candidate that takes less memory.
#[test]
fn the_other_axis_decides_between_equals() {
    let board = quiet(&[(-0.300, 0.2), (-0.298, 0.0), (-0.1, -0.5)]);
    let at = |w: f64| judge(&board, &[Role::Tested; 4], 0, w, &Settings::default()).pick;
    assert_eq!((at(1.0), at(0.0)), (2, 3));
}

#[test]
fn adaptive_needs_fewer_trials_than_paper_and_harms_less() {
    let programs = World { programs: 120, ..World::default() }.programs(5);
    let plan = Plan { splits: 4, resamples: 50, ..Plan::default() };
    let adaptive = assess(&Contender::Adaptive(Settings::default()), &programs, &plan);
    let paper = assess(&Contender::Paper(imas_core::paper::Limits::default()), &programs, &plan);
    assert!(adaptive.trials <= 0.42 * paper.trials, "{} {}", adaptive.trials, paper.trials);
    assert_eq!(adaptive.harmed, 0);
    assert!(
        adaptive.regret < 0.01 && adaptive.within_3_pct > 0.93,
        "{} {}",
        adaptive.regret,
        adaptive.within_3_pct
    );
}

#[test]
fn an_ineligible_candidate_is_neither_tried_nor_picked() {
    let program = &World { indifferent: 1.0, programs: 1, ..World::default() }.programs(2)[0];
    let mut roles = [Role::Tested; 6];
    roles[2] = Role::Ineligible;
    let mut trials = vec![];
    while let Some(candidate) = judge(&Board::new(&trials, 6, 0), &roles, 0, 0.5, &Settings::default()).next {
        assert_ne!(candidate, 2);
        let round = trials.len() / 6;
        let mut point = program.rounds[round][candidate].unwrap();
        point.memory -= if candidate == 2 { 1.0 } else { 0.0 };
        trials.push(JudgedTrial { candidate, point: Some(point) });
    }
    assert!(!trials.is_empty());
}

/// Rounds of `system` and the candidates: each costs so much over it; CPU wobbles a little.
fn rounds(count: usize, costs: &[(usize, f64)]) -> Vec<JudgedTrial> {
    let round = |round: usize| {
        let wobble = 0.01 * (round % 3) as f64;
        let trial = move |(i, (candidate, cost)): (usize, (usize, f64))| {
            let cpu = cost + wobble * (i as f64 - 1.0);
            JudgedTrial { candidate, point: Some(Point { cpu, memory: cost }) }
        };
        std::iter::once((0, 0.0)).chain(costs.to_vec()).enumerate().map(trial)
    };
    (0..count).flat_map(round).collect()
}

fn judged(trials: &[JudgedTrial], roles: &[Role]) -> Judgement {
    judge(&Board::new(trials, roles.len(), 0), roles, 0, 0.5, &Settings::default())
}

/// When the set of those that are tested changes: however many rounds are spent and however often the pick
/// was watched, a newcomer gets its own, all of them and no more; and the pick that left is not tried along.
#[test]
fn a_newcomer_has_its_rounds() {
    let roles = [Role::Tested, Role::Kept, Role::Tested];
    let mut trials = rounds(20, &[(1, -0.4)]);
    let mut after = vec![];
    while let Some(next) = judged(&trials, &roles).next {
        assert_ne!(next, 1, "it left the set");
        assert!(after.len() < 20, "{after:?}");
        after.push(next);
        // Never far enough from the pick to be eliminated. So the question stays open.
        let cost = if next == 0 { 0.0 } else { -0.4 - 0.02 * (after.len() % 3) as f64 };
        trials.push(JudgedTrial { candidate: next, point: Some(Point { cpu: cost, memory: cost }) });
    }
    let tried = after.iter().filter(|&&candidate| candidate == 2).count();
    assert!((2..=8).contains(&tried), "{after:?}");
}

/// Tried twice, then away while the pick was watched for months.
#[test]
fn a_candidate_that_was_absent_gets_its_rounds_too() {
    let mut trials = [rounds(2, &[(1, -0.4), (2, -0.4)]), rounds(20, &[(1, -0.4)])].concat();
    // So loud that two rounds leave open which is better.
    for point in trials.iter_mut().filter_map(|trial| trial.point.as_mut()) {
        point.cpu = point.memory + 12.0 * (point.cpu - point.memory);
    }
    let mut tried = 0;
    while let Some(next) = judged(&trials, &[Role::Tested; 3]).next {
        tried += usize::from(next == 2);
        assert!(tried <= 6, "two of eight were spent");
        let cost = if next == 0 { 0.0 } else { -0.4 - 0.02 * (tried % 3) as f64 };
        trials.push(JudgedTrial { candidate: next, point: Some(Point { cpu: cost, memory: cost }) });
    }
    assert!(tried > 0);
}

/// The turn of the candidate would have come, were it tested.
#[test]
fn a_candidate_that_left_the_set_gets_no_further_trial() {
    use Role::{Kept, Tested};
    for count in 2..4 {
        let trials = [rounds(count, &[(1, -0.4)]), rounds(1, &[(2, -0.4)])].concat();
        let next = |role| judged(&trials, &[Tested, role, Tested]).next;
        assert_ne!(next(Kept), Some(1), "{count} rounds");
        assert!(count > 2 || next(Tested) == Some(1));
    }
}

/// A proven candidate stays proven and stays the pick; one that was not proven is no pick and keeps no other
/// from being one.
#[test]
fn a_candidate_that_left_the_set_keeps_its_result() {
    use Role::{Kept, Tested};
    let settled = rounds(6, &[(1, -0.4), (2, 0.3)]);
    let before = judged(&settled, &[Tested; 4]);
    let after = judged(&settled, &[Tested, Kept, Kept, Tested]);
    assert_eq!((before.pick, after.pick), (1, 1));
    assert_eq!(after.standings[2].status, Status::Left);
    assert_eq!(after.next.map(|next| next == 0 || next == 3), Some(true), "the newcomer is tried");

    // One round of great promise is no proof.
    let promising = rounds(1, &[(1, -0.8), (2, -0.1)]);
    let left = judged(&promising, &[Tested, Kept, Tested]);
    assert_eq!((left.pick, left.standings[1].status), (0, Status::Left));
    assert_eq!(left.standings[2].status, Status::Open, "the other is not given up for it: {left:?}");
    assert_eq!(judged(&promising, &[Tested; 3]).standings[2].status, Status::Worse);
}

/// However narrow its proof was: the more candidates there are the more a proof must show, but those that
/// come later were not there.
#[test]
fn newcomers_take_no_proof_away() {
    use Role::{Kept, Tested};
    let mut narrow = 0;
    for thousandths in 5..80 {
        let settled = rounds(4, &[(1, -0.001 * f64::from(thousandths)), (2, 0.3)]);
        let before = judged(&settled, &[Tested; 3]).pick;
        let after = judged(&settled, &[&[Tested, Kept, Kept][..], &[Tested; 9]].concat()).pick;
        let had_to_show_more = judged(&settled, &[Tested; 12]).pick;
        assert_eq!(after, before, "{thousandths}");
        narrow += u32::from(had_to_show_more != before);
    }
    assert!(narrow > 0, "no proof was narrow enough for this test");
}

/// A candidate without valid trials is eliminated, and `system` alone needs no trial.
#[test]
fn void_trials_come_to_an_end() {
    let mut trials: Vec<JudgedTrial> = vec![];
    while let Some(candidate) =
        judge(&Board::new(&trials, 2, 0), &[Role::Tested; 2], 0, 0.5, &Settings::default()).next
    {
        let point = (candidate == 0).then_some(Point { cpu: 0.0, memory: 0.0 });
        trials.push(JudgedTrial { candidate, point });
        assert!(trials.len() < 10);
    }
    assert!(judge(&Board::new(&[], 1, 0), &[Role::Tested], 0, 0.5, &Settings::default()).next.is_none());
}

fn world() -> impl Strategy<Value = (World, u64)> {
    (0.0..0.2f64, 0.0..0.1f64, 2..8usize, any::<u64>()).prop_map(
        |(cpu_noise, memory_noise, candidates, seed)| {
            (World { programs: 1, candidates, cpu_noise, memory_noise, ..World::default() }, seed)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_same_seed_gives_the_same_trials((world, seed) in world()) {
        let program = &world.programs(seed)[0];
        prop_assert_eq!(settle(program, seed), settle(program, seed));
    }

    /// Judging ends, whatever the noise. The pick and `system` run beside those that have trials left, so they may
    /// have more than the others; and the last trial of what is open has a `system` to be compared with.
    #[test]
    fn the_trials_of_a_program_come_to_an_end((world, seed) in world()) {
        let (len, most) = (world.candidates, Settings::default().max_rounds);
        let rounds = world.programs(seed)[0].rounds.clone();
        let settings = Settings { seed, ..Settings::default() };
        let mut trials: Vec<JudgedTrial> = vec![];
        loop {
            let board = Board::new(&trials, len, 0);
            let judgement = judge(&board, &vec![Role::Tested; len], 0, 0.5, &settings);
            let Some(next) = judgement.next else {
                let is_open = |&&i: &&usize| judgement.standings[i].status == Status::Open;
                let mut last = board.in_round.iter().filter(is_open);
                prop_assert!(board.in_round.contains(&0) || last.all(|&i| board.trials_of(i) < most), "{judgement:?}");
                break;
            };
            prop_assert!([0, judgement.pick].contains(&next) || board.trials_of(next) < most, "{judgement:?}");
            let begins = u32::from(board.in_round.contains(&next) || trials.is_empty());
            let round = board.rounds + begins;
            prop_assert!(round as usize <= most as usize * (len - 1), "{judgement:?}");
            trials.push(JudgedTrial { candidate: next, point: rounds[(round as usize - 1) % rounds.len()][next] });
        }
    }

    /// Within a round the order of the trials is of no account.
    #[test]
    fn the_order_of_trials_does_not_matter((world, seed) in world(), rounds in 1..8usize) {
        let program = &world.programs(seed)[0];
        let trials = |reverse: bool| -> Vec<JudgedTrial> {
            let round = |round: &Vec<Option<Point>>| -> Vec<JudgedTrial> {
                let mut trials: Vec<JudgedTrial> = round.iter().enumerate().map(|(candidate, point)| JudgedTrial { candidate, point: *point }).collect();
                if reverse { trials.reverse(); }
                trials
            };
            program.rounds[..rounds].iter().flat_map(round).collect()
        };
        let of = |reverse| {
            let board = Board::new(&trials(reverse), world.candidates, 0);
            judge(&board, &vec![Role::Tested; world.candidates], 0, 0.5, &Settings::default())
        };
        let (one, two) = (of(false), of(true));
        prop_assert_eq!(one.pick, two.pick);
        for (a, b) in one.standings.iter().zip(&two.standings) {
            prop_assert_eq!(a.status, b.status);
            prop_assert!((a.gain - b.gain).abs() < 1e-9);
        }
    }
}
