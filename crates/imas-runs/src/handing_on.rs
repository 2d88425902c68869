// SPDX-License-Identifier: Apache-2.0
//! A signal that somebody sends to a command that stands before a program is meant for the program: it is
//! handed on.
//!
//! The terminal sends its signals to both. A program that signals its own process group knows of them. Neither
//! is handed on.

use std::process::Command;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use imas_linux::{sampler, start_program};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpid, getsid};
use signal_hook::consts::{
    SIGBUS, SIGCHLD, SIGFPE, SIGHUP, SIGILL, SIGKILL, SIGPIPE, SIGSEGV, SIGSTOP, SIGSYS, SIGTRAP, SIGTSTP,
    SIGTTIN, SIGTTOU,
};
use signal_hook::iterator::exfiltrator::WithOrigin;
use signal_hook::iterator::exfiltrator::origin::Origin;
use signal_hook::iterator::{Handle, SignalsInfo};
use signal_hook::low_level::siginfo::Cause;

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
