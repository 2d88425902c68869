// SPDX-License-Identifier: Apache-2.0
//! Folds aggregates into statistics: any number of mergers, none of which leads. They publish that they
//! live, and each takes the programs that fall to it by rendezvous hashing. That only saves work: the fold is
//! right by whichever merger does it, and a sweep over all programs finds what was missed.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_nats::{Client, Message};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use imas_fleet::{MergeCounts, merge_counting};
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

use crate::inbox::between;
use crate::jetstream::JetStreamBus;
use crate::journal::AgentJournal;
use crate::names;

/// How often a merger publishes that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);
/// After this silence, its programs fall to the others.
const SILENCE: Duration = Duration::from_secs(16);
/// An aggregate is announced before the stream has it. So a program is looked at after the first time, when
/// more aggregates of it may have come, and again after the others. While the stream elects a leader, or a
/// server that lags behind is asked, the last one is needed.
const LOOKS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(3), Duration::from_secs(20)];
/// Announcements are lost while the connection is. All mergers of a server that is lost come back at once:
/// each sweeps within this time, seconds.
const AFTER_RECONNECT_S: [f64; 2] = [1.0, 5.0];
/// Programs that are folded at the same time.
const AT_ONCE: usize = 16;
/// Most programs that wait for their turn; the sweep finds the others.
const MOST_WAITING: usize = 100_000;

/// One merger.
#[derive(Debug)]
pub struct Merger {
    bus: JetStreamBus,
    host: String,
    journal: AgentJournal,
    /// When each merger was last seen alive.
    seen: BTreeMap<String, Instant>,
    /// Programs to look at: when, and how often they were looked at already.
    waiting: BTreeMap<String, (Instant, usize)>,
    /// By program: what the last sweep found.
    swept: BTreeMap<String, Swept>,
    /// Announcements may have been lost.
    reconnected: Arc<Notify>,
}

/// What a sweep found of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Swept {
    /// Aggregates in the stream.
    count: usize,
    /// They were folded after two sweeps that counted the same. Once is not enough: the server that was asked
    /// for them may have lagged behind the one that counted them.
    is_settled: bool,
}

impl Swept {
    /// After a fold of so many, where the sweep before left `before`.
    fn after(before: Option<Self>, count: usize) -> Self {
        Self { count, is_settled: before.is_some_and(|before| before.count == count) }
    }

    /// Whether this number needs no further fold.
    fn is_done(self, count: usize) -> bool {
        self.is_settled && self.count == count
    }
}

impl Merger {
    /// A merger, as the host with this token.
    #[must_use]
    pub fn new(bus: JetStreamBus, host: &str, journal: AgentJournal) -> Self {
        let (seen, waiting, swept, reconnected) = Default::default();
        Self { bus, host: host.to_owned(), journal, seen, waiting, swept, reconnected }
    }

    /// Where it is to be notified of each further connection.
    #[must_use]
    pub fn reconnected(&self) -> Arc<Notify> {
        Arc::clone(&self.reconnected)
    }

    /// Folds, for ever. `sweep_s`: least and most seconds between two sweeps.
    ///
    /// # Errors
    /// When it cannot subscribe.
    pub async fn work(mut self, client: &Client, sweep_s: [f64; 2]) -> Result<()> {
        let mut announced = client.subscribe(format!("{}.*.*.*", names::AGGREGATES)).await?;
        let mut mergers = client.subscribe(format!("{}.*", names::MERGERS)).await?;
        let mut sign = tokio::time::interval(SIGN_OF_LIFE);
        let mut turn = tokio::time::interval(LOOKS[0] / 2);
        turn.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sweep = Instant::now();
        loop {
            tokio::select! {
                Some(message) = mergers.next() => self.note_live(&message),
                Some(message) = announced.next() => self.announce(&message),
                _ = sign.tick() => {
                    let subject = format!("{}.{}", names::MERGERS, self.host);
                    if let Err(error) = client.publish(subject, "".into()).await {
                        self.journal.error(&format!("no sign of life could be given: {error}"));
                    }
                }
                _ = turn.tick() => self.fold_due().await,
                () = self.reconnected.notified() => {
                    sweep = sweep.min(Instant::now() + Duration::from_secs_f64(between(AFTER_RECONNECT_S)));
                }
                () = tokio::time::sleep_until(sweep) => {
                    self.sweep().await;
                    sweep = Instant::now() + Duration::from_secs_f64(between(sweep_s));
                }
            }
        }
    }

    /// Folds every program that may have aggregates which no sweep found twice.
    pub async fn sweep(&mut self) {
        let counted = match subjects(&self.bus).await {
            Ok(counted) => counted,
            Err(error) => return self.journal.error(&format!("programs cannot be listed: {error:#}")),
        };
        let before = |subject: &str| self.swept.get(subject).copied();
        let is_open = |(subject, count): &(&String, &usize)| {
            !before(subject).is_some_and(|swept| swept.is_done(**count))
        };
        let open: Vec<String> = counted.iter().filter(is_open).map(|(subject, _)| subject.clone()).collect();
        let failed = self.fold_all(open).await;
        let after = |(subject, count): (String, usize)| {
            let swept = Swept::after(before(&subject), count);
            (subject, swept)
        };
        let mut swept: BTreeMap<String, Swept> = counted.into_iter().map(after).collect();
        swept.retain(|subject, _| !failed.contains(subject));
        self.swept = swept;
    }

