// SPDX-License-Identifier: Apache-2.0
//! Reads the machine's state.

use anyhow::Result;
use imas_core::adaptive::{Objective, weight};
use imas_engine::conditions::conditions;
use procfs::{Current, IoPressure};

use crate::snapshot::{MachineState, Preference, PressureStalls};

/// The machine now, as `imas run` and imasd see it when they decide.
///
/// # Errors
/// When /proc cannot be read.
pub fn now() -> Result<MachineState> {
    let now = conditions()?;
    let io = IoPressure::current().ok();
    let weight = weight(&now, Objective::Auto);
    Ok(MachineState {
        cpus: now.cpus,
        load5: now.load5,
        memory_bytes: now.mem_total_bytes.unwrap_or(0),
        available_bytes: now.mem_available_bytes,
        pressure: PressureStalls {
            cpu_some: now.cpu_some_pct,
            memory_some: now.memory_some_pct,
            memory_full: now.memory_full_pct,
            io_some: io.as_ref().map(|io| f64::from(io.some.avg60)),
            io_full: io.as_ref().map(|io| f64::from(io.full.avg60)),
        },
        preference: Preference::of_weight(weight.w),
        weight,
    })
}
