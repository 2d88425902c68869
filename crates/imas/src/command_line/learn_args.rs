// SPDX-License-Identifier: Apache-2.0
//! What may follow `imas learn`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_engine::amounts::{duration, size};
use imas_engine::flags::{JsonArgs, RulesArgs};

use crate::command_line::complete;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["program", "command", "pending"])))]
pub(crate) struct LearnArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints: its next start by 'imas run' is
    /// recorded. Once that has ended, the same command replays it
    #[arg(value_name = "PROGRAM", add = ArgValueCompleter::new(complete::programs))]
    pub(crate) program: Option<OsString>,
    /// Replay every recording whose program has ended, as a timer would
    #[arg(long)]
    pub(crate) pending: bool,
    /// Replay this trace of 'imas record' as a run of PROGRAM
    #[arg(long, value_name = "FILE", requires = "program", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
    /// Take back that the next start of PROGRAM is recorded, and delete a recording that was not replayed
    #[arg(long, requires = "program", conflicts_with = "trace")]
    pub(crate) cancel: bool,
    /// Record no longer than this time (60s, 10m, 2h); the program runs on
    #[arg(long = "for", value_name = "TIME", value_parser = duration, conflicts_with_all = ["pending", "trace", "cancel"])]
    pub(crate) duration: Option<Duration>,
    /// Stop recording when the raw files of all processes reach this size; the program runs on
    #[arg(long, value_name = "SIZE", default_value = DEFAULT_LIMIT, value_parser = size)]
    pub(crate) limit: u64,
    /// Candidates to replay under, separated by commas [default: those that the program's trials would test]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',', add = ArgValueCompleter::new(complete::candidates))]
    pub(crate) with: Vec<String>,
    /// Replays of each candidate
    #[arg(short = 'n', long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// Learn from a command that ends with another exit status than 0
    #[arg(short, long)]
    pub(crate) ignore_failure: bool,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// Record this command now, and replay it
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "program")]
    pub(crate) command: Vec<OsString>,
}

/// Size of a recording's raw files at which it stops, where no other is given.
pub(crate) const DEFAULT_LIMIT: &str = "1G";
/// Size of a recording's raw files at which it stops, where no other is given, in bytes.
pub(crate) const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_same_in_words_and_bytes() {
        assert_eq!(size(DEFAULT_LIMIT), Ok(DEFAULT_LIMIT_BYTES));
    }
}
