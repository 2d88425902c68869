// SPDX-License-Identifier: Apache-2.0
//! The flags that several commands share. No side effects.

use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, ValueHint};
use imas_cli::message;
use imas_core::adaptive::Objective;
use serde::Deserialize;

/// Where things are.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Places {
    /// Folder with libimas.so, libimas-guard.so, catalogue.toml and the allocators
    #[arg(long, global = true, env = "IMAS_LIB_DIR", value_name = "DIR", value_hint = ValueHint::DirPath, hide_env_values = true)]
    pub lib_dir: Option<PathBuf>,
    /// The system's store, which imasd keeps, in place of your own
    #[arg(long, global = true)]
    pub system: bool,
    // clap would take the variable for an option that was typed: in conflict with --system, and in the usage.
    /// The store [default: $XDG_DATA_HOME/imas/imas.db] [env: IMAS_STORE]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub store: Option<PathBuf>,
    /// The store was named on the command line.
    #[arg(skip)]
    pub store_named: bool,
    /// Seconds between two tests of one candidate [default: 3600]
    #[arg(long, global = true, env = "IMAS_RETEST", value_name = "SECONDS", value_parser = crate::amounts::seconds)]
    pub retest: Option<f64>,
}

impl Places {
    /// These places with the system's store, unless another store is named.
    #[must_use]
    pub fn of_the_system(&self) -> Self {
        Self { system: self.store.is_none(), ..self.clone() }
    }

    /// Takes the store of `IMAS_STORE`, unless the command line names one, or the system's.
    fn complete(&mut self) {
        self.store_named = self.store.is_some();
        if !self.store_named && !self.system {
            self.store = variable("IMAS_STORE").map(PathBuf::from);
        }
    }
}

/// How the answer is printed.
#[derive(Debug, Clone, Copy, Args)]
pub struct JsonArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Rules by which `run` decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The fewest trials that give an answer, and no change that is not proven
    Adaptive,
    /// Algorithms 1, 8, 9 and 10 of the IMAS paper
    Paper,
}

/// What matters, for the adaptive policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ObjectiveName {
    /// What the machine is short of
    Auto,
    /// CPU time alone
    Cpu,
    /// Memory alone
    Memory,
    /// Both alike
    Balanced,
}

impl From<ObjectiveName> for Objective {
    fn from(name: ObjectiveName) -> Self {
        match name {
            ObjectiveName::Auto => Self::Auto,
            ObjectiveName::Cpu => Self::Cpu,
            ObjectiveName::Memory => Self::Memory,
            ObjectiveName::Balanced => Self::Balanced,
        }
    }
}

/// How much memory a candidate may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MemoryLimit {
    /// Peak memory, MiB.
    Mebibytes(u64),
    /// Memory over the memory of `system`, as a part of 1.
    More(f64),
}

impl MemoryLimit {
    /// The limit of the peak, MiB.
    #[must_use]
    pub fn mebibytes(self) -> Option<u64> {
        match self {
            Self::Mebibytes(mib) => Some(mib),
            Self::More(_) => None,
        }
    }

    /// The limit of what it costs beside `system`.
    #[must_use]
    pub fn more(self) -> Option<f64> {
        match self {
            Self::Mebibytes(_) => None,
            Self::More(share) => Some(share),
        }
    }
}

fn memory_limit(text: &str) -> Result<MemoryLimit, String> {
    match text.starts_with('+') {
        true => more_share(text).map(MemoryLimit::More),
        false => {
            mebibytes(text).map(MemoryLimit::Mebibytes).map_err(|why| format!("{why}, or a share as +25%"))
        }
    }
}

/// `+25%` as 0.25.
///
/// # Errors
/// The form that is wanted.
pub fn more_share(text: &str) -> Result<f64, String> {
    let percent = text.strip_prefix('+').and_then(|rest| rest.strip_suffix('%'));
    let percent: Option<f64> = percent.and_then(|number| number.trim().parse().ok());
    let share = percent.filter(|percent| (0.0..=100_000.0).contains(percent)).map(|percent| percent / 100.0);
    share.ok_or_else(|| "write '+' and per cent, such as +25%".to_owned())
}

/// The rules by which a start is decided.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct RulesArgs {
    /// The rules to decide by [default: adaptive]
    #[arg(long, env = "IMAS_POLICY", value_enum, value_name = "POLICY", hide_env_values = true)]
    pub policy: Option<PolicyName>,
    /// What matters [default: what the machine is short of]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub objective: Option<ObjectiveName>,
    /// Use no candidate under which the program's resident memory peaked above this number of MiB; or, as +25%, none
    /// that takes so much more memory than system [default: +25%]
    #[arg(long, value_name = "MIB|+N%", value_parser = memory_limit)]
    pub max_memory: Option<MemoryLimit>,
    /// Use no candidate that takes so much more CPU time than system [default: +25%]
    #[arg(long, value_name = "+N%", value_parser = more_share)]
    pub max_cpu: Option<f64>,
}

