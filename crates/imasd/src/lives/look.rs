// SPDX-License-Identifier: Apache-2.0
//! One look at a process and the children that it forked without exec: they have its allocator, and its work.

use imas_core::service_life::MemoryLook;
use imas_linux::foreign_process::resident_bytes;
use imas_linux::running::copies;
use procfs::process::{Process, Stat};

use crate::process_info::{Identity, is_running};

/// What the page of a process has counted; zeros without a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PageCounts {
    pub(crate) live_bytes: u64,
    pub(crate) calls: u64,
}

/// What was seen of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) memory: MemoryLook,
    /// CPU time since its start, seconds.
    pub(crate) cpu_s: f64,
    /// malloc calls since its start; 0 where they are not known.
    pub(crate) calls: u64,
}

/// `None` when it is gone, or not ours to look at.
pub(crate) fn look(identity: Identity, age_s: f64, counts: PageCounts) -> Option<Look> {
    let family = copies(identity.pid);
    // A page counts its own process alone.
    let counts = if family.len() > 1 { PageCounts::default() } else { counts };
    let bytes = resident_bytes(identity.pid)?;
    let of_children: u64 = family.iter().skip(1).filter_map(|pid| resident_bytes(*pid)).sum();
    let cpu_s = cpu_of(&family)?;
    is_running(identity).then_some(Look {
        memory: MemoryLook { age_s, bytes: bytes + of_children, live_bytes: counts.live_bytes },
        cpu_s,
        calls: counts.calls,
    })
}

/// CPU time of the process and the children that it forked, seconds; `None` when it is gone.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    cpu_of(&copies(pid))
}

/// With that of the children that these have waited for.
fn cpu_of(family: &[u32]) -> Option<f64> {
    let stat = |pid: u32| Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok();
    let first = stat(*family.first()?)?;
    let others = family.iter().skip(1).filter_map(|pid| stat(*pid));
    let ticks: f64 = std::iter::once(first).chain(others).map(|stat| ticks(&stat)).sum();
    Some(ticks / procfs::ticks_per_second() as f64)
}

fn ticks(stat: &Stat) -> f64 {
    let waited_for = stat.cutime.max(0) + stat.cstime.max(0);
    (stat.utime + stat.stime) as f64 + waited_for as f64
}
