// SPDX-License-Identifier: Apache-2.0
//! Whether a process and its descendants are idle: the CPU time they have used, and whether every thread
//! waits for a lock.

use std::time::{Duration, Instant};

use imas_core::hang::ProcessActivity;
use nix::time::{ClockId, clock_gettime};
use procfs::Current as _;

use crate::sampler::tree;
use crate::taken::{cpu_s, process, taken};

/// The activity of that process with all its descendants, as a first observation
/// ([`ProcessActivity::following`] adds an earlier one); None when it is gone.
#[must_use]
pub fn look(pid: u32, start_ticks: u64) -> Option<ProcessActivity> {
    let stat = process(pid)?.stat().ok().filter(|stat| stat.starttime == start_ticks)?;
    let family = tree(pid);
    let cpu_s = family.iter().filter_map(|pid| Some(cpu_s(&process(*pid)?.stat().ok()?))).sum();
    let locked = family.iter().all(|pid| waits_for_a_lock(*pid));
    Some(ProcessActivity { lived_s: age_s(stat.starttime)?, cpu_s, still_s: 0.0, locked, awake_s: awake_s() })
}

/// Seconds since the machine's start, without those for which it was suspended. The kernel's uptime counts
/// those too.
fn awake_s() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
    now.map_or(0.0, |now| now.as_secs_f64())
}

/// Seconds that a process which started then has lived.
#[must_use]
pub fn age_s(start_ticks: u64) -> Option<f64> {
    let uptime = procfs::Uptime::current().ok()?.uptime;
    #[expect(clippy::cast_precision_loss, reason = "ticks of an uptime are far below 2^52")]
    let started_s = start_ticks as f64 / procfs::ticks_per_second() as f64;
    Some((uptime - started_s).max(0.0))
}

/// Every thread, by the place in the kernel where it sleeps: locks and conditions of user space are futexes
/// there. Where the kernel does not report it (it runs, it is another user's, a kernel without names) the
/// answer is no.
fn waits_for_a_lock(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true }; // it has ended meanwhile
    tasks.flatten().all(|task| match std::fs::read_to_string(task.path().join("wchan")) {
        Ok(place) => (place.contains("futex") && !has_time_limit(&task.path())) || has_ended(&task.path()),
        Err(_) => has_ended(&task.path()),
    })
}

/// Whether the thread's wait ends by itself. Not readable for everybody (proc_pid_syscall(5), Yama); then
/// it is unknown, and it counts as one that does not.
fn has_time_limit(task: &std::path::Path) -> bool {
    std::fs::read_to_string(task.join("syscall")).is_ok_and(|call| is_limited_futex(&call))
}

/// By the number of the system call and its six arguments: futex's fourth is the time limit, 0 for none.
fn is_limited_futex(call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let is_futex = words.next().and_then(|number| number.parse().ok()) == Some(nix::libc::SYS_futex);
    is_futex && words.nth(3).is_some_and(|limit| limit != "0x0")
}

/// A zombie waits for its parent, not for anything that it could go on with.
fn has_ended(task: &std::path::Path) -> bool {
    let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_none_or(|rest| rest.trim_start().is_empty() || rest.trim_start().starts_with(['Z', 'X']))
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

    /// How often to look.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::start_ticks;
    use std::process::{Child, Command, Stdio};

    fn python(code: &str) -> Child {
        Command::new("python3").args(["-c", code]).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Whether that is detected.
    fn comes(child: &mut Child, is_it: impl Fn(&ProcessActivity) -> bool) -> bool {
        let start = start_ticks(child.id()).unwrap();
        let seen = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            look(child.id(), start).is_some_and(|seen| is_it(&seen))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(look(child.id(), start).is_none(), "it is gone");
        seen
    }

    #[test]
    fn the_limit_of_a_futex_is_its_fourth_argument() {
        let call = |number: i64, limit: &str| {
            is_limited_futex(&format!("{number} 0x7f01 0x189 0x0 {limit} 0x0 0xffffffff 0x7ffc 0x7f02\n"))
        };
        let futex = nix::libc::SYS_futex;
        assert!(call(futex, "0x7ffe2280"));
        assert!(!call(futex, "0x0"), "none");
        assert!(!call(futex + 1, "0x7ffe2280"), "another call");
        assert!(!is_limited_futex("running\n") && !is_limited_futex(""));
    }

    #[test]
    fn waiting_for_a_lock_is_distinguished_from_other_waits() {
        const LOCK: &str = "import threading\nlock = threading.Lock()\nlock.acquire()\n";
        assert!(
            comes(&mut python(&format!("{LOCK}lock.acquire()")), |seen| seen.locked && seen.lived_s > 0.05)
        );
        let mut limited = python(&format!("{LOCK}lock.acquire(timeout=3)"));
        assert!(comes(&mut limited, |seen| seen.lived_s > 0.5 && !seen.locked), "its wait has a time limit");
        let worker = "import time\nthreading.Thread(target=time.sleep, args=(100,), daemon=True).start()\nlock.acquire()";
        let is_in_sleep = |seen: &ProcessActivity| seen.lived_s > 0.5;
        let mut one_sleeps = python(&format!("{LOCK}{worker}"));
        assert!(comes(&mut one_sleeps, |seen| is_in_sleep(seen) && !seen.locked), "its other thread sleeps");
        let mut child_sleeps =
            python(&format!("{LOCK}import subprocess\nsubprocess.Popen(['sleep', '3'])\nlock.acquire()"));
        assert!(comes(&mut child_sleeps, |seen| is_in_sleep(seen) && !seen.locked), "its child sleeps");
        assert!(
            comes(&mut python("input()"), |seen| is_in_sleep(seen) && !seen.locked),
            "it waits for input"
        );
        assert!(comes(&mut python("while True: pass"), |seen| seen.cpu_s > 0.1 && !seen.locked), "it works");
    }
}