    /// Folds these programs; those that could not be folded.
    async fn fold_all(&self, subjects: Vec<String>) -> Vec<String> {
        let one = |subject: String| async move {
            let result = merge_counting(&self.bus, &subject, |new| self.count(new)).await;
            (subject, result)
        };
        let mut results = stream::iter(subjects).map(one).buffer_unordered(AT_ONCE);
        let mut failed = vec![];
        while let Some((subject, result)) = results.next().await {
            if let Err(error) = result {
                self.journal.error(&format!("{subject} cannot be folded: {error}"));
                failed.push(subject);
            }
        }
        failed
    }

    /// At once: what a merge wrote before the connection ended must not be lost.
    fn count(&self, counts: MergeCounts) {
        self.journal.note(|record| {
            record.folded += counts.folds.folded;
            record.conflicts += counts.conflicts;
            record.rejected += counts.folds.rejected;
            record.excessive += counts.folds.excessive;
        });
    }

    fn note_live(&mut self, message: &Message) {
        let Some((_, host)) = message.subject.rsplit_once('.') else { return };
        if names::is_host_token(host) {
            self.seen.insert(host.to_owned(), Instant::now());
        }
        self.seen.retain(|_, seen| seen.elapsed() < SILENCE);
    }

    fn announce(&mut self, message: &Message) {
        let Some(subject) = names::program_and_environment(names::AGGREGATES, &message.subject) else {
            return;
        };
        if self.waiting.len() < MOST_WAITING && self.is_mine(&subject) {
            let due = self.waiting.get(&subject).map_or_else(|| Instant::now() + LOOKS[0], |(due, _)| *due);
            self.waiting.insert(subject, (due.min(Instant::now() + LOOKS[0]), 0));
        }
    }

    async fn fold_due(&mut self) {
        let now = Instant::now();
        let is_due = |(_, (due, _)): &(&String, &(Instant, usize))| *due <= now;
        let due: Vec<(String, usize)> = self
            .waiting
            .iter()
            .filter(is_due)
            .map(|(subject, (_, looks))| (subject.clone(), *looks))
            .take(16 * AT_ONCE)
            .collect();
        for (subject, looks) in &due {
            self.waiting.remove(subject);
            if let Some(pause) = LOOKS.get(looks + 1) {
                self.waiting.insert(subject.clone(), (now + *pause, looks + 1));
            }
        }
        let failed = self.fold_all(due.into_iter().map(|(subject, _)| subject).collect()).await;
        let again = Instant::now() + LOOKS[1];
        self.waiting.extend(failed.into_iter().map(|subject| (subject, (again, 0))));
    }

    fn is_mine(&self, subject: &str) -> bool {
        let live = self.seen.iter().filter(|(_, seen)| seen.elapsed() < SILENCE).map(|(host, _)| host);
        let own = weight(&self.host, subject);
        live.filter(|host| **host != self.host).all(|host| weight(host, subject) < own)
    }
}

/// The merger with the greatest weight for a program takes it.
fn weight(host: &str, subject: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    (host, subject).hash(&mut hash);
    hash.finish()
}

/// The number of aggregates in the stream, by program and environment.
///
/// # Errors
/// When the server does not list them.
pub async fn subjects(bus: &JetStreamBus) -> Result<BTreeMap<String, usize>> {
    let stream = bus.context().get_stream_no_info(names::STREAM).await?;
    let mut listed = stream.info_with_subjects(format!("{}.>", names::AGGREGATES)).await?;
    let mut counted = BTreeMap::new();
    while let Some((subject, count)) = listed.try_next().await? {
        if let Some(subject) = names::program_and_environment(names::AGGREGATES, &subject) {
            *counted.entry(subject).or_insert(0) += count;
        }
    }
    Ok(counted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_done_when_two_sweeps_counted_the_same() {
        let once = Swept::after(None, 5);
        let twice = Swept::after(Some(once), 5);
        assert_eq!([once.is_done(5), twice.is_done(5), twice.is_done(6)], [false, true, false]);
        let more = Swept::after(Some(twice), 6);
        assert_eq!([more.is_done(6), Swept::after(Some(more), 6).is_done(6)], [false, true]);
    }

    #[test]
    fn programs_are_shared_out_evenly() {
        let hosts: Vec<String> = (0..6).map(|at| names::host_token(&format!("h{at}"))).collect();
        let mut taken = [0; 6];
        for program in 0..6000 {
            let weights = hosts.iter().map(|host| weight(host, &format!("p{program}")));
            let (most, _) = weights.enumerate().max_by_key(|(_, weight)| *weight).unwrap();
            taken[most] += 1;
        }
        assert!(taken.iter().all(|count| (800..1200).contains(count)), "{taken:?}");
    }
}
