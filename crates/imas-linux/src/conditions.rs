// SPDX-License-Identifier: Apache-2.0
//! The machine's CPU and memory pressure at this moment.

use imas_core::decision::Conditions;
use procfs::{Current, LoadAverage, Meminfo};

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
    Ok(Conditions {
        load5: f64::from(load.five),
        cpus: cpus(),
        mem_available_bytes: memory.mem_available.ok_or(ConditionsError::NoMemAvailable)?,
        mem_total_bytes: Some(memory.mem_total),
        ..Conditions::default()
    })
}

/// One-minute load average; None when /proc cannot be read.
#[must_use]
pub fn load1() -> Option<f64> {
    LoadAverage::current().ok().map(|load| f64::from(load.one))
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
