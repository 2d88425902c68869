// SPDX-License-Identifier: Apache-2.0
//! What may follow `imas record` and `imas replay`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_engine::flags::JsonArgs;

use crate::command_line::complete;

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
    /// A trace of `imas record`
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,
    /// Candidates to compare with system, separated by commas; or `all`
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',', add = ArgValueCompleter::new(complete::candidates))]
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

/// Splits a text into its number and its unit.
fn split(text: &str) -> Result<(u64, &str), String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number =
        text[..digits].parse().map_err(|_| format!("'{text}' does not begin with a whole number"))?;
    Ok((number, &text[digits..]))
}

/// A size in bytes: 300000, 64K, 256M, 2G.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let shift = match unit {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        _ => return Err(format!("'{unit}' is no unit of size: K, M or G")),
    };
    number.checked_mul(1 << shift).filter(|size| *size > 0).ok_or_else(|| "out of range".to_owned())
}

/// A time: 90, 90s, 10m, 2h.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(format!("'{unit}' is no unit of time: s, m or h")),
    };
    let most = 365 * 24 * 3600;
    let number = number.checked_mul(seconds).filter(|number| (1..=most).contains(number));
    number.map(Duration::from_secs).ok_or_else(|| "out of range: from one second to a year".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!(size("256M"), Ok(256 << 20));
        assert_eq!(size("300000"), Ok(300_000));
        assert_eq!(duration("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(duration("10m"), Ok(Duration::from_secs(600)));
        for wrong in ["", "M", "0", "1T", "-1", "99999999999999999999", "99999999999G"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "s", "0", "1d", "9999999h"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
