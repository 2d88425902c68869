// SPDX-License-Identifier: Apache-2.0
//! Statistics of the programs that this host wants: pushed to plain subjects, which may lose one, and read
//! anew when a connection is made and every 10 to 30 minutes, which repairs that. No consumer on the server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt as _;
use imas_exchange::exchange::Exchange;
use imas_exchange::{FleetStatistics, statistics};
use imas_fleet::FleetBus as _;
use rand::RngExt as _;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::jetstream::JetStreamBus;
use crate::journal::AgentJournal;
use crate::names;
use crate::watch::FolderWatch;

/// Least time between two looks at `wanted.json`. Each `agent.json`, which is beside it, causes one.
const LOOK: Duration = Duration::from_millis(500);
/// Seconds after a new connection within which a host reads anew. All hosts of a server that is lost come
/// back at once.
const AFTER_RECONNECT_S: f64 = 5.0;
/// Least and most seconds between an odd message and the question to the bucket.
const AFTER_DOUBT_S: [f64; 2] = [1.0, 5.0];
/// Most subjects that a host may want; more are left out.
const MOST: usize = 10_000;

/// The statistics that this host has.
#[derive(Clone, Debug)]
pub struct Inbox {
    exchange: Exchange,
    journal: AgentJournal,
    /// Revision of what was written last, by subject, in this connection.
    revisions: Arc<Mutex<BTreeMap<String, u64>>>,
    /// Pushed statistics may have been missed.
    is_stale: Arc<AtomicBool>,
    /// Subjects for which the bucket is to be asked, and when.
    doubted: Arc<Mutex<BTreeMap<String, Instant>>>,
    /// Notification of a new connection or doubt.
    woken: Arc<Notify>,
}

impl Inbox {
    /// The inbox of the exchange folder.
    #[must_use]
    pub fn new(exchange: Exchange, journal: AgentJournal) -> Self {
        Self {
            exchange,
            journal,
            revisions: Arc::default(),
            is_stale: Arc::default(),
            doubted: Arc::default(),
            woken: Arc::default(),
        }
    }

    /// Follows `wanted.json`, for ever. `refresh_s`: least and most seconds between two readings.
    pub async fn keep(&self, client: &Client, bus: &JetStreamBus, refresh_s: [f64; 2]) {
        let mut tasks = JoinSet::new();
        let mut followed: BTreeMap<String, AbortHandle> = BTreeMap::new();
        let mut watch = FolderWatch::new(self.exchange.folder());
        let mut due = Instant::now();
        loop {
            if self.is_stale.swap(false, Ordering::Relaxed) {
                due = due.min(Instant::now() + Duration::from_secs_f64(between([0.0, AFTER_RECONNECT_S])));
            }
            let wanted = self.wanted().unwrap_or_else(|| followed.keys().cloned().collect());
            followed.retain(|subject, task| wanted.contains(subject) || stopped(task));
            while tasks.try_join_next().is_some() {} // those that were stopped
            let new: Vec<String> =
                wanted.iter().filter(|one| !followed.contains_key(*one)).cloned().collect();
            for subject in &new {
                match client.subscribe(format!("{}.{subject}", names::DECISIONS)).await {
                    Ok(pushed) => {
                        let task = tasks.spawn(self.clone().follow(subject.clone(), pushed));
                        followed.insert(subject.clone(), task);
                    }
                    Err(error) => self.journal.error(&format!("cannot subscribe: {error}")),
                }
            }
            let is_due = Instant::now() >= due;
            let mut asked: Vec<String> = if is_due { followed.keys().cloned().collect() } else { new };
            asked.extend(self.doubts().into_iter().filter(|one| !is_due && followed.contains_key(one)));
            self.read_all(bus, asked).await;
            if is_due {
                due = Instant::now() + Duration::from_secs_f64(between(refresh_s));
            }
            tokio::time::sleep(LOOK).await;
            self.wait(&mut watch, due).await;
        }
    }

    /// Waits until `wanted.json` may have changed, or the bucket is to be asked.
    async fn wait(&self, watch: &mut FolderWatch, due: Instant) {
        let doubt = self.doubted.lock().unwrap_or_else(PoisonError::into_inner).values().min().copied();
        tokio::select! {
            () = watch.changed() => {}
            () = self.woken.notified() => {}
            () = tokio::time::sleep_until(doubt.map_or(due, |doubt| doubt.min(due))) => {}
        }
    }

    /// Reads all anew soon: a connection was made, perhaps to a fleet that was set up again.
    pub fn read_anew(&self) {
        self.is_stale.store(true, Ordering::Relaxed);
        self.revisions.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.woken.notify_one();
    }

    fn wanted(&self) -> Option<BTreeSet<String>> {
        match self.exchange.wanted() {
            Ok(wanted) => {
                let plain = wanted.subjects.into_iter().filter(|subject| names::is_plain_subject(subject));
                Some(plain.take(MOST).collect())
            }
            Err(error) => {
                self.journal.error(&format!("wanted.json cannot be read: {error}"));
                None
            }
        }
    }

    async fn follow(self, subject: String, mut pushed: Subscriber) {
        while let Some(message) = pushed.next().await {
            self.take_pushed(&subject, revision(&message), &message.payload);
        }
    }

