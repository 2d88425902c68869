// SPDX-License-Identifier: Apache-2.0
//! The order of the runs.
//!
//! Round by round; in a round the subjects in a seeded random order; of one subject all candidates next to
//! each other, so that a slow minute of the machine meets all of them. The order of the candidates is a
//! seeded random one, rotated by one place from round to round and drawn anew when each has been in each
//! place: none is always first. It depends on seed, subject and round alone, so that an interrupted session
//! goes on exactly where it was.

use std::hash::Hasher;

use imas_core::run::RunKind;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use siphasher::sip::SipHasher13;

/// Purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundKind {
    /// Fills caches; not kept.
    Warmup,
    /// CPU and memory, nothing counted inside the program.
    Measured {
        /// Runs of one round are compared with each other.
        round: u32,
    },
    /// Every call counted; gives the paper's figures.
    Counted {
        /// Counted runs have rounds of their own.
        round: u32,
    },
}

impl RoundKind {
    /// The round of that kind.
    #[must_use]
    pub fn of(kind: RunKind, round: u32) -> Self {
        match kind {
            RunKind::Measured => Self::Measured { round },
            RunKind::Counted => Self::Counted { round },
        }
    }

    /// Kind and round of a run that is kept.
    #[must_use]
    pub fn kept(self) -> Option<(RunKind, u32)> {
        match self {
            Self::Warmup => None,
            Self::Measured { round } => Some((RunKind::Measured, round)),
            Self::Counted { round } => Some((RunKind::Counted, round)),
        }
    }
}

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the subject.
    pub subject: usize,
    /// Index of the candidate.
    pub candidate: usize,
    /// Purpose of the run.
    pub kind: RoundKind,
}

/// All runs of one subject. The warm-up is under the first candidate, `system`; counted runs come in the
/// middle of the measured ones, so that a drift of the machine meets both alike.
#[must_use]
pub fn steps(candidates: &[usize], rounds: u32, trials: u32, warmup: u32, seed: u64) -> Vec<Step> {
    steps_with_counted_before(rounds / 2, candidates, rounds, trials, warmup, seed)
}

/// All runs of one subject as in [`steps`], with the counted runs before measured round `counted_before`. It
/// is for runs that may end sooner.
#[must_use]
pub fn steps_with_counted_before(
    counted_before: u32,
    candidates: &[usize],
    rounds: u32,
    trials: u32,
    warmup: u32,
    seed: u64,
) -> Vec<Step> {
    let mut steps = Vec::new();
    if let Some(&candidate) = candidates.first() {
        steps.extend((0..warmup).map(|_| Step { subject: 0, candidate, kind: RoundKind::Warmup }));
    }
    let round_of = |kind: RoundKind, number: u32| {
        let order = self::candidates("", candidates.len(), number, seed);
        order.into_iter().map(move |at| Step { subject: 0, candidate: candidates[at], kind })
    };
    for round in 0..rounds {
        if round == counted_before {
            for round in 0..trials {
                steps.extend(round_of(RoundKind::Counted { round }, rounds + round));
            }
        }
        steps.extend(round_of(RoundKind::Measured { round }, round));
    }
    steps
}

/// The steps with further runs of one candidate in each measured round, at random places in it: what all others are
/// compared with is then known better, and the pairs of its runs show the noise.
#[must_use]
pub fn with_repeats(steps: Vec<Step>, candidate: usize, times: u32, seed: u64) -> Vec<Step> {
    let is_round = |a: &Step, b: &Step| (a.subject, a.kind) == (b.subject, b.kind);
    let mut all = Vec::new();
    for round in steps.chunk_by(is_round) {
        let mut round = round.to_vec();
        let repeated = round.iter().copied().find(|step| step.candidate == candidate);
        let number = if let RoundKind::Measured { round } = round[0].kind { Some(round) } else { None };
        if let (Some(step), Some(number)) = (repeated, number) {
            let mut random = random(&format!("{} again", step.subject), u64::from(number), seed);
            for _ in 1..times {
                round.insert(random.random_range(0..=round.len()), step);
            }
        }
        all.extend(round);
    }
    all
}

