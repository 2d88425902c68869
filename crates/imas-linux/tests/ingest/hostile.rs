// SPDX-License-Identifier: Apache-2.0
//! Bytes from an untrusted source: no panic, and every page that is accepted keeps its promises. The same
//! check as in `fuzz/`, with random bytes instead of guided ones.

use crate::common::invariants::check;
use crate::common::{bytes, flight, trial};
use imas_abi::PageHeader;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Where figures lie: after the strings of the header, in the sampled area and in the slots. Mutations there
/// are worth more than one in a path.
fn interesting(random: &mut StdRng, len: usize) -> usize {
    let ranges =
        [0..64, std::mem::offset_of!(PageHeader, state)..size_of::<PageHeader>(), 4096..8192, 8192..16384];
    let range = ranges[random.random_range(0..4)].clone();
    if range.end <= len { random.random_range(range) } else { random.random_range(0..len) }
}

/// One mutation: a byte, a word of extreme value, or a run of noise.
fn mutate(bytes: &mut [u8], random: &mut StdRng) {
    let at = interesting(random, bytes.len());
    let word = at & !7;
    match random.random_range(0..5) {
        0 => bytes[at] ^= 1 << random.random_range(0..8),
        1 => bytes[at] = random.random(),
        2 => bytes[word..word + 8].fill([0, 0xff, 0x7f][random.random_range(0..3)]),
        3 => bytes[word..word + 8].copy_from_slice(&(1u64 << random.random_range(0..64)).to_ne_bytes()),
        _ => {
            let end = (at + random.random_range(0..64)).min(bytes.len());
            random.fill(&mut bytes[at..end]);
        }
    }
}

#[test]
fn a_hundred_thousand_mutations_cause_no_panic() {
    let mut random = StdRng::seed_from_u64(0x494d_4153);
    let originals = [bytes(&trial()), bytes(&flight())];
    let mut accepted = 0;
    for i in 0..100_000 {
        let mut page = originals[usize::from(i % 8 == 0)].clone();
        for _ in 0..random.random_range(1..5) {
            mutate(&mut page, &mut random);
        }
        accepted += u32::from(check(&page));
    }
    // Neither all nor none: otherwise the mutations test nothing.
    assert!((10_000..90_000).contains(&accepted), "{accepted}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_are_no_page(bytes in prop::collection::vec(any::<u8>(), 0..20_000)) {
        prop_assert!(!check(&bytes));
    }

    #[test]
    fn random_bytes_after_an_honest_header(tail in prop::collection::vec(any::<u8>(), 12288)) {
        check(&[&bytes(&trial())[..4096], &tail].concat());
    }

    #[test]
    fn random_figures_in_an_honest_page(
        words in prop::collection::vec((0usize..2048, prop_oneof![any::<u64>(), 0..1u64 << 40, Just(u64::MAX)]), 1..64),
    ) {
        let mut page = bytes(&trial());
        for (word, value) in words {
            page[word * 8..word * 8 + 8].copy_from_slice(&value.to_ne_bytes());
        }
        check(&page);
    }

    #[test]
    fn every_cut_is_refused(len in 0usize..16384) {
        prop_assert!(!check(&bytes(&trial())[..len]));
    }
}
