// SPDX-License-Identifier: Apache-2.0
//! The commands of one call: each line of `--shell`, with each value of the parameters. Then what was typed in the habits of
//! hyperfine and would measure something else here, options after the command and a command line in one word; and the
//! standard input of the command: what ours is redirected from, read once and given to every run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::message::{self, Hinted};
use imas_linux::program::{Command, CommandError};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tempfile::NamedTempFile;

use crate::command_line::bench_args::{BenchArgs, CommandsArgs};
use crate::command_line::cli::Cli;

/// One command, with its parameters filled in.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    pub(super) words: Vec<OsString>,
    pub(super) parameters: BTreeMap<String, String>,
    /// Label that distinguishes the command from the others of this call; None when it is the only one.
    label: Option<Label>,
}

#[derive(Debug, Clone)]
enum Label {
    /// The line that was typed.
    Line(String),
    /// Parameters like `n=1 m=2`.
    Parameters(String),
}

impl Variant {
    /// A line around the runs with this command's parameters.
    pub(super) fn fill(&self, line: &str) -> String {
        filled(line, &self.parameters)
    }

    /// Name of the program in raw runs: commands of one call must not be taken for one.
    pub(super) fn name(&self, typed: Option<&str>, file: &str) -> String {
        match (&self.label, typed) {
            (None, typed) => typed.unwrap_or(file).to_owned(),
            (Some(Label::Line(line)), None) => line.clone(),
            (Some(Label::Line(line)), Some(typed)) => format!("{typed}: {line}"),
            (Some(Label::Parameters(values)), typed) => format!("{} {values}", typed.unwrap_or(file)),
        }
    }
}

/// More commands than this are a mistake.
const MOST: usize = 1000;

/// Commands in the order typed; the last parameter varies fastest.
pub(super) fn variants(args: &BenchArgs) -> Result<Vec<Variant>> {
    let commands = commands(&args.commands, &args.command)?;
    let parameters = parameters(&args.commands)?;
    let mut variants = vec![];
    for (at, words) in commands.iter().enumerate() {
        let line = (commands.len() > 1).then(|| args.command[at].to_string_lossy());
        let label = |values: &BTreeMap<String, String>| match &line {
            Some(line) => Some(Label::Line(filled(line, values))),
            None => (parameters.len() > 1).then(|| Label::Parameters(listed(values))),
        };
        variants.extend(parameters.iter().map(|parameters| Variant {
            words: words.iter().map(|word| filled_word(word, parameters)).collect(),
            parameters: parameters.clone(),
            label: label(parameters),
        }));
    }
    Ok(variants)
}

fn listed(values: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = values.iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join(" ")
}

fn commands(args: &CommandsArgs, typed: &[OsString]) -> Result<Vec<Vec<OsString>>> {
    let Some(shell) = &args.shell else { return Ok(vec![typed.to_vec()]) };
    if shell == "none" {
        return typed.iter().map(split).collect();
    }
    let shell = words(shell)?;
    let of = |line: &OsString| [shell.clone(), vec!["-c".into(), line.clone()]].concat();
    Ok(typed.iter().map(of).collect())
}

fn split(line: &OsString) -> Result<Vec<OsString>> {
    words(&line.to_string_lossy())
}

fn words(line: &str) -> Result<Vec<OsString>> {
    let words = shell_words::split(line).unwrap_or_default();
    if words.is_empty() {
        return Err(Hinted::error(
            format!("'{line}' is no command"),
            "close its quotes; with --shell each word after -- is a command line",
        ));
    }
    Ok(words.into_iter().map(OsString::from).collect())
}

/// Every combination of values; one without any where there are no parameters.
fn parameters(args: &CommandsArgs) -> Result<Vec<BTreeMap<String, String>>> {
    type Parameter = (String, Vec<String>);
    let lists = args.parameter_list.chunks_exact(2).map(|pair| -> Result<Parameter> {
        let values = pair[1].split(',').map(str::to_owned).collect();
        Ok((pair[0].clone(), values))
    });
    let step = args.parameter_step_size.unwrap_or(1.0);
    let scans = args
        .parameter_scan
        .chunks_exact(3)
        .map(|three| -> Result<Parameter> { Ok((three[0].clone(), scan(&three[1], &three[2], step)?)) });
    let mut all = vec![BTreeMap::new()];
    for parameter in lists.chain(scans) {
        let (name, values) = parameter?;
        let with = |known: &BTreeMap<String, String>, value: &String| {
            let mut known = known.clone();
            known.insert(name.clone(), value.clone());
            known
        };
        all = all.iter().flat_map(|known| values.iter().map(move |value| with(known, value))).collect();
        if all.len() > MOST {
            return Err(too_many());
        }
    }
    Ok(all)
}

