// SPDX-License-Identifier: Apache-2.0
//! Arguments of `bench`. No side effects.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_core::bench::{FailRule, Looks};
use imas_core::compare::CostLimits;
use imas_report::bench::BenchColumn;

use crate::command_line::complete;
use crate::command_line::lines_args::LinesArgs;
use crate::command_line::server_args::ServerArgs;

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Measured runs per candidate; auto: 5 to 30, until the answer is settled; of a server one of
    /// each, and 3 to 8 of the best
    #[arg(short = 'n', long, default_value = "auto", value_name = "N|auto", value_parser = RunCount::parse)]
    pub(crate) runs: RunCount,
    /// Begin no further run after this number of seconds, once there is one of each candidate. Without
    /// --timeout the first run may take no longer either, but always 10 seconds
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::amounts::seconds_above_0)]
    pub(crate) max_time: Option<f64>,
    /// Counted runs per candidate, which give the paper's figures (ns per operation, fragmentation); not for a
    /// server [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) trials: Option<u32>,
    /// Candidates to compare with system, separated by commas; or `all`. With settings:
    /// 'jemalloc?narenas:1,dirty_decay_ms:1000', 'glibc?mmap_threshold=65536'; these take the rest of the
    /// word, so give `--with` again for more
    #[arg(long = "with", value_name = "LIST", add = ArgValueCompleter::new(complete::candidates))]
    with: Vec<String>,
    /// Standard input of the command, anew for each run [default: what standard input is redirected from]
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// Runs under system before anything is measured; of a server 0 if not given
    #[arg(short, long, default_value_t = 1, default_value_ifs = [("ready", clap::builder::ArgPredicate::IsPresent, "0"), ("service", clap::builder::ArgPredicate::IsPresent, "0")], value_name = "N")]
    pub(crate) warmup: u32,
    /// Keep every run on one CPU, where CPU time is steadier; auto: when the last warm-up used one at a time.
    /// A server is kept on one only by always; its load then has the others
    #[arg(long, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) one_cpu: OneCpuName,
    /// Seed of the order of runs and of the resampling
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Show what the command prints
    #[arg(long)]
    pub(crate) show_output: bool,
    /// Go on although the command fails under system; of a server: although the load fails
    #[arg(long)]
    pub(crate) ignore_failure: bool,
    /// End a run after this many seconds [default: 20 times what the first run took, at least 60; of a server
    /// none]
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::amounts::seconds_above_0)]
    pub(crate) timeout: Option<f64>,
    #[command(flatten)]
    pub(crate) cost: CostArgs,
    #[command(flatten)]
    pub(crate) commands: CommandsArgs,
    #[command(flatten)]
    pub(crate) lines: LinesArgs,
    #[command(flatten)]
    pub(crate) look: LookArgs,
    #[command(flatten)]
    pub(crate) exports: ExportArgs,
    #[command(flatten)]
    pub(crate) baseline: BaselineArgs,
    /// Print JSON instead of the table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// The command and its arguments; with --shell each word is a command. All options of bench come before it
    #[arg(trailing_var_arg = true, required_unless_present = "service", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl BenchArgs {
    /// The names of `--with`, one by one; what follows a `?` are the settings of that one.
    pub(crate) fn with(&self) -> Vec<String> {
        self.with.iter().flat_map(|list| names(list)).collect()
    }

    /// How many counted runs of each candidate of a command.
    pub(crate) fn counted_runs(&self) -> u32 {
        self.trials.unwrap_or(1)
    }
}

fn names(list: &str) -> Vec<String> {
    let (plain, inline) = match list.find('?') {
        Some(settings) => {
            let from = list[..settings].rfind(',').map_or(0, |comma| comma + 1);
            (&list[..from], Some(list[from..].to_owned()))
        }
        None => (list, None),
    };
    let plain = plain.split(',').filter(|name| !name.is_empty() || list.is_empty()).map(str::to_owned);
    plain.chain(inline).collect()
}

/// Largest costs of a pick.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Pick no candidate that takes so much more memory than system [default: +25%]; of a server --at-most says it
    #[arg(long, value_name = "+N%", value_parser = imas_engine::flags::more_share)]
    pub(crate) max_memory: Option<f64>,
    /// Pick no candidate that takes so much more CPU time than system [default: +25%]
    #[arg(long, value_name = "+N%", value_parser = imas_engine::flags::more_share)]
    pub(crate) max_cpu: Option<f64>,
}

impl CostArgs {
    pub(crate) fn limits(&self) -> CostLimits {
        let usual = CostLimits::USUAL;
        CostLimits { cpu: self.max_cpu.unwrap_or(usual.cpu), memory: self.max_memory.unwrap_or(usual.memory) }
    }
}

/// Several commands, and how each is run.
#[derive(Debug, Args)]
pub(crate) struct CommandsArgs {
    /// Each word after -- is a line for this shell, measured one after the other; none: a line that no shell
    /// runs
    #[arg(long, value_name = "SHELL|none")]
    pub(crate) shell: Option<String>,
    /// Measure with each of these values in place of {NAME}, in the command and in the lines around it
    #[arg(long, num_args = 2, value_names = ["NAME", "A,B,C"], action = clap::ArgAction::Append)]
    pub(crate) parameter_list: Vec<String>,
    /// Measure with each number from FROM to TO in place of {NAME}
    #[arg(long, num_args = 3, value_names = ["NAME", "FROM", "TO"], action = clap::ArgAction::Append, allow_negative_numbers = true)]
    pub(crate) parameter_scan: Vec<String>,
    /// Between two numbers of --parameter-scan [default: 1]
    #[arg(short = 'D', long, value_name = "STEP", requires = "parameter_scan", value_parser = imas_engine::amounts::seconds_above_0)]
    pub(crate) parameter_step_size: Option<f64>,
}

