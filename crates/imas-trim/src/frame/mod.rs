// SPDX-License-Identifier: Apache-2.0
//! Two signal frames, as the kernel lays one on the stack before a handler runs and reads it again at `rt_sigreturn`; and
//! what else differs between processors, a file for each.
//!
//! The thread begins with `rt_sigreturn`: from the first frame the kernel takes the entry of malloc_trim and the mask
//! that blocks all signals, in one step. malloc_trim returns into the second one, which has what the thread had.
//!
//! Only numbers are computed here; nothing is written.

use crate::trace::Registers;

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

/// Bytes of glibc's record of a thread (`struct pthread`) in which its stack is looked for.
pub(crate) const RECORD: usize = 0xb00;
/// Flags of an alternative stack that the kernel refuses, so that the thread's own stays as it is.
const NO_CHANGE: u64 = 0x7ff;
/// All signals. The kernel leaves SIGKILL and SIGSTOP out.
pub(crate) const ALL_SIGNALS: u64 = u64::MAX;

/// A thread that was interrupted in its call.
#[derive(Debug)]
pub(crate) struct Interrupted {
    /// The registers with which the call is made again, whole.
    pub(crate) again: Registers,
    /// Registers for a thread whose signal handler runs before that: the call ends if the handler ends such a call.
    pub(crate) for_a_handler: Registers,
    /// Whether the kernel itself may continue it, with what is left of its limit.
    pub(crate) may_be_continued: bool,
}

/// State of the thread when it goes on.
#[derive(Debug)]
pub(crate) struct Before<'a> {
    /// General registers when it goes on.
    pub(crate) registers: Registers,
    /// Extended registers as ptrace gives them.
    pub(crate) extended: &'a [u8],
    /// Signals that it blocks.
    pub(crate) blocked: u64,
}

/// Bytes to lay on the stack, and the registers with which the thread enters `rt_sigreturn`, and then malloc_trim.
#[derive(Debug)]
pub(crate) struct Laid {
    /// Address of the first of `bytes`: the lowest that is written.
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) registers: Registers,
}
