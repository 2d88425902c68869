// SPDX-License-Identifier: Apache-2.0
//! The machine's CPU and memory pressure at this moment.

use std::path::{Path, PathBuf};

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

/// Memory that this process may still take without harm, in bytes: what the machine has available, or its control group's limit leaves; 0 when unknown.
#[must_use]
pub fn room_bytes() -> u64 {
    let available = Meminfo::current().ok().and_then(|memory| memory.mem_available).unwrap_or(0);
    let left = |(used, limit): (u64, u64)| limit.saturating_sub(used);
    groups().unwrap_or_default().iter().filter_map(|group| use_of(group)).map(left).fold(available, u64::min)
}

/// Use of memory as a share of the limit, the highest over this process' control group (version 2) and those above it.
fn group_memory_used() -> Option<f64> {
    groups()?
        .iter()
        .filter_map(|group| use_of(group))
        .map(|(used, limit)| used as f64 / limit as f64)
        .max_by(f64::total_cmp)
}

/// The folders of this process' control group and of those above it.
fn groups() -> Option<Vec<PathBuf>> {
    let groups = procfs::process::Process::myself().ok()?.cgroups().ok()?;
    let own = groups.into_iter().find(|group| group.hierarchy == 0)?;
    let folder = Path::new("/sys/fs/cgroup").join(own.pathname.trim_start_matches('/'));
    let above = folder.ancestors().take_while(|folder| folder.starts_with("/sys/fs/cgroup"));
    Some(above.map(Path::to_owned).collect())
}

/// Bytes used, and the limit, of a group that has one.
fn use_of(group: &Path) -> Option<(u64, u64)> {
    let read = |file| std::fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // `max`, which is no number, means no limit.
    let limit = read("memory.max").filter(|limit| *limit > 0)?;
    Some((read("memory.current")?, limit))
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
