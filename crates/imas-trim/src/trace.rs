// SPDX-License-Identifier: Apache-2.0
//! ptrace(2) of one thread. The `unsafe` code of the product is here.
//!
//! A thread is seized without options that kill. When the tracing thread of ours ends, in whatever way, the kernel
//! lets the traced thread go on with the registers that it has.
#![allow(unsafe_code, reason = "neither nix nor rustix has these requests of ptrace")]

use std::io::{Error, Result};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time between two looks whether the thread stands still.
const BETWEEN: Duration = Duration::from_micros(50);
/// Sets of registers (`linux/elf.h`).
const GENERAL: usize = 1; // NT_PRSTATUS
#[cfg(target_arch = "x86_64")]
const EXTENDED: usize = 0x202; // NT_X86_XSTATE
#[cfg(target_arch = "aarch64")]
const EXTENDED: usize = 2; // NT_PRFPREG
#[cfg(target_arch = "aarch64")]
const THREAD_POINTER: usize = 0x401; // NT_ARM_TLS
#[cfg(target_arch = "aarch64")]
const GUARDED_STACK: usize = 0x410; // NT_ARM_GCS
/// Most bytes of extended registers: 11 KiB with AMX.
const MOST_EXTENDED: usize = 64 << 10;
/// Most instructions of a filter (`BPF_MAXINSNS`).
const MOST_INSTRUCTIONS: usize = 4096;
/// `PTRACE_SECCOMP_GET_FILTER` (`linux/ptrace.h`).
const SECCOMP_GET_FILTER: u32 = 0x420c;
/// Bytes of the kernel's set of signals.
const MASK_BYTES: usize = 8;

pub(crate) type Registers = libc::user_regs_struct;

/// How a traced thread came to stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Because it was asked to.
    Asked,
    /// Where it enters or leaves a system call.
    SystemCall,
    /// With its process, by SIGSTOP and the like.
    Group,
    /// It is about to get this signal.
    Signal(i32),
    /// It has ended.
    Ended,
}

/// A thread that this thread of ours traces. Dropped without [`Tracee::let_go`] it stays traced until our thread ends.
#[derive(Debug)]
pub(crate) struct Tracee(i32);

fn done(result: i64) -> Result<()> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(()) }
}

