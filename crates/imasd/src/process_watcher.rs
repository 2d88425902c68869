// SPDX-License-Identifier: Apache-2.0
//! Processes as they come and go, by the kernel's events where it reports them, else by looks at /proc; which of them
//! are worth a look; and what the main loop sleeps on.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::mapping_text;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::kernel_events::{Connector, ProcessEvent};
use crate::process_info::{self, Life};

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

// Processes are worth a look if they live or work long enough.
//
// A process is looked at one second after it became known, then at growing distances, a dozen times at most,
// until its program is served or it has ended. New processes are reported by the kernel
// (`crate::kernel_events`) or found in /proc.

/// Most processes waited for; beyond that the newest are left for the next search.
const MOST_WAITING: usize = 65_536;
/// Processes looked at in one turn of the loop.
const MOST_LOOKS: usize = 4096;
/// Processes that are taken in during one turn of the loop. That costs more than a look.
const MOST_RIPE: usize = 128;
/// The first look comes after this time: most processes have ended by then and cost nothing.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const FARTHEST: Duration = Duration::from_secs(64);

/// Lives that are long enough for a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    /// CPU used, seconds.
    pub(super) cpu_s: f64,
    /// Age, seconds. Either of the two is enough.
    pub(super) life_s: f64,
}

impl Worth {
    fn holds(&self, life: &Life) -> bool {
        life.cpu_s >= self.cpu_s || life.age_s >= self.life_s
    }
}

/// Hash of the path of a file.
type File = u64;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Reverse<Instant>,
    pid: u32,
    step: Duration,
}

/// The processes that are waited for.
#[derive(Debug)]
pub(super) struct Census {
    worth: Worth,
    waiting: BinaryHeap<Waiting>,
    /// The processes of the last search, and the file that each ran.
    present: HashMap<u32, Option<File>>,
    /// Processes that could not be waited for, since the start.
    pub(super) overlooked: u64,
}

impl Census {
    pub(super) fn new(worth: Worth) -> Self {
        Self { worth, waiting: BinaryHeap::new(), present: HashMap::new(), overlooked: 0 }
    }

    pub(super) fn set_worth(&mut self, worth: Worth) {
        self.worth = worth;
    }

    /// A process that has just begun, or runs another image now.
    pub(super) fn note(&mut self, pid: u32, now: Instant) {
        if self.waiting.len() >= MOST_WAITING {
            self.overlooked += 1;
            return;
        }
        let first = FIRST_LOOK.min(Duration::from_secs_f64(self.worth.life_s.min(1e6)));
        self.waiting.push(Waiting { due: Reverse(now + first), pid, step: FIRST_LOOK });
    }

    /// A process that was ripe but could not be seen: during its exec it is seen soon, and one that
    /// may not be seen at all is looked at ever more seldom.
    fn note_again(&mut self, life: &Life, now: Instant) {
        let wait = Duration::from_secs_f64(life.age_s.min(1e6)).clamp(FIRST_LOOK, FARTHEST);
        self.waiting.push(Waiting { due: Reverse(now + wait), pid: life.identity.pid, step: wait });
    }

    /// Finds the processes that are new in /proc since the last search, and those that run another file than
    /// then: a wrapper, or what a program is between its fork and its exec, is not what stays.
    pub(super) fn search(&mut self, now: Instant) {
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let present: HashMap<u32, Option<File>> = pids.map(|pid| (pid, file_of(pid))).collect();
        for (pid, file) in &present {
            if self.present.get(pid) != Some(file) {
                self.note(*pid, now);
            }
        }
        self.present = present;
    }

    /// Time of the next look.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|waiting| waiting.due.0)
    }

    /// The processes that have earned a place by now, or some of them. Each is named once.
    pub(super) fn ripe(&mut self, now: Instant) -> Vec<Life> {
        let mut ripe = Vec::new();
        let mut looked = 0;
        while self.next().is_some_and(|due| due <= now) && ripe.len() < MOST_RIPE && looked < MOST_LOOKS {
            looked += 1;
            let Some(waiting) = self.waiting.pop() else { break };
            let Some(life) = process_info::life(waiting.pid) else { continue };
            if self.worth.holds(&life) {
                ripe.push(life);
                continue;
            }
            let step = (waiting.step * 2).min(FARTHEST);
            self.waiting.push(Waiting { due: Reverse(now + waiting.step), pid: waiting.pid, step });
        }
        ripe
    }
}

/// The file that the process runs; `None` for the kernel's own and for one that is gone.
fn file_of(pid: u32) -> Option<File> {
    // The kernel's path of it: no file system is asked, so nobody can make this slow.
    let path = std::fs::read_link(format!("/proc/{}/exe", mapping_text::living_thread(pid))).ok()?;
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    Some(hasher.finish())
}

// Descriptors that the main loop sleeps on.

const SIGNALS: u64 = 0;
const FOLDERS: u64 = 1;
const CONNECTOR: u64 = 2;
const EXITS: u64 = 3;
const INBOX: u64 = 4;
/// Kinds of events.
const KINDS: usize = 5;

/// Reasons why the loop woke.
#[derive(Debug, Default)]
pub(super) struct Woken {
    /// SIGTERM or SIGINT came.
    pub(super) stop: bool,
    /// SIGHUP came.
    pub(super) reload: bool,
    /// Processes that have a page have ended.
    pub(super) exits: bool,
    /// The kernel has process events for us.
    pub(super) process_events: bool,
    /// The agent of the fleet has delivered something.
    pub(super) inbox: bool,
}

