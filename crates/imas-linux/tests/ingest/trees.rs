// SPDX-License-Identifier: Apache-2.0
//! The pages of a process tree, summed.
//!
//! Bytes from an untrusted source: no panic, and every page that is accepted keeps its promises. The same check as in
//! `fuzz/`, with random bytes instead of guided ones.

use imas_abi::{Page as Raw, PageHeader, state};
use imas_core::sample::Ended;
use imas_linux::ingest::{MergeError, ParsedPage, merge, parse};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::common::{bytes, changed, check, flight, put, trial};

fn page(change: impl FnOnce(&mut Raw)) -> ParsedPage {
    parse(&changed(change)).unwrap()
}

/// A child that ran in the middle half of the root's second.
fn child(change: impl FnOnce(&mut Raw)) -> ParsedPage {
    page(|p| {
        (p.header.ns_start, p.header.ns_last) = (5_250_000_000, 5_750_000_000);
        p.header.ticks_last = 1_000_001_000;
        change(p);
    })
}

#[test]
fn counts_and_peaks_of_processes_are_summed() {
    let sum = merge(&[page(|_| ()), child(|_| ())]).unwrap();
    assert_eq!((sum.malloc.calls, sum.free.calls, sum.malloc.sampled), (2000, 1980, 30));
    assert_eq!((sum.bytes_requested, sum.refused, sum.rounding_bytes), (80_000, 6, 16_000));
    assert_eq!((sum.memory.heap_peak, sum.memory.snapshots), (30_000, 8));
    assert_eq!((sum.threads, sum.forks, sum.processes), (4, 2, 2));
    let usage = sum.usage.unwrap();
    assert_eq!((usage.user_s, usage.minor_faults, usage.max_rss_bytes), (1.6, 642, 28_000_000));
    assert_eq!((sum.malloc.histogram_ticks[6], sum.size_histogram[5]), (1920, 1920));
}

#[test]
fn means_of_memory_are_weighted_by_time() {
    let sum = merge(&[page(|_| ()), child(|_| ())]).unwrap();
    assert_eq!(sum.wall_s, 1.0);
    assert_eq!(sum.memory.heap_mean, 10_000 + 10_000 / 2);
    assert_eq!(sum.memory.live_mean, 7_500 + 7_500 / 2);
}

/// Three moments over a tenth of a second: 100 KiB resident, 60 live, 50 asked for.
fn looked_at(page: &mut Raw, reported: u64) {
    let h = &mut page.header;
    (h.split_moments, h.split_reported, h.split_time) = (3, reported, 1500);
    (h.split_resident_kib_time, h.split_usable_kib_time) = (150_000, 90_000);
    (h.split_requested_kib_time, h.split_in_use_kib_time) = (75_000, 93_000);
    h.split_cached_kib_time = 15_000;
}

#[test]
fn splits_add_like_means_and_are_reported_only_if_all_did() {
    let root = page(|p| looked_at(p, 3));
    let of = |child: ParsedPage| merge(&[root.clone(), child]).unwrap().memory.split.unwrap();
    let both = of(child(|p| looked_at(p, 3)));
    assert_eq!((both.moments, both.resident, both.live, both.requested), (6, 150 << 10, 90 << 10, 75 << 10));
    assert_eq!(both.reported.unwrap().cached, 15 << 10);
    assert_eq!(of(child(|p| looked_at(p, 2))).reported, None);
    let alone = of(child(|_| ()));
    assert_eq!(
        (alone.moments, alone.resident),
        (3, 100 << 10),
        "a process too short to be looked at adds nothing"
    );
    assert!(alone.reported.is_some());
    assert_eq!(merge(&[page(|_| ())]).unwrap().memory.split, None);
}

#[test]
fn forked_children_do_not_count_their_parents_blocks_again() {
    let root = page(|p| looked_at(p, 3));
    let split = |children: &[ParsedPage]| {
        let pages = [std::slice::from_ref(&root), children].concat();
        merge(&pages).unwrap().memory.split
    };
    let image = |forked, pid| {
        child(|p| {
            looked_at(p, 3);
            (p.header.forked, p.header.pid) = (forked, pid);
        })
    };
    assert_eq!(split(&[image(1, 5)]), None);
    assert_eq!(split(&[image(1, 5), image(0, 6)]), None, "another process's exec");
    assert!(split(&[image(1, 5), image(0, 5)]).is_some(), "an exec ends the parent's blocks");
    let alone = image(1, 5);
    assert_eq!(merge(std::slice::from_ref(&alone)).unwrap().memory.split, alone.memory.split);
    assert!(parse(&changed(|p| p.header.forked = 2)).is_err());
}

