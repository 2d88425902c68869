// SPDX-License-Identifier: Apache-2.0
//! Brings the statistics of a subject up to date. Any number of mergers may do so at the same time, without a
//! leader: the stream is the truth, the statistics are a cache of its fold, and a compare-and-set lets one of
//! them write. The fold makes the same statistics of the same aggregates, by any merger and however often.
//!
//! Programs that one host may report in a day are limited. A real host has hundreds; one that invents programs would
//! make mergers fold them and the bucket keep them without end.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use imas_exchange::aggregate::{Aggregate, BadAggregate, BadPayload};
use imas_exchange::key;
use imas_exchange::statistics::{BadStatistics, FleetStatistics};
use serde::{Deserialize, Serialize};

use crate::bus::{BusError, FleetBus, Stored, StreamEntry};

/// Aggregates that are read at once.
pub const BATCH: usize = 100;
/// Calls in a row that may remain without an answer.
const TIMEOUTS: u32 = 5;

/// Counts of one merge: folds, commits and conflicts.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MergeCounts {
    /// Aggregates that this merger wrote, by what became of them.
    pub folds: FoldCounts,
    /// Statistics that this merger wrote.
    pub commits: u64,
    /// Times that another merger was first.
    pub conflicts: u64,
    /// Calls without an answer.
    pub timeouts: u64,
    /// Stored statistics that could not be read, and were made anew from the stream.
    pub unreadable: u64,
}

/// Why a merge ended early.
#[derive(thiserror::Error, Debug)]
pub enum FleetMergeError {
    /// The subject is none.
    #[error("{0}: no subject")]
    BadSubject(String),
    /// A newer IMAS wrote the statistics: it is up to that one.
    #[error("the statistics are of version {0}, which is unknown")]
    UnknownVersion(u32),
    /// The bus failed.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Folds what is new on the subject until nothing is.
///
/// # Errors
/// Where the bus fails, time-outs in a row included. What was written until then stays, and a repetition goes
/// on from there.
pub async fn merge<B: FleetBus + Sync>(bus: &B, subject: &str) -> Result<MergeCounts, FleetMergeError> {
    let mut counts = MergeCounts::default();
    merge_counting(bus, subject, |new| counts = counts.and(new)).await?;
    Ok(counts)
}

/// Folds what is new on the subject until nothing is, as [`merge()`] does. `note` gets what was done as soon
/// as it is known. So a merge that fails later, or is dropped because the connection ended, has counted what
/// it wrote.
///
/// # Errors
/// The errors of [`merge()`].
pub async fn merge_counting<B: FleetBus + Sync>(
    bus: &B,
    subject: &str,
    note: impl FnMut(MergeCounts),
) -> Result<(), FleetMergeError> {
    let mut merger = Merger { bus, subject, note, unanswered: None };
    let mut silent = 0;
    loop {
        match merger.step().await {
            Ok(Step::UpToDate) => return Ok(()),
            Ok(Step::Wrote) => silent = 0,
            Err(FleetMergeError::Bus(BusError::Conflict)) => {
                (merger.note)(MergeCounts { conflicts: 1, ..MergeCounts::default() });
                silent = 0;
            }
            // The written message may be there or not: reading again shows it.
            Err(FleetMergeError::Bus(BusError::Timeout(_))) if silent < TIMEOUTS => {
                (merger.note)(MergeCounts { timeouts: 1, ..MergeCounts::default() });
                silent += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

enum Step {
    Wrote,
    UpToDate,
}

/// A write without an answer.
struct Unanswered {
    value: Vec<u8>,
    folds: FoldCounts,
}

struct Merger<'a, B, N> {
    bus: &'a B,
    subject: &'a str,
    note: N,
    unanswered: Option<Unanswered>,
}

impl<B: FleetBus + Sync, N: FnMut(MergeCounts)> Merger<'_, B, N> {
    /// Folds one batch.
    async fn step(&mut self) -> Result<Step, FleetMergeError> {
        let stored = self.bus.statistics(self.subject).await?;
        self.note_unanswered(stored.as_ref());
        let before = self.before(stored.as_ref())?;
        let aggregates = self.bus.aggregates(self.subject, before.upto_seq, BATCH).await?;
        let (after, folds) = fold(&before, &aggregates);
        if after.upto_seq == before.upto_seq {
            return Ok(Step::UpToDate);
        }
        let revision = stored.map_or(0, |stored| stored.revision);
        let value = after.to_bytes();
        let answer = self.bus.compare_and_set(self.subject, revision, value.clone()).await;
        if matches!(answer, Err(BusError::Timeout(_))) {
            self.unanswered = Some(Unanswered { value, folds });
        }
        answer?;
        self.note_commit(folds);
        Ok(Step::Wrote)
    }

    fn note_commit(&mut self, folds: FoldCounts) {
        (self.note)(MergeCounts { folds, commits: 1, ..MergeCounts::default() });
    }

    /// A write without an answer has happened if the value is there: it is counted then. Another merger that
    /// wrote the same counts it as well.
    fn note_unanswered(&mut self, stored: Option<&Stored>) {
        let Some(written) = self.unanswered.take() else { return };
        if stored.is_some_and(|stored| stored.value == written.value) {
            self.note_commit(written.folds);
        }
    }

    fn before(&mut self, stored: Option<&Stored>) -> Result<FleetStatistics, FleetMergeError> {
        let (program, environment) = key::of_subject(self.subject)
            .ok_or_else(|| FleetMergeError::BadSubject(self.subject.to_owned()))?;
        let read = stored.map(|stored| FleetStatistics::read_of(self.subject, &stored.value));
        match read {
            Some(Ok(read)) => return Ok(read),
            Some(Err(BadStatistics::Payload(BadPayload::UnknownVersion(version)))) => {
                return Err(FleetMergeError::UnknownVersion(version));
            }
            Some(Err(_)) => (self.note)(MergeCounts { unreadable: 1, ..MergeCounts::default() }),
            None => {}
        }
        Ok(FleetStatistics::new(program, environment))
    }
}

impl FoldCounts {
    fn and(self, other: Self) -> Self {
        Self {
            folded: self.folded + other.folded,
            skipped: self.skipped + other.skipped,
            rejected: self.rejected + other.rejected,
            excessive: self.excessive + other.excessive,
        }
    }
}

impl MergeCounts {
    /// Sum of both counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            folds: self.folds.and(other.folds),
            commits: self.commits + other.commits,
            conflicts: self.conflicts + other.conflicts,
            timeouts: self.timeouts + other.timeouts,
            unreadable: self.unreadable + other.unreadable,
        }
    }
}

/// Numbers of aggregates by what became of them.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FoldCounts {
    /// Aggregates that the statistics contain.
    pub folded: u64,
    /// Aggregates of another version, which this one cannot read.
    pub skipped: u64,
    /// Aggregates that are forged or absurd.
    pub rejected: u64,
    /// Aggregates beyond what one host can measure in a day ([`imas_exchange::rate`]).
    pub excessive: u64,
}

