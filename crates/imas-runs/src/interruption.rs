// SPDX-License-Identifier: Apache-2.0
//! Signals in the middle of a run. SIGINT, SIGTERM, SIGQUIT and SIGHUP end it: its processes die, what was measured is kept.
//! Any other signal that somebody sends to a command that stands before a program is meant for the program: it is handed
//! on ([`HandingOn`]). The terminal sends its signals to both. A program that signals its own process group knows of them.
//! Neither is handed on.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::{measure, sampler, start_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getsid};
use signal_hook::consts::{
    SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGINT, SIGKILL, SIGPIPE, SIGQUIT, SIGSEGV, SIGSTOP, SIGSYS,
    SIGTERM, SIGTRAP, SIGTSTP, SIGTTIN, SIGTTOU,
};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::iterator::{Handle, Signals, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;
use signal_hook::{SigId, flag};

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

/// The last of the realtime signals.
const LAST: i32 = 64;
/// Two signals that glibc uses itself.
const OF_GLIBC: [i32; 2] = [32, 33];
/// Signals that concern this process itself: faults, its child's end, its pipe, a stop.
const OWN: [i32; 13] = [
    SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGKILL, SIGSEGV, SIGPIPE, SIGCHLD, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU,
    SIGSYS,
];
/// A signal that comes just before the program starts waits for it.
const STARTS_WITHIN: Duration = Duration::from_secs(1);

/// While it lives, signals are handed on to the program that [`imas_linux::start_program`] names.
#[derive(Debug)]
pub struct HandingOn {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl HandingOn {
    /// Begins, for every signal that is not in `except`. One that is ignored, as by nohup, stays ignored:
    /// the program inherits that.
    ///
    /// # Errors
    /// When no handler can be installed.
    pub fn begin(except: &[i32]) -> Result<Self> {
        let ignored = ignored();
        let is_handed_on = |signal: &i32| {
            !OWN.contains(signal)
                && !OF_GLIBC.contains(signal)
                && !except.contains(signal)
                && ignored & (1 << (signal - 1)) == 0
        };
        let wanted: Vec<i32> = (1..=LAST).filter(is_handed_on).collect();
        let mut signals = SignalsInfo::<WithOrigin>::new(wanted).context("cannot watch for signals")?;
        let handle = signals.handle();
        let thread = std::thread::spawn(move || signals.forever().for_each(|origin| hand_on(&origin)));
        Ok(Self { handle, thread: Some(thread) })
    }
}

impl Drop for HandingOn {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // it cannot have failed
        }
    }
}

/// Signals that this process ignores, as a mask; none where that cannot be read.
pub(crate) fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

fn hand_on(origin: &Origin) {
    let send_to = |program| {
        if is_for(program, origin) {
            send(program, origin.signal);
        }
    };
    let begun = Instant::now();
    while !start_program::foreground_signal(send_to) && begun.elapsed() < STARTS_WITHIN {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_for(program: i32, origin: &Origin) -> bool {
    match (origin.cause, origin.process) {
        (Cause::Sent(_), Some(sender)) => {
            let tree = u32::try_from(program).map(sampler::tree).unwrap_or_default();
            !u32::try_from(sender.pid).is_ok_and(|sender| tree.contains(&sender))
        }
        (Cause::Sent(_), None) => true,
        // When a terminal is gone the kernel tells the leader of its session alone.
        _ => origin.signal == SIGHUP && getsid(None) == Ok(getpid()),
    }
}

fn send(program: i32, signal: i32) {
    match Signal::try_from(signal) {
        Ok(signal) => drop(kill(Pid::from_raw(program), signal)),
        // A realtime signal has no name that a safe function would take; a shell takes its number.
        Err(_) => drop(Command::new("/bin/sh").args(["-c", &format!("kill -{signal} {program}")]).output()),
    }
}
