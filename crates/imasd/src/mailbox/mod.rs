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

mod agent;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use imas_engine::daemon_status::{DaemonCounters, FleetState};
use imas_exchange::FleetStatistics;
use imas_exchange::exchange::{Bounds, Exchange, Wanted, file_name};

use crate::fleet::settings::FleetSettings;
use crate::learner::Learner;
use crate::trouble_log::TroubleLog;
use agent::AgentReport;
use watch::InboxWatch;

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
