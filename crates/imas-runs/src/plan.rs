// SPDX-License-Identifier: Apache-2.0
//! The order of the runs: rounds in which every candidate runs once, each in an order of its own.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
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

/// One run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Index of the candidate.
    pub candidate: usize,
    /// What for.
    pub kind: Kind,
}

/// All runs. Warm-up is under the first candidate, `system`; counted runs come in the middle of the measured ones, so that a drift of the machine
/// meets both alike.
pub fn steps(candidates: &[usize], rounds: u32, trials: u32, warmup: u32, seed: u64) -> Vec<Step> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut steps = Vec::new();
    if let Some(&first) = candidates.first() {
        steps.extend((0..warmup).map(|_| Step { candidate: first, kind: Kind::Warmup }));
    }
    let mut round_of = |kind: Kind| {
        let mut order = candidates.to_vec();
        order.shuffle(&mut random);
        order.into_iter().map(move |candidate| Step { candidate, kind })
    };
    for round in 0..rounds {
        if round == rounds / 2 {
            for round in 0..trials {
                steps.extend(round_of(Kind::Counted { round }));
            }
        }
        steps.extend(round_of(Kind::Measured { round }));
    }
    steps
}

/// It is a warm-up, and the next is none.
pub fn is_last_warmup(steps: &[Step], at: usize) -> bool {
    let is_warmup = |at: usize| steps.get(at).is_some_and(|step| step.kind == Kind::Warmup);
    is_warmup(at) && !is_warmup(at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_runs_once_a_round() {
        let steps = steps(&[0, 2, 3], 4, 1, 2, 7);
        assert_eq!(steps.len(), 2 + 3 * 4 + 3);
        assert!(steps[..2].iter().all(|s| *s == Step { candidate: 0, kind: Kind::Warmup }));
        let last: Vec<usize> = (0..steps.len()).filter(|&at| is_last_warmup(&steps, at)).collect();
        assert_eq!(last, [1]);
        for round in 0..4 {
            let mut of_round: Vec<_> =
                steps.iter().filter(|s| s.kind == Kind::Measured { round }).map(|s| s.candidate).collect();
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
}
