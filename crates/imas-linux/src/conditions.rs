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
    /// The kernel is too old to say.
    #[error("/proc/meminfo has no MemAvailable")]
    NoMemAvailable,
}

/// Five-minute load average, CPUs this process may use, and MemAvailable.
///
/// # Errors
/// When /proc cannot be read.
pub fn now() -> Result<Conditions, ConditionsError> {
    let load = LoadAverage::current()?;
    let memory = Meminfo::current()?;
    let pressure = MemoryPressure::current().ok();
    Ok(Conditions {
        load5: f64::from(load.five),
        cpus: cpus(),
        mem_available_bytes: memory.mem_available.ok_or(ConditionsError::NoMemAvailable)?,
        mem_total_bytes: Some(memory.mem_total),
        running: Some(load.cur.saturating_sub(1)),
        cpu_some_pct: CpuPressure::current().ok().map(|psi| f64::from(psi.some.avg60)),
        memory_some_pct: pressure.as_ref().map(|psi| f64::from(psi.some.avg60)),
        memory_full_pct: pressure.as_ref().map(|psi| f64::from(psi.full.avg60)),
        group_memory_used: group_memory_used(),
        weight_before: None,
    })
}

/// One-minute load average; None when /proc cannot be read.
#[must_use]
pub fn load1() -> Option<f64> {
    LoadAverage::current().ok().map(|load| f64::from(load.one))
}

/// Use of memory as a share of the limit, the highest over this process' control group (version 2) and those above it.
fn group_memory_used() -> Option<f64> {
    let groups = procfs::process::Process::myself().ok()?.cgroups().ok()?;
    let own = groups.into_iter().find(|group| group.hierarchy == 0)?;
    let folder = std::path::Path::new("/sys/fs/cgroup").join(own.pathname.trim_start_matches('/'));
    let above = folder.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    above.filter_map(share_used).max_by(f64::total_cmp)
}

fn share_used(group: &std::path::Path) -> Option<f64> {
    let read = |file| std::fs::read_to_string(group.join(file)).ok()?.trim().parse::<f64>().ok();
    // `max`, which is no number, means no limit.
    let limit = read("memory.max").filter(|limit| *limit > 0.0)?;
    Some(read("memory.current")? / limit)
}

/// CPUs this process may run on; at least one.
#[must_use]
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn this_machine_answers() {
        let now = super::now().unwrap();
        assert!(now.cpus >= 1 && now.mem_available_bytes > 1 << 20 && now.load5 >= 0.0);
    }
}