/// Adds aggregates of the stream. Those up to the watermark are contained already; the others are
/// added in the order of their numbers, each number once.
pub fn fold(before: &FleetStatistics, aggregates: &[StreamEntry]) -> (FleetStatistics, FoldCounts) {
    let (mut statistics, mut counts) = (before.clone(), FoldCounts::default());
    let subject = statistics.subject();
    let mut new: Vec<&StreamEntry> = aggregates.iter().filter(|one| one.sequence > before.upto_seq).collect();
    new.sort_by_key(|one| one.sequence);
    new.dedup_by_key(|one| one.sequence);
    for entry in new {
        statistics.upto_seq = entry.sequence;
        match Aggregate::read(&entry.payload) {
            Ok(one) if key::subject(&one.program, &one.environment) == subject => {
                if statistics.add_allowed(&one, entry.at_unix_s) {
                    counts.folded += 1;
                } else {
                    counts.excessive += 1;
                }
            }
            Err(BadAggregate::Payload(BadPayload::UnknownVersion(_))) => counts.skipped += 1,
            _ => counts.rejected += 1,
        }
    }
    (statistics, counts)
}

/// Programs of one host in a day, and in what the stream keeps.
pub const MOST_PROGRAMS: usize = 4096;
const DAY_S: u64 = 86_400;

/// The programs that each host reported today.
#[derive(Default, Debug)]
pub struct ProgramQuota {
    day: u64,
    state: RandomState,
    by_host: HashMap<String, HashSet<u64>>,
}

impl ProgramQuota {
    /// Whether the host may report this program now: it did so today, or has room for one more.
    pub fn allows(&mut self, host: &str, subject: &str, now_unix_s: u64) -> bool {
        let day = now_unix_s / DAY_S;
        if day != self.day {
            self.by_host.clear();
            self.day = day;
        }
        let program = self.state.hash_one(subject);
        let programs = match self.by_host.get_mut(host) {
            Some(programs) => programs,
            None => self.by_host.entry(host.to_owned()).or_default(),
        };
        programs.contains(&program) || (programs.len() < MOST_PROGRAMS && programs.insert(program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_reports_so_many_programs_a_day_and_others_keep_theirs() {
        let mut quota = ProgramQuota::default();
        let mut count = |host: &str, from: usize, day: u64| {
            let all = (from..from + 2 * MOST_PROGRAMS).map(|number| number.to_string());
            all.filter(|program| quota.allows(host, program, day * DAY_S)).count()
        };
        assert_eq!(count("liar", 0, 1), MOST_PROGRAMS);
        assert_eq!(count("liar", 0, 1), MOST_PROGRAMS, "those of before");
        assert_eq!(count("liar", 1_000_000, 1), 0);
        assert_eq!(count("honest", 0, 1), MOST_PROGRAMS);
        assert_eq!(count("liar", 1_000_000, 2), MOST_PROGRAMS);
    }
}