/// Descriptors that the loop sleeps on.
#[derive(Debug)]
pub(super) struct Wakeup {
    epoll: Epoll,
    signals: SignalFd,
}

impl Wakeup {
    /// Signals come through a descriptor from now on.
    pub(super) fn new() -> Result<Self> {
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            wanted.add(signal);
        }
        wanted.thread_block().context("signals")?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("signals")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
        let wakeup = Self { epoll, signals };
        wakeup.epoll.add(&wakeup.signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        Ok(wakeup)
    }

    /// Wakes for events of the folders of pages.
    pub(super) fn add_folders(&self, events: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(events, EpollEvent::new(EpollFlags::EPOLLIN, FOLDERS))?)
    }

    /// Wakes for deliveries of the fleet's agent. Closing the descriptor ends it.
    pub(super) fn add_inbox(&self, inbox: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(inbox, EpollEvent::new(EpollFlags::EPOLLIN, INBOX))?)
    }

    /// Wakes for ends of processes that have a page.
    pub(super) fn add_exits(&self, exits: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(exits, EpollEvent::new(EpollFlags::EPOLLIN, EXITS))?)
    }

    /// Wakes for process events.
    fn add_connector(&self, connector: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(connector, EpollEvent::new(EpollFlags::EPOLLIN, CONNECTOR))?)
    }

    /// Sets whether process events wake us. Between two readings they may pile up: a thousand a second must
    /// not mean as many wake-ups.
    fn listen_to_connector(&self, connector: impl AsFd, listen: bool) {
        let flags = if listen { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        let _ = self.epoll.modify(connector, &mut EpollEvent::new(flags, CONNECTOR)); // it was added before
    }

    /// Sleeps until something happens or that moment comes.
    pub(super) fn wait(&self, until: Instant) -> Result<Woken> {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: too early would mean to turn once more for nothing.
        let timeout = EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX);
        let mut events = [EpollEvent::empty(); KINDS];
        let count = match self.epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        let mut woken = Woken::default();
        for event in events.iter().take(count) {
            match event.data() {
                SIGNALS => self.take_signals(&mut woken),
                CONNECTOR => woken.process_events = true,
                EXITS => woken.exits = true,
                INBOX => woken.inbox = true,
                _ => {} // written pages are read in each turn
            }
        }
        Ok(woken)
    }

    fn take_signals(&self, woken: &mut Woken) {
        while let Ok(Some(signal)) = self.signals.read_signal() {
            let hangup = i64::from(signal.ssi_signo) == i64::from(Signal::SIGHUP as i32);
            woken.reload |= hangup;
            woken.stop |= !hangup;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_ripe(census: &mut Census, now: Instant) -> Vec<u32> {
        let turns =
            std::iter::from_fn(|| Some(census.ripe(now + FIRST_LOOK)).filter(|ripe| !ripe.is_empty()));
        turns.flatten().map(|life| life.identity.pid).collect()
    }

    #[test]
    fn a_process_is_ripe_when_it_has_worked_or_lived_long_enough() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 1e9, life_s: 1e9 });
        census.note(std::process::id(), now);
        assert!(census.ripe(now).is_empty(), "not before its first look");
        let later = now + Duration::from_secs(2);
        assert!(census.ripe(later).is_empty());
        assert!(census.next().unwrap() > later, "looked at again");
        census.set_worth(Worth { cpu_s: 1e9, life_s: 0.0 });
        let ripe = census.ripe(later + FARTHEST);
        assert_eq!(ripe.len(), 1);
        assert_eq!(ripe[0].identity.pid, std::process::id());
        assert_eq!(census.next(), None);
    }

    #[test]
    fn the_search_finds_each_process_once() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        census.search(now);
        assert!(all_ripe(&mut census, now).contains(&std::process::id()));
        census.search(now);
        assert!(!all_ripe(&mut census, now).contains(&std::process::id()));
    }

    #[test]
    fn the_search_finds_a_process_again_when_it_runs_another_file() {
        let mut wrapper = std::process::Command::new("/bin/sh");
        wrapper.args(["-c", "read x; exec sleep 1000"]).stdin(std::process::Stdio::piped());
        let mut child = wrapper.spawn().unwrap();
        imas_testing::wait_for_exec(&child);
        let pid = child.id();
        let before = file_of(pid);
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        let mut finds_it = || {
            census.search(now);
            all_ripe(&mut census, now).contains(&pid)
        };
        let found = [finds_it(), finds_it()];
        drop(child.stdin.take());
        while file_of(pid) == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        let found_again = finds_it();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, found_again), ([true, false], true));
    }

    #[test]
    fn an_unreadable_process_is_read_again() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        let life = process_info::life(std::process::id()).unwrap();
        census.note_again(&Life { age_s: 10.0, ..life }, now);
        assert!(census.ripe(now + Duration::from_secs(9)).is_empty());
        assert_eq!(census.ripe(now + Duration::from_secs(10)).len(), 1);
        census.note_again(&Life { age_s: 0.1, ..life }, now);
        assert_eq!(census.next(), Some(now + FIRST_LOOK));
    }
}
