// SPDX-License-Identifier: Apache-2.0
//! The pages of a process tree, summed.

use crate::common::{changed, put};
use imas_abi::{Page as Raw, state};
use imas_core::sample::Ended;
use imas_linux::ingest::{MergeError, ParsedPage, merge, parse};

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
