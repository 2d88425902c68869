// SPDX-License-Identifier: Apache-2.0
//! Reads the machine's state.

use anyhow::Result;
use imas_core::adaptive::{Objective, weight};
use imas_engine::conditions::conditions;
use procfs::{Current, IoPressure};

use crate::snapshot::{MachineState, Preference, PressureStalls};

/// The machine as who decides sees it: imasd (`of_the_system`), which minds no control group, or `imas run`.
///
/// # Errors
/// When /proc cannot be read.
pub fn now(of_the_system: bool) -> Result<MachineState> {
    let now = if of_the_system { imas_linux::conditions::now()? } else { conditions()? };
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
