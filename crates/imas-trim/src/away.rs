// SPDX-License-Identifier: Apache-2.0
//! A thread on its way through malloc_trim. It is traced until it is back.
//!
//! Signals are blocked meanwhile. One that comes is delivered behind the signal frame, before the interrupted call
//! is made again, and the thread would then wait although a handler has run that ends the call. So the thread gets
//! its call back as it was interrupted, and the kernel ends it or makes it again, as the handler wants it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::frame::{self, Laid};
use crate::process::Target;
use crate::stack::Range;
use crate::trace::{Registers, Stop, Tracee};

/// Time between two looks at the threads of a process.
pub(crate) const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// Registers with which a thread goes on after malloc_trim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Next {
    pub(crate) registers: Registers,
    /// Registers for a thread whose signal handler runs first, where the system call is made again.
    pub(crate) for_a_handler: Option<Registers>,
}

/// A thread in malloc_trim.
#[derive(Debug)]
pub(crate) struct Away {
    tracee: Option<Tracee>,
    tid: i32,
    frame: Range,
    next: Next,
}

impl Away {
    pub(crate) fn of(tracee: Tracee, tid: i32, laid: &Laid, next: Next) -> Self {
        let frame = Range { begin: laid.address, end: laid.address + laid.bytes.len() as u64 };
        Self { tracee: Some(tracee), tid, frame, next }
    }

    /// Whether the thread was seen in a system call outside of its frame, in time. It may be traced until our
    /// thread ends.
    pub(crate) fn was_seen_back(mut self, target: &Target, until: Instant) -> bool {
        while Instant::now() < until {
            self.hand_signal_on();
            match target.call(self.tid) {
                Some(call) if call.stack >= self.frame.end => return true,
                _ => sleep(BETWEEN_LOOKS),
            }
        }
        false
    }

    /// Lets the thread go if it stands still. A traced thread does so for each signal that is delivered to it.
    fn hand_signal_on(&mut self) {
        let stop = self.tracee.as_ref().map(|tracee| tracee.wait(Instant::now()));
        let (Some(stop), Some(tracee)) = (stop, self.tracee.take()) else { return };
        match stop {
            Ok(None) => self.tracee = Some(tracee),
            Ok(Some(Stop::Signal(signal))) => {
                let is_behind_the_frame = tracee
                    .registers()
                    .is_ok_and(|now| frame::goes_on_at(&now) == frame::goes_on_at(&self.next.registers));
                if let Some(registers) = self.next.for_a_handler.filter(|_| is_behind_the_frame) {
                    let _ = tracee.set_registers(&registers); // it has ended, perhaps
                }
                let _ = tracee.let_go(signal);
            }
            Ok(Some(Stop::Ended)) | Err(_) => {}
            Ok(Some(_)) => drop(tracee.let_go(0)),
        }
    }
}
