// SPDX-License-Identifier: Apache-2.0
//! The program that this command runs: a signal that is sent to this command is meant for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Pid of its first process, while it runs. One at a time does.
static PROGRAM: Mutex<Option<i32>> = Mutex::new(None);

/// The program's first process runs from now on.
pub(crate) fn begin(pid: i32) {
    *program() = Some(pid);
}

/// The program's first process has ended. Called before it is reaped: another process may have its pid
/// afterwards. Returns once no signal is on its way to it.
pub(crate) fn end() {
    *program() = None;
}

/// Calls `send` with the pid of the program's first process, which stays its pid meanwhile. Returns whether
/// there is one.
pub fn signal(send: impl FnOnce(i32)) -> bool {
    let program = program();
    program.map(send).is_some()
}

fn program() -> MutexGuard<'static, Option<i32>> {
    PROGRAM.lock().unwrap_or_else(PoisonError::into_inner)
}
