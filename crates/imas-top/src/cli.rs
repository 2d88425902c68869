// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use imas_engine::flags::Places;

use crate::column::Column;

/// Running processes: the allocator each really has, its memory, what IMAS does with its program, and what a
/// restart would gain.
#[derive(Debug, Parser)]
#[command(
    name = "imas-top",
    bin_name = "imas top",
    version,
    about,
    max_term_width = 100,
    after_help = "Examples:\n  imas top                          your processes; with sudo everybody's\n  imas top --sort gain              what a restart would gain most\n  imas top --once --filter python   a table, once\n  imas top --once --json            for scripts\n\nKeys: ? lists them."
)]
pub(crate) struct Cli {
    /// Print the table once and end
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = interval)]
    pub(crate) interval: Duration,
    /// The column to sort by
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "resident")]
    pub(crate) sort: Column,
    /// Only processes whose program, service, allocator or state contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) filter: String,
    /// Children below their parents
    #[arg(long)]
    pub(crate) tree: bool,
    /// Folder of imasd's catalogue and state
    #[arg(long, default_value = "/run/imas", value_name = "DIR", hide = true)]
    pub(crate) run_dir: PathBuf,
    #[command(flatten)]
    pub(crate) places: Places,
    #[command(subcommand)]
    pub(crate) made: Option<Made>,
}

/// What is made from this definition.
#[derive(Debug, Subcommand)]
#[command(disable_help_subcommand = true)]
pub(crate) enum Made {
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write the man page into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

/// Reads an interval: a number of seconds between a tenth of a second and a day.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not a number of seconds from 0.1 to 86400".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn an_interval_is_a_time_that_can_be_waited() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "2s", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
