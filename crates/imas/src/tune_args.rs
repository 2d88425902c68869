// SPDX-License-Identifier: Apache-2.0
//! What may follow `imas tune`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use imas_engine::flags::JsonArgs;
use imas_service::GuardRail;

use crate::trace_args;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A trace of `imas record`: settings are searched, and nothing is measured live
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath, conflicts_with = "command", required_unless_present = "command")]
    pub(crate) trace: Option<PathBuf>,
    /// Allocators whose settings are searched, separated by commas [default: glibc, jemalloc, mimalloc,
    /// mimalloc2, tcmalloc]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) allocators: Vec<String>,
    /// Standard input of the command: this file [default: empty]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "trace")]
    pub(crate) input: Option<PathBuf>,
    /// What counts
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    pub(crate) objective: TuneObjective,
    /// The most that a figure (cpu, memory, peak) may grow: 'cpu+3%'; may be given several times
    #[arg(long, value_name = "FIGURE+N%")]
    pub(crate) at_most: Vec<GuardRail>,
    /// About how many points are replayed
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) points: u32,
    /// End the search after this time (90s, 10m, 2h) with what was found until then
    #[arg(long, value_name = "TIME", value_parser = trace_args::duration)]
    pub(crate) max_time: Option<Duration>,
    /// Replays at a time [default: as many as there are CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) jobs: Option<u16>,
    /// Seed of the search
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Keep the trace, the points and the live runs here; with the same folder a search that was ended goes on
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
    /// The candidate is called ALLOCATOR:NAME [default: tuned-PROGRAM]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Do not add the candidate to your catalogue
    #[arg(long)]
    pub(crate) no_save: bool,
    /// Write a page with the points in the plane of CPU and memory
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What the settings are chosen by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TuneObjective {
    /// CPU time alone
    Cpu,
    /// Memory alone
    Memory,
    /// Both alike
    #[default]
    Balanced,
}

impl TuneObjective {
    /// Of CPU in the score.
    pub(crate) fn cpu_weight(self) -> f64 {
        match self {
            Self::Cpu => 1.0,
            Self::Memory => 0.0,
            Self::Balanced => 0.5,
        }
    }
}
