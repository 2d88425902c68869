// SPDX-License-Identifier: Apache-2.0
//! The trials of one deployment: candidates that start at the same time, to be compared with each other.
//!
//! The trials are rounds, each with a `system` of its own ([`super::super::round`]). Candidates with the fewest
//! trials come first. A candidate has at most one trial more in it than it has finished ones: what crashes,
//! crashes in one replica.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

use super::{Board, Judge, Role, Settings, Standing, with_judge};

/// Streams of random numbers for the order within a deployment; those below are for the order of rounds.
const ORDERS: u64 = 1 << 32;

/// Starts that trials are asked for.
pub(crate) struct Asked<'a> {
    /// Candidates of the trials that run.
    pub(crate) running: &'a [usize],
    /// Starts that are expected.
    pub(crate) room: usize,
    /// Whether a candidate's waiting time is over.
    pub(crate) may_start: &'a dyn Fn(&usize) -> bool,
}

/// The trials of the next `room` starts, in random order; none where nothing is to be tried, or nothing can be
/// compared.
pub(crate) fn side_by_side(
    board: &Board,
    roles: &[Role],
    w: f64,
    settings: &Settings,
    asked: &Asked<'_>,
) -> Vec<usize> {
    with_judge(board, roles, board.system, w, settings, |judge| planned(judge, asked))
}

fn planned(judge: &Judge<'_>, asked: &Asked<'_>) -> Vec<usize> {
    let (board, settings) = (judge.board, judge.settings);
    let standings: Vec<Standing> = (0..board.pairs.len()).map(|i| judge.standing(i)).collect();
    let pick = judge.pick(&standings);
    let mut due = judge.among(&standings, pick, &[]);
    due.retain(|i| (asked.may_start)(i));
    if !due.contains(&board.system) {
        return vec![];
    }
    due.retain(|&i| i != board.system);
    let places = judge.places(board.rounds + 1);
    due.sort_by_key(|&i| (judge.trials_so_far(i, asked), places[i]));
    in_random_order(judge.rounds_of(&due, pick, asked), settings.seed, board.rounds)
}

impl Judge<'_> {
    fn trials_so_far(&self, i: usize, asked: &Asked<'_>) -> u32 {
        self.board.trials_of(i).saturating_add(runs(i, asked))
    }

    /// Rounds of those that are due, as long as there is room for `system` and another.
    fn rounds_of(&self, due: &[usize], pick: usize, asked: &Asked<'_>) -> Vec<usize> {
        let mut trials = vec![];
        for before in 0.. {
            let room = asked.room.saturating_sub(trials.len() + 1);
            let has_one_more = |i: &&usize| self.may_have_one_more(**i, before, pick, asked);
            let round: Vec<usize> = due.iter().filter(has_one_more).take(room).copied().collect();
            if round.is_empty() {
                break;
            }
            trials.push(self.board.system);
            trials.extend(round);
        }
        trials
    }

    /// Whether the candidate may have another trial in a deployment where it has `before`.
    fn may_have_one_more(&self, i: usize, before: u32, pick: usize, asked: &Asked<'_>) -> bool {
        let at_once = runs(i, asked).saturating_add(before);
        let is_within = self.trials_so_far(i, asked).saturating_add(before) < self.settings.max_rounds;
        at_once < 1 + self.board.counted[i] && (i == pick || is_within)
    }
}

fn runs(i: usize, asked: &Asked<'_>) -> u32 {
    u32::try_from(asked.running.iter().filter(|&&running| running == i).count()).unwrap_or(u32::MAX)
}