/// How the table looks.
#[derive(Debug, Args)]
#[command(next_help_heading = "The table")]
pub(crate) struct LookArgs {
    /// Columns: wall, cpu, user, system, peak, mean (memory), wall-change, cpu-change, peak-change,
    /// mean-change, ns-per-op, fragmentation, faults, verdict [default: those that fit the terminal]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) columns: Vec<BenchColumn>,
    /// Print a second table: where the resident memory was, from the counted runs (as many as --trials)
    #[arg(long)]
    pub(crate) where_memory_was: bool,
    /// Explain the noise, and print every note and warning
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Sort the candidates by this column, least first
    #[arg(long, value_name = "COLUMN")]
    pub(crate) sort: Option<BenchColumn>,
    /// Colours and the live line: both are for a terminal only
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    pub(crate) style: StyleName,
}

/// Files for results.
#[derive(Debug, Args)]
#[command(next_help_heading = "Exports")]
pub(crate) struct ExportArgs {
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
    /// Write what came of --fail-if as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "baseline")]
    pub(crate) export_junit: Option<PathBuf>,
}

/// The check against an earlier result.
#[derive(Debug, Args)]
#[command(next_help_heading = "In CI")]
pub(crate) struct BaselineArgs {
    /// Compare with this result of --export-json
    #[arg(long, value_name = "FILE.json", value_hint = ValueHint::FilePath, requires = "fail_if")]
    pub(crate) baseline: Option<PathBuf>,
    /// End with 1 where a figure (wall, cpu, peak, mean) has grown by more than that against the baseline,
    /// beyond the noise: 'cpu>3%', 'peak>5%'; under system and the candidates of --with
    #[arg(long, value_name = "FIGURE>N%", requires = "baseline")]
    pub(crate) fail_if: Vec<FailRule>,
}

/// How many measured runs of each candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunCount {
    /// The number of runs that the answer needs.
    Auto,
    /// This number of runs.
    Fixed(u32),
}

impl RunCount {
    /// At most this number of rounds of a server.
    pub(crate) fn of_a_server(self) -> u32 {
        match self {
            Self::Auto => Looks::SERVER.most,
            Self::Fixed(runs) => runs,
        }
    }

    /// When the runs of a server are looked at.
    pub(crate) fn looks_at_a_server(self) -> Option<Looks> {
        (self == Self::Auto).then_some(Looks::SERVER)
    }

    /// At most this number of rounds.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Auto => Looks::AUTO.most,
            Self::Fixed(runs) => runs,
        }
    }

    /// When the runs are looked at.
    pub(crate) fn looks(self) -> Option<Looks> {
        (self == Self::Auto).then_some(Looks::AUTO)
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let runs: Option<u32> = text.parse().ok().filter(|runs| (1..=10_000).contains(runs));
        runs.map(Self::Fixed).ok_or_else(|| "'auto', or a number from 1 to 10000".to_owned())
    }
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

/// How `bench` shows what it does and found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum StyleName {
    /// Colours and a live line on a terminal
    #[default]
    Auto,
    /// Neither
    Basic,
    /// Both; colours even where there is no terminal
    Full,
    /// A live line without colours
    Nocolor,
    /// Colours without a live line, even where there is no terminal
    Color,
    /// Nothing is printed but errors, warnings and exports
    None,
}

impl StyleName {
    pub(crate) fn has_live_line(self) -> bool {
        matches!(self, Self::Auto | Self::Full | Self::Nocolor)
    }

    pub(crate) fn has_colour(self) -> bool {
        matches!(self, Self::Auto | Self::Full | Self::Color)
    }

    /// Colours where there is no terminal, too; `auto` leaves the choice to the terminal and `NO_COLOR`.
    pub(crate) fn choose_colours(self) {
        match self {
            Self::Full | Self::Color => anstream::ColorChoice::Always.write_global(),
            Self::Basic | Self::Nocolor | Self::None => anstream::ColorChoice::Never.write_global(),
            Self::Auto => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_take_the_rest_of_the_word() {
        assert_eq!(names("a,b"), ["a", "b"]);
        assert_eq!(names("jemalloc?narenas:1,tcache:false"), ["jemalloc?narenas:1,tcache:false"]);
        assert_eq!(names("a,glibc?top_pad=0,arena_max=1"), ["a", "glibc?top_pad=0,arena_max=1"]);
    }

    #[test]
    fn a_number_of_runs_or_auto() {
        assert_eq!(RunCount::parse("auto"), Ok(RunCount::Auto));
        assert_eq!(RunCount::parse("10"), Ok(RunCount::Fixed(10)));
        for wrong in ["0", "-3", "10001", "many", ""] {
            assert!(RunCount::parse(wrong).is_err(), "{wrong}");
        }
    }
}
