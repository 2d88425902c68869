// SPDX-License-Identifier: Apache-2.0
//! Brings the statistics of a subject up to date. Any number of mergers may do so at the same time, without a leader: the
//! stream is the truth, the statistics are a cache of its fold, and a compare-and-set lets one of them write.

use serde::{Deserialize, Serialize};

use crate::bus::{BusError, FleetBus, Stored};
use crate::fold::{FoldCounts, fold};
use crate::key;
use crate::payload::BadPayload;
use crate::statistics::{BadStatistics, FleetStatistics};

/// Aggregates that are read at once.
pub const BATCH: usize = 100;
/// Calls in a row that may remain without an answer.
const TIMEOUTS: u32 = 5;

/// What a merge did.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MergeCounts {
    /// Aggregates that this merger wrote, by what became of them.
    pub folds: FoldCounts,
    /// Statistics that it wrote.
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
/// Where the bus fails, time-outs in a row included. What was written until then stays, and a repetition goes on
/// from there.
pub async fn merge<B: FleetBus + Sync>(bus: &B, subject: &str) -> Result<MergeCounts, FleetMergeError> {
    let mut merger = Merger { bus, subject, counts: MergeCounts::default() };
    let mut silent = 0;
    loop {
        match merger.step().await {
            Ok(Step::UpToDate) => return Ok(merger.counts),
            Ok(Step::Wrote) => silent = 0,
            Err(FleetMergeError::Bus(BusError::Conflict)) => {
                (merger.counts.conflicts, silent) = (merger.counts.conflicts + 1, 0);
            }
            // What was written may be there or not: reading again shows it.
            Err(FleetMergeError::Bus(BusError::Timeout(_))) if silent < TIMEOUTS => {
                (merger.counts.timeouts, silent) = (merger.counts.timeouts + 1, silent + 1);
            }
            Err(error) => return Err(error),
        }
    }
}

enum Step {
    Wrote,
    UpToDate,
}

struct Merger<'a, B> {
    bus: &'a B,
    subject: &'a str,
    counts: MergeCounts,
}

impl<B: FleetBus + Sync> Merger<'_, B> {
    /// One batch.
    async fn step(&mut self) -> Result<Step, FleetMergeError> {
        let stored = self.bus.statistics(self.subject).await?;
        let before = self.before(stored.as_ref())?;
        let aggregates = self.bus.aggregates(self.subject, before.upto_seq, BATCH).await?;
        let (after, folds) = fold(&before, &aggregates);
        if after.upto_seq == before.upto_seq {
            return Ok(Step::UpToDate);
        }
        let revision = stored.map_or(0, |stored| stored.revision);
        self.bus.compare_and_set(self.subject, revision, after.to_bytes()).await?;
        self.counts.commits += 1;
        self.counts.folds = self.counts.folds.and(folds);
        Ok(Step::Wrote)
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
            Some(Err(_)) => self.counts.unreadable += 1,
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
        }
    }
}
