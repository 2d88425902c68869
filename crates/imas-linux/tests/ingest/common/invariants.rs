// SPDX-License-Identifier: Apache-2.0
//! What holds for every page that was accepted. Shared by the tests and the fuzz target.

use imas_core::Sample;
use imas_core::sample::OpFigures;
use imas_linux::ingest::{MergeError, ParsedPage, merge, parse};

/// Parses `bytes` and, if they are taken for a page, holds it to every promise. Returns whether they were.
pub(crate) fn check(bytes: &[u8]) -> bool {
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