    /// Takes what was pushed. A server sends its answer wherever a request says, and any host may ask something: what
    /// is no statistics of the subject may be such an answer. So the bucket is asked; it shows what was forgotten, too.
    fn take_pushed(&self, subject: &str, revision: u64, value: &[u8]) {
        if FleetStatistics::read_of(subject, value).is_ok() {
            return self.take(subject, revision, value);
        }
        let later = Instant::now() + Duration::from_secs_f64(between(AFTER_DOUBT_S));
        let mut doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        doubted.entry(subject.to_owned()).or_insert(later);
        self.woken.notify_one();
    }

    /// The subjects for which the bucket is to be asked now.
    fn doubts(&self) -> Vec<String> {
        let now = Instant::now();
        let mut doubted = self.doubted.lock().unwrap_or_else(PoisonError::into_inner);
        let due: Vec<String> =
            doubted.iter().filter(|(_, at)| **at <= now).map(|(subject, _)| subject.clone()).collect();
        for subject in &due {
            doubted.remove(subject);
        }
        due
    }

    async fn read_all(&self, bus: &JetStreamBus, subjects: Vec<String>) {
        for subject in subjects {
            match bus.statistics(&subject).await {
                Ok(Some(stored)) => self.take(&subject, stored.revision, &stored.value),
                Ok(None) => self.remove(&subject),
                Err(error) => return self.journal.error(&format!("statistics cannot be read: {error}")),
            }
        }
    }

    /// Writes statistics that are newer than those written before. Empty ones mean that the fleet forgot
    /// them.
    fn take(&self, subject: &str, revision: u64, value: &[u8]) {
        if value.is_empty() {
            return self.remove(subject);
        }
        if value.len() > statistics::MAX_BYTES || !self.is_newer(subject, revision) {
            return;
        }
        match self.exchange.deliver(subject, value) {
            Ok(()) => self.journal.note(|record| record.received += 1),
            Err(error) => self.journal.error(&format!("the inbox cannot be written: {error}")),
        }
    }

    fn is_newer(&self, subject: &str, revision: u64) -> bool {
        let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_newer = revisions.get(subject).is_none_or(|known| *known < revision);
        if is_newer {
            revisions.insert(subject.to_owned(), revision);
        }
        is_newer
    }

    fn remove(&self, subject: &str) {
        self.revisions.lock().unwrap_or_else(PoisonError::into_inner).remove(subject);
        if std::fs::remove_file(self.exchange.inbox().join(format!("{subject}.json"))).is_ok() {
            self.journal.note(|record| record.forgotten += 1);
        }
    }
}

fn stopped(task: &AbortHandle) -> bool {
    task.abort();
    false
}

/// The bucket's revision, which the server puts beside what it republishes.
fn revision(message: &Message) -> u64 {
    let sequence = message.headers.as_ref().and_then(|headers| headers.get("Nats-Sequence"));
    sequence.and_then(|sequence| sequence.as_str().parse().ok()).unwrap_or(0)
}

/// A random number between two.
#[must_use]
pub fn between([least, most]: [f64; 2]) -> f64 {
    least + (most - least) * rand::rng().random::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_statistics_never_replace_newer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        exchange.prepare().unwrap();
        let inbox = Inbox::new(exchange.clone(), AgentJournal::new(folder.path().join("agent.json")));
        let subject = format!("{}.x86_64-4096-never-2", names::host_token("p"));
        let has = || exchange.delivered(&subject).unwrap();
        inbox.take(&subject, 7, b"seven");
        inbox.take(&subject, 6, b"six");
        inbox.take(&subject, 8, &vec![b'x'; statistics::MAX_BYTES + 1]);
        assert_eq!(has(), Some(b"seven".to_vec()));
        inbox.take(&subject, 9, b"nine");
        assert_eq!(has(), Some(b"nine".to_vec()));
        inbox.take(&subject, 0, b"");
        assert_eq!(has(), None);
        inbox.take(&subject, 1, b"anew");
        assert_eq!(has(), Some(b"anew".to_vec()), "after it was forgotten, revisions may begin again");
        assert_eq!((inbox.journal.now().received, inbox.journal.now().forgotten), (3, 1));
    }

    #[test]
    fn an_answer_that_another_host_had_sent_here_removes_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        exchange.prepare().unwrap();
        let inbox = Inbox::new(exchange.clone(), AgentJournal::new(folder.path().join("agent.json")));
        let of = |program: &str| {
            let subject = format!("{}.x86_64-4096-never-2", names::host_token(program));
            let (key, environment) = imas_exchange::key::of_subject(&subject).unwrap();
            (subject, FleetStatistics::new(key, environment).to_bytes())
        };
        let ((subject, own), (_, other)) = (of("p"), of("q"));
        inbox.take_pushed(&subject, 7, &own);
        for answer in [&b""[..], &br#"{"stream":"IMAS_AGGREGATES","seq":9}"#[..], &other[..]] {
            inbox.take_pushed(&subject, 9, answer);
            assert_eq!(exchange.delivered(&subject).unwrap().as_ref(), Some(&own));
        }
        assert!(inbox.doubts().is_empty(), "not yet");
        let asked = inbox.doubted.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(asked, std::slice::from_ref(&subject));
        inbox.doubted.lock().unwrap().insert(subject.clone(), Instant::now());
        assert_eq!((inbox.doubts(), inbox.doubts()), (vec![subject.clone()], vec![]), "once");
        assert!(inbox.is_newer(&subject, 8), "what it counts as known is its own");
    }
}
