// SPDX-License-Identifier: Apache-2.0
//! Processes as they come and go: events of the kernel where it reports them ([`crate::connector`]), else a
//! search of /proc every few seconds ([`crate::census`]).

use std::time::{Duration, Instant};

use crate::census::{Census, Worth};
use crate::connector::{Connector, ProcessEvent};
use crate::process_info::Life;
use crate::wakeup::Wakeup;

/// New processes are searched for so often where the kernel does not report them.
const SEARCH: Duration = Duration::from_secs(2);
/// Shortest time between two reads of process events.
const READ_EVENTS: Duration = Duration::from_millis(250);

/// The source of process events.
#[derive(Debug)]
pub(crate) struct ProcessWatcher {
    census: Census,
    connector: Option<Connector>,
    /// The kernel's events came faster than they were read: /proc must be searched.
    is_incomplete: bool,
    searched: Instant,
    read: Instant,
    /// Number of times since the start that events were lost.
    pub(crate) events_lost: u64,
}

impl ProcessWatcher {
    /// Asks the kernel for events, unless /proc is to be searched in any case.
    pub(crate) fn new(worth: Worth, polls: bool, wakeup: &Wakeup) -> anyhow::Result<Self> {
        let connector = if polls { None } else { connector() };
        if let Some(connector) = &connector {
            wakeup.add_connector(connector)?;
        }
        let now = Instant::now();
        Ok(Self {
            census: Census::new(worth),
            connector,
            is_incomplete: false,
            searched: now.checked_sub(SEARCH).unwrap_or(now),
            read: now,
            events_lost: 0,
        })
    }

    /// Whether the kernel reports how processes end.
    pub(crate) fn reports_exits(&self) -> bool {
        self.connector.is_some()
    }

    pub(crate) fn set_worth(&mut self, worth: Worth) {
        self.census.set_worth(worth);
    }

    /// The kernel's events since the last call; `woken`: they have ended the daemon's sleep.
    pub(crate) fn read(&mut self, now: Instant, woken: bool, wakeup: &Wakeup) -> Vec<ProcessEvent> {
        let Some(connector) = &mut self.connector else { return vec![] };
        let rested = now.duration_since(self.read) >= READ_EVENTS;
        let read = connector.read();
        if woken || rested {
            // Let them gather for a while before they wake us again.
            wakeup.listen_to_connector(&*connector, !woken);
            self.read = now;
        }
        for event in &read.events {
            if let ProcessEvent::Exec { pid, .. } = event {
                self.census.note(*pid, now);
            }
        }
        if read.lost {
            self.events_lost += 1;
            self.is_incomplete = true;
        }
        read.events
    }

    /// Searches /proc, where that is needed and due; whether it did.
    pub(crate) fn search_if_due(&mut self, now: Instant) -> bool {
        let is_due = self.must_search() && now.duration_since(self.searched) >= SEARCH;
        if is_due {
            (self.searched, self.is_incomplete) = (now, false);
            self.search(now);
        }
        is_due
    }

    /// Searches /proc.
    pub(crate) fn search(&mut self, now: Instant) {
        self.census.search(now);
    }

    /// Processes that have lived or worked long enough by now; each is named once.
    pub(crate) fn ripe(&mut self, now: Instant) -> Vec<Life> {
        self.census.ripe(now)
    }

    /// The process could not be looked at: it is named again later.
    pub(crate) fn name_again(&mut self, life: &Life, now: Instant) {
        self.census.note_again(life, now);
    }

    /// Processes that could not be waited for, since the start.
    pub(crate) fn overlooked(&self) -> u64 {
        self.census.overlooked
    }

    /// Time to call again if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let reads =
            self.connector.is_some().then(|| self.read + READ_EVENTS).filter(|at| *at > Instant::now());
        let searches = self.must_search().then(|| self.searched + SEARCH);
        [self.census.next(), reads, searches].into_iter().flatten().min()
    }

    fn must_search(&self) -> bool {
        self.connector.is_none() || self.is_incomplete
    }
}

fn connector() -> Option<Connector> {
    match Connector::open() {
        Ok(mut connector) => connector.is_confirmed().then_some(connector),
        Err(error) => {
            tracing::info!("the kernel does not report new processes ({error}); /proc is searched instead");
            None
        }
    }
}
