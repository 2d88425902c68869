// SPDX-License-Identifier: Apache-2.0
//! The state of the machine, on which decisions depend.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use imas_core::decision::Conditions;
use imas_linux::page;

/// The state of the machine and of this control group, in which the program will run, from /proc. Without it
/// no decision is made, and the program is started untouched.
///
/// # Errors
/// When /proc cannot be read.
pub fn conditions() -> Result<Conditions> {
    let machine = imas_linux::conditions::now().context("the machine's load and memory")?;
    let mut now = imas_linux::control_group::narrowed(machine);
    now.weight_before =
        weight_file().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
    Ok(now)
}

/// Where the weight between CPU and memory is kept for the hysteresis of the next start: in the user's own
/// folder of the session; without one there is no damping.
#[must_use]
pub fn weight_file() -> Option<PathBuf> {
    Some(page::runtime_folder()?.join("imas.weight"))
}
