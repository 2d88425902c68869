// SPDX-License-Identifier: Apache-2.0
//! Keeping a run on one CPU.
//!
//! The CPUs of a virtual machine are not alike at any moment, for each has its own neighbours, and a move
//! between them costs caches. A program that uses one at a time costs the same work wherever it runs, so its
//! runs are the steadier for all being on the same (`imas doctor --noise` shows by how much). One that uses
//! several must have them: what its allocator makes of that is what is measured.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// While it exists, processes started by this thread begin on one CPU and stay there.
#[derive(Debug)]
pub struct OneCpu {
    before: CpuSet,
}

impl OneCpu {
    /// # Errors
    /// When this process may not use that CPU.
    pub fn keep(cpu: usize) -> io::Result<Self> {
        let before = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one)?;
        Ok(Self { before })
    }
}

impl Drop for OneCpu {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before); // it was allowed before
    }
}

/// The CPU to keep runs on: the last that this process may use, as the first serves most of the machine's
/// interrupts. None where there is only one: then all runs are on it anyway.
#[must_use]
pub fn steady_cpu() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
    let first = cpus.next()?;
    cpus.next_back().filter(|&last| last != first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_testing::skipped;

    #[test]
    fn children_stay_on_the_cpu_and_we_do_not() {
        let before = sched_getaffinity(None).unwrap();
        let Some(cpu) = steady_cpu() else { return skipped("one CPU is all there is") };
        let kept = OneCpu::keep(cpu).unwrap();
        let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
        drop(kept);
        let allowed = format!("Cpus_allowed_list:\t{cpu}\n");
        assert!(String::from_utf8_lossy(&status.stdout).contains(&allowed));
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
