// SPDX-License-Identifier: Apache-2.0
//! `imas system`: every program of the machine on its allocator, through `/etc/ld.so.preload`.
//!
//! Nothing is put there that has not been tried before: the battery ([`verify`]) runs in a rehearsal (a mount
//! namespace of its own) and again on the real thing; the file is edited by the static
//! `imas-ldpreload`, which puts it back when that fails.

mod enable;
mod machine;
mod status;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand, ValueHint};
use imas_engine::flags::{JsonArgs, Places};
use serde_json::json;

use machine::Machine;

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
        SystemAction::Disable(json) => enable::run_disable(*json, &machine),
        SystemAction::Status(json) => status::run(*json, &machine),
        SystemAction::Verify(args) => verify::run(*args, &machine),
        SystemAction::Boot(json) => enable::boot(*json, &machine),
        SystemAction::Stage { before } => {
            verify::run_stage(if *before { verify::Scope::Before } else { verify::Scope::All }, &machine)
        }
        SystemAction::Exercise => verify::exercise(),
    }
}

#[derive(Debug, Args)]
pub(super) struct SystemArgs {
    #[command(subcommand)]
    pub(super) action: SystemAction,
    #[command(flatten)]
    pub(super) where_: Where,
}

/// Where the machine's files are; other places than the usual ones are for other roots and for tests.
#[derive(Debug, Clone, Args)]
pub(super) struct Where {
    /// Folder with the link to the library, the catalogue and the index
    #[arg(long, global = true, env = "IMAS_RUN_DIR", value_name = "DIR", default_value = "/run/imas", value_hint = ValueHint::DirPath, hide_env_values = true)]
    pub(super) run_dir: PathBuf,
    /// The list of libraries that the dynamic linker loads into every program
    #[arg(long, global = true, value_name = "FILE", default_value = "/etc/ld.so.preload", value_hint = ValueHint::FilePath)]
    pub(super) preload_file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(super) enum SystemAction {
    /// Let every program of this machine find its allocator by itself
    Enable(Consent),
    /// Take IMAS out of the machine; every file is as it was before
    Disable(JsonArgs),
    /// What is in place, what is really mapped, and which allocators serve
    Status(JsonArgs),
    /// Start a battery of programs with and without the library and compare; before `enable`, a rehearsal
    Verify(VerifyArgs),
    /// What imas-boot.service does: verify, then put the library in place; what fails is taken out
    Boot(JsonArgs),
    /// Rehearse in a mount namespace of its own; `verify` and `enable` start it
    #[command(hide = true)]
    Stage {
        /// Only the side without the library
        #[arg(long)]
        before: bool,
    },
    /// Threads, children and memory at once: a program of the battery
    #[command(hide = true)]
    Exercise,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Consent {
    /// Do not ask
    #[arg(short, long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) json: JsonArgs,
}

#[derive(Debug, Clone, Copy, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    pub(super) json: JsonArgs,
    /// Say only what is wrong
    #[arg(short, long)]
    pub(super) quiet: bool,
}
