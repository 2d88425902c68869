// SPDX-License-Identifier: Apache-2.0
//! Trials made up for a test that needs a program history.

use imas_core::TrialRecord;
use imas_core::sample::{Ended, MemoryFigures, OpFigures, Sample, Usage};

/// A valid trial with that number of resident bytes, and `cost` CPU seconds for a million operations.
pub(crate) fn trial(candidate: &str, build_id: &str, number: usize, resident: u64, cost: f64) -> TrialRecord {
    let memory = MemoryFigures {
        snapshots: 9,
        heap_mean: resident,
        heap_peak: resident,
        live_mean: resident / 2,
        live_peak: resident / 2,
        resident_mean: resident,
        resident_peak: resident,
        resident_over_time: resident,
        split: None,
    };
    let calls = OpFigures { calls: 500_000, sampled: 1000, mean_ns: 50.0 * cost, ..OpFigures::default() };
    let library = |name: &str| format!("lib{name}.so");
    let served = if candidate == "system" || candidate.starts_with("glibc") {
        "libc.so.6".to_owned()
    } else {
        library(candidate)
    };
    TrialRecord {
        sample: Sample {
            trial_id: format!("{candidate}-{number}"),
            candidate: candidate.to_owned(),
            made_unix_s: 1_700_000_000.0 + number as f64,
            ended: Ended::Clean { status: Some(0) },
            served,
            malloc: calls.clone(),
            free: calls,
            memory,
            usage: Some(Usage { user_s: cost, system_s: 0.0, ..Usage::default() }),
            wall_s: 2.0,
            ..Sample::default()
        },
        build_id: build_id.to_owned(),
        allocator_version: String::new(),
        retest_s: Some(0.0),
    }
}
