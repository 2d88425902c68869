// SPDX-License-Identifier: Apache-2.0
//! The terminal: taken over, given back whatever happens, and watched for its end.

use std::io::{IsTerminal, Stdin, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use imas_cli::message::Hinted;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// The terminal while the page is on it. Dropping it gives the terminal back.
#[derive(Debug)]
pub(crate) struct Screen {
    pub(crate) terminal: DefaultTerminal,
    input: Stdin,
    is_ended: Arc<AtomicBool>,
}

/// What waiting brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waited {
    /// Keys, or another size, or a signal.
    Something,
    /// The time is over.
    Nothing,
    /// The terminal is gone, or a signal asks to end.
    End,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// When standard input or output is no terminal, or one that cannot be steered.
    pub(crate) fn take() -> Result<Self> {
        check()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGHUP, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&is_ended)).context("signals")?;
        }
        let terminal = ratatui::try_init().context("the terminal cannot be steered")?;
        Ok(Self { terminal, input: stdin(), is_ended })
    }

    /// Waits for input, at most this long. The descriptor is watched here: the library would turn in circles
    /// on a terminal that is gone.
    pub(crate) fn wait(&self, most: Duration) -> Waited {
        if self.is_ended.load(Ordering::Relaxed) {
            return Waited::End;
        }
        let mut fds = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        let waited = poll(&mut fds, timeout);
        let events = fds[0].revents().unwrap_or(PollFlags::empty());
        match waited {
            _ if self.is_ended.load(Ordering::Relaxed) || events.intersects(gone) => Waited::End,
            Ok(0) => Waited::Nothing,
            Ok(_) | Err(Errno::EINTR) => Waited::Something,
            Err(_) => Waited::End,
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone cannot be given back, and needs not.
        let _ = ratatui::try_restore();
    }
}

fn check() -> Result<()> {
    const HINT: &str = "'imas top --once' prints the table once, 'imas top --once --json' is for scripts";
    let no = |what: &str| Err(Hinted::error(format!("top: {what}"), HINT));
    if !stdout().is_terminal() {
        return no("standard output is no terminal");
    }
    if !stdin().is_terminal() {
        return no("standard input is no terminal");
    }
    match std::env::var("TERM").as_deref() {
        Err(_) | Ok("" | "dumb") => no("this terminal cannot be steered (TERM)"),
        Ok(_) => Ok(()),
    }
}
