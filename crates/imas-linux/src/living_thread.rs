// SPDX-License-Identifier: Apache-2.0
//! The number under which `/proc` shows what a process is and has.
//!
//! A process may end its first thread and go on in others. What `/proc/PID` has of memory, files and mappings is that
//! thread's, and is empty then, or 0. `/proc/TID` of a living thread has it, though no listing shows that folder.
//! What the process is known by (its start, its parent, the CPU time of all its threads) stays in `/proc/PID`.

use procfs::process::{Process, Stat};

/// Most threads that are asked.
const MOST_THREADS: usize = 4096;

/// Returns the id of the first thread, which is the process's, or of another thread where that has ended.
#[must_use]
pub fn of(pid: u32) -> u32 {
    instead(pid).unwrap_or(pid)
}

/// Returns what `read` finds under the id of the process, or else of a living thread.
pub fn ask<T>(pid: u32, read: impl Fn(u32) -> Option<T>) -> Option<T> {
    read(pid).or_else(|| read(instead(pid)?))
}

/// The first living thread where the first one of all has ended.
fn instead(pid: u32) -> Option<u32> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    if !has_ended(&stat) || stat.num_threads <= 1 {
        return None;
    }
    let tasks = process.tasks().ok()?.flatten().take(MOST_THREADS);
    let mut living = tasks.filter(|task| task.stat().is_ok_and(|stat| !has_ended(&stat)));
    u32::try_from(living.next()?.tid).ok()
}

fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X')
}
