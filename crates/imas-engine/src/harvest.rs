// SPDX-License-Identifier: Apache-2.0
//! From the trial page of a process to the record that the store keeps, and what is seen of a process while
//! it lives.

use imas_core::hang::{MIN_THRESHOLD_S, ProcessActivity};
use imas_core::sample::Ended;
use imas_core::{SYSTEM, Sample, TrialRecord};
use imas_linux::catalogue::Catalogue;

use crate::candidates::version_served;

/// The next look at a process comes when its age is this multiple of its age at the last one: an old service
/// is hardly ever looked at.
const LATER: f64 = 1.2;

/// What is known of a start beside its page.
#[derive(Debug, Clone, Default)]
pub struct StartFacts {
    /// Build-id of the executable that ran.
    pub build_id: String,
    /// The waiting time between tests that was in force when the trial was decided, seconds.
    pub retest_s: Option<f64>,
    /// What was seen of the process while it lived.
    pub activity: Option<ProcessActivity>,
}

/// The record of a start, from the sample of its page. Without a catalogue, the version that served is not
/// known.
#[must_use]
pub fn record(mut sample: Sample, catalogue: Option<&Catalogue>, facts: StartFacts) -> TrialRecord {
    sample.machine = imas_linux::host::machine_state();
    // A process that ended by itself did not hang.
    sample.activity = facts.activity.filter(|_| !matches!(sample.ended, Ended::Clean { .. }));
    let version = catalogue.map(|catalogue| version_served(catalogue, &sample.candidate, &sample.served));
    TrialRecord {
        allocator_version: version.unwrap_or_default(),
        build_id: facts.build_id,
        retest_s: facts.retest_s,
        sample,
    }
}

/// Whether a running process that was started under the candidate is to be looked at: a hang shows in nothing
/// else ([`imas_core::hang`]). `first` is the share of the least time of a hang after which the first look
/// comes; `earlier` is what was seen before.
#[must_use]
pub fn look_is_due(candidate: &str, age_s: f64, first: f64, earlier: Option<ProcessActivity>) -> bool {
    let due_s = earlier.map_or(first * MIN_THRESHOLD_S, |seen| LATER * seen.lived_s);
    candidate != SYSTEM && age_s >= due_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_by_itself_did_not_hang() {
        let seen = ProcessActivity { lived_s: 60.0, ..ProcessActivity::default() };
        let facts = StartFacts { activity: Some(seen), ..StartFacts::default() };
        let of = |ended| record(Sample { ended, ..Sample::default() }, None, facts.clone()).sample.activity;
        assert_eq!(of(Ended::Clean { status: Some(0) }), None);
        assert_eq!(of(Ended::Unknown), Some(seen));
    }

    #[test]
    fn observations_of_one_process_become_rarer() {
        let seen = |lived_s| Some(ProcessActivity { lived_s, ..ProcessActivity::default() });
        assert!(look_is_due("jemalloc", 0.5 * MIN_THRESHOLD_S, 0.5, None));
        assert!(!look_is_due("jemalloc", 0.4 * MIN_THRESHOLD_S, 0.5, None));
        assert!(!look_is_due(SYSTEM, 1e6, 0.5, None), "it is the reference");
        assert!(!look_is_due("jemalloc", 1100.0, 0.5, seen(1000.0)));
        assert!(look_is_due("jemalloc", 1200.0, 0.5, seen(1000.0)));
    }
}
