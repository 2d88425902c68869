// SPDX-License-Identifier: Apache-2.0
//! `imas system disable`: the entry first, then what it points to, then the units.

use std::process::ExitCode;

use anyhow::Result;
use imas_engine::flags::JsonArgs;

use super::machine::{Machine, need_root};
use super::{place, units};
use imas_cli::message::{self, say};

pub(super) fn run(json: JsonArgs, machine: &Machine) -> Result<ExitCode> {
    need_root("system disable")?;
    place::edit(machine, "remove", &[])?;
    place::clear(machine);
    let _ = std::fs::remove_file(machine.disabled());
    if machine.is_live() && units::systemd_runs() {
        stop_units();
    }
    let _ = std::fs::remove_dir(&machine.run_dir); // if the daemon's files are in it, it stays
    say(
        "Disabled. Programs that start from now on are untouched; those that run keep what they have until they end.",
    );
    super::answer(json, false, &[])?;
    Ok(ExitCode::SUCCESS)
}

fn stop_units() {
    let _ = units::systemctl(&["stop", units::EMERGENCY_DONE]); // not running is fine
    for unit in [units::EMERGENCY, units::DAEMON, units::BOOT] {
        if let Err(why) = units::systemctl(&["disable", "--now", unit]) {
            message::warning(&why);
        }
    }
}
