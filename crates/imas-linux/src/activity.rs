// SPDX-License-Identifier: Apache-2.0
//! Activity of all threads of a process and its descendants, read from /proc in this very process.

use std::time::Duration;

use imas_core::hang::ProcessActivity;
use nix::time::{ClockId, clock_gettime};
use procfs::Current as _;
use procfs::process::{Process, Stat};

use crate::sampler::family;

/// Threads of a process and its descendants that are looked at.
pub const MOST_THREADS: usize = 4096;

/// The activity as a line that [`of_text`] reads; None when the process is gone, or has too many threads.
pub(crate) fn text_of(pid: u32) -> Option<String> {
    let stat = process(pid)?.stat().ok()?;
    let family = family(pid, |_| true, MOST_THREADS)?;
    let cpu_s: f64 = family.iter().filter_map(|pid| Some(cpu_s(&process(*pid)?.stat().ok()?))).sum();
    let locked = family.iter().all(|pid| waits_for_a_lock(*pid));
    Some(format!("{} {} {cpu_s} {locked} {}", stat.starttime, age_s(stat.starttime)?, awake_s()))
}

/// An activity as [`text_of`] writes it, if it is of the process that started then.
pub(crate) fn of_text(text: &str, start_ticks: u64) -> Option<ProcessActivity> {
    let mut words = text.split(' ');
    let is_same = words.next()?.parse() == Ok(start_ticks);
    let [lived_s, cpu_s] = [words.next()?.parse().ok()?, words.next()?.parse().ok()?];
    let (locked, awake_s) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    is_same.then_some(ProcessActivity { lived_s, cpu_s, still_s: 0.0, locked, awake_s })
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

pub(crate) fn process(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

/// CPU time of a process and of the children that it has waited for, seconds.
pub(crate) fn cpu_s(stat: &Stat) -> f64 {
    let waited = u64::try_from(stat.cutime.saturating_add(stat.cstime)).unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "ticks of a lifetime are far below 2^52")]
    let ticks = (stat.utime + stat.stime + waited) as f64;
    #[expect(clippy::cast_precision_loss, reason = "100 or so")]
    let per_second = procfs::ticks_per_second() as f64;
    ticks / per_second
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

/// Whether the call is a futex wait with a time limit. `call` has the number of the system call and its six
/// arguments. The fourth argument of futex is the limit, 0 for none.
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

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_family_with_too_many_threads_is_left_alone() {
        let code = "import threading, sys\nb = threading.Barrier(9)\n\
                    for _ in range(8): threading.Thread(target=b.wait, daemon=True).start()\n\
                    print('x', flush=True)\nsys.stdin.read()";
        let piped = std::process::Stdio::piped;
        let mut command = std::process::Command::new("python3");
        let mut child = command.args(["-c", code]).stdin(piped()).stdout(piped()).spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        assert_eq!(family(child.id(), |_| true, 9), Some(vec![child.id()]));
        assert_eq!(family(child.id(), |_| true, 8), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