/// The subjects' order in a round, as indices of `names`.
#[must_use]
pub fn subjects(names: &[&str], round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.shuffle(&mut random("", u64::from(round), seed));
    order
}

/// The candidates' order for a subject in a round, as indices below `count`.
#[must_use]
pub fn candidates(subject: &str, count: usize, round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let round = round as usize;
    if let (Some(cycle), Some(place)) = (round.checked_div(count), round.checked_rem(count)) {
        order.shuffle(&mut random(subject, cycle as u64, seed));
        order.rotate_left(place);
    }
    order
}

fn random(name: &str, number: u64, seed: u64) -> StdRng {
    let mut hasher = SipHasher13::new_with_keys(seed, number);
    hasher.write(name.as_bytes());
    StdRng::seed_from_u64(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_runs_once_a_round() {
        let steps = steps(&[0, 2, 3], 4, 1, 2, 7);
        assert_eq!(steps.len(), 2 + 3 * 4 + 3);
        assert!(steps[..2].iter().all(|s| (s.candidate, s.kind) == (0, RoundKind::Warmup)));
        for round in 0..4 {
            let mut of_round: Vec<_> = steps
                .iter()
                .filter(|s| s.kind == RoundKind::Measured { round })
                .map(|s| s.candidate)
                .collect();
            of_round.sort_unstable();
            assert_eq!(of_round, [0, 2, 3]);
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        let order = |seed| steps(&[0, 1, 2, 3, 4, 5], 5, 0, 0, seed);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let rounds: Vec<_> =
            order(1).chunks(6).map(|r| r.iter().map(|s| s.candidate).collect::<Vec<_>>()).collect();
        assert!(rounds.iter().any(|r| *r != rounds[0]), "each round has an order of its own");
    }

    #[test]
    fn each_candidate_is_once_in_each_place() {
        for place in 0..5 {
            let mut there: Vec<_> = (5..10).map(|round| candidates("p", 5, round, 1)[place]).collect();
            there.sort_unstable();
            assert_eq!(there, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn the_reference_runs_several_times_a_round_at_random_places() {
        let plain = steps(&[0, 1, 2], 30, 1, 1, 7);
        let all = with_repeats(plain.clone(), 0, 3, 7);
        assert_eq!(all.len(), plain.len() + 2 * 30, "neither warm-up nor counted run is repeated");
        let rounds: Vec<&[Step]> = all.chunk_by(|a, b| a.kind == b.kind).collect();
        let of = |round: &&[Step]| round.iter().map(|step| step.candidate).collect::<Vec<_>>();
        let places: Vec<Vec<usize>> = rounds.iter().filter(|round| round.len() == 5).map(of).collect();
        assert_eq!(places.len(), 30);
        assert!(places.iter().all(|round| round.iter().filter(|one| **one == 0).count() == 3));
        let first = places.iter().filter(|round| round[0] == 0).count();
        assert!((8..29).contains(&first), "it is first in {first} of 30 rounds");
        assert_eq!(all, with_repeats(plain, 0, 3, 7));
    }

    #[test]
    fn seed_subject_and_cycle_change_the_order() {
        let order = |subject: &str, round, seed| candidates(subject, 6, round, seed);
        assert_eq!(order("p", 3, 1), order("p", 3, 1));
        assert_ne!(order("p", 3, 1), order("q", 3, 1));
        assert_ne!(order("p", 3, 1), order("p", 9, 1));
        assert_ne!(order("p", 3, 1), order("p", 3, 2));
        assert!(candidates("p", 0, 0, 0).is_empty());
        assert_eq!(subjects(&["a", "b"], 0, 1).len(), 2);
    }
}
