// SPDX-License-Identifier: Apache-2.0
//! A candidate as the core sees it, and the rule which samples count for it.

use serde::{Deserialize, Serialize};

use crate::sample::{PageKind, Sample};
use crate::service_life::ServiceLife;

/// Name of the candidate that leaves the program untouched.
pub const SYSTEM: &str = "system";

/// Properties of a catalogue entry that the core needs.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Name in the catalogue.
    pub name: String,
    /// Version of the allocator; empty when not known.
    pub version: String,
    /// Names under which its allocator may appear as [`crate::Sample::served`]; empty: any name, as for
    /// `system`.
    pub serves: Vec<String>,
    /// False when it cannot be loaded here.
    pub available: bool,
    /// False when it has left the set of tested candidates: its trials still count, but no more are made.
    #[serde(default = "yes")]
    pub tested: bool,
    /// True for settings of the program's runtime, under which an exit status may be the candidate's doing.
    #[serde(default)]
    pub of_runtime: bool,
    /// Place in the first round of trials; candidates with the same place run in random order.
    #[serde(default)]
    pub place: u32,
}

fn yes() -> bool {
    true
}

impl Candidate {
    /// An available candidate that is tested and must be served by one of `serves`.
    pub fn new(name: &str, version: &str, serves: &[&str]) -> Self {
        let serves = serves.iter().map(|s| (*s).to_owned()).collect();
        let (name, version) = (name.to_owned(), version.to_owned());
        Self { name, version, serves, available: true, tested: true, of_runtime: false, place: 0 }
    }

    /// The candidate `system`: whatever serves is right.
    pub fn system(version: &str) -> Self {
        Self::new(SYSTEM, version, &[])
    }

    /// True for `system`.
    pub fn is_system(&self) -> bool {
        self.name == SYSTEM
    }

    /// Whether something known of the candidate `name` in that version of its allocator is of this one. An
    /// unknown version on either side is taken for the same.
    pub fn is_same(&self, name: &str, version: &str) -> bool {
        self.name == name && (version.is_empty() || self.version.is_empty() || self.version == version)
    }

    fn accepts(&self, sample: &Sample) -> bool {
        self.serves.is_empty() || sample.is_uncounted() || self.serves.contains(&sample.served)
    }
}

/// Why a sample does not enter a candidate's averages.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum NotCounted {
    /// The sample is of another candidate.
    OtherCandidate,
    /// The sample is of another build of the program.
    OtherBuild,
    /// The sample is of another version of the allocator.
    OtherVersion,
    /// A production start: nothing was counted.
    Flight,
    /// The program crashed.
    Crashed,
    /// The injected code did nothing, for this reason.
    Passed(String),
    /// The malloc of another object served.
    ForeignServed(String),
    /// Too few operations: none was timed.
    NothingTimed,
    /// No snapshot of memory.
    NoSnapshot,
}

impl NotCounted {
    /// True when the trial shows that this candidate gives no figures for this program. Such trials are
    /// counted, so that they come to an end. False where the circumstances of the one start were the cause
    /// (`disabled`, `valgrind`, a resource limit).
    pub fn is_candidates_doing(&self) -> bool {
        match self {
            Self::Crashed | Self::ForeignServed(_) | Self::NothingTimed | Self::NoSnapshot => true,
            Self::Passed(reason) => {
                matches!(reason.as_str(), "no-allocator" | "page" | "wrapped-function" | "too-early")
            }
            Self::OtherCandidate | Self::OtherBuild | Self::OtherVersion | Self::Flight => false,
        }
    }
}

/// Figures of a sample that counts, as Algorithm 8 takes them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountedSample {
    /// Mean of the four class means, ns.
    pub ns_per_op: f64,
    /// Fragmentation over virtual sizes, 0 to 1.
    pub frag: f64,
    /// Mean heap, bytes.
    pub heap_bytes: f64,
}

/// Cost of a sample that counts, for `adaptive`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// User and system CPU time, seconds.
    pub cpu_s: f64,
    /// Mean of resident anonymous memory, bytes.
    pub bytes: f64,
    /// Peak of resident anonymous memory, bytes.
    pub peak_bytes: u64,
    /// Calls of all four classes.
    pub calls: u64,
    /// Mean of live bytes.
    pub live_bytes: u64,
}

/// Cost of the trial, if it counts for `candidate` and the build `build_id` of the program.
///
/// # Errors
/// The first reason, in the order of [`NotCounted`], why it does not.
pub fn cost(record: &TrialRecord, candidate: &Candidate, build_id: &str) -> Result<Cost, NotCounted> {
    admit(record, candidate, build_id)?;
    let sample = &record.sample;
    let usage = sample.usage.as_ref().ok_or(NotCounted::NothingTimed)?;
    if sample.memory.snapshots == 0 {
        return Err(NotCounted::NoSnapshot);
    }
    Ok(Cost {
        cpu_s: usage.user_s + usage.system_s,
        bytes: sample.memory.resident() as f64,
        peak_bytes: sample.memory.resident_peak.max(sample.life.as_ref().map_or(0, ServiceLife::peak_bytes)),
        calls: sample.classes().iter().map(|class| class.calls).sum(),
        live_bytes: sample.memory.live_mean,
    })
}

