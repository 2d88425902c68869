// SPDX-License-Identifier: Apache-2.0
//! Proof that replaces the incumbent, and whether it can still be reached.
//!
//! A challenger must pass two tests. First, it **differs** from the incumbent for the better. The program's
//! own trials prove this in the score, or in memory alone, with the confidence of the settings over all
//! candidates, all looks and both directions. Second, its **posterior** is better on the whole with the same
//! confidence: each axis is what its rounds show, shrunk towards no difference; the measured lead is at least
//! the margin.
//!
//! Memory varies less than CPU. A proof by the score alone would let the noise of CPU hide a quarter of the
//! memory gains (docs/decisions/0013). The first test protects a program for which all candidates are alike,
//! the second one that would pay for memory with CPU.
//!
//! Then the trials of one deployment: candidates that start at the same time, to be compared with each other.
//!
//! The trials are rounds, each with a `system` of its own ([`crate::adaptive::round`]). Candidates with the fewest
//! trials come first. A candidate has at most one trial more in it than it has finished ones: what crashes,
//! crashes in one replica.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use super::super::board::{Noise, Spread};
use super::{Board, Judge, Role, Settings, Standing, with_judge};
use crate::compare::{self, Answer, KnownFigure};
use crate::stats::look_share;

/// Least gain in score that is expected from a later proof over the incumbent. Below it a challenger is
/// hopeless. It is the price of a trial, as for an eliminated candidate.
const HOPE: f64 = 0.005;
/// Repeated looks at the same growing set of rounds are correlated, so their shares may sum to more than the
/// allowed error. This factor keeps the incumbent in 95 % of runs at the worst of 32 kinds of pure noise
/// (docs/decisions/0013).
const TOGETHER: f64 = 1.15;
/// Share of the error that the first deployment of replicas may spend, where untouched ones show the noise,
/// and the share of all later ones. The rest is for programs where it is by chance whether untouched replicas
/// are a measure (`tests/replicas.rs`).
const FIRST_DEPLOYMENT: f64 = 0.35;
const LATER_DEPLOYMENTS: f64 = 0.45;
/// Posterior standard deviations by which a challenger must be ahead: 95 %, one-sided.
pub(super) const SURE: f64 = 1.645;

/// The figure by which a candidate is proven better.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// The score.
    Score,
    /// Memory, where the score alone does not prove it.
    Memory,
    /// The score by the fleet's robust figure, where the host's own trials do not prove it.
    Fleet,
}

/// A test that can prove a difference.
pub(super) struct Direction {
    proof: Proof,
    /// Weight of CPU.
    w: f64,
    /// The test's share of the allowed error.
    share: f64,
    noise: Noise,
}

/// The score, and memory alone where that counts and is not already the score.
pub(super) fn directions(w: f64, score: Noise, memory: Noise) -> Vec<Direction> {
    let of = |proof, w, share, noise| Direction { proof, w, share, noise };
    if w <= 0.0 || w >= 1.0 {
        return vec![of(Proof::Score, w, 1.0, score)];
    }
    vec![of(Proof::Score, w, 0.5, score), of(Proof::Memory, 0.0, 0.5, memory)]
}

