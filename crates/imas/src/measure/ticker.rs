// SPDX-License-Identifier: Apache-2.0
//! A thread that prints a line now and then while the main thread waits.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Calls a function again and again, on a thread of its own, until it is dropped.
pub(crate) struct Ticker {
    /// The thread ends when this end of the channel is dropped.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    /// Ticker that calls `tick` after every gap. The first call comes after one gap.
    pub(crate) fn every(gap: Duration, mut tick: impl FnMut() + Send + 'static) -> Self {
        let (alive, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(gap) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        });
        Self { alive: Some(alive), thread: Some(thread) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a message that failed must not end the command
        }
    }
}
