// SPDX-License-Identifier: Apache-2.0
//! Arguments of the studies, the laboratory and the suite.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};

use imas_engine::flags::JsonArgs;

/// The experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StudyName {
    /// Free lists with and without merging, 24- and 8-byte headers
    Freelist,
    /// First, next, best and worst fit
    Fit,
    /// IMAS itself: both policies beside every single candidate, on raw runs (--data)
    Selector,
    /// Allocators for a phone: size, benchmarks, and memory of the machine under a browser, a gallery and a
    /// video
    Mobile,
    /// Predictions of recorded and replayed runs beside live runs (--live)
    Replay,
}

/// A part of the mobile study.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum MobilePartName {
    /// Libraries, and what they add to a minimal process
    Size,
    /// Three programs, timed
    Benchmarks,
    /// Browser, pictures, gallery and video; free memory and /proc/buddyinfo
    UseCase,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "For 'study mobile' and 'study replay'")]
pub(crate) struct StudyRunArgs {
    /// mobile: rounds of sizes and benchmarks; 6 and more give intervals [default: 10]; replay: live rounds of
    /// the programs, made after the predictions [default: none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
    /// Candidates beside system, separated by commas [default: mobile: tlsf, musl's two, tcmalloc, nedmalloc,
    /// dlmalloc, jemalloc; replay: those of --live]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Go on with DIR/mobile.jsonl or DIR/replay.jsonl
    #[arg(long)]
    pub(crate) resume: bool,
    /// Install missing packages without asking (Debian packages as root or by sudo)
    #[arg(long)]
    pub(crate) install: bool,
}

impl StudyRunArgs {
    /// Nothing was asked for.
    pub(crate) fn is_untouched(&self) -> bool {
        self.rounds.is_none() && self.with.is_empty() && !self.resume && !self.install
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "For 'study mobile'")]
pub(crate) struct MobileArgs {
    /// Iterations of the use case; each takes about ten seconds a candidate
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) iterations: u32,
    /// Parts to make, separated by commas [default: all]
    #[arg(long, value_enum, value_name = "LIST", value_delimiter = ',')]
    pub(crate) parts: Vec<MobilePartName>,
}

impl MobileArgs {
    /// Nothing was asked for that is for the mobile study alone.
    pub(crate) fn is_untouched(&self) -> bool {
        self.iterations == 50 && self.parts.is_empty()
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "For 'study replay'")]
pub(crate) struct ReplayStudyArgs {
    /// Raw runs that the predictions are judged by, of 'imas-lab suite run'
    #[arg(long, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) live: Vec<PathBuf>,
    /// Programs of the suite, separated by commas [default: those of --live]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// A part of the suite, in place of the programs of --live
    #[arg(long, value_enum, value_name = "SET", conflicts_with = "only")]
    pub(crate) set: Option<SuiteSet>,
    /// Begin no program after this time, such as 55m or 1h30m; --resume goes on
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) limit: Option<Duration>,
    /// Replays of each candidate
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) replays: u32,
    /// A sentence on the conditions, for the header of the predictions
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Write how far predictions were off, by candidate and class, as lab/imas-replay/replay-reliability.json has it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) reliability: Option<PathBuf>,
    /// Folder for inputs, tools and work of the suite [default: $XDG_CACHE_HOME/imas/suite]
    #[arg(long, env = "IMAS_SUITE_CACHE", value_name = "DIR", value_hint = ValueHint::DirPath, hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
}

impl ReplayStudyArgs {
    /// Nothing was asked for that is for the replay study alone. The folder may come from the environment.
    pub(crate) fn is_untouched(&self) -> bool {
        let files = self.live.is_empty() && self.reliability.is_none();
        let programs = self.only.is_empty() && self.set.is_none();
        files && programs && self.limit.is_none() && self.replays == 3 && self.note.is_none()
    }
}

