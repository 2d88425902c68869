// SPDX-License-Identifier: Apache-2.0
//! The program that this command runs: a signal that is sent to this command is meant for it.

use std::sync::atomic::{AtomicI32, Ordering};

/// 0: none runs. One at a time does.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The program's first process runs from now on.
pub fn begin(pid: u32) {
    PROGRAM.store(i32::try_from(pid).unwrap_or(0), Ordering::SeqCst);
}

/// Marks the program as ended.
pub fn end() {
    PROGRAM.store(0, Ordering::SeqCst);
}

/// First process of the program, while it runs.
#[must_use]
pub fn program() -> Option<i32> {
    Some(PROGRAM.load(Ordering::SeqCst)).filter(|&pid| pid > 0)
}
