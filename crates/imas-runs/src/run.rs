// SPDX-License-Identifier: Apache-2.0
//! A run as it is compared with others.

use imas_core::bench::Run;
use imas_linux::measure::Outcome;

/// The figures of a measured run of that round.
#[must_use]
pub fn run_of(outcome: &Outcome, round: u32) -> Run {
    Run {
        round,
        exit: outcome.exit,
        user_s: outcome.user_s,
        system_s: outcome.system_s,
        wall_s: outcome.wall_s,
        peak_bytes: outcome.resident.peak_bytes,
        mean_bytes: outcome.resident.mean_bytes,
        minor_faults: outcome.minor_faults,
        major_faults: outcome.major_faults,
        instructions: outcome.counts.instructions,
        cycles: outcome.counts.cycles,
        dtlb_misses: outcome.counts.dtlb_misses,
        cache_misses: outcome.counts.cache_misses,
        voluntary_switches: outcome.voluntary_switches,
        involuntary_switches: outcome.involuntary_switches,
        outlier: false,
        output: Some(format!("{:016x}", outcome.output_hash)),
        pace: outcome.pace,
        even_cpu_s: None,
    }
}