#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    /// Which one
    #[arg(value_enum, value_name = "STUDY")]
    pub(crate) name: StudyName,
    /// Folder for the page, the figures (SVG) and the tables (CSV)
    #[arg(long, default_value = "study", value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// selector: files of raw runs, of 'imas-lab suite run' or 'imas bench --export-runs'; mobile: files of
    /// samples, to show them again; replay: files of predictions, to judge them again
    #[arg(long, num_args = 1.., value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Vec<PathBuf>,
    /// Runs with different seeds; selector: random splits of each program's rounds [default: freelist 200,
    /// fit 20, selector 20]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seeds: Option<u32>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    #[command(flatten)]
    pub(crate) run: StudyRunArgs,
    #[command(flatten)]
    pub(crate) mobile: MobileArgs,
    #[command(flatten)]
    pub(crate) replay: ReplayStudyArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Files of runs, as `imas bench --export-runs` writes them [default: made-up programs of known truth]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) data: Vec<PathBuf>,
    /// The trials in your own store; --store FILE and --system replay another one's
    #[arg(long, conflicts_with_all = ["data", "programs"])]
    pub(crate) stored: bool,
    /// A store was named on the command line, not only in the environment.
    #[arg(skip)]
    pub(crate) store_named: bool,
    /// Policies to compare: adaptive, paper, all (everything is tried in every round), once (everything once,
    /// then the best without proof), always:CANDIDATE; always stands for `system` with programs that have no
    /// runs of it [default: adaptive, paper, all, always:system, and jemalloc, glibc:arena1 and glibc:arena2 for
    /// all, where the data has them]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) policy: Vec<String>,
    /// Weight of CPU in the score: 1 the fastest, 0 the leanest
    #[arg(long, value_name = "W", default_value_t = 0.5, value_parser = share)]
    pub(crate) weight: f64,
    /// How often each program's rounds are split
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) splits: u32,
    /// How many programs are made up
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000), conflicts_with = "data")]
    pub(crate) programs: u32,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Each program, under the table
    #[arg(long)]
    pub(crate) details: bool,
    /// Fleets of 1 to 100,000 hosts that learn these programs together
    #[arg(long, conflicts_with_all = ["policy", "splits", "details", "json"])]
    pub(crate) fleet: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SuiteArgs {
    #[command(subcommand)]
    pub(crate) action: SuiteAction,
}

/// What to do with the suite.
#[derive(Debug, Subcommand)]
pub(crate) enum SuiteAction {
    /// The programs, and whether their packages are installed
    List(SuiteListArgs),
    /// Run programs of the suite under every candidate; a study that was interrupted can go on
    Run(SuiteRunArgs),
    /// What the runs so far say
    Show(SuiteShowArgs),
    /// Make files of raw runs one small file, which --data reads as it is
    Pack(SuitePackArgs),
}

/// A part of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SuiteSet {
    /// Ten that install quickly
    Quick,
    /// Programs of 0.3 to 3 s, for many rounds
    Data,
    /// Over 120 of about 0.3 to 1 s: what results/ are made with
    Study,
    /// Programs of Java, Go, node and the like, whose heap is not malloc's
    Runtimes,
    /// All
    Full,
}

/// Where the suite keeps its things.
#[derive(Debug, Clone, Args)]
pub(crate) struct SuitePlaces {
    /// Folder for the raw runs [default: $XDG_DATA_HOME/imas/suite]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,
    /// Folder for inputs, tools and work [default: $XDG_CACHE_HOME/imas/suite]
    #[arg(long, env = "IMAS_SUITE_CACHE", value_name = "DIR", value_hint = ValueHint::DirPath, hide_env_values = true)]
    pub(crate) cache: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct SuiteListArgs {
    /// Only these
    #[arg(long, value_enum, value_name = "SET")]
    pub(crate) set: Option<SuiteSet>,
    #[command(flatten)]
    pub(crate) places: SuitePlaces,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SuiteRunArgs {
    /// Programs by name [default: those of --set]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// A part of the suite
    #[arg(long, value_enum, default_value_t = SuiteSet::Quick, value_name = "SET", conflicts_with = "names")]
    pub(crate) set: SuiteSet,
    /// Candidates to compare with system, separated by commas; `all`; `settings`: all that are settings of the
    /// program's own language runtime [default: the catalogue's default set]
    #[arg(long = "with", value_name = "LIST", value_delimiter = ',')]
    pub(crate) with: Vec<String>,
    /// Measured rounds: each candidate once in each; 0 with --counted makes counted ones alone
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) rounds: u32,
    /// Counted rounds, which give the paper's figures
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub(crate) counted: u32,
    /// Go on with the runs that are in the folder
    #[arg(long)]
    pub(crate) resume: bool,
    /// Install missing packages without asking (Debian packages as root or by sudo)
    #[arg(long)]
    pub(crate) install: bool,
    /// End a run after this many seconds [default: 20 times what the suite expects, at least 60]
    #[arg(long, value_name = "SECONDS", value_parser = imas_engine::amounts::seconds)]
    pub(crate) timeout: Option<f64>,
    /// Begin no round that would not end within this time, such as 55m or 1h30m; --resume goes on
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) places: SuitePlaces,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SuitePackArgs {
    /// Files of raw runs, in the order they were made
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// The file to write, such as runs.jsonl.gz
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) to: PathBuf,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SuiteShowArgs {
    #[command(flatten)]
    pub(crate) places: SuitePlaces,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// A length of time with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: Result<jiff::SignedDuration, _> = text.parse();
    let length = parsed.ok().and_then(|length| Duration::try_from(length).ok());
    length.filter(|length| !length.is_zero()).ok_or_else(|| "not a time such as 90s, 55m or 1h30m".to_owned())
}

/// A number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be from 0 to 1".to_owned()) }
}
