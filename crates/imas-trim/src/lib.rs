// SPDX-License-Identifier: Apache-2.0
//! Lets one waiting thread of another process call `malloc_trim(0)`, and lets go at once (docs/decisions/0048).
//!
//! **The rule of safety.** The thread waits in a system call that malloc never makes (`waits`). It runs on a stack of
//! its own that has room, and in no signal handler (`stack`). While it is stopped, the lock of each arena was seen
//! free once: a lock that is free while the thread stands is not held by it. So the thread is not inside malloc. The
//! other threads are never stopped.
//!
//! **The tracer may die at any instruction.** All is written below the thread's stack pointer before its registers
//! are set. They are set so that malloc_trim returns into a signal frame (`frame`), from which the kernel restores
//! every register, whoever lives. While malloc_trim runs the tracer only watches for a signal (`away`).
//!
//! This crate has the only `unsafe` code of the product: calls of ptrace(2) in `trace`, calls that are tried in `filter`,
//! and prctl(2) in `huge_pages`, which has nothing to do with trims. Where the C library is, and where its arenas are, `imas_linux` finds out. Nothing here opens a path that the process names.
//!
//! Differences between x86-64 and aarch64 are in `frame`, a file for each. There is no other processor.

mod call;
mod filter;
mod frame;
pub mod huge_pages;
mod process;
mod trace;
mod waits;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use process::LeftAlone;

/// Where the C library of a process has what is needed. All of it is read from the process, so none is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimSite {
    /// Address of `malloc_trim`, and the bytes that are there.
    pub malloc_trim: (u64, [u8; 16]),
    /// Address of the instructions that call `rt_sigreturn`, and the bytes that are there.
    pub sigreturn: (u64, [u8; 16]),
    /// Address of the first arena. Its lock is its first number of four bytes.
    pub first_arena: u64,
    /// Offset of an arena's pointer to the next one.
    pub next: u64,
}

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub struct TrimTime {
    /// Until a thread was found.
    pub find: Duration,
    /// Until that thread has come back to what it did.
    pub end: Duration,
}

/// Facts about a trim that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// The thread that called malloc_trim.
    pub thread: i32,
    /// Number of the system call in which it waited.
    pub call: i64,
    /// Time that it stood still, ms.
    pub stood_ms: f64,
    /// Time from then until it was back, ms; None where that was not seen.
    pub trim_ms: Option<f64>,
    /// Arenas whose locks were looked at.
    pub arenas: usize,
    /// Threads that were tried.
    pub tries: u32,
    /// Resident anonymous bytes before and after.
    pub resident: Option<(u64, u64)>,
}

/// Lets one waiting thread of the process call `malloc_trim(0)`.
///
/// Blocks until it is done or refused, at most as long as the bounds say together.
///
/// # Errors
/// When the process must be left alone, with the reason. Nothing was changed then.
pub fn trim(pid: u32, site: &TrimSite, bounds: TrimTime) -> Result<Done, LeftAlone> {
    call::by_a_thread(pid, site, bounds)
}
