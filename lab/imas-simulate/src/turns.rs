// SPDX-License-Identifier: Apache-2.0
//! Which rounds of a program judge and which may be seen.
//!
//! A program's rounds are shuffled; a third of them, two at least, judges what was chosen on all the others,
//! then another third judges; and so again for each split. The best of several noisy figures looks better
//! than it is on the runs that made it the best. Half and half would judge no better and choose worse: of six
//! rounds a policy would see three.

use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;

/// Rounds that judge what the others chose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Turn<'a> {
    /// Indices of all other rounds, in their order.
    pub seen: Vec<usize>,
    /// Indices of the rounds that judge.
    pub judging: &'a [usize],
}

/// Two turns that judge by different rounds: a third each, two at least, but never more than half. Empty
/// parts with fewer than two rounds.
pub fn turns(rounds: &[usize]) -> [Turn<'_>; 2] {
    let third = (rounds.len() / 3).max(2).min(rounds.len() / 2);
    [0, third].map(|from| {
        let judging = &rounds[from..from + third];
        Turn { seen: rounds.iter().copied().filter(|round| !judging.contains(round)).collect(), judging }
    })
}

/// The numbers below `len` in random order.
pub fn shuffled(len: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut rounds: Vec<usize> = (0..len).collect();
    rounds.shuffle(random);
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_of_the_rounds_judges_what_the_others_chose() {
        for (rounds, judging) in [(0, 0), (2, 1), (3, 1), (4, 2), (7, 2), (8, 2), (12, 4)] {
            let all: Vec<usize> = (0..rounds).collect();
            let turns = turns(&all);
            for turn in &turns {
                assert_eq!((turn.judging.len(), turn.seen.len()), (judging, rounds - judging));
                assert!(turn.judging.iter().all(|round| !turn.seen.contains(round)));
            }
            assert!(turns[0].judging.iter().all(|round| !turns[1].judging.contains(round)));
        }
    }
}