/// Whether `record` enters the averages of `candidate` for the build `build_id` of the program.
///
/// # Errors
/// The first reason, in the order of [`NotCounted`], why it does not.
pub fn count(
    record: &TrialRecord,
    candidate: &Candidate,
    build_id: &str,
) -> Result<CountedSample, NotCounted> {
    admit(record, candidate, build_id)?;
    let sample = &record.sample;
    let ns_per_op = sample.ns_per_op().filter(|ns| ns.is_finite()).ok_or(NotCounted::NothingTimed)?;
    let frag = sample.frag_virtual().ok_or(NotCounted::NoSnapshot)?;
    Ok(CountedSample { ns_per_op, frag, heap_bytes: sample.memory.heap_mean as f64 })
}

/// Checks a sample against the conditions under which both policies use its figures.
fn admit(record: &TrialRecord, candidate: &Candidate, build_id: &str) -> Result<(), NotCounted> {
    let sample = &record.sample;
    if sample.candidate != candidate.name {
        return Err(NotCounted::OtherCandidate);
    }
    if !record.is_of_build(build_id) {
        return Err(NotCounted::OtherBuild);
    }
    if !record.is_of_version(&candidate.version) {
        return Err(NotCounted::OtherVersion);
    }
    if sample.kind == PageKind::Flight {
        return Err(NotCounted::Flight);
    }
    if sample.ended.is_crash() {
        return Err(NotCounted::Crashed);
    }
    if let Some(reason) = &sample.pass_reason {
        return Err(NotCounted::Passed(reason.clone()));
    }
    if !candidate.accepts(sample) {
        return Err(NotCounted::ForeignServed(sample.served.clone()));
    }
    Ok(())
}

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
    use crate::sample::{Ended, MEASURED_OUTSIDE, MemoryFigures, OpFigures, Sample};

    fn good() -> TrialRecord {
        let memory =
            MemoryFigures { snapshots: 1, heap_mean: 400, live_mean: 300, ..MemoryFigures::default() };
        let malloc = OpFigures { calls: 64, sampled: 1, mean_ns: 80.0, ..OpFigures::default() };
        TrialRecord {
            sample: Sample {
                candidate: "jemalloc".into(),
                served: "jemalloc".into(),
                memory,
                malloc,
                ..Sample::default()
            },
            build_id: "b1".into(),
            allocator_version: "5.3".into(),
            retest_s: None,
        }
    }

    fn jemalloc() -> Candidate {
        Candidate::new("jemalloc", "5.3", &["jemalloc"])
    }

    fn after(change: impl FnOnce(&mut TrialRecord)) -> Result<CountedSample, NotCounted> {
        let mut record = good();
        change(&mut record);
        count(&record, &jemalloc(), "b1")
    }

    #[test]
    fn a_good_sample_counts() {
        assert_eq!(after(|_| ()), Ok(CountedSample { ns_per_op: 20.0, frag: 0.25, heap_bytes: 400.0 }));
        assert!(after(|r| r.sample.ended = Ended::Signal { signal: 15 }).is_ok(), "killed, not crashed");
    }

    #[test]
    fn a_sample_is_not_counted_for_each_reason() {
        use NotCounted as N;
        assert_eq!(after(|r| r.sample.candidate = "hoard".into()), Err(N::OtherCandidate));
        assert_eq!(after(|r| r.build_id = "b0".into()), Err(N::OtherBuild));
        assert_eq!(after(|r| r.allocator_version = "5.2".into()), Err(N::OtherVersion));
        assert_eq!(after(|r| r.sample.kind = PageKind::Flight), Err(N::Flight));
        assert_eq!(after(|r| r.sample.ended = Ended::NeverEntered), Err(N::Crashed));
        let passed = after(|r| r.sample.pass_reason = Some("seccomp".into()));
        assert_eq!(passed, Err(N::Passed("seccomp".into())));
        let foreign = after(|r| r.sample.served = "libc.so.6".into());
        assert_eq!(foreign, Err(N::ForeignServed("libc.so.6".into())));
        assert_eq!(after(|r| r.sample.malloc.sampled = 0), Err(N::NothingTimed));
        assert_eq!(after(|r| r.sample.memory.snapshots = 0), Err(N::NoSnapshot));
    }

    #[test]
    fn a_trial_measured_from_outside_has_a_cost_and_counts_no_calls() {
        let mut record = good();
        let memory =
            MemoryFigures { snapshots: 1, resident_over_time: 7, resident_peak: 9, ..Default::default() };
        record.sample = Sample {
            candidate: "jemalloc".into(),
            served: MEASURED_OUTSIDE.into(),
            memory,
            usage: Some(crate::sample::Usage { user_s: 0.5, ..Default::default() }),
            ..Sample::default()
        };
        let cost = cost(&record, &jemalloc(), "b1").unwrap();
        assert_eq!((cost.cpu_s, cost.bytes, cost.peak_bytes, cost.calls), (0.5, 7.0, 9, 0));
        assert_eq!(count(&record, &jemalloc(), "b1"), Err(NotCounted::NothingTimed), "for policy paper");
    }

    #[test]
    fn a_trial_of_system_counts_under_any_library() {
        let mut record = good();
        record.sample.candidate = SYSTEM.into();
        record.sample.served = "libjemalloc.so.2".into();
        assert!(count(&record, &Candidate::system(""), "b1").is_ok());
    }

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
