// SPDX-License-Identifier: Apache-2.0
//! Arguments of `bench`: of every command, to measure a server, and for the shell lines around the runs of either. No side
//! effects.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_core::bench::{FailRule, Looks};
use imas_core::compare::CostLimits;
use imas_core::judgement::Goal;
use imas_core::server_bench::{GuardRail, WORTH_OF_CPU, usual_rails};
use imas_report::bench::BenchColumn;
use imas_runs::service::{Service, StopSignal};

use crate::command_line::man;

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
    #[arg(long = "with", value_name = "LIST", add = ArgValueCompleter::new(man::candidates))]
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

/// Options of `imas bench` for a server; any of `--ready` and `--service` makes it one.
#[derive(Debug, Args)]
#[command(next_help_heading = "A server")]
pub(crate) struct ServerArgs {
    /// The command is a server, ready when this is: tcp:PORT, unix:PATH, a URL, or a command that succeeds.
    /// $PORT is a free port, $WORK a fresh folder. https is asked by curl, which accepts
    /// any certificate here
    #[arg(long, value_name = "WHEN", requires = "load")]
    pub(crate) ready: Option<String>,
    /// Load on the server, a shell line with a fixed number or a fixed rate of requests; several run one
    /// after the other
    #[arg(long, value_name = "LINE", requires = "ready")]
    pub(crate) load: Vec<String>,
    /// How often the load is repeated in one run [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) cycles: Option<u32>,
    /// Seconds without load at the end of a run [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) idle: Option<f64>,
    /// After the pause five minutes as on a day: busy, quiet, a burst, quiet; the pick is by memory over it.
    /// A file of --service may have a day of its own
    #[arg(long)]
    pub(crate) day: bool,
    /// What the server is asked to end with [default: TERM]
    #[arg(long, value_name = "SIGNAL")]
    pub(crate) stop: Option<StopSignal>,
    /// Run the server and its lines in $WORK, a fresh folder for each run, and not in this one: for a server
    /// that writes files where it runs. A server of --service always runs so
    #[arg(long, requires = "ready")]
    pub(crate) fresh_folder: bool,
    /// All of this from a file
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath, conflicts_with = "ready")]
    pub(crate) service: Option<PathBuf>,
    /// What the server's pick is to be best at [default: memory]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) objective: Option<ServerObjective>,
    /// What the server's pick may cost against system, such as 'p99+5%' or 'cpu+2%': more is rejected where it is proven
    /// [default: 25 % of CPU time, memory and p99]
    #[arg(long, value_name = "FIGURE+N%")]
    pub(crate) at_most: Vec<GuardRail>,
    /// What CPU time is worth where memory is the objective: at cpu=2 1 % of CPU time is worth 2 % of memory
    /// [default: cpu=2]
    #[arg(long, value_name = "cpu=N", value_parser = worth)]
    worth: Option<f64>,
    /// Measure every candidate, although the first run shows that no allocator could save anything
    #[arg(long)]
    pub(crate) all: bool,
    /// Find the smallest limit of memory in which the load still passes, at a rate within 5 %: untouched, under each
    /// candidate, and with the limit of the runtime's heap. --at-most p99+N% is a demand on the latency as well. Takes
    /// control groups: root, or a group of its own
    #[arg(long, conflicts_with_all = ["all", "day", "worth", "objective"])]
    pub(crate) least_memory: bool,
    /// With --least-memory: also find the smallest limit for each of these numbers of workers, which the variable of this
    /// name sets: WEB_CONCURRENCY=1,2,4 for puma and gunicorn. Each keeps its own rate
    #[arg(long, value_name = "NAME=N,...", value_parser = workers, requires = "least_memory")]
    pub(crate) workers: Option<Workers>,
    /// Write a page for a browser, with the server's memory over time under each candidate, or with its rate over the
    /// limit of memory
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// What the pick is to be best at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServerObjective {
    /// Least memory
    Memory,
    /// Least CPU time for the same load
    Cpu,
    /// Least p99 latency
    Latency,
    /// CPU and memory alike
    Balanced,
}

/// Numbers of workers that are tried, and the variable that sets them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workers {
    pub(crate) variable: String,
    pub(crate) numbers: Vec<u32>,
}

