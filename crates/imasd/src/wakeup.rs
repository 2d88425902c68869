// SPDX-License-Identifier: Apache-2.0
//! What the main loop sleeps on.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::folders::PageName;

const SIGNALS: u64 = 0;
const FOLDERS: u64 = 1;
const CONNECTOR: u64 = 2;
const FIRST_PROCESS: u64 = 16;

/// Events taken at once.
const AT_ONCE: usize = 64;

/// Why the loop woke.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// SIGTERM or SIGINT.
    pub(crate) stop: bool,
    /// SIGHUP.
    pub(crate) reload: bool,
    /// Processes that have ended, by their page.
    pub(crate) ended: Vec<PageName>,
    /// The kernel has process events for us.
    pub(crate) deeds: bool,
}

/// The descriptors.
#[derive(Debug)]
pub(crate) struct Wakeup {
    epoll: Epoll,
    signals: SignalFd,
    processes: HashMap<u64, (PageName, OwnedFd)>,
    by_page: HashMap<PageName, u64>,
    next: u64,
}

impl Wakeup {
    /// Signals come through a descriptor from now on.
    pub(crate) fn new() -> Result<Self> {
        let mut wanted = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            wanted.add(signal);
        }
        wanted.thread_block().context("signals")?;
        let signals = SignalFd::with_flags(&wanted, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
            .context("signals")?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).context("epoll")?;
        let processes = HashMap::new();
        let wakeup = Self { epoll, signals, processes, by_page: HashMap::new(), next: FIRST_PROCESS };
        wakeup.epoll.add(&wakeup.signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        Ok(wakeup)
    }

    /// Pages.
    pub(crate) fn add_folders(&self, events: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(events, EpollEvent::new(EpollFlags::EPOLLIN, FOLDERS))?)
    }

    /// Process events.
    pub(crate) fn add_connector(&self, connector: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(connector, EpollEvent::new(EpollFlags::EPOLLIN, CONNECTOR))?)
    }

    /// Whether process events wake us. Between two readings they may pile up: a thousand a second must not mean as many wake-ups.
    pub(crate) fn listen_to_connector(&self, connector: impl AsFd, listen: bool) {
        let flags = if listen { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        let _ = self.epoll.modify(connector, &mut EpollEvent::new(flags, CONNECTOR)); // it was added before
    }

    /// Wakes when the process behind the page ends.
    pub(crate) fn add_process(&mut self, page: PageName, process: OwnedFd) -> Result<()> {
        self.epoll.add(&process, EpollEvent::new(EpollFlags::EPOLLIN, self.next))?;
        self.by_page.insert(page.clone(), self.next);
        self.processes.insert(self.next, (page, process));
        self.next += 1;
        Ok(())
    }

    /// No longer.
    pub(crate) fn remove_process(&mut self, page: &PageName) {
        if let Some((_, process)) =
            self.by_page.remove(page).and_then(|number| self.processes.remove(&number))
        {
            let _ = self.epoll.delete(&process); // closing it would do
        }
    }

    /// Sleeps until something happens or that moment comes.
    pub(crate) fn wait(&self, until: Option<Instant>) -> Result<Woken> {
        let timeout = until.map_or(EpollTimeout::NONE, |until| {
            let left = until.saturating_duration_since(Instant::now());
            // Rounded up: too early would mean to turn once more for nothing.
            EpollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(EpollTimeout::MAX)
        });
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let count = match self.epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => 0,
            other => other?,
        };
        let mut woken = Woken::default();
        for event in events.iter().take(count) {
            match event.data() {
                SIGNALS => self.take_signals(&mut woken),
                CONNECTOR => woken.deeds = true,
                number => woken.ended.extend(self.processes.get(&number).map(|(page, _)| page.clone())),
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
