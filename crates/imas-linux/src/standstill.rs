// SPDX-License-Identifier: Apache-2.0
//! Whether a process and its descendants are idle: the CPU time they have used, and whether every thread
//! waits for a lock.
//!
//! Amounts that a process and its descendants have taken so far: CPU time and memory.

use std::time::{Duration, Instant};

use imas_core::hang::ProcessActivity;

use crate::activity::{cpu_s, of_text, process};
use crate::foreign_process::{self, ForeignFile};
use crate::sampler::tree;

pub use crate::activity::age_s;

/// The activity of that process with all its descendants, as a first observation
/// ([`ProcessActivity::following`] adds an earlier one); None when it is gone, does not let itself be looked at, or is
/// larger than [`MOST_THREADS`](crate::activity::MOST_THREADS).
#[must_use]
pub fn look(pid: u32, start_ticks: u64) -> Option<ProcessActivity> {
    let text = foreign_process::read(pid, ForeignFile::Activity).ok()?;
    of_text(std::str::from_utf8(&text).ok()?, start_ticks)
}

/// Follows the CPU time of a process and its descendants and finds that they are idle.
#[derive(Debug)]
pub(crate) struct Stillness {
    pid: u32,
    limit: Duration,
    since: Instant,
    cpu_s: f64,
}

/// A process that uses no more than this share of a CPU is idle: a thread that wakes up now and then
/// makes no progress.
const STILL: f64 = 0.001;
/// The kernel counts CPU time in such steps, seconds.
const STEP_S: f64 = 0.01;

impl Stillness {
    pub(crate) fn new(pid: u32, limit: Duration) -> Self {
        Self { pid, limit, since: Instant::now(), cpu_s: 0.0 }
    }

    /// Time between two looks.
    pub(crate) fn gap(&self) -> Duration {
        (self.limit / 10).clamp(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// CPU time that they had used when they were last seen to work, seconds.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.cpu_s
    }

    /// Looks once more; whether they have been idle for as long as the limit.
    pub(crate) fn is_reached(&mut self) -> bool {
        let now = taken(self.pid).cpu_s;
        let stood = self.since.elapsed();
        if (now - self.cpu_s).abs() > STILL * stood.as_secs_f64() + STEP_S {
            (self.since, self.cpu_s) = (Instant::now(), now);
            return false;
        }
        stood >= self.limit
    }
}

/// CPU time and memory that were taken, or may be at most.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Most {
    /// CPU seconds, whole tree.
    pub cpu_s: f64,
    /// Resident bytes that belong to no file, largest process.
    pub bytes: f64,
}

/// CPU time that a process and its descendants have taken so far, and the memory of the largest of them. Of
/// forked processes that share pages the sum would count these many times; smaps, which would not, holds up
/// the process.
pub(super) fn taken(pid: u32) -> Most {
    let one = |pid| {
        let process = process(pid)?;
        let bytes = process.statm().map_or(0, |statm| statm.resident.saturating_sub(statm.shared));
        #[expect(clippy::cast_precision_loss, reason = "memory of a machine")]
        let bytes = (bytes * procfs::page_size()) as f64;
        Some(Most { cpu_s: cpu_s(&process.stat().ok()?), bytes })
    };
    let add = |sum: Most, one: Most| Most { cpu_s: sum.cpu_s + one.cpu_s, bytes: sum.bytes.max(one.bytes) };
    tree(pid).into_iter().filter_map(one).fold(Most::default(), add)
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::process::start_ticks;

    fn python(code: &str) -> Child {
        Command::new("python3").args(["-c", code]).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Whether a standstill is detected.
    fn comes(child: &mut Child, is_it: impl Fn(&ProcessActivity) -> bool) -> bool {
        let start = start_ticks(child.id()).unwrap();
        let seen = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            look(child.id(), start).is_some_and(|seen| is_it(&seen))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(look(child.id(), start).is_none(), "it is gone");
        seen
    }

    #[test]
    fn waiting_for_a_lock_is_distinguished_from_other_waits() {
        const LOCK: &str = "import threading\nlock = threading.Lock()\nlock.acquire()\n";
        assert!(
            comes(&mut python(&format!("{LOCK}lock.acquire()")), |seen| seen.locked && seen.lived_s > 0.05)
        );
        let mut limited = python(&format!("{LOCK}lock.acquire(timeout=30)"));
        assert!(comes(&mut limited, |seen| seen.lived_s > 0.5 && !seen.locked), "its wait has a time limit");
        let worker = "import time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nlock.acquire()";
        let is_in_sleep = |seen: &ProcessActivity| seen.lived_s > 0.5;
        let mut one_sleeps = python(&format!("{LOCK}{worker}"));
        assert!(comes(&mut one_sleeps, |seen| is_in_sleep(seen) && !seen.locked), "its other thread sleeps");
        let mut child_sleeps =
            python(&format!("{LOCK}import subprocess\nsubprocess.Popen(['sleep', '30'])\nlock.acquire()"));
        assert!(comes(&mut child_sleeps, |seen| is_in_sleep(seen) && !seen.locked), "its child sleeps");
        assert!(
            comes(&mut python("input()"), |seen| is_in_sleep(seen) && !seen.locked),
            "it waits for input"
        );
        assert!(comes(&mut python("while True: pass"), |seen| seen.cpu_s > 0.1 && !seen.locked), "it works");
    }
}
