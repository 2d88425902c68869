// SPDX-License-Identifier: Apache-2.0
//! The files through which imasd and the agent of the fleet exchange messages and statistics
//! (docs/decisions/0032). imasd itself listens to no network. It works as without a fleet while the folder
//! cannot be used.
//!
//! ```text
//! learner --stored messages--> Mailbox --outbox/--> agent
//! learner --subjects---------> Mailbox --wanted.json--> agent
//! learner <--statistics------- Mailbox <--inbox/---- agent
//! ```
//!
//! The agent's record of itself, `agent.json`. It is shown to people, so it is read as hostile bytes.
//!
//! Notices files that the agent delivers or removes, and costs nothing while it does neither.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use imas_core::printable;
use imas_engine::daemon_status::{DaemonCounters, FleetState};
use imas_exchange::FleetStatistics;
use imas_exchange::exchange::{Bounds, Exchange, Wanted, file_name};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use serde_json::{Map, Value};

use crate::fleet::FleetSettings;
use crate::learner::Learner;
use crate::notify::TroubleLog;

/// Two looks at deliveries are at least so far apart: each may change the index.
const BETWEEN: Duration = Duration::from_millis(250);
/// Deliveries read at once; then everything else has its turn.
const MOST_AT_ONCE: usize = 32;
/// Time after which what failed is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// Messages written at once.
const MOST_MESSAGES: u32 = 64;
/// Messages that wait in the store while the folder cannot be written. As many as the folder holds.
const MOST_UNWRITTEN: u32 = 4096;

/// The exchange folder as imasd uses it.
#[derive(Debug)]
pub(crate) struct Mailbox {
    folder: PathBuf,
    exchange: Exchange,
    watch: InboxWatch,
    /// Subjects that the agent was given, by the name of their file; `None` before the first time.
    wanted: Option<BTreeMap<String, String>>,
    /// Subjects whose deliveries are to be read.
    unread: BTreeSet<String>,
    read_last: Instant,
    /// Time when what failed is tried again.
    try_again: Option<Instant>,
    agent: AgentReport,
    counted: Option<SystemTime>,
    state: FleetState,
    trouble: TroubleLog,
    counts: DaemonCounters,
}

impl Mailbox {
    pub(crate) fn new(settings: &FleetSettings, host: &str) -> io::Result<Self> {
        let exchange = Exchange::new(&settings.exchange);
        let state = FleetState {
            host: host.to_owned(),
            exchange: settings.exchange.to_string_lossy().into_owned(),
            ..FleetState::default()
        };
        Ok(Self {
            watch: InboxWatch::new(exchange.inbox())?,
            folder: settings.exchange.clone(),
            exchange,
            wanted: None,
            unread: BTreeSet::new(),
            read_last: Instant::now(),
            try_again: Some(Instant::now()),
            agent: AgentReport::default(),
            counted: None,
            state,
            trouble: TroubleLog::default(),
            counts: DaemonCounters::default(),
        })
    }

