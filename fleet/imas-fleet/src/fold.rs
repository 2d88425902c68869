// SPDX-License-Identifier: Apache-2.0
//! Aggregates of the stream become statistics: always the same ones, by any merger and however often.

use serde::{Deserialize, Serialize};

use crate::bus::StreamEntry;
use imas_exchange::aggregate::{Aggregate, BadAggregate, BadPayload};
use imas_exchange::key;
use imas_exchange::statistics::FleetStatistics;

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
