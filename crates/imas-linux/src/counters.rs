// SPDX-License-Identifier: Apache-2.0
//! Hardware counters of a process tree, where the kernel gives them.
//!
//! The counters are opened on the calling thread, inherited by what it spawns and switched on by exec, so
//! that the launcher's own work is never in them. A kernel or machine that refuses simply yields `None`.

use perf_event::events::{Cache, CacheId, CacheOp, CacheResult, Event, Hardware};
use perf_event::{Builder, Counter};

/// Counts over the life of a process tree; `None` where the machine does not count it or had to share the
/// counter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HardwareCounts {
    /// Instructions retired.
    pub instructions: Option<u64>,
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Misses of the data TLB on loads.
    pub dtlb_misses: Option<u64>,
    /// Misses of the last-level cache.
    pub cache_misses: Option<u64>,
}

/// Open counters, to be read once the tree has ended.
#[derive(Debug)]
pub struct Counters {
    instructions: Option<Counter>,
    cycles: Option<Counter>,
    dtlb_misses: Option<Counter>,
    cache_misses: Option<Counter>,
}

impl Counters {
    /// Opens what the kernel allows for children of the calling thread.
    #[must_use]
    pub fn open() -> Self {
        let dtlb = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
        Self {
            instructions: open(Hardware::INSTRUCTIONS),
            cycles: open(Hardware::CPU_CYCLES),
            dtlb_misses: open(dtlb),
            cache_misses: open(Hardware::CACHE_MISSES),
        }
    }

    /// Reads and closes them.
    #[must_use]
    pub fn read(self) -> HardwareCounts {
        HardwareCounts {
            instructions: read(self.instructions),
            cycles: read(self.cycles),
            dtlb_misses: read(self.dtlb_misses),
            cache_misses: read(self.cache_misses),
        }
    }
}

/// With the kernel's share where permitted, else the program's own alone.
fn open(event: impl Event + Clone) -> Option<Counter> {
    let build = |with_kernel: bool| {
        let mut builder = Builder::new(event.clone());
        builder.observe_self().any_cpu().inherit(true).enable_on_exec(true).enabled(false);
        if with_kernel {
            builder.exclude_kernel(false)
        } else {
            builder.exclude_kernel(true)
        };
        builder.exclude_hv(true).build()
    };
    build(true).or_else(|_| build(false)).ok()
}

/// A counter that had to share the hardware ran for a part of the time only: what it counted is no figure of
/// the whole.
fn read(counter: Option<Counter>) -> Option<u64> {
    let read = counter?.read_count_and_time().ok()?;
    (read.count > 0 && read.time_running == read.time_enabled).then_some(read.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_testing::skipped;

    #[test]
    fn a_child_is_counted_and_the_launcher_is_not() {
        let counters = Counters::open();
        std::process::Command::new("true").status().unwrap();
        let Some(instructions) = counters.read().instructions else {
            return skipped("this machine counts no instructions");
        };
        assert!((10_000..100_000_000).contains(&instructions), "{instructions}");
    }
}