    /// Descriptor of the deliveries.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        self.watch.events()
    }

    pub(crate) fn counts(&self) -> DaemonCounters {
        self.counts
    }

    pub(crate) fn state(&self) -> &FleetState {
        &self.state
    }

    /// Time when there is work if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let reading = (!self.unread.is_empty()).then(|| self.read_last + BETWEEN);
        reading.into_iter().chain(self.try_again).min()
    }

    /// Takes in what came, and sends what is to be sent. `is_woken` says whether something was delivered.
    pub(crate) fn turn(&mut self, now: Instant, is_woken: bool, learner: &mut Learner) {
        if is_woken {
            self.note_deliveries();
        }
        let events = learner.take_fleet_events();
        let tries_again = self.try_again.is_some_and(|at| at <= now);
        if tries_again {
            self.try_again = None;
            self.open();
        }
        if (events.changed_subjects || tries_again) && self.can_write() {
            self.want(learner);
        }
        if (events.has_messages || tries_again) && self.can_write() {
            self.send(learner);
        }
        if self.try_again.is_some() {
            self.keep_within_bounds(learner);
        }
        if !self.unread.is_empty() && now.duration_since(self.read_last) >= BETWEEN {
            self.read_last = now;
            self.read(learner);
        }
    }

    /// Looks at what changes without an event: folders that were replaced, what the agent took and records.
    pub(crate) fn look_around(&mut self, learner: &mut Learner) {
        if self.trouble.is_over(Instant::now()) {
            tracing::info!("the fleet's exchange folder works again");
        }
        if self.watch.renew() {
            self.read_all();
        }
        self.state.agent = self.agent.read(&self.exchange, &self.folder);
        self.state.connected = self.agent.is_connected();
        if self.state.connected {
            learner.note_fleet_reached();
        }
        self.count_waiting();
        self.state.unwritten = if self.can_write() { 0 } else { learner.unwritten() };
    }

    fn can_write(&self) -> bool {
        self.try_again.is_none()
    }

    /// Uses the folder again. imasd does not make it: its owner is chosen when the agent is installed.
    fn open(&mut self) {
        let opened = match std::fs::metadata(&self.folder) {
            Ok(_) => self.exchange.prepare(),
            Err(error) => Err(error),
        };
        if self.worked("the exchange folder", opened).is_some() {
            if self.watch.renew() {
                self.read_all();
            }
            self.count_waiting();
        }
    }

    /// The answer, or `None` where it failed: it is tried again then.
    fn worked<T>(&mut self, what: &str, answer: io::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => {
                if self.state.trouble.take().is_some() {
                    self.trouble.ended(Instant::now());
                }
                Some(answer)
            }
            Err(error) => {
                let hint =
                    if error.kind() == ErrorKind::NotFound { "; is imas-fleet installed?" } else { "" };
                let trouble = format!("{}: {what}: {error}{hint}", self.folder.display());
                if self.trouble.began() {
                    tracing::warn!("{trouble}; imasd goes on without the fleet, and tries again");
                }
                self.state.trouble = Some(trouble);
                self.try_again = Some(Instant::now() + TRY_AGAIN);
                None
            }
        }
    }

    fn want(&mut self, learner: &Learner) {
        let subjects = learner.subjects();
        let named: BTreeMap<String, String> =
            subjects.iter().map(|subject| (file_name(subject), subject.clone())).collect();
        if self.wanted.as_ref() == Some(&named) {
            return;
        }
        let wanted = Wanted { subjects: subjects.into_iter().collect() };
        let written = self.exchange.want(&wanted);
        if self.worked("wanted.json", written).is_none() {
            return;
        }
        let before = self.wanted.take().unwrap_or_default();
        let new = named.iter().filter(|(name, _)| !before.contains_key(*name));
        self.unread.extend(new.map(|(_, subject)| subject.clone())); // it may be there already
        self.state.wanted = named.len();
        self.wanted = Some(named);
    }

    /// Writes messages. Each is removed from the store after its file is on disk; a message that is written
    /// twice is the same file.
    fn send(&mut self, learner: &mut Learner) {
        loop {
            let messages = learner.messages(MOST_MESSAGES);
            if messages.is_empty() {
                return self.count_waiting();
            }
            for (stored, aggregate) in messages {
                let added = self.exchange.add(stored.place, &aggregate);
                if self.worked("outbox", added).is_none() {
                    return;
                }
                if !learner.forget_message(&stored) {
                    self.try_again = Some(Instant::now() + TRY_AGAIN);
                    return;
                }
                self.counts.fleet_written += 1;
            }
            let kept = self.exchange.keep_within(Bounds::default());
            let Some(dropped) = self.worked("outbox", kept) else { return };
            self.counts.fleet_dropped += dropped;
        }
    }

    fn keep_within_bounds(&mut self, learner: &mut Learner) {
        if learner.unwritten() > MOST_UNWRITTEN as usize {
            self.counts.fleet_dropped += learner.drop_messages(MOST_UNWRITTEN);
        }
    }

    fn note_deliveries(&mut self) {
        let delivered = self.watch.read();
        if delivered.all {
            return self.read_all();
        }
        let Some(wanted) = &self.wanted else { return };
        let subjects = delivered.names.iter().filter_map(|name| wanted.get(name.to_str()?)).cloned();
        self.unread.extend(subjects);
    }

    fn read_all(&mut self) {
        self.unread.extend(self.wanted.iter().flatten().map(|(_, subject)| subject.clone()));
    }

    fn read(&mut self, learner: &mut Learner) {
        for _ in 0..MOST_AT_ONCE {
            let Some(subject) = self.unread.pop_first() else { return };
            match self.exchange.delivered(&subject) {
                Ok(Some(bytes)) => self.receive(&subject, &bytes, learner),
                // The agent removes what the fleet has no more.
                Ok(None) => self.counts.fleet_forgotten += learner.forget_statistics(&subject),
                Err(error) => self.refuse(&subject, &error),
            }
        }
    }

    fn receive(&mut self, subject: &str, bytes: &[u8], learner: &mut Learner) {
        match FleetStatistics::read_of(subject, bytes) {
            Ok(statistics) => {
                self.counts.fleet_received += u64::from(learner.receive_statistics(&statistics))
            }
            Err(why) => self.refuse(subject, &why),
        }
    }

    fn refuse(&mut self, subject: &str, why: &dyn std::fmt::Display) {
        self.counts.fleet_refused += 1;
        tracing::debug!(SUBJECT = subject, "statistics of the fleet are refused: {why}");
    }

    /// Counts what waits for the agent, if the folder has changed.
    fn count_waiting(&mut self) {
        let changed = modified(&self.exchange.outbox());
        if changed.is_some() && changed == self.counted {
            return;
        }
        if let Ok((files, bytes)) = self.exchange.backlog() {
            (self.state.waiting, self.state.waiting_bytes) = (files, bytes);
            self.counted = changed;
        }
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::symlink_metadata(path).and_then(|about| about.modified()).ok()
}