impl Tracee {
    /// Begins to trace a thread, which goes on meanwhile.
    pub(crate) fn seize(tid: i32) -> Result<Self> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, 0usize, libc::PTRACE_O_TRACESYSGOOD as usize) })?;
        Ok(Self(tid))
    }

    /// Asks the thread to stand still.
    pub(crate) fn interrupt(&self) -> Result<()> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, self.0, 0usize, 0usize) })
    }

    /// How the thread stands still; None where it does not in time.
    pub(crate) fn wait(&self, until: Instant) -> Result<Option<Stop>> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a number of ours that lives longer than the call.
            let got = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL | libc::WNOHANG) };
            done(i64::from(got))?;
            if got == self.0 {
                return Ok(Some(stop_of(status)));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            sleep(BETWEEN);
        }
    }

    /// Lets the thread go on until it enters or leaves a system call, or a signal comes.
    pub(crate) fn go_on_to_call(&self) -> Result<()> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.0, 0usize, 0usize) })
    }

    /// Lets the thread go on. It stays traced, and stands still for each signal.
    pub(crate) fn go_on(&self) -> Result<()> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, 0usize, 0usize) })
    }

    /// Lets the thread go on with this signal, and asks it to stand still again; returns when it does.
    pub(crate) fn hand_on(&self, signal: i32) -> Result<()> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_CONT, self.0, 0usize, signal) })?;
        self.interrupt()?;
        self.wait(Instant::now() + Duration::from_millis(200)).map(drop)
    }

    /// Lets the thread go, with this signal if not 0. It stands still.
    pub(crate) fn let_go(self, signal: i32) -> Result<()> {
        // SAFETY: the request reads no memory of ours.
        done(unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0usize, signal) })
    }

    /// General registers of the thread.
    pub(crate) fn registers(&self) -> Result<Registers> {
        // SAFETY: the record consists of numbers, for which zero is a value.
        let mut registers: Registers = unsafe { std::mem::zeroed() };
        let bytes = size_of::<Registers>();
        // SAFETY: the pointer is to a record of `bytes` bytes of ours.
        let got = unsafe { self.set_of_registers(GENERAL, (&raw mut registers).cast(), bytes) }?;
        if got == bytes { Ok(registers) } else { Err(Error::other("a process of 32 bits")) }
    }

    /// Changes the general registers. They take effect when the thread goes on.
    pub(crate) fn set_registers(&self, registers: &Registers) -> Result<()> {
        let mut copy = *registers;
        let mut part = libc::iovec { iov_base: (&raw mut copy).cast(), iov_len: size_of::<Registers>() };
        // SAFETY: `part` describes a record of ours that lives longer than the call; the kernel reads it.
        done(unsafe { libc::ptrace(libc::PTRACE_SETREGSET, self.0, GENERAL, &raw mut part) })
    }

    /// Extended registers of the thread (floating point, vectors) as the kernel writes them into a signal frame.
    pub(crate) fn extended_registers(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; MOST_EXTENDED];
        // SAFETY: the pointer is to that many bytes of ours.
        let got = unsafe { self.set_of_registers(EXTENDED, bytes.as_mut_ptr(), bytes.len()) }?;
        bytes.truncate(got);
        Ok(bytes)
    }

    /// The thread pointer.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn thread_pointer(&self) -> Result<u64> {
        self.first_of(THREAD_POINTER)
    }

    /// Features of its guarded stack that the thread has enabled; an error where the kernel or the processor
    /// has none.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn guarded_stack(&self) -> Result<u64> {
        self.first_of(GUARDED_STACK)
    }

    /// The first number of a set of registers.
    #[cfg(target_arch = "aarch64")]
    fn first_of(&self, set: usize) -> Result<u64> {
        let mut words = [0u64; 8];
        // SAFETY: the pointer is to that many bytes of ours.
        let got = unsafe { self.set_of_registers(set, words.as_mut_ptr().cast(), size_of_val(&words)) }?;
        if got >= 8 { Ok(words[0]) } else { Err(Error::other("an empty set of registers")) }
    }

    /// Reads a set of registers; returns its size.
    ///
    /// # Safety
    /// `into` is a pointer to `room` bytes that may be written.
    unsafe fn set_of_registers(&self, set: usize, into: *mut u8, room: usize) -> Result<usize> {
        let mut part = libc::iovec { iov_base: into.cast(), iov_len: room };
        // SAFETY: by the caller, the kernel may write `room` bytes there; it writes no more than `iov_len`.
        done(unsafe { libc::ptrace(libc::PTRACE_GETREGSET, self.0, set, &raw mut part) })?;
        Ok(part.iov_len)
    }

    /// Signals that the thread blocks, a bit each.
    pub(crate) fn blocked(&self) -> Result<u64> {
        let mut mask = 0u64;
        // SAFETY: the kernel writes as many bytes as are named, which `mask` has.
        done(unsafe { libc::ptrace(libc::PTRACE_GETSIGMASK, self.0, MASK_BYTES, &raw mut mask) })?;
        Ok(mask)
    }

    /// Makes the thread block these signals.
    pub(crate) fn block(&self, mask: u64) -> Result<()> {
        // SAFETY: the kernel reads as many bytes as are named, which `mask` has.
        done(unsafe { libc::ptrace(libc::PTRACE_SETSIGMASK, self.0, MASK_BYTES, &raw const mask) })
    }

    /// The thread's filter of system calls with that number, the newest being 0: code, two jumps, a number. None after
    /// the last one.
    pub(crate) fn filter(&self, number: usize) -> Result<Option<Vec<libc::sock_filter>>> {
        let none = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
        let mut filter = vec![none; MOST_INSTRUCTIONS];
        // SAFETY: the kernel writes at most BPF_MAXINSNS instructions, which `filter` has room for.
        let got = unsafe { libc::ptrace(SECCOMP_GET_FILTER, self.0, number, filter.as_mut_ptr()) };
        match done(got) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
            Ok(()) => {
                filter.truncate(usize::try_from(got).unwrap_or(0));
                Ok(Some(filter))
            }
        }
    }
}

/// The meaning of a status of waitpid(2).
fn stop_of(status: i32) -> Stop {
    if !libc::WIFSTOPPED(status) {
        return Stop::Ended;
    }
    let (event, signal) = (status >> 16, libc::WSTOPSIG(status));
    match (event, signal) {
        (libc::PTRACE_EVENT_STOP, libc::SIGTRAP) => Stop::Asked,
        (libc::PTRACE_EVENT_STOP, _) => Stop::Group,
        (_, signal) if signal == libc::SIGTRAP | 0x80 => Stop::SystemCall,
        (_, signal) => Stop::Signal(signal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_stand_still_is_told_from_the_others() {
        let stopped = |signal: i32, event: i32| event << 16 | signal << 8 | 0x7f;
        for (status, stop) in [
            (stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP), Stop::Asked),
            (stopped(libc::SIGSTOP, libc::PTRACE_EVENT_STOP), Stop::Group),
            (stopped(libc::SIGTRAP | 0x80, 0), Stop::SystemCall),
            (stopped(libc::SIGUSR1, 0), Stop::Signal(libc::SIGUSR1)),
            (0, Stop::Ended),
            (libc::SIGKILL, Stop::Ended),
        ] {
            assert_eq!(stop_of(status), stop, "{status:#x}");
        }
    }
}
