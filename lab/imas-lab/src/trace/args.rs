// SPDX-License-Identifier: Apache-2.0
//! Arguments of `imas-lab record` and `imas-lab replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use imas_engine::amounts::{duration, size};
use imas_engine::flags::JsonArgs;

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The trace to write
    #[arg(short, long, value_name = "FILE", default_value = "imas.trace", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,
    /// Stop recording when the raw files of all processes reach this size; the program runs on
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    pub(crate) limit: u64,
    /// Stop recording after this time (60s, 10m, 2h); the program runs on
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A trace of `imas-lab record`
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// Candidates to compare with system, separated by commas; or `all`
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Replays of each candidate
    #[arg(short = 'n', long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// The process to replay, by its number in the trace [default: the one that made most calls]
    #[arg(long, value_name = "NUMBER")]
    pub(crate) process: Option<u32>,
    /// Write a page with the predicted memory of each candidate over time
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}
