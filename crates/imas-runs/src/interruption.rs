// SPDX-License-Identifier: Apache-2.0
//! SIGINT, SIGTERM, SIGQUIT and SIGHUP in the middle of a run: the processes of the run die, what was measured
//! is kept. Other signals are handed on to the program ([`HandingOn`]).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::measure;
use signal_hook::SigId;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::{Handle, Signals};

use crate::handing_on::{HandingOn, ignored};

/// Knows whether a signal asked this program to end. While it lives, such a signal ends the run that is being
/// made and not this program.
#[derive(Debug, Default)]
pub struct Interruption {
    /// 0: none came.
    signal: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
    watch: Option<Watching>,
}

#[derive(Debug)]
struct Watching {
    handle: Handle,
    thread: JoinHandle<()>,
    flags: Vec<SigId>,
    /// The other signals.
    _handing_on: HandingOn,
}

/// Whether signals do what they do by default. A handler stays installed for good, so that this has to say
/// when it is to do nothing.
static BY_DEFAULT: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);
static DEFAULTS: Once = Once::new();

/// The signals that ask a program to end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// A signal of the terminal's reaches the run and this program at the same time; ours is noticed so much
/// later at most.
const NOTICED_WITHIN: Duration = Duration::from_millis(200);
/// Time between two looks for processes that were started after the signal, as by a shell that was being
/// started.
const AGAIN: Duration = Duration::from_millis(20);

impl Interruption {
    /// Watches for signals from now on. A signal that is ignored, as by nohup, stays ignored.
    ///
    /// # Errors
    /// When no handler can be installed, or orphans of the runs cannot be made ours.
    pub fn watch() -> Result<Self> {
        // Processes that a killed shell leaves behind must be found, too.
        measure::adopt_orphans()?;
        let mut interruption = Self::default();
        let ignored = ignored();
        let wanted: Vec<i32> =
            ENDING.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect();
        BY_DEFAULT.store(false, Ordering::SeqCst);
        let mut installed = Ok(());
        DEFAULTS.call_once(|| installed = restore_defaults_with(&wanted));
        installed?;
        let flag = |signal: &i32| -> Result<SigId> {
            let number = usize::try_from(*signal)?;
            Ok(flag::register_usize(*signal, Arc::clone(&interruption.signal), number)?)
        };
        let flags = wanted.iter().map(flag).collect::<Result<Vec<_>>>()?;
        let mut signals = Signals::new(wanted).context("cannot watch for signals")?;
        let (handle, over) = (signals.handle(), Arc::clone(&interruption.over));
        let thread = std::thread::spawn(move || {
            if signals.forever().next().is_some() {
                kill_until(&over);
            }
        });
        let _handing_on = HandingOn::begin(&ENDING)?;
        interruption.watch = Some(Watching { handle, thread, flags, _handing_on });
        Ok(interruption)
    }

    /// The signal that came, if one did.
    #[must_use]
    pub fn signal(&self) -> Option<i32> {
        i32::try_from(self.signal.load(Ordering::SeqCst)).ok().filter(|&signal| signal != 0)
    }

    /// The signal that came by the end of a run that signal `by` ended. Where `by` may be the terminal's,
    /// this waits for our own.
    pub(crate) fn signal_after(&self, by: Option<i32>) -> Option<i32> {
        let start = Instant::now();
        while self.watch.is_some()
            && by.is_some_and(|by| ENDING.contains(&by))
            && self.signal().is_none()
            && start.elapsed() < NOTICED_WITHIN
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.signal()
    }
}

/// A session was ended by a signal before it was finished: an error for commands that have nothing to print
/// then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterruptedBy(pub i32);

impl std::fmt::Display for InterruptedBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted; every finished run is kept, --resume goes on")
    }
}

impl std::error::Error for InterruptedBy {}

impl InterruptedBy {
    /// The exit status that a shell expects.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        u8::try_from(128 + self.0).unwrap_or(u8::MAX)
    }
}

/// The main thread may be about to start a process: all that come after the signal die, too.
fn kill_until(over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        measure::kill_descendants();
        std::thread::park_timeout(AGAIN);
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(Watching { handle, thread, flags, .. }) = self.watch.take() {
            BY_DEFAULT.store(true, Ordering::SeqCst);
            handle.close();
            flags.into_iter().for_each(|flag| {
                signal_hook::low_level::unregister(flag);
            });
            thread.thread().unpark();
            let _ = thread.join(); // it cannot have failed
        }
    }
}

/// Each signal has its default action while [`BY_DEFAULT`] is set.
fn restore_defaults_with(signals: &[i32]) -> Result<()> {
    for &signal in signals {
        flag::register_conditional_default(signal, Arc::clone(&BY_DEFAULT))?;
    }
    Ok(())
}