#[test]
fn the_span_reaches_from_first_start_to_last_snapshot() {
    let later = child(|p| (p.header.ns_start, p.header.ns_last) = (6_500_000_000, 7_000_000_000));
    let sum = merge(&[page(|_| ()), later]).unwrap();
    assert_eq!(sum.wall_s, 2.0);
    assert_eq!(sum.memory.heap_mean, 5_000 + 2_500);
}

#[test]
fn mean_times_are_weighted_by_calls() {
    // The root: 1,000 mallocs of 40 ns. The child: 3,000 of 80 ns (180 ticks less 20 at 2 GHz).
    let child = child(|p| {
        p.slot[0].calls[0] = 2600;
        p.sampled.op[0].ticks = 15 * 64 * 180;
    });
    let sum = merge(&[page(|_| ()), child]).unwrap();
    assert_eq!(sum.malloc.mean_ns, 70.0);
    assert_eq!((sum.realloc.sampled, sum.realloc.mean_ns.to_bits()), (0, 0));
}

#[test]
fn processes_that_stood_aside_add_nothing() {
    let aside = child(|p| (p.header.state, p.header.pass_reason) = (state::PASS, 2));
    let sum = merge(&[page(|_| ()), aside.clone()]).unwrap();
    assert_eq!((sum.malloc.calls, sum.pass_reason, sum.processes), (1000, None, 2));
    let root_aside = merge(&[aside.clone(), page(|_| ())]).unwrap();
    assert_eq!((root_aside.malloc.calls, root_aside.pass_reason), (1000, None));
    let all_aside = merge(&[aside.clone(), aside]).unwrap();
    assert_eq!((all_aside.pass_reason.as_deref(), all_aside.processes), (Some("own-malloc"), 2));
}

#[test]
fn a_crash_anywhere_is_the_trees() {
    let crashed = child(|p| (p.header.fatal_signal, p.header.fatal_code) = (11, 1));
    let sum = merge(&[page(|_| ()), child(|_| ()), crashed]).unwrap();
    assert_eq!(sum.ended, Ended::Signal { signal: 11 });
    let aside = child(|p| {
        (p.header.state, p.header.pass_reason, p.header.fatal_signal) = (state::PASS, 2, 11);
    });
    let sum = merge(&[page(|p| p.header.exit_status = 3), aside]).unwrap();
    assert_eq!(sum.ended, Ended::Clean { status: Some(3) });
}

#[test]
fn different_servers_are_all_named() {
    let other = child(|p| put(&mut p.header.served, "libc.so.6"));
    let silent = child(|p| put(&mut p.header.served, ""));
    assert_eq!(merge(&[page(|_| ()), other, silent.clone()]).unwrap().served, "jemalloc,libc.so.6");
    assert_eq!(merge(&[page(|_| ()), silent]).unwrap().served, "jemalloc");
}

#[test]
fn only_pages_of_one_trial_add() {
    assert_eq!(merge(&[]), Err(MergeError::Empty));
    let other = page(|p| put(&mut p.header.trial_id, "t-2"));
    let why = MergeError::OtherTrial { expected: "t-1".into(), found: "t-2".into() };
    assert_eq!(merge(&[page(|_| ()), other]), Err(why));
    for change in [
        |p: &mut Raw| put(&mut p.header.candidate, "hoard"),
        |p: &mut Raw| put(&mut p.header.boot_id, "ffff"),
    ] {
        let merged = merge(&[page(|_| ()), page(change)]);
        assert_eq!(merged, Err(MergeError::Contradiction("t-1".into())));
    }
}

#[test]
fn sums_do_not_wrap() {
    let huge = page(|p| p.slot[0].bytes_requested = i64::MAX as u64 - 16_000);
    assert!(merge(std::slice::from_ref(&huge)).is_ok());
    assert_eq!(merge(&[huge.clone(), huge]), Err(MergeError::Overflow));
}

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
    // Some are accepted, and not all: otherwise the mutations test nothing.
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