impl RulesArgs {
    /// The policy in `IMAS_POLICY`, for verbs that have no such option.
    #[must_use]
    pub fn of_environment() -> Self {
        let value = std::env::var("IMAS_POLICY").unwrap_or_default();
        let policy = PolicyName::from_str(&value, false).ok();
        if policy.is_none() && !value.is_empty() {
            // Asked for once a program.
            static ONCE: std::sync::Once = std::sync::Once::new();
            ONCE.call_once(|| {
                message::warning(&format!(
                    "IMAS_POLICY={value} is no policy and is ignored\nhint: there are adaptive and paper"
                ));
            });
        }
        Self { policy, ..Self::default() }
    }
}

/// Value of an environment variable. One that is empty is as if it were not set.
#[must_use]
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// The command line without the environment variables that have a wrong value, and without empty ones. Wrong ones are
/// reported. Neither counts, so that a program is started all the same.
fn without_wrong_variables(command: clap::Command) -> clap::Command {
    let policies = PolicyName::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let policies: Vec<_> = policies.map(|policy| policy.get_name().to_owned()).collect();
    let checks: [(&str, &str, Result<(), String>); 2] = [
        ("retest", "IMAS_RETEST", wrong(crate::amounts::seconds, "IMAS_RETEST")),
        (
            "policy",
            "IMAS_POLICY",
            wrong(|text| PolicyName::from_str(text, false), "IMAS_POLICY")
                .map_err(|_| format!("there are {}", policies.join(" and "))),
        ),
    ];
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = without_variables(command, |arg| arg.get_env().is_some_and(is_empty));
    checks.into_iter().fold(command, |command, (id, name, checked)| match checked {
        Ok(()) => command,
        Err(why) => {
            let value = variable(name).unwrap_or_default();
            message::warning(&format!("{name}={} is ignored: {why}", value.display()));
            without_variables(command, |arg| arg.get_id() == id)
        }
    })
}

fn wrong<T>(parse: impl Fn(&str) -> Result<T, String>, name: &str) -> Result<(), String> {
    match variable(name) {
        None => Ok(()),
        Some(value) => parse(value.to_str().unwrap_or_default()).map(|_| ()),
    }
}

/// The command line in which these arguments have no environment variable.
fn without_variables(command: clap::Command, is_meant: impl Fn(&clap::Arg) -> bool + Copy) -> clap::Command {
    command
        .mut_args(|arg| if is_meant(&arg) { arg.env(None::<&'static str>) } else { arg })
        .mut_subcommands(|verb| without_variables(verb, is_meant))
}

/// The command line, changed so that a negative number is read as a value. The number may be a wrong value,
/// but it is no unknown option.
#[must_use]
pub fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_one = |arg: &clap::Arg| {
        arg.get_action().takes_values() && !arg.is_last_set() && !arg.is_trailing_var_arg_set()
    };
    command
        .mut_args(|arg| if takes_one(&arg) { arg.allow_negative_numbers(true) } else { arg })
        .mut_subcommands(with_negative_numbers)
}

/// The words of the command line of a program that has these flags, as its definition reads them.
///
/// # Errors
/// When they are wrong, or ask for help.
pub fn read<C: CommandFactory + FromArgMatches>(
    places: impl FnOnce(&mut C) -> &mut Places,
) -> Result<C, clap::Error> {
    read_as(with_negative_numbers(C::command()), places)
}

/// The words of the command line, as this definition of it reads them.
///
/// # Errors
/// When they are wrong, or ask for help.
pub fn read_as<C: FromArgMatches>(
    definition: clap::Command,
    places: impl FnOnce(&mut C) -> &mut Places,
) -> Result<C, clap::Error> {
    let mut command = without_wrong_variables(definition);
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let mut read = C::from_arg_matches(&matches.map_err(|error| explained(error, &command))?)?;
    let places = places(&mut read);
    // clap compares only options that stand on the same side of a command's name.
    if places.system && places.store.is_some() {
        let both = "the argument '--system' cannot be used with '--store <FILE>'";
        return Err(command.error(ErrorKind::ArgumentConflict, both));
    }
    places.complete();
    Ok(read)
}

/// The error with what is expected, where a word is no number; Rust's library names only what was found.
fn explained(error: clap::Error, command: &clap::Command) -> clap::Error {
    let number = error.source().and_then(|source| source.downcast_ref::<ParseIntError>());
    let is_meant =
        |wrong: &ParseIntError| matches!(wrong.kind(), IntErrorKind::InvalidDigit | IntErrorKind::Empty);
    if number.is_none_or(|wrong| !is_meant(wrong)) {
        return error;
    }
    let mut in_words = clap::Error::new(error.kind()).with_cmd(command);
    for (kind, value) in error.context() {
        in_words.insert(kind, value.clone());
    }
    let expected = "a whole number is expected: digits alone, such as 12";
    in_words.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![expected.into()]));
    in_words
}

/// A limit of memory.
fn mebibytes(text: &str) -> Result<u64, String> {
    let mebibytes = text.parse().ok().filter(|&mebibytes: &u64| mebibytes > 0);
    mebibytes.ok_or_else(|| "not a whole number of MiB from 1 on, such as 512".to_owned())
}