/// Most keys that are shown.
const MOST_KEYS: usize = 32;
/// The agent writes its record each minute. Of an older one it is not known whether the agent still runs.
const OUTDATED: Duration = Duration::from_secs(300);
/// Most characters of a key or a text.
const MOST_CHARACTERS: usize = 300;

/// The agent's record as it was read last.
#[derive(Debug, Default)]
pub(super) struct AgentReport {
    written: Option<SystemTime>,
    record: Option<Map<String, Value>>,
}

impl AgentReport {
    /// The record now. The file is opened only if it has changed.
    pub(super) fn read(&mut self, exchange: &Exchange, folder: &Path) -> Option<Map<String, Value>> {
        let written = modified(&folder.join("agent.json"));
        if written.is_none() || written != self.written {
            let text = exchange.agent().ok().flatten();
            self.record = text.and_then(|text| serde_json::from_slice(&text).ok()).map(plain);
            self.written = written;
        }
        self.record.clone()
    }

    /// Whether the agent runs and is connected with the fleet, as far as it says so.
    fn is_connected(&self) -> bool {
        let is_outdated = |written: SystemTime| written.elapsed().is_ok_and(|age| age > OUTDATED);
        let since = self.record.as_ref().and_then(|record| record.get("connected_since_unix_s"));
        since.is_some_and(Value::is_number) && self.written.is_some_and(|written| !is_outdated(written))
    }
}

/// Plain values of the agent's record alone, without control characters.
fn plain(record: Map<String, Value>) -> Map<String, Value> {
    let cut = |text: &str| -> String {
        let text: String = text.chars().take(MOST_CHARACTERS).collect();
        printable::name(&text).into_owned()
    };
    let of = |(key, value): (String, Value)| {
        let value = match value {
            Value::String(text) => Value::String(cut(&text)),
            Value::Number(_) | Value::Bool(_) => value,
            _ => return None,
        };
        Some((cut(&key), value))
    };
    record.into_iter().filter_map(of).take(MOST_KEYS).collect()
}

