// SPDX-License-Identifier: Apache-2.0
//! The machine's CPU and memory pressure at this moment.

use imas_core::decision::Conditions;
use procfs::{CpuPressure, Current, LoadAverage, Meminfo, MemoryPressure};

/// Why the conditions could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ConditionsError {
    /// /proc is missing or unreadable.
    #[error("/proc cannot be read: {0}")]
    Proc(#[from] procfs::ProcError),
    /// The kernel is too old to report it.
    #[error("/proc/meminfo has no MemAvailable")]
    NoMemAvailable,
}

/// Load, run queue, CPUs, memory and waiting of the whole machine; [`crate::control_group::narrowed`] adds
/// what limits this process.
///
/// # Errors
/// When /proc cannot be read.
pub fn now() -> Result<Conditions, ConditionsError> {
    let load = LoadAverage::current()?;
    let memory = Meminfo::current()?;
    let pressure = MemoryPressure::current().ok();
    Ok(Conditions {
        load5: f64::from(load.five),
        cpus: online(),
        mem_available_bytes: memory.mem_available.ok_or(ConditionsError::NoMemAvailable)?,
        mem_total_bytes: Some(memory.mem_total),
        running: Some(load.cur.saturating_sub(1)),
        cpu_some_pct: CpuPressure::current().ok().map(|psi| f64::from(psi.some.avg60)),
        memory_some_pct: pressure.as_ref().map(|psi| f64::from(psi.some.avg60)),
        memory_full_pct: pressure.as_ref().map(|psi| f64::from(psi.full.avg60)),
        group_memory_used: None,
        weight_before: None,
    })
}

/// One-minute load average; None when /proc cannot be read.
#[must_use]
pub fn load1() -> Option<f64> {
    LoadAverage::current().ok().map(|load| f64::from(load.one))
}

/// Memory that this process may still take without harm, in bytes: what the machine has available, or its
/// control group's limit leaves; 0 when unknown.
#[must_use]
pub fn room_bytes() -> u64 {
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(0);
    crate::control_group::memory_left().map_or(available, |left| left.min(available))
}

/// CPUs of the machine that are online, whatever this process may use of them: load and run queue are those
/// of the whole machine.
fn online() -> u32 {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    listed(list.trim()).unwrap_or_else(cpus)
}

/// Number of items that a list such as `0-3,6` names; None for what is no list.
fn listed(list: &str) -> Option<u32> {
    let count = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').map(count).try_fold(0u32, |sum, part| sum.checked_add(part?)).filter(|&sum| sum > 0)
}

/// CPUs this process may run on; at least one.
#[must_use]
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn lists_of_cpus_are_counted() {
        let of = super::listed;
        assert_eq!((of("0"), of("0-1"), of("0-3,6,8-9")), (Some(1), Some(2), Some(7)));
        assert_eq!((of(""), of("3-1"), of("x"), of("0-4294967295")), (None, None, None, None));
    }

    #[test]
    fn this_machine_answers() {
        let now = super::now().unwrap();
        assert!(now.cpus >= 1 && now.mem_available_bytes > 1 << 20 && now.load5 >= 0.0);
    }
}
