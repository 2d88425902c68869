// SPDX-License-Identifier: Apache-2.0
//! What is read of every process at every look: one file, `/proc/PID/stat`.

use procfs::process::{Process, Stat, all_processes};

/// `PF_KTHREAD` of linux/sched.h.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// One process at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reading {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) start_ticks: u64,
    pub(crate) threads: u64,
    /// User and system time, seconds.
    pub(crate) cpu_s: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) image: Image,
}

/// What changes when a process executes another program: the kernel puts code and stack of each exec somewhere
/// else, and names the process anew. Addresses of other users' processes are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    name: String,
    code: u64,
    stack: u64,
}

/// Every process but kernel threads and zombies.
pub(crate) fn all() -> Vec<Reading> {
    let processes = all_processes().into_iter().flatten().flatten();
    processes.filter_map(|process| of(&process)).collect()
}

fn of(process: &Process) -> Option<Reading> {
    let stat = process.stat().ok()?;
    if stat.flags & KERNEL_THREAD != 0 || (matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1) {
        return None;
    }
    Some(reading(stat))
}

fn reading(stat: Stat) -> Reading {
    Reading {
        pid: u32::try_from(stat.pid).unwrap_or(0),
        parent: u32::try_from(stat.ppid).unwrap_or(0),
        start_ticks: stat.starttime,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        resident_bytes: stat.rss * procfs::page_size(),
        image: Image { name: stat.comm, code: stat.startcode, stack: stat.startstack },
    }
}
