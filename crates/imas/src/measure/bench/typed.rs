// SPDX-License-Identifier: Apache-2.0
//! Habits of hyperfine that would measure something else here: options after the command, and a command line in
//! one word.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use imas_linux::program::{Command, CommandError};

use crate::command_line::bench_args::BenchArgs;
use crate::command_line::cli::Cli;
use imas_cli::message::Hinted;

/// Signs that mean something to a shell.
const SHELL_SIGNS: [char; 9] = ['|', '&', ';', '<', '>', '$', '`', '*', '('];

/// An option of bench after the command would be given to the command. After `--` that is what was meant.
pub(super) fn refuse_late_options(args: &BenchArgs) -> Result<()> {
    if args.command.is_empty() || std::env::args_os().any(|word| word == "--") {
        return Ok(());
    }
    let Some(late) = args.command.iter().skip(1).find_map(|word| option_of_bench(word)) else {
        return Ok(());
    };
    let command = args.command[0].to_string_lossy();
    Err(Hinted::error(
        format!("{late} comes after the command, and would be given to {command}"),
        format!(
            "options of bench come first: imas bench {late} ... -- {command} ...; what follows -- is the command's"
        ),
    ))
}

/// The word without its value, if it is a long option of bench.
fn option_of_bench(word: &OsStr) -> Option<String> {
    let name = word.to_str()?.strip_prefix("--")?.split('=').next()?;
    let definition = Cli::definition();
    let bench = definition.find_subcommand("bench")?;
    let is_known = bench.get_arguments().any(|option| option.get_long() == Some(name));
    is_known.then(|| format!("--{name}"))
}

/// The command of these words.
///
/// # Errors
/// When there is none; one word that looks like a whole command line gets the option that runs it.
pub(super) fn command(words: &[OsString]) -> Result<Command> {
    let found = Command::resolve(words, std::env::var_os("PATH").as_deref());
    found.map_err(|error| match (&error, words) {
        (CommandError::NotFound(_), [line]) => {
            one_line(&line.to_string_lossy()).unwrap_or_else(|| error.into())
        }
        _ => error.into(),
    })
}

/// Hint for a command line that was given as one word; None for a single word.
fn one_line(line: &str) -> Option<anyhow::Error> {
    let shell = match line.contains(SHELL_SIGNS) {
        true => "sh",
        false if line.contains(char::is_whitespace) => "none",
        false => return None,
    };
    let quoted = shell_words::quote(line);
    Some(Hinted::error(
        format!("there is no program '{line}': it is one word"),
        format!("a command line in one word takes --shell: imas bench --shell {shell} -- {quoted}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_options_of_bench_are_known() {
        assert_eq!(option_of_bench(OsStr::new("--with=a")).as_deref(), Some("--with"));
        assert_eq!(option_of_bench(OsStr::new("--runs")).as_deref(), Some("--runs"));
        for other in ["--", "-n", "with", "--colour"] {
            assert_eq!(option_of_bench(OsStr::new(other)), None, "{other}");
        }
    }

    #[test]
    fn only_a_line_is_taken_for_one() {
        assert!(one_line("sort x | uniq").is_some_and(|error| error.to_string().contains("sort x | uniq")));
        assert!(one_line("sort x").is_some());
        assert!(one_line("sort").is_none());
    }
}
