// SPDX-License-Identifier: Apache-2.0
//! What may be typed after `imas system`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use imas_engine::flags::JsonArgs;

#[derive(Debug, Args)]
pub(crate) struct SystemArgs {
    #[command(subcommand)]
    pub(crate) action: SystemAction,
    #[command(flatten)]
    pub(crate) where_: Where,
}

/// Where the machine's files are; other places than the usual ones are for other roots and for tests.
#[derive(Debug, Clone, Args)]
pub(crate) struct Where {
    /// Folder with the link to the library, the catalogue and the index
    #[arg(long, global = true, env = "IMAS_RUN_DIR", value_name = "DIR", default_value = "/run/imas", value_hint = ValueHint::DirPath, hide_env_values = true)]
    pub(crate) run_dir: PathBuf,
    /// The list of libraries that the dynamic linker loads into every program
    #[arg(long, global = true, value_name = "FILE", default_value = "/etc/ld.so.preload", value_hint = ValueHint::FilePath)]
    pub(crate) preload_file: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SystemAction {
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
pub(crate) struct Consent {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Say only what is wrong
    #[arg(short, long)]
    pub(crate) quiet: bool,
}
