// SPDX-License-Identifier: Apache-2.0
//! Pages as an honest hook leaves them, to be bent by the tests.
//!
//! Properties of every page that was accepted. Shared by the tests and the fuzz target.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_abi::{PAGE_MAGIC, PAGE_VERSION, Page, page_kind, state};
use imas_core::Sample;
use imas_core::sample::OpFigures;
use imas_linux::ingest::{MergeError, ParsedPage, merge, parse};
use zerocopy::{FromZeros, IntoBytes};

/// Copies `text` into a field, closed by NULs.
pub(crate) fn put(field: &mut [u8], text: &str) {
    field.fill(0);
    field[..text.len()].copy_from_slice(text.as_bytes());
}

/// A trial of python3 under jemalloc on a 2 GHz machine that lived one second and left by `exit`.
pub(crate) fn trial() -> Box<Page> {
    let mut page = Box::new(Page::new_zeroed());
    let header = &mut page.header;
    (header.magic, header.version, header.page_bytes) = (PAGE_MAGIC, PAGE_VERSION, 16384);
    (header.kind, header.pid, header.uid, header.armed) = (page_kind::TRIAL, 4321, 1000, 1);
    (header.process_start_ticks, header.made_unix_ns) = (987_654, 1_700_000_000_500_000_000);
    put(&mut header.boot_id, "0f3c6a3e-52b1-4a52-9f0e-0123456789ab");
    put(&mut header.trial_id, "t-1");
    put(&mut header.candidate, "jemalloc");
    put(&mut header.program, "/usr/bin/python3.11");
    put(&mut header.detail, "/srv/app.py");
    put(&mut header.build_id, "a1b2c3");
    (header.state, header.clean_exit, header.exit_status) = (state::TRIAL, 1, -1);
    (header.forks, header.threads) = (1, 2);
    put(&mut header.served, "jemalloc");
    (header.ticks_start, header.ticks_last) = (1_000, 2_000_001_000);
    (header.ns_start, header.ns_last) = (5_000_000_000, 6_000_000_000);
    header.empty_pair_ticks_256 = 20 * 256;
    header.snapshots = 4;
    (header.heap_bytes_sum, header.heap_bytes_peak) = (40_000, 15_000);
    (header.live_bytes_sum, header.live_bytes_peak) = (30_000, 12_000);
    (header.resident_bytes_sum, header.resident_bytes_peak) = (32_000, 13_000);
    header.resident_kib_time = 9 * (1_000_000_000 >> 16);
    (header.user_us, header.system_us) = (800_000, 100_000);
    (header.minor_faults, header.major_faults, header.max_rss_bytes) = (321, 2, 14_000_000);
    (header.voluntary_switches, header.involuntary_switches) = (7, 8);
    counts(&mut page);
    page
}

/// 1,000 mallocs and 990 frees over two threads, timed 1 in 64, 100 and 60 ticks each.
fn counts(page: &mut Page) {
    let weight = 64 * 256;
    for (i, sampled, ticks) in [(0, 15u64, 100u64), (3, 15, 60)] {
        let op = &mut page.sampled.op[i];
        (op.sampled, op.weight, op.ticks) = (sampled, sampled * weight, sampled * 64 * ticks);
        op.histogram[6] = sampled * weight;
    }
    page.sampled.size_histogram[5] = 15 * weight;
    (page.sampled.usable_bytes_256, page.sampled.requested_bytes_256) = (48_000 * 256, 40_000 * 256);
    for (i, [malloc, free]) in [[600, 590], [400, 400]].into_iter().enumerate() {
        let slot = &mut page.slot[i];
        slot.tid = 4321;
        (slot.calls[0], slot.calls[3]) = (malloc, free);
        slot.bytes_requested = malloc * 40;
    }
    page.slot[1].tid = 0;
    page.slot[1].refused = 3;
}

/// A production start of the same program.
pub(crate) fn flight() -> Box<Page> {
    let mut page = trial();
    (page.header.kind, page.header.page_bytes, page.header.state) = (page_kind::FLIGHT, 4096, state::ACTIVE);
    page
}

/// The file's bytes: a flight page is the header's area alone.
pub(crate) fn bytes(page: &Page) -> Vec<u8> {
    let size = if page.header.kind == page_kind::FLIGHT { 4096 } else { 16384 };
    page.as_bytes()[..size].to_vec()
}

/// A trial page after `change`.
pub(crate) fn changed(change: impl FnOnce(&mut Page)) -> Vec<u8> {
    let mut page = trial();
    change(&mut page);
    bytes(&page)
}

/// Parses `bytes` and, if they are taken for a page, holds it to every promise. Returns whether they were.
pub(super) fn check(bytes: &[u8]) -> bool {
    let Ok(page) = parse(bytes) else {
        return false;
    };
    assert_eq!(parse(bytes).as_ref(), Ok(&page), "the same bytes give the same page");
    check_page(&page);
    check_sample(&page.to_sample());
    assert_eq!(merge(std::slice::from_ref(&page)), Ok(page.to_sample()), "a tree of one");
    match merge(&[page.clone(), page]) {
        Ok(sample) => check_sample(&sample),
        Err(why) => assert_eq!(why, MergeError::Overflow),
    }
    true
}

fn check_page(page: &ParsedPage) {
    for text in [&page.served, &page.candidate, &page.trial_id] {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    assert!(page.program.starts_with('/') && !page.candidate.is_empty() && !page.trial_id.is_empty());
    assert!(page.clone().not_after(12.5).made_unix_s <= 12.5);
}

/// Everything finite, not negative, and within what the store holds.
fn check_sample(sample: &Sample) {
    assert!(sample.made_unix_s.is_finite() && (0.0..4e9).contains(&sample.wall_s));
    for op in sample.classes() {
        check_operation(op);
    }
    let m = &sample.memory;
    assert!(m.heap_mean <= m.heap_peak && m.live_mean <= m.live_peak && m.resident_mean <= m.resident_peak);
    for fragmentation in [sample.frag_virtual(), sample.frag_resident()].into_iter().flatten() {
        assert!((0.0..=1.0).contains(&fragmentation), "{fragmentation}");
    }
    if let Some(split) = &m.split {
        let reported = split.reported.map_or([0; 4], |t| [t.in_use, t.cached, t.dirty, t.own]);
        let figures = [split.moments, split.resident, split.live, split.requested];
        assert!(figures.into_iter().chain(reported).all(|n| i64::try_from(n).is_ok()));
        assert!(split.shares().is_none_or(|shares| shares.other.is_finite() && shares.other <= 1.0));
    }
    assert!(sample.ns_per_op().is_none_or(|ns| (0.0..=1e10).contains(&ns)));
    if let Some(usage) = &sample.usage {
        assert!(usage.user_s.is_finite() && usage.user_s >= 0.0 && usage.system_s >= 0.0);
    }
    let counters = [sample.bytes_requested, sample.refused, sample.live_dropped, m.snapshots, m.heap_peak];
    assert!(
        counters.into_iter().chain(sample.classes().map(|op| op.calls)).all(|n| i64::try_from(n).is_ok())
    );
}

fn check_operation(op: &OpFigures) {
    assert!((0.0..=1e10).contains(&op.mean_ns), "{op:?}");
    assert!(op.sampled > 0 || op.mean_ns == 0.0, "{op:?}");
    assert!(op.histogram_ticks.iter().all(|&n| i64::try_from(n).is_ok()));
}
