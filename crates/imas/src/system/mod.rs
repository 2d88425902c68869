// SPDX-License-Identifier: Apache-2.0
//! `imas system`: every program of the machine on its allocator, through `/etc/ld.so.preload`.
//!
//! Nothing is put there that has not been tried before: the [`battery`] runs in a rehearsal ([`stage`], a
//! mount namespace of its own) and again on the real thing; the file is edited by the static
//! `imas-ldpreload`, which puts it back when that fails.

mod approved;
mod args;
mod battery;
mod disable;
mod enable;
mod link;
mod machine;
mod place;
mod preload_file;
mod stage;
mod status;
mod stub;
mod units;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use args::SystemAction;
pub(crate) use args::SystemArgs;
use machine::Machine;

use imas_engine::flags::{JsonArgs, Places};

/// The answer of `enable`, `disable` and `boot` in JSON, where that is asked for; what they do meanwhile is
/// on standard error.
fn answer(json: JsonArgs, is_enabled: bool, wrong: &[String]) -> Result<()> {
    if json.json {
        imas_cli::output::json(&json!({ "schema": 1, "enabled": is_enabled, "wrong": wrong }))?;
    }
    Ok(())
}

/// Does what was asked.
pub(crate) fn run(args: &SystemArgs, places: &Places) -> Result<ExitCode> {
    let machine = Machine::new(&args.where_, places)?;
    match &args.action {
        SystemAction::Enable(consent) => enable::run(*consent, &machine),
        SystemAction::Disable(json) => disable::run(*json, &machine),
        SystemAction::Status(json) => status::run(*json, &machine),
        SystemAction::Verify(args) => verify::run(*args, &machine),
        SystemAction::Boot(json) => place::boot(*json, &machine),
        SystemAction::Stage { before } => {
            stage::run(if *before { stage::Scope::Before } else { stage::Scope::All }, &machine)
        }
        SystemAction::Exercise => battery::exercise(),
    }
}
