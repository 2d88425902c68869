// SPDX-License-Identifier: Apache-2.0
//! A bus in memory, for tests of logic. It can answer as a cluster in trouble does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bus::{BusError, FleetBus, Revision, Stored, StreamEntry};

/// Trouble with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BusTrouble {
    /// The call succeeds.
    None,
    /// The call is done, and its answer is lost.
    AnswerLost,
    /// The call is not done, and there is no answer.
    CallLost,
    /// A follower answers that has only a part of the stream.
    Lagging,
    /// A write is acknowledged and lost: the value goes back to the one before.
    WriteLost,
}

#[derive(Default, Debug)]
struct Held {
    sequence: u64,
    /// Subject and aggregate.
    stream: Vec<(String, StreamEntry)>,
    ids: BTreeSet<String>,
    /// Values that were written, by subject, the oldest first.
    bucket: BTreeMap<String, Vec<Vec<u8>>>,
    revision: BTreeMap<String, Revision>,
    /// Troubles with the next calls, the last one first.
    troubles: Vec<BusTrouble>,
}

/// The bus.
#[derive(Default, Debug)]
pub struct MemoryBus {
    held: Mutex<Held>,
}

impl MemoryBus {
    /// Makes the next calls go wrong like this; calls after them succeed.
    pub fn trouble(&self, next: &[BusTrouble]) {
        self.lock().troubles = next.iter().rev().copied().collect();
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn next_trouble(&mut self) -> BusTrouble {
        self.troubles.pop().unwrap_or(BusTrouble::None)
    }
}

/// The outcome of a call that was made or not.
fn answer<T>(trouble: BusTrouble, call: impl FnOnce() -> Result<T, BusError>) -> Result<T, BusError> {
    let lost = || Err(BusError::Timeout("lost".to_owned()));
    match trouble {
        BusTrouble::CallLost => lost(),
        BusTrouble::AnswerLost => call().and_then(|_| lost()),
        _ => call(),
    }
}

impl FleetBus for MemoryBus {
    async fn publish(&self, subject: &str, id: &str, payload: Vec<u8>) -> Result<(), BusError> {
        let mut held = self.lock();
        let trouble = held.next_trouble();
        answer(trouble, || {
            if held.ids.insert(id.to_owned()) {
                held.sequence += 1;
                let entry = StreamEntry { sequence: held.sequence, at_unix_s: 0, payload };
                held.stream.push((subject.to_owned(), entry));
            }
            Ok(())
        })
    }

    async fn aggregates(&self, subject: &str, after: u64, most: usize) -> Result<Vec<StreamEntry>, BusError> {
        let mut held = self.lock();
        let trouble = held.next_trouble();
        answer(trouble, || {
            let is_new = |(of, entry): &&(String, StreamEntry)| of == subject && entry.sequence > after;
            let new = held.stream.iter().filter(is_new).take(most);
            let mut new: Vec<StreamEntry> = new.map(|(_, entry)| entry.clone()).collect();
            if trouble == BusTrouble::Lagging {
                new.truncate(new.len().div_ceil(2));
            }
            Ok(new)
        })
    }

    async fn statistics(&self, subject: &str) -> Result<Option<Stored>, BusError> {
        let mut held = self.lock();
        let trouble = held.next_trouble();
        answer(trouble, || {
            let value = held.bucket.get(subject).and_then(|values| values.last()).cloned();
            let revision = held.revision.get(subject).copied().unwrap_or(0);
            Ok(value.map(|value| Stored { value, revision }))
        })
    }

    async fn compare_and_set(
        &self,
        subject: &str,
        revision: Revision,
        value: Vec<u8>,
    ) -> Result<Revision, BusError> {
        let mut held = self.lock();
        let trouble = held.next_trouble();
        answer(trouble, || {
            let known = held.revision.get(subject).copied().unwrap_or(0);
            if known != revision {
                return Err(BusError::Conflict);
            }
            let values = held.bucket.entry(subject.to_owned()).or_default();
            let before = values.last().cloned();
            values.push(value);
            if trouble == BusTrouble::WriteLost
                && let Some(before) = before
            {
                values.push(before);
            }
            held.revision.insert(subject.to_owned(), known + 1);
            Ok(known + 1)
        })
    }
}
