// SPDX-License-Identifier: Apache-2.0
//! Lets one waiting thread of another process call `malloc_trim(0)`, and lets go at once (docs/decisions/0048).
//!
//! **The rule of safety.** The thread waits in a system call that malloc never makes ([`waits`]). It runs on a stack of
//! its own that has room, and in no signal handler ([`stack`]). While it stands still, the lock of each arena was seen
//! free once: a lock that is free while the thread stands is not held by it. So the thread is not inside malloc. The
//! other threads are never stopped.
//!
//! **The tracer may die at any instruction.** All is written below the thread's stack pointer before its registers
//! are set. They are set so that malloc_trim returns into a signal frame ([`frame`]), from which the kernel restores
//! every register, whoever lives. The tracer lets go before malloc_trim begins.
//!
//! This crate has the only `unsafe` code of the product, in [`trace`]: calls of ptrace(2). Where the C library is, and
//! where its arenas are, `imas_linux` finds out. Nothing here opens a path that the process names.
#![cfg(target_arch = "x86_64")]

mod call;
mod filter;
mod frame;
mod memory;
mod process;
mod refusal;
mod stack;
mod trace;
mod waits;

pub use call::{Bounds, Done, trim};
pub use refusal::Refusal;

/// Where the C library of a process has what is needed. All of it is read from the process, so none is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Address of `malloc_trim`, and the bytes that are there.
    pub malloc_trim: (u64, [u8; 16]),
    /// Address of the instructions that call `rt_sigreturn`, and the bytes that are there.
    pub sigreturn: (u64, [u8; 16]),
    /// Address of the first arena. Its lock is its first number of four bytes.
    pub first_arena: u64,
    /// Offset of an arena's pointer to the next one.
    pub next: u64,
}
