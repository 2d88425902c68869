// SPDX-License-Identifier: Apache-2.0
//! Brings the statistics of a subject up to date. Any number of mergers may do so at the same time, without a
//! leader: the stream is the truth, the statistics are a cache of its fold, and a compare-and-set lets one of
//! them write.

use serde::{Deserialize, Serialize};

use crate::bus::{BusError, FleetBus, Stored};
use crate::fold::{FoldCounts, fold};
use imas_exchange::aggregate::BadPayload;
use imas_exchange::key;
use imas_exchange::statistics::{BadStatistics, FleetStatistics};

/// Aggregates that are read at once.
pub const BATCH: usize = 100;
/// Calls in a row that may remain without an answer.
const TIMEOUTS: u32 = 5;

/// What a merge did.
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
            // What was written may be there or not: reading again shows it.
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
