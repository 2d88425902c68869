// SPDX-License-Identifier: Apache-2.0
//! The program before which this command stands: whoever sends this command a signal means that program.

use std::sync::atomic::{AtomicI32, Ordering};

/// 0: none runs. One at a time does.
static PROGRAM: AtomicI32 = AtomicI32::new(0);

/// The program's first process runs from now on.
pub fn begin(pid: u32) {
    PROGRAM.store(i32::try_from(pid).unwrap_or(0), Ordering::SeqCst);
}

/// It has ended.
pub fn end() {
    PROGRAM.store(0, Ordering::SeqCst);
}

/// Its first process, while it runs.
#[must_use]
pub fn program() -> Option<i32> {
    Some(PROGRAM.load(Ordering::SeqCst)).filter(|&pid| pid > 0)
}