impl Judge<'_> {
    /// The test by which it is proven to beat the incumbent; None where there is none.
    pub(super) fn proof(&self, i: usize) -> Option<Proof> {
        match self.own {
            Some(own) => own.proof(i).or_else(|| self.is_proven_by_fleet(i).then_some(Proof::Fleet)),
            None => self.own_proof(i),
        }
    }

    /// Whether the fleet's figure alone proves it to beat `system`, and the host's own rounds, with the fleet's
    /// few beside them, do not show a loss.
    fn is_proven_by_fleet(&self, i: usize) -> bool {
        let known = self.board.fleet.as_ref();
        let counted = known.map_or(0, |fleet| fleet.counted);
        let fleet = known.and_then(|fleet| fleet.candidates.get(i));
        let Some(fleet) = fleet.filter(|_| self.incumbent == self.board.system && i != self.incumbent) else {
            return false;
        };
        let margin = self.settings.margin(self.w);
        let tail = (1.0 - self.settings.confidence) / self.challengers;
        let belief = self.belief(i, self.incumbent);
        fleet.proves(self.w, margin, tail, counted)
            && !self.is_regressed(i)
            && self.lead(i, self.w) > 0.0
            && belief.mean > 0.0
    }

    /// The test that its own trials pass.
    fn own_proof(&self, i: usize) -> Option<Proof> {
        let rounds = self.common_rounds(i, self.incumbent);
        let belief = self.belief(i, self.incumbent);
        let is_better = !self.is_regressed(i)
            && self.lead(i, self.w) >= self.settings.margin(self.w)
            && belief.mean > SURE * belief.variance.sqrt();
        let differs = |direction: &&Direction| {
            let spread = direction.noise.shown(self.pairs_of(i, self.incumbent));
            let lead = spread.estimate(self.lead(i, direction.w), rounds);
            let known = KnownFigure::Gain(lead, self.tail(i, direction, rounds));
            compare::judge(known, 0.0) == Answer::Better
        };
        let is_due = |direction: &&Direction| rounds >= self.least_rounds(direction);
        let found = self.directions.iter().filter(is_due).find(differs).filter(|_| is_better);
        found.map(|direction| direction.proof)
    }

    pub(super) fn is_proven(&self, i: usize) -> bool {
        self.proof(i).is_some()
    }

    /// Whether the expected gain from a proof in the remaining rounds is below their cost.
    pub(super) fn is_hopeless(&self, i: usize) -> bool {
        let rounds = self.common_rounds(i, self.incumbent);
        let most = self.settings.max_rounds;
        let spread = self.expected(i);
        let more = most.saturating_sub(rounds);
        let by = |direction: &Direction| self.needed(i, direction, more);
        let to_differ = self.directions.iter().map(by).fold(f64::INFINITY, f64::min);
        let to_be_sure = SURE * spread.sigma / f64::from(most.max(1)).sqrt();
        let needed = to_differ.max(to_be_sure).max(self.settings.margin(self.w));
        let belief = self.belief(i, self.incumbent);
        belief.gain_if_proven(rounds, self.lead(i, self.w), more, spread.sigma, needed) < HOPE
    }

    /// Lead in score that is needed after the last round to be proven by this test. In memory the measured
    /// lead is taken, for it hardly moves any more.
    fn needed(&self, i: usize, direction: &Direction, more: u32) -> f64 {
        let most = self.settings.max_rounds;
        let pairs = &self.board.pairs[i];
        let freedom = direction.noise.shown(pairs).freedom + f64::from(more) * self.freedom_a_round();
        let then = Spread { freedom, ..direction.noise.expected(pairs) };
        let bound = then.bound(self.tail(i, direction, most), most);
        let is_measured = self.common_rounds(i, self.incumbent) > 0;
        match direction.proof {
            Proof::Score | Proof::Fleet => bound,
            Proof::Memory if is_measured && self.lead(i, direction.w) > bound => 0.0,
            Proof::Memory => f64::INFINITY,
        }
    }

    /// Degrees of freedom that one more round adds: one for each candidate in it except `system`.
    fn freedom_a_round(&self) -> f64 {
        let may_come = |&i: &usize| i != self.board.system && self.may(i) && !self.is_void(i);
        let is_in = |&i: &usize| self.rounds(i) == 0 || self.out(i).is_none();
        (0..self.board.pairs.len()).filter(may_come).filter(is_in).count().max(1) as f64
    }

    /// Lead over the incumbent at weight `a` of CPU.
    fn lead(&self, i: usize, a: f64) -> f64 {
        let over_system =
            |i: usize| if i == self.board.system { 0.0 } else { -self.board.pairs[i].mean(a, 1.0 - a) };
        over_system(i) - over_system(self.incumbent)
    }

    /// Number of candidates that could replace the incumbent; they share the error. One that left the set was
    /// proven among the candidates of that time: later ones do not weaken its proof.
    fn rivals(&self, i: usize) -> f64 {
        if self.roles[i] != Role::Kept {
            return self.challengers;
        }
        let came_after = &self.board.came_after;
        let was_there = |&j: &usize| {
            j != self.incumbent && self.roles[j] != Role::Ineligible && came_after[j] <= came_after[i]
        };
        let rivals = (0..self.roles.len()).filter(was_there).count();
        (rivals.max(1) as f64).min(self.challengers)
    }

    /// Rounds that a proof by this test needs. Where untouched replicas show how memory varies, one is
    /// enough.
    fn least_rounds(&self, direction: &Direction) -> u32 {
        if self.is_noise_known(direction) { 1 } else { self.settings.min_rounds }
    }

    fn is_noise_known(&self, direction: &Direction) -> bool {
        direction.w == 0.0 && self.board.untouched.is_some()
    }

    /// Share of the error that one look at one candidate by this test may spend after this number of rounds.
    /// n candidates count as n / (2 - 1/n): they share the runs of `system`, so their errors are correlated.
    /// Where the first deployment can prove something, it has a share of its own.
    fn tail(&self, i: usize, direction: &Direction, rounds: u32) -> f64 {
        let share = look_share(rounds, self.settings.min_rounds, self.settings.max_rounds);
        let share = match self.is_noise_known(direction) {
            true if rounds <= 1 => FIRST_DEPLOYMENT,
            true => share * LATER_DEPLOYMENTS,
            false => share,
        };
        let n = self.rivals(i);
        TOGETHER * (1.0 - self.settings.confidence) * direction.share * share * (2.0 - 1.0 / n) / n
    }
}

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
    use super::*;

    use proptest::prelude::*;

    use crate::adaptive::Point;
    use crate::adaptive::round::{JudgedTrial, Round};

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
            let next =
                crate::adaptive::judge::judge(&board, &[Role::Tested; LEN], 0, 0.5, &settings).next.unwrap();
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
