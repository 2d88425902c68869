// SPDX-License-Identifier: Apache-2.0
//! What may be typed. No side effects.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use imas_engine::flags::with_negative_numbers;
pub(crate) use imas_engine::flags::{JsonArgs, Places, RulesArgs};

use crate::service_args::{ApplyArgs, EnvArgs, UnapplyArgs};

/// Finds the memory allocator that suits a program, and starts the program on it.
#[derive(Debug, Parser)]
#[command(
    name = "imas",
    version,
    about,
    max_term_width = 100,
    after_help = "Examples:\n  imas bench -- sqlite3 :memory: '.read work.sql'   measure it under every candidate\n  imas run -- redis-server                          learn while it works, then run it on the best\n  imas explain redis-server                         what was chosen, why, and how to undo it"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) places: Places,
}

impl Cli {
    /// From the words of the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = with_negative_numbers(Self::command()).try_get_matches()?;
        let mut cli = Self::from_arg_matches(&matches)?;
        cli.places.store_named = matches.value_source("store") == Some(ValueSource::CommandLine);
        Ok(cli)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a command under every candidate and say which suits it
    Bench(BenchArgs),
    /// Start a program under the candidate decided for it; a trial when one is due
    Run(RunArgs),
    /// The candidates of this machine, and why those that cannot be used cannot
    List(ListArgs),
    /// What is known of a program, or of all
    Show(ShowArgs),
    /// Why a program starts under what it starts under
    Explain(ExplainArgs),
    /// Start a program under one candidate from now on, whatever is measured
    Pin(PinArgs),
    /// Let the policy decide again
    Unpin(ProgramArgs),
    /// Programs that are left alone
    Exclude(ExcludeArgs),
    /// Forget all that was measured of a program
    Forget(ProgramArgs),
    /// Give an allocator back into use that imasd has taken from everybody
    Lift(LiftArgs),
    /// What imasd does and knows, and what really serves in the running processes
    Status(StatusArgs),
    /// Running processes that would gain from a restart, and how much
    Advise(JsonArgs),
    /// Give a systemd service its candidate, by a drop-in
    Apply(ApplyArgs),
    /// Take away what `apply` wrote
    Unapply(UnapplyArgs),
    /// Print what to set for a candidate: for a shell, systemd, an image, compose or Kubernetes
    Env(EnvArgs),
    /// Check what IMAS needs of this machine, and say what to do where something is missing
    Doctor(DoctorArgs),
    /// Every program of this machine on its allocator: enable, disable, status, verify
    System(crate::system::SystemArgs),
    /// What is known of a program, or of all, as one page for a browser
    Report(ReportArgs),
    /// Moved to `imas-lab`
    #[command(hide = true, disable_help_flag = true)]
    Study(MovedArgs),
    /// Moved to `imas-lab`
    #[command(hide = true, disable_help_flag = true)]
    Simulate(MovedArgs),
    /// Moved to `imas-lab`
    #[command(hide = true, disable_help_flag = true)]
    Suite(MovedArgs),
    /// Print shell completions
    Completions { shell: clap_complete::Shell },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

/// Whatever follows a verb that `imas-lab` has now: nothing of it is read.
#[derive(Debug, Args)]
pub(crate) struct MovedArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Measured runs per candidate
    #[arg(short = 'n', long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Counted runs per candidate, which give the paper's figures (ns per operation, fragmentation)
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) trials: u32,
    /// Candidates to compare with system, separated by commas; or `all`
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Standard input of the command
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Runs under system before anything is measured
    #[arg(short, long, default_value_t = 1, value_name = "N")]
    pub(crate) warmup: u32,
    /// Keep every run on one CPU, where CPU time is steadier; auto: when the last warm-up used one at a time
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) one_cpu: OneCpuName,
    /// Seed of the order of runs and of the resampling
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Show what the command prints
    #[arg(long)]
    pub(crate) show_output: bool,
    /// End a run after this many seconds [default: 20 times what the first run took, at least 60]
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::seconds::parse)]
    pub(crate) timeout: Option<f64>,
    /// Write everything as JSON; here and below `-` is standard output, and the table goes to standard error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_json: Option<PathBuf>,
    /// Write every run as CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_csv: Option<PathBuf>,
    /// Write the table as Markdown
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_markdown: Option<PathBuf>,
    /// Append every run as a line of JSON as soon as it is made, for `imas-lab simulate --data`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) export_runs: Option<PathBuf>,
    /// What the program is called in those lines [default: its file's name]
    #[arg(long, value_name = "NAME", requires = "export_runs")]
    pub(crate) name: Option<String>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// When `bench` keeps its runs on one CPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OneCpuName {
    /// When the last warm-up used one CPU at a time
    #[default]
    Auto,
    /// Always: what a program of several threads does to its allocator is then not seen
    Always,
    /// Never
    Never,
}

