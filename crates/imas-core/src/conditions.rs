// SPDX-License-Identifier: Apache-2.0
//! State of the machine.

use serde::{Deserialize, Serialize};

/// State of the machine at the moment of a start.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Debug, Default)]
#[serde(default)]
pub struct Conditions {
    /// Load average over five minutes.
    pub load5: f64,
    /// CPUs online.
    pub cpus: u32,
    /// `MemAvailable`, bytes.
    pub mem_available_bytes: u64,
    /// `MemTotal`, bytes; None where not known. `paper` looks at none of the fields from here on.
    pub mem_total_bytes: Option<u64>,
    /// Tasks that can run now, this one left out.
    pub running: Option<u32>,
    /// PSI: share of the last minute in which some task waited for a CPU, per cent.
    pub cpu_some_pct: Option<f64>,
    /// PSI: share of the last minute in which some task waited for memory, per cent.
    pub memory_some_pct: Option<f64>,
    /// PSI: share of the last minute in which all tasks waited for memory, per cent.
    pub memory_full_pct: Option<f64>,
    /// Memory of the control group in use, as a share of its limit; None without a limit.
    pub group_memory_used: Option<f64>,
    /// The weight of CPU that was last in force, for its hysteresis.
    pub weight_before: Option<f64>,
}

impl Conditions {
    /// Conditions that `paper` looks at; nothing else known.
    pub const fn new(load5: f64, cpus: u32, mem_available_bytes: u64) -> Self {
        Self {
            load5,
            cpus,
            mem_available_bytes,
            mem_total_bytes: None,
            running: None,
            cpu_some_pct: None,
            memory_some_pct: None,
            memory_full_pct: None,
            group_memory_used: None,
            weight_before: None,
        }
    }
}
