// SPDX-License-Identifier: Apache-2.0
//! One look at a process and the children that it forked without exec: they have its allocator, and its work.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use imas_core::service_life::MemoryLook;
use imas_linux::foreign_process::{ForeignFile, ForeignReader, anonymous_bytes};
use imas_linux::process::stat;
use imas_linux::running::copies;
use imas_linux::standstill::age_s;
use procfs::process::Stat;

use crate::process_info::{Identity, is_running};

/// Counts of a process's page; zeros without a page.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PageCounts {
    pub(crate) live_bytes: u64,
    pub(crate) calls: u64,
}

/// Figures that were seen of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    pub(crate) memory: MemoryLook,
    /// CPU time since the process's start, seconds.
    pub(crate) cpu_s: f64,
    /// malloc calls since the process's start; 0 where they are not known.
    pub(crate) calls: u64,
}

/// Reason why there is no look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// The process has ended.
    Gone,
    /// The process is too large or too slow to be looked at, or its owner's processes have taken too much
    /// time.
    TooSlow,
}

/// A look at a process and its copies takes no longer than this; a read that has begun is ended by the reader.
const LONGEST: Duration = Duration::from_secs(1);

/// Looks at the process. `owner` answers for it, and for the time that the reads of all copies take together.
pub(crate) fn look(
    reader: &mut ForeignReader,
    (identity, owner): (Identity, u64),
    counts: PageCounts,
) -> Result<Look, Unseen> {
    let family = copies(identity.pid).ok_or(Unseen::TooSlow)?;
    // A page counts its own process alone.
    let counts = if family.len() > 1 { PageCounts::default() } else { counts };
    let mut resident = |pid: u32| match reader.read(pid, ForeignFile::SmapsRollup, || Some(owner)) {
        Ok(text) => anonymous_bytes(&text).ok_or(Unseen::Gone),
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Unseen::TooSlow),
        Err(_) => Err(Unseen::Gone),
    };
    let begin = Instant::now();
    let mut sum = || {
        let mut bytes = resident(identity.pid)?;
        for child in family.iter().skip(1) {
            match resident(*child) {
                _ if begin.elapsed() > LONGEST => return Err(Unseen::TooSlow),
                Ok(of_child) => bytes += of_child,
                Err(Unseen::Gone) => {} // it has ended meanwhile
                Err(slow) => return Err(slow),
            }
        }
        Ok(bytes)
    };
    let bytes = sum();
    if family.len() > 1 {
        reader.charge(owner, begin.elapsed());
    }
    let bytes = bytes?;
    let (age_s, cpu_s) = age_s(identity.start_ticks).zip(cpu_of(&family)).ok_or(Unseen::Gone)?;
    let memory = MemoryLook { age_s, bytes, live_bytes: counts.live_bytes };
    is_running(identity).then_some(Look { memory, cpu_s, calls: counts.calls }).ok_or(Unseen::Gone)
}

/// CPU time of the process and the children that it forked, seconds; `None` when it is gone.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    cpu_of(&copies(pid)?)
}

/// CPU time of the processes and of the children that these have waited for, seconds.
fn cpu_of(family: &[u32]) -> Option<f64> {
    let first = stat(*family.first()?)?;
    let others = family.iter().skip(1).filter_map(|pid| stat(*pid));
    let ticks: f64 = std::iter::once(first).chain(others).map(|stat| ticks(&stat)).sum();
    Some(ticks / procfs::ticks_per_second() as f64)
}

fn ticks(stat: &Stat) -> f64 {
    let waited_for = stat.cutime.max(0) + stat.cstime.max(0);
    (stat.utime + stat.stime) as f64 + waited_for as f64
}