/// At the end of `imas run --help` and of its man page.
const WHAT_CAN_BE_SEEN: &str = "The program and its children get their environment as it was. What the kernel keeps of the exec still shows what was set: \
 /proc/PID/environ has LD_PRELOAD, IMAS_UNSET, IMAS_WAS_*, IMAS_PAGE and the candidate's settings, and /proc/PID/maps the \
 libraries, for the process itself, for other processes of the same user, and for root. docs/what-can-be-seen.md has the whole list.";

#[derive(Debug, Args)]
#[command(after_long_help = WHAT_CAN_BE_SEEN)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// The program's children run under the same candidate
    #[arg(long)]
    pub(crate) follow: bool,
    /// Use this candidate once, whatever was decided; nothing is learned
    #[arg(long, value_name = "NAME")]
    pub(crate) candidate: Option<String>,
    /// Say on standard error what was decided and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Decide and say, but start nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints; with --data the name it has there [default: every program]
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<OsString>,
    /// The file to write; it needs no network and no other file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: PathBuf,
    /// Of these raw runs instead of the store: files of 'imas-lab suite run' or 'imas bench --export-runs'
    #[arg(long, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only the set that is tested by default
    #[arg(long)]
    pub(crate) default: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Run one program against itself and say which measure is steady on this machine
    #[arg(long)]
    pub(crate) noise: bool,
    /// Pairs of runs for it
    #[arg(long, value_name = "N", default_value_t = 12, requires = "noise", value_parser = clap::value_parser!(u32).range(3..=10_000))]
    pub(crate) pairs: u32,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// The program to run for it [default: sort, on lines made for it]
    #[arg(last = true, requires = "noise", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints; for an interpreter, its script
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct LiftArgs {
    /// Name of the allocator, as `imas status` shows it
    #[arg(value_name = "ALLOCATOR")]
    pub(crate) allocator: String,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Folder with the catalogue and the index
    #[arg(long, default_value = imas_abi::RUN_FOLDER, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) run_dir: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<OsString>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PinArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Name of the candidate, as `imas list` shows it
    #[arg(value_name = "CANDIDATE")]
    pub(crate) candidate: String,
    /// Give the candidate another chance if it is quarantined for this program
    #[arg(long)]
    pub(crate) lift: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExcludeArgs {
    #[command(subcommand)]
    pub(crate) action: ExcludeAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExcludeAction {
    /// Leave a program alone: always `system`, never a trial
    Add(ProgramArgs),
    /// Stop leaving it alone
    Remove(ProgramArgs),
    /// The programs left alone
    List(JsonArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_negative_number_is_a_wrong_value_and_no_option() {
        for words in [
            ["imas", "run", "--max-memory", "-1", "--", "true"],
            ["imas", "run", "--retest", "-0.5", "--", "true"],
            ["imas", "bench", "-n", "-3", "--", "true"],
        ] {
            let error = with_negative_numbers(Cli::command()).try_get_matches_from(words).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::ValueValidation, "{error}");
        }
        let after = with_negative_numbers(Cli::command())
            .try_get_matches_from(["imas", "run", "--", "nice", "-5", "true"]);
        assert!(after.is_ok());
    }

    #[test]
    fn words_after_the_dashes_are_left_alone() {
        let cli = Cli::parse_from(["imas", "bench", "-n", "3", "--", "ls", "-n", "--json"]);
        let Command::Bench(bench) = cli.command else { panic!("not bench") };
        assert_eq!(bench.runs, 3);
        assert_eq!(bench.command, ["ls", "-n", "--json"]);
    }
}