fn too_many() -> anyhow::Error {
    Hinted::error(
        format!("more than {MOST} commands would be measured"),
        "name fewer values, or a larger --parameter-step-size",
    )
}

/// The values of a range, both ends included; whole numbers stay whole.
fn scan(from: &str, to: &str, step: f64) -> Result<Vec<String>> {
    let number = |text: &str| {
        text.parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
            Hinted::error(format!("'{text}' is no number"), "--parameter-scan takes NAME FROM TO")
        })
    };
    let (from, to) = (number(from)?, number(to)?);
    // An end that is missed by a rounding error belongs to it.
    let steps = ((to - from) / step + 1e-9).floor();
    if steps < 0.0 {
        return Err(Hinted::error(
            format!("there is no number from {from} to {to}"),
            "--parameter-scan takes the smaller one first",
        ));
    }
    if steps >= MOST as f64 {
        return Err(too_many());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
    let steps = steps as u32;
    let value = |at: u32| ((from + f64::from(at) * step) * 1e9).round() / 1e9;
    Ok((0..=steps).map(|at| value(at).to_string()).collect())
}

fn filled_word(word: &OsString, parameters: &BTreeMap<String, String>) -> OsString {
    // Names of files that are no text have no parameters in them.
    word.to_str().map_or_else(|| word.clone(), |text| filled(text, parameters).into())
}

fn filled(text: &str, parameters: &BTreeMap<String, String>) -> String {
    let fill = |text: String, (name, value): (&String, &String)| text.replace(&format!("{{{name}}}"), value);
    parameters.iter().fold(text.to_owned(), fill)
}

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

/// Input that every run reads.
#[derive(Debug, Default)]
pub(super) struct Input {
    path: Option<PathBuf>,
    /// Deleted when it is no longer needed.
    _buffer: Option<NamedTempFile>,
}

/// Time limit for the first byte of a pipe. Services may have a pipe as standard input that is never written
/// to.
const FIRST_BYTE_MS: u16 = 2000;

impl Input {
    /// The file that was named; else what standard input is redirected from, a file or a pipe.
    pub(super) fn of(named: Option<&Path>) -> Result<Self> {
        if let Some(path) = named {
            return Ok(Self { path: Some(path.to_owned()), _buffer: None });
        }
        if !is_redirected()? {
            return Ok(Self::default());
        }
        let mut buffer = NamedTempFile::new().context("a file for standard input")?;
        let bytes = std::io::copy(&mut std::io::stdin().lock(), &mut buffer).context("standard input")?;
        if bytes == 0 {
            return Ok(Self::default());
        }
        buffer.rewind()?;
        Ok(Self { path: Some(buffer.path().to_owned()), _buffer: Some(buffer) })
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// Whether standard input is a file, or a pipe or socket that data come from.
fn is_redirected() -> Result<bool> {
    let stdin = std::io::stdin();
    // A closed one has no file.
    let Ok(about) = std::fs::metadata("/proc/self/fd/0") else { return Ok(false) };
    let kind = about.file_type();
    if stdin.is_terminal() || kind.is_char_device() {
        return Ok(false);
    }
    if kind.is_file() {
        return Ok(true);
    }
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let is_ready = poll(&mut fds, PollTimeout::from(FIRST_BYTE_MS))? > 0;
    if !is_ready {
        message::warning(
            "standard input is a pipe to which nothing is written: the command gets no input\nhint: name its input with --input FILE, or redirect: </dev/null",
        );
    }
    Ok(is_ready)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_has_both_ends() {
        assert_eq!(scan("1", "3", 1.0).unwrap(), ["1", "2", "3"]);
        assert_eq!(scan("0", "0.3", 0.1).unwrap(), ["0", "0.1", "0.2", "0.3"]);
        for (from, to, step) in [("3", "1", 1.0), ("x", "1", 1.0), ("0", "1e9", 0.5)] {
            assert!(scan(from, to, step).is_err(), "{from} {to}");
        }
    }

    #[test]
    fn parameters_are_combined_and_filled_in() {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let args = CommandsArgs {
            shell: None,
            parameter_list: owned(&["a", "x,y"]),
            parameter_scan: owned(&["b", "1", "2"]),
            parameter_step_size: None,
        };
        let all = parameters(&args).unwrap();
        let texts: Vec<String> = all.iter().map(|one| filled("{a}{b} {c}", one)).collect();
        assert_eq!(texts, ["x1 {c}", "x2 {c}", "y1 {c}", "y2 {c}"]);
    }

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
