// SPDX-License-Identifier: Apache-2.0
//! A sample together with what it was a trial of.

use serde::{Deserialize, Serialize};

use crate::sample::Sample;

/// A stored trial: the sample and the versions of the two parties to it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct TrialRecord {
    /// Raw figures.
    pub sample: Sample,
    /// Build-id of the executable in hex; empty when it has none.
    pub build_id: String,
    /// Version of the candidate's allocator as the catalogue gave it; empty when not known.
    pub allocator_version: String,
    /// The waiting time between two tests (`MIN_TIME_TO_RETEST`, seconds) that was in force when the trial
    /// began; None when it was not recorded.
    pub retest_s: Option<f64>,
}

impl TrialRecord {
    /// True when the trial was of this build of the program. Two executables without a build-id count as the
    /// same build: they cannot be distinguished.
    pub fn is_of_build(&self, build_id: &str) -> bool {
        self.build_id == build_id
    }

    /// True when the trial was of this version of the allocator; an unknown version on either side is
    /// taken for the same.
    pub fn is_of_version(&self, version: &str) -> bool {
        self.allocator_version.is_empty() || version.is_empty() || self.allocator_version == version
    }
}

/// References to `records` in order of time; the trial id decides between equal times, so that the order does
/// not hang on the store.
pub fn in_order_of_time(records: &[TrialRecord]) -> Vec<&TrialRecord> {
    let mut ordered: Vec<_> = records.iter().collect();
    ordered.sort_by(|a, b| {
        let (a, b) = (&a.sample, &b.sample);
        a.made_unix_s.total_cmp(&b.made_unix_s).then_with(|| a.trial_id.cmp(&b.trial_id))
    });
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_are_ordered_by_trial() {
        let record = |made_unix_s, trial_id: &str| TrialRecord {
            sample: Sample { made_unix_s, trial_id: trial_id.into(), ..Sample::default() },
            ..TrialRecord::default()
        };
        let records = [record(2.0, "b"), record(2.0, "a"), record(1.0, "c")];
        let order: Vec<_> = in_order_of_time(&records).iter().map(|r| r.sample.trial_id.as_str()).collect();
        assert_eq!(order, ["c", "a", "b"]);
    }

    #[test]
    fn an_unknown_version_is_taken_for_the_same() {
        let record = TrialRecord { allocator_version: "5.3".into(), ..TrialRecord::default() };
        assert!(record.is_of_version("5.3"));
        assert!(record.is_of_version(""));
        assert!(!record.is_of_version("5.4"));
        assert!(TrialRecord::default().is_of_version("5.4"));
    }
}
