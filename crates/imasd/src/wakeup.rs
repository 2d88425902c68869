// SPDX-License-Identifier: Apache-2.0
//! What the main loop sleeps on.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

const SIGNALS: u64 = 0;
const FOLDERS: u64 = 1;
const CONNECTOR: u64 = 2;
const EXITS: u64 = 3;
const INBOX: u64 = 4;
/// Kinds of events.
const KINDS: usize = 5;

/// Reasons why the loop woke.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// SIGTERM or SIGINT came.
    pub(crate) stop: bool,
    /// SIGHUP came.
    pub(crate) reload: bool,
    /// Processes that have a page have ended.
    pub(crate) exits: bool,
    /// The kernel has process events for us.
    pub(crate) process_events: bool,
    /// The agent of the fleet has delivered something.
    pub(crate) inbox: bool,
}

/// Descriptors that the loop sleeps on.
#[derive(Debug)]
pub(crate) struct Wakeup {
    epoll: Epoll,
    signals: SignalFd,
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
        let wakeup = Self { epoll, signals };
        wakeup.epoll.add(&wakeup.signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        Ok(wakeup)
    }

    /// Wakes for events of the folders of pages.
    pub(crate) fn add_folders(&self, events: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(events, EpollEvent::new(EpollFlags::EPOLLIN, FOLDERS))?)
    }

    /// Wakes for deliveries of the fleet's agent. Closing the descriptor ends it.
    pub(crate) fn add_inbox(&self, inbox: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(inbox, EpollEvent::new(EpollFlags::EPOLLIN, INBOX))?)
    }

    /// Wakes for ends of processes that have a page.
    pub(crate) fn add_exits(&self, exits: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(exits, EpollEvent::new(EpollFlags::EPOLLIN, EXITS))?)
    }

    /// Wakes for process events.
    pub(crate) fn add_connector(&self, connector: impl AsFd) -> Result<()> {
        Ok(self.epoll.add(connector, EpollEvent::new(EpollFlags::EPOLLIN, CONNECTOR))?)
    }

    /// Sets whether process events wake us. Between two readings they may pile up: a thousand a second must
    /// not mean as many wake-ups.
    pub(crate) fn listen_to_connector(&self, connector: impl AsFd, listen: bool) {
        let flags = if listen { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        let _ = self.epoll.modify(connector, &mut EpollEvent::new(flags, CONNECTOR)); // it was added before
    }

    /// Sleeps until something happens or that moment comes.
    pub(crate) fn wait(&self, until: Instant) -> Result<Woken> {
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