fn workers(text: &str) -> Result<Workers, String> {
    let wrong =
        || format!("{text}: write NAME=N,N,... with at most 8 numbers from 1 to 512: WEB_CONCURRENCY=1,2,4");
    let (variable, numbers) = text.split_once('=').ok_or_else(wrong)?;
    let is_name =
        !variable.is_empty() && variable.bytes().all(|sign| sign.is_ascii_alphanumeric() || sign == b'_');
    let numbers: Result<Vec<u32>, _> = numbers.split(',').map(str::parse).collect();
    let numbers = numbers.map_err(|_| wrong())?;
    let is_fit = is_name && numbers.len() <= 8 && numbers.iter().all(|number| (1..=512).contains(number));
    is_fit.then(|| Workers { variable: variable.to_owned(), numbers }).ok_or_else(wrong)
}

fn worth(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text}: write cpu=N, where N is a number from 0 to 100");
    let number: f64 = text.strip_prefix("cpu=").ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
    (0.0..=100.0).contains(&number).then_some(number).ok_or_else(wrong)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|error| error.to_string())?;
    let is_fit = (0.0..=1e6).contains(&seconds);
    is_fit.then_some(seconds).ok_or_else(|| "seconds from 0 to 1000000".to_owned())
}

impl ServerArgs {
    /// Whether a server is to be measured.
    pub(crate) fn is_given(&self) -> bool {
        self.ready.is_some() || self.service.is_some()
    }

    /// An option of a server that is given although no server is; such an option would do nothing.
    pub(crate) fn stray(&self) -> Option<&'static str> {
        let given = [
            ("--cycles", self.cycles.is_some()),
            ("--idle", self.idle.is_some()),
            ("--day", self.day),
            ("--stop", self.stop.is_some()),
            ("--objective", self.objective.is_some()),
            ("--at-most", !self.at_most.is_empty()),
            ("--all", self.all),
            ("--worth", self.worth.is_some()),
            ("--html", self.html.is_some()),
            ("--least-memory", self.least_memory),
        ];
        given.into_iter().find(|(_, is_given)| *is_given && !self.is_given()).map(|(name, _)| name)
    }

    /// Definition with the changes by the options; without a file, the options are the whole of it.
    pub(crate) fn service(&self, lines: &LinesArgs, from_file: Option<Service>) -> Service {
        let mut service = from_file
            .unwrap_or_else(|| Service::new(self.ready.as_deref().unwrap_or_default(), self.load.clone()));
        service.cycles = self.cycles.unwrap_or(service.cycles);
        service.idle = self.idle.unwrap_or(service.idle);
        service.stop = self.stop.unwrap_or(service.stop);
        if self.day && service.day.is_empty() {
            service.day = Service::usual_day();
        }
        for (line, into) in [
            (&lines.setup, &mut service.setup),
            (&lines.prepare, &mut service.prepare),
            (&lines.cleanup, &mut service.cleanup),
        ] {
            if line.is_some() {
                into.clone_from(line);
            }
        }
        service
    }

    pub(crate) fn goal(&self) -> Goal {
        match self.objective.unwrap_or(ServerObjective::Memory) {
            ServerObjective::Memory => Goal::Memory,
            ServerObjective::Cpu => Goal::Cpu,
            ServerObjective::Latency => Goal::Latency,
            ServerObjective::Balanced => Goal::Balanced,
        }
    }

    /// Worth of CPU time against memory.
    pub(crate) fn worth(&self) -> f64 {
        self.worth.unwrap_or(WORTH_OF_CPU)
    }

    /// Guard rails that were given; without any, the usual ones of every pick.
    pub(crate) fn rails(&self) -> Vec<GuardRail> {
        if self.at_most.is_empty() { usual_rails(self.goal()) } else { self.at_most.clone() }
    }
}

/// Shell lines around the runs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lines around the runs")]
pub(crate) struct LinesArgs {
    /// A shell line before all runs; $SETUP is a folder for a server's files that stays until the end
    #[arg(long, value_name = "LINE")]
    pub(crate) setup: Option<String>,
    /// A shell line before each run; of a server $WORK is a fresh folder, and what the line leaves running
    /// helps the load and is not measured
    #[arg(long, value_name = "LINE")]
    pub(crate) prepare: Option<String>,
    /// A shell line after each run
    #[arg(long, value_name = "LINE")]
    pub(crate) conclude: Option<String>,
    /// A shell line after all runs; of a server after each run
    #[arg(long, value_name = "LINE")]
    pub(crate) cleanup: Option<String>,
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
