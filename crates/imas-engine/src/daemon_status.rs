// SPDX-License-Identifier: Apache-2.0
//! What imasd reports about itself, in `state/status.json`.

use std::path::Path;

use imas_linux::process;
use serde_json::Value;

/// What the daemon last said of itself, if that daemon still runs.
#[must_use]
pub fn daemon(run_dir: &Path) -> Option<Value> {
    let text = std::fs::read(run_dir.join("state/status.json")).ok()?;
    let status: Value = serde_json::from_slice(&text).ok()?;
    let pid = u32::try_from(status["pid"].as_u64()?).ok()?;
    process::is_running(pid, status["start_ticks"].as_u64()?).then_some(status)
}
