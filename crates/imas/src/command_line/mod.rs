// SPDX-License-Identifier: Apache-2.0
//! The command line: what may be typed, its help, its man pages, what a shell completes.
//!
//! Here is `imas run [--] COMMAND` without options, read without the definition of the whole command line: to build that
//! takes longer than all else of a settled start.

pub(crate) mod bench_args;
pub(crate) mod cli;
pub(crate) mod man;
pub(crate) mod service_args;
pub(crate) mod wrapper;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::ValueEnum;
use imas_engine::amounts;
use imas_engine::flags::{self, PolicyName};

use crate::command_line::cli::{Places, RulesArgs, RunArgs};
use crate::command_line::wrapper::INSIDE;

/// The shell asks for completions.
const COMPLETES: &str = "COMPLETE";

/// The command line, if it is that simple. All else, and every mistake, is for the full definition.
pub(crate) fn plain_run() -> Option<(RunArgs, Places)> {
    if std::env::var_os(COMPLETES).is_some() {
        return None;
    }
    let mut words = std::env::args_os().skip(1);
    let args = args((words.next()? == "run").then_some(words)?.collect())?;
    let rules = RulesArgs { policy: variable("IMAS_POLICY", policy)?, ..RulesArgs::default() };
    let places = Places {
        lib_dir: variable("IMAS_LIB_DIR", path)?,
        store: variable("IMAS_STORE", path)?,
        retest: variable("IMAS_RETEST", retest)?,
        ..Places::default()
    };
    Some((RunArgs { rules, ..args }, places))
}

/// The words after `run`; None where one of them is an option.
fn args(mut words: Vec<OsString>) -> Option<RunArgs> {
    let is_option = |word: &OsString| word.as_bytes().starts_with(b"-");
    let mark = format!("--{INSIDE}");
    let inside_wrapper = words.first().is_some_and(|word| *word == *mark);
    let own = usize::from(inside_wrapper);
    let dashes = words.get(own).is_some_and(|word| word == "--");
    words.drain(..own + usize::from(dashes));
    let first = words.first()?;
    if !dashes && is_option(first) {
        return None;
    }
    Some(RunArgs { command: words, inside_wrapper, is_plain: true, ..RunArgs::default() })
}

/// Some(None) for a variable that is not set; None for a value that has to be complained about.
#[expect(clippy::option_option, reason = "not set is no mistake")]
fn variable<T>(name: &str, read: fn(&OsStr) -> Option<T>) -> Option<Option<T>> {
    match flags::variable(name) {
        None => Some(None),
        Some(value) => Some(Some(read(&value)?)),
    }
}

fn path(value: &OsStr) -> Option<PathBuf> {
    Some(value.into())
}

fn policy(value: &OsStr) -> Option<PolicyName> {
    PolicyName::from_str(value.to_str()?, false).ok()
}

fn retest(value: &OsStr) -> Option<f64> {
    amounts::seconds(value.to_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    use clap::Parser;

    use crate::command_line::cli::{Cli, Command};

    /// Arguments of `imas run` as the full definition reads the same words.
    fn by_clap(words: &[&str]) -> Option<RunArgs> {
        let words = ["imas", "run"].iter().chain(words);
        match Cli::try_parse_from(words).ok()?.command {
            Command::Run(args) => Some(args),
            _ => None,
        }
    }

    #[test]
    fn plain_words_are_read_as_the_full_definition_reads_them() {
        let lines: [&[&str]; 7] = [
            &["ls"],
            &["--", "ls"],
            &["ls", "-l", "--", "-n"],
            &["--", "-x"],
            &["--", "--", "ls"],
            &["--inside-wrapper", "--", "ls", "--verbose"],
            &["--inside-wrapper", "ls"],
        ];
        for line in lines {
            let plain = args(line.iter().map(OsString::from).collect()).unwrap();
            let full = by_clap(line).unwrap();
            assert_eq!(
                (plain.command, plain.inside_wrapper),
                (full.command, full.inside_wrapper),
                "{line:?}"
            );
            assert!(plain.is_plain && !full.is_plain);
        }
    }

    #[test]
    fn options_are_for_the_full_definition() {
        for line in
            [&["--verbose", "ls"][..], &["-v", "--", "ls"], &["--help"], &["--"], &[], &["--follow", "ls"]]
        {
            assert!(args(line.iter().map(OsString::from).collect()).is_none(), "{line:?}");
        }
    }
}
