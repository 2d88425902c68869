// SPDX-License-Identifier: Apache-2.0
//! Costs of a process, as /proc has them.

use std::path::Path;

use anyhow::{Context as _, Result};

/// Resident memory in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The highest resident memory so far, in bytes.
pub(crate) fn peak_bytes(pid: u32) -> Result<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, name: &str) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let line = line.with_context(|| format!("no {name} in /proc/{pid}/status"))?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// CPU time of the process's living threads, seconds.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    let mut sum = 0;
    for thread in Path::new(&format!("/proc/{pid}/task")).read_dir()? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let nanoseconds: u64 = text.split_whitespace().next().context("an empty schedstat")?.parse()?;
        sum += nanoseconds;
    }
    Ok(sum as f64 / 1e9)
}

/// Bytes of all files below a folder.
pub(crate) fn disk_bytes(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in folder.read_dir()? {
        let entry = entry?;
        let of = entry.metadata()?;
        sum += if of.is_dir() { disk_bytes(&entry.path())? } else { of.len() };
    }
    Ok(sum)
}