/// The trials in random order. The first that starts may get the first requests: which candidate that is must
/// be by chance.
fn in_random_order(mut trials: Vec<usize>, seed: u64, round: u32) -> Vec<usize> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(ORDERS + u64::from(round));
    for last in (1..trials.len()).rev() {
        let other = random.random_range(0..=last);
        trials.swap(last, other);
    }
    trials
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::super::Point;
    use super::super::super::round::{JudgedTrial, Round};
    use super::*;

    const LEN: usize = 6;

    fn plan(board: &Board, running: &[usize], room: usize) -> Vec<usize> {
        let asked = Asked { running, room, may_start: &|_| true };
        side_by_side(board, &[Role::Tested; LEN], 0.5, &Settings::default(), &asked)
    }

    fn trial(candidate: usize, cpu: f64) -> JudgedTrial {
        JudgedTrial { candidate, point: Some(Point { cpu, memory: cpu }) }
    }

    fn sorted(mut trials: Vec<usize>) -> Vec<usize> {
        trials.sort_unstable();
        trials
    }

    #[test]
    fn a_first_deployment_has_each_candidate_once() {
        let board = Board::new(&[], LEN, 0);
        assert_eq!(plan(&board, &[], 1), Vec::<usize>::new(), "nothing to compare with");
        assert_eq!(plan(&board, &[], 2).len(), 2);
        let four = plan(&board, &[], 4);
        assert!(four.len() == 4 && four.contains(&0), "{four:?}");
        assert_eq!(sorted(plan(&board, &[], 12)), [0, 1, 2, 3, 4, 5], "none twice that has no trial");
    }

    /// `system` first, then by place: one after the other, and as many as there is room for.
    #[test]
    fn the_first_round_has_the_order_of_the_places() {
        let settings = Settings::default();
        let places = vec![0, 5, 4, 3, 2, 1];
        let mut made: Vec<JudgedTrial> = vec![];
        for _ in 0..LEN {
            let board = Board { places: places.clone(), ..Board::new(&made, LEN, 0) };
            let next = super::super::judge(&board, &[Role::Tested; LEN], 0, 0.5, &settings).next.unwrap();
            made.push(trial(next, 1.0));
        }
        assert_eq!(made.iter().map(|one| one.candidate).collect::<Vec<_>>(), [0, 5, 4, 3, 2, 1]);
        let first = Board { places, ..Board::new(&[], LEN, 0) };
        assert_eq!(sorted(plan(&first, &[], 3)), [0, 4, 5]);
    }

    #[test]
    fn those_with_fewer_trials_come_first() {
        let first = Round {
            trials: vec![trial(1, 1.0), trial(0, 1.0), trial(2, 1.1)],
            is_side_by_side: true,
            is_of_lives: false,
        };
        let board = Board::of(&[first], LEN, 0);
        assert_eq!(sorted(plan(&board, &[], 4)), [0, 3, 4, 5]);
        let beside = plan(&board, &[3], 3);
        assert_eq!(sorted(beside), [0, 4, 5], "one runs already");
    }

    #[test]
    fn replicas_beyond_a_round_begin_another_with_its_own_system() {
        // All look better than `system`, and one round proves nothing.
        let cpu = |i: usize| if i == 0 { 0.0 } else { -0.1 - 0.01 * (i % 3) as f64 };
        let round = Round {
            trials: (0..LEN).map(|i| trial(i, cpu(i))).collect(),
            is_side_by_side: true,
            is_of_lives: false,
        };
        let board = Board::of(&[round], LEN, 0);
        let all = plan(&board, &[], 12).len();
        let is_open = all / 2; // `system` is in each of both rounds
        assert!(is_open > 1, "the test needs candidates that are not settled");
        let eight = sorted(plan(&board, &[], is_open + 2));
        assert_eq!(eight.iter().filter(|&&i| i == 0).count(), 2, "{eight:?}");
    }

    proptest! {
        #[test]
        fn every_deployment_can_be_compared(
            rounds in prop::collection::vec(prop::collection::vec((0..LEN, 0.5..2.0f64), 1..8), 0..6),
            running in prop::collection::vec(0..LEN, 0..4),
            room in 0..13usize,
        ) {
            let of = |round: &Vec<(usize, f64)>| {
                let mut trials: Vec<JudgedTrial> = vec![];
                for (i, cpu) in round {
                    if trials.iter().all(|trial| trial.candidate != *i) {
                        trials.push(trial(*i, *cpu));
                    }
                }
                Round { trials, is_side_by_side: true, is_of_lives: false }
            };
            let rounds: Vec<Round> = rounds.iter().map(of).collect();
            let board = Board::of(&rounds, LEN, 0);
            let trials = plan(&board, &running, room);
            let count = |i: usize| trials.iter().filter(|&&trial| trial == i).count();
            prop_assert!(trials.len() <= room && trials.len() != 1);
            for i in 1..LEN {
                let at_once = count(i) + running.iter().filter(|&&one| one == i).count();
                prop_assert!(count(i) <= count(0), "{trials:?}");
                prop_assert!(count(i) == 0 || at_once <= 1 + board.counted[i] as usize, "{trials:?}");
            }
            prop_assert!(trials.is_empty() || count(0) < trials.len());
            // Trials that some starts have taken leave the rest as it was.
            if !trials.is_empty() && running.is_empty() {
                let more = sorted(plan(&board, &[], room));
                prop_assert_eq!(more, sorted(trials));
            }
        }
    }
}
