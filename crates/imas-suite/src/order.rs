// SPDX-License-Identifier: Apache-2.0
//! The order of the runs.
//!
//! Round by round; in a round the programs in a seeded random order; of one program all candidates next to each other, so that
//! a slow minute of the machine meets all of them. The order of the candidates is a seeded random one, rotated by one place
//! from round to round and drawn anew when each has been in each place: none is always first. It hangs on seed, program and
//! round alone, so that an interrupted run goes on exactly where it was.

use std::hash::Hasher;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use siphasher::sip::SipHasher13;

/// The programs' order in a round, as indices of `names`.
#[must_use]
pub fn programs(names: &[&str], round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.shuffle(&mut random("", u64::from(round), seed));
    order
}

/// The candidates' order for a program in a round, as indices below `count`.
#[must_use]
pub fn candidates(program: &str, count: usize, round: u32, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let round = round as usize;
    if let (Some(cycle), Some(place)) = (round.checked_div(count), round.checked_rem(count)) {
        order.shuffle(&mut random(program, cycle as u64, seed));
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
    fn each_candidate_is_once_in_each_place() {
        for place in 0..5 {
            let mut there: Vec<_> = (5..10).map(|round| candidates("p", 5, round, 1)[place]).collect();
            there.sort_unstable();
            assert_eq!(there, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn seed_program_and_cycle_change_the_order() {
        let order = |program: &str, round, seed| candidates(program, 6, round, seed);
        assert_eq!(order("p", 3, 1), order("p", 3, 1));
        assert_ne!(order("p", 3, 1), order("q", 3, 1));
        assert_ne!(order("p", 3, 1), order("p", 9, 1));
        assert_ne!(order("p", 3, 1), order("p", 3, 2));
        assert!(candidates("p", 0, 0, 0).is_empty());
    }
}
