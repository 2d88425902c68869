// SPDX-License-Identifier: Apache-2.0
//! The machine's load and memory, and when they have changed enough to decide anew.

use anyhow::Result;
use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};

/// A processor load that differs by less, in hundredths, decides nothing anew.
const LOAD_STEP: f64 = 10.0;
/// A weight of CPU against memory that differs by less decides nothing anew.
const WEIGHT_STEP: f64 = 0.05;
/// Available memory that differs by less, as a fraction, decides nothing anew.
const MEMORY_STEP: f64 = 0.1;

/// The machine's state, with the weight that was in force.
pub(crate) fn conditions(before: Option<&Conditions>) -> Result<Conditions> {
    let weight_before = before.map(|before| weight(before, Objective::Auto).w);
    Ok(Conditions { weight_before, ..imas_linux::conditions::now()? })
}

/// Whether conditions differ enough to decide anew.
pub(crate) fn differ(before: &Conditions, now: &Conditions) -> bool {
    let load = |conditions: &Conditions| conditions.load5 * 100.0 / f64::from(conditions.cpus.max(1));
    let memory = |conditions: &Conditions| conditions.mem_available_bytes as f64;
    let moved = (memory(now) - memory(before)).abs() / memory(before).max(1.0);
    let leaned = (weight(now, Objective::Auto).w - weight(before, Objective::Auto).w).abs();
    leaned >= WEIGHT_STEP
        || (load(now) - load(before)).abs() >= LOAD_STEP
        || moved >= MEMORY_STEP
        || now.cpus != before.cpus
}