/// Readings at once: files that are written faster do not keep the daemon busy without end.
const MOST_READS: usize = 16;

/// The watched inbox.
#[derive(Debug)]
pub(super) struct InboxWatch {
    inotify: Inotify,
    inbox: PathBuf,
    /// `None` while the folder is not there.
    watch: Option<WatchDescriptor>,
}

/// Files that were delivered or removed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Delivered {
    /// Names of files.
    pub(super) names: Vec<OsString>,
    /// Look at all.
    pub(super) all: bool,
}

impl InboxWatch {
    pub(super) fn new(inbox: PathBuf) -> std::io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let mut watch = Self { inotify, inbox, watch: None };
        watch.renew();
        Ok(watch)
    }

    /// To be waited for.
    pub(super) fn events(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    /// Watches the folder that is there now; whether that is another one than before.
    fn renew(&mut self) -> bool {
        // This changes nothing for a folder that is watched already.
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_ONLYDIR
            | AddWatchFlags::IN_DONT_FOLLOW;
        let now = self.inotify.add_watch(&self.inbox, flags).ok();
        let is_another = now != self.watch;
        if is_another && let Some(before) = self.watch {
            let _ = self.inotify.rm_watch(before); // it is gone with its folder
        }
        self.watch = now;
        is_another
    }

    pub(super) fn read(&self) -> Delivered {
        let mut delivered = Delivered::default();
        for _ in 0..MOST_READS {
            let Ok(events) = self.inotify.read_events() else { return delivered };
            for event in events {
                delivered.all |= event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW);
                delivered.names.extend(event.name);
            }
        }
        delivered
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_plain_values_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        let exchange = Exchange::new(folder.path());
        let mut report = AgentReport::default();
        assert_eq!(report.read(&exchange, folder.path()), None);
        let values = json!({"acknowledged": 7, "last_error": "\u{1b}[2Jx", "list": [1], "none": null});
        std::fs::write(folder.path().join("agent.json"), values.to_string()).unwrap();
        let read = report.read(&exchange, folder.path()).unwrap();
        assert_eq!(Value::Object(read), json!({"acknowledged": 7, "last_error": "\\u{1b}[2Jx"}));
        assert!(!report.is_connected());
        let record = json!({"connected_since_unix_s": 7}).to_string();
        let file = folder.path().join("agent.json");
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &record).unwrap();
        report.read(&exchange, folder.path()).unwrap();
        assert!(report.is_connected());
        let old = SystemTime::now() - 2 * OUTDATED;
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        report.read(&exchange, folder.path()).unwrap();
        assert!(!report.is_connected(), "the agent was killed");
        std::fs::remove_file(folder.path().join("agent.json")).unwrap();
        std::fs::write(folder.path().join("agent.json"), "7").unwrap();
        assert_eq!(report.read(&exchange, folder.path()), None);
    }

    #[test]
    fn a_delivered_file_is_reported_and_so_is_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let inbox = folder.path().join("inbox");
        let mut watch = InboxWatch::new(inbox.clone()).unwrap();
        std::fs::create_dir(&inbox).unwrap();
        assert!(watch.renew() && !watch.renew());
        std::fs::write(folder.path().join("x"), "1").unwrap();
        std::fs::rename(folder.path().join("x"), inbox.join("a.json")).unwrap();
        assert_eq!(watch.read().names, ["a.json"]);
        assert_eq!(watch.read(), Delivered::default());
        std::fs::remove_file(inbox.join("a.json")).unwrap();
        assert_eq!(watch.read().names, ["a.json"]);
        std::fs::rename(&inbox, folder.path().join("old")).unwrap();
        std::fs::create_dir(&inbox).unwrap();
        assert!(watch.renew() && !watch.renew());
        std::fs::write(inbox.join("b.json"), "1").unwrap();
        assert!(watch.read().names.contains(&"b.json".into()));
    }
}
