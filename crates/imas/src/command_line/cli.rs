// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, CommandFactory, Parser, Subcommand, ValueHint};
use clap_complete::engine::ArgValueCompleter;
use imas_engine::amounts::duration;
use imas_engine::flags::{self, with_negative_numbers};
pub(crate) use imas_engine::flags::{JsonArgs, Places, RulesArgs};

use crate::command_line::bench_args::BenchArgs;
use crate::command_line::man;
use crate::command_line::service_args::{ApplyArgs, EnvArgs, TrimArgs, UnapplyArgs};

/// Finds the memory allocator that suits a program, and starts the program on it.
#[derive(Debug, Parser)]
#[command(
    name = "imas",
    version,
    about,
    max_term_width = 100,
    after_help = "Examples:\n  imas explain 812                                  why it holds this much, and what helps\n  imas bench -- sqlite3 :memory: '.read work.sql'   measure it under every candidate\n  imas run -- mariadbd                              learn while it works, then run it on the best\n  imas explain mariadbd                             what was chosen, why, and how to undo it"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) places: Places,
}

/// The verbs that `imas --help` shows, by what somebody has in hand. The others belong to one of these, whose help
/// names them.
const GROUPS: [(&str, &[&str]); 5] = [
    ("A running process", &["explain", "trim", "advise", "top"]),
    ("One program", &["bench", "run", "show", "pin", "forget", "list"]),
    ("A service", &["apply", "env", "bundle"]),
    ("The whole machine", &["system", "status", "serve", "report", "doctor"]),
    ("Many machines", &["kube", "fleet"]),
];

/// Text of `imas --help` with the verbs in groups: clap has one heading for all.
fn in_groups(command: clap::Command) -> clap::Command {
    let about = |name: &str| {
        command.find_subcommand(name).and_then(clap::Command::get_about).map(ToString::to_string)
    };
    let group = |(title, names): (&str, &[&str])| {
        let verbs = names.iter().map(|name| format!("\n  {name:<8}  {}", about(name).unwrap_or_default()));
        format!("{title}:{}\n\n", verbs.collect::<String>())
    };
    let groups: String = GROUPS.into_iter().map(group).collect();
    let shown = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let verbs = command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(clap::Command::get_name);
    let others: Vec<_> = verbs.filter(|name| !shown(name)).collect();
    let also = format!("Also {}. Each verb has --help and a man page.", others.join(", "));
    let text =
        format!("{{about}}\n\nUsage: {{usage}}\n\n{groups}{also}\n\nOptions:\n{{options}}{{after-help}}");
    command.help_template(text)
}

impl Cli {
    /// All that may be typed.
    pub(crate) fn definition() -> clap::Command {
        with_negative_numbers(crate::command_line::man::add(in_groups(Self::command())))
    }

    /// From the words of the command line.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        flags::read_as(Self::definition(), |cli: &mut Self| &mut cli.places)
    }
}

#[expect(clippy::large_enum_variant, reason = "one is parsed at each start of the command")]
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a command under every candidate and say which suits it
    Bench(BenchArgs),
    /// Start a program under the candidate decided for it; a trial when one is due
    Run(RunArgs),
    /// The candidates of this machine, and why some cannot be used
    List(ListArgs),
    /// What is known of a program, or of all
    Show(ShowArgs),
    /// Where a process's memory is (--pid); why a program starts under its candidate
    Explain(ExplainArgs),
    /// Start a program under one candidate from now on, whatever is measured
    Pin(PinArgs),
    /// Let the policy decide again
    Unpin(ProgramJsonArgs),
    /// Programs that are left alone
    Exclude(ExcludeArgs),
    /// Forget all that was measured of a program
    Forget(ForgetArgs),
    /// Allow an allocator again that imasd has disabled for everybody
    Unblock(UnblockArgs),
    /// What imasd does, and what really serves the running processes
    Status(StatusArgs),
    /// Running processes that would gain from a restart, and how much
    Advise(JsonArgs),
    /// Give a systemd service its candidate, by a drop-in
    Apply(ApplyArgs),
    /// Take away what `apply` wrote
    Unapply(UnapplyArgs),
    /// Let running processes give their free memory back now
    Trim(TrimArgs),
    /// What the watcher of `apply --watch` runs
    #[command(hide = true)]
    WatchUnit { unit: String },
    /// Print what to set for a candidate: in a shell, systemd, an image, compose, Kubernetes
    Env(EnvArgs),
    /// Put a candidate with all that it needs into one folder, for an image
    Bundle(BundleArgs),
    /// What this machine lacks for IMAS, and what to do about it
    Doctor(DoctorArgs),
    /// Every program of this machine on its allocator: enable, disable, status, verify
    System(crate::system::SystemArgs),
    /// What is known of a program, or of all, as one page for a browser
    Report(ReportArgs),
    /// Running processes on a terminal: allocators, memory, expected gains
    #[command(disable_help_flag = true)]
    Top(ExternalArgs),
    /// What show, explain and top print, as pages for a browser; figures for Prometheus
    #[command(disable_help_flag = true)]
    Serve(ExternalArgs),
    /// Hosts that learn together: this host's agent, and an operator's view
    #[command(disable_help_flag = true)]
    Fleet(ExternalArgs),
    /// Pods of a Kubernetes cluster: which get which candidate, and what came of it
    #[command(disable_help_flag = true)]
    Kube(ExternalArgs),
    /// Print shell completions
    Completions { shell: clap_complete::Shell },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

/// Whatever follows a verb that is a program of its own: it goes there as it is.
#[derive(Debug, Args)]
pub(crate) struct ExternalArgs {
    /// Options of that program
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    pub(crate) words: Vec<OsString>,
}

/// At the end of `imas run --help` and of its man page.
const WHAT_CAN_BE_SEEN: &str = "The program and its children get their environment as it was. What the kernel keeps of the exec still shows what was set: \
 /proc/PID/environ has LD_PRELOAD, IMAS_UNSET, IMAS_WAS_*, IMAS_PAGE and the candidate's settings, and /proc/PID/maps the \
 libraries, for the process itself, for other processes of the same user, and for root. docs/what-can-be-seen.md has the whole list.";

#[derive(Debug, Default, Args)]
#[command(after_long_help = WHAT_CAN_BE_SEEN)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    /// The program's children run under the same candidate
    #[arg(long)]
    pub(crate) follow: bool,
    /// Use this candidate once, whatever was decided; nothing is learned. With settings: 'jemalloc?narenas:1', as 'imas bench --with' takes them
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) candidate: Option<String>,
    /// Say on standard error what was decided and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Decide and say, but start nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Stay, and let the program and what it starts give free pages back, each process so often at most [60s without a
    /// value] and where it has 32 MiB or more of them. Without --candidate the program stays on the malloc it has
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "60s", value_parser = duration, conflicts_with = "dry_run")]
    pub(crate) trim: Option<Duration>,
    /// A wrapper has started this call: 'imas run -- nice PROG' becomes 'nice imas run -- PROG'
    #[arg(long = crate::command_line::wrapper::INSIDE, hide = true)]
    pub(crate) inside_wrapper: bool,
    /// No option was given: a settled start will do.
    #[arg(skip)]
    pub(crate) is_plain: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints; with --data the name it has there
    /// [default: every program]
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<OsString>,
    /// The file to write; it needs no network and no other file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: PathBuf,
    /// Read these raw runs instead of the store: files of 'imas-lab suite run' or 'imas bench --export-runs'
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
    #[arg(value_name = "PROGRAM", add = ArgValueCompleter::new(man::programs))]
    pub(crate) program: OsString,
}

#[derive(Debug, Args)]
pub(crate) struct ProgramJsonArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["program", "all"])))]
pub(crate) struct ForgetArgs {
    /// A path, a name found in PATH, or the number that `imas show` prints; for an interpreter, its script
    #[arg(value_name = "PROGRAM", add = ArgValueCompleter::new(man::programs))]
    pub(crate) program: Option<OsString>,
    /// Every program; pins go with them, exclusions stay
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = crate::command_line::service_args::SETTINGS_OF_AN_IMAGE)]
pub(crate) struct BundleArgs {
    /// Name of the candidate, as `imas list` shows it: an allocator, or settings of a language runtime
    #[arg(value_name = "CANDIDATE", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) candidate: String,
    /// The folder to make, or an archive whose name ends in `.tar`, `.tar.gz` or `.tgz`
    #[arg(long, value_name = "DIR|FILE.tar[.gz]", value_hint = ValueHint::AnyPath)]
    pub(crate) out: PathBuf,
    /// Where it will be found when it is used
    #[arg(long, value_name = "DIR", default_value = "/opt/imas", value_parser = crate::command_line::service_args::whole_path)]
    pub(crate) at: PathBuf,
    /// For an image whose C library is musl, such as Alpine's
    #[arg(long)]
    pub(crate) musl: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnblockArgs {
    /// Name of the allocator, as `imas status` shows it
    #[arg(value_name = "ALLOCATOR", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) allocator: String,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
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
    #[arg(value_name = "PROGRAM", add = ArgValueCompleter::new(man::programs))]
    pub(crate) program: Option<OsString>,
    #[command(flatten)]
    pub(crate) rules: RulesArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["program", "pid"])))]
pub(crate) struct ExplainArgs {
    /// A running process by its number; or a program: a path, a name found in PATH, or the number that `imas show` prints;
    /// for an interpreter, its script; or NAME.service: what it held when it was near its limit of memory
    /// (`note_near_limits` of imasd.toml)
    #[arg(value_name = "PID|PROGRAM", add = ArgValueCompleter::new(man::programs))]
    pub(crate) program: Option<OsString>,
    /// A running process, where its number is also a program's
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Search a running process for leaks: look twice at what can be reached in glibc's heaps
    #[arg(long)]
    pub(crate) leaks: bool,
    /// Watch a running process so long, and say which part of its memory grows; with --leaks the time between two looks [default: 9s]
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
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
    #[arg(value_name = "CANDIDATE", add = ArgValueCompleter::new(man::candidates))]
    pub(crate) candidate: String,
    /// Give the candidate another chance if it is quarantined for this program
    #[arg(long)]
    pub(crate) unblock: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExcludeArgs {
    #[command(subcommand)]
    pub(crate) action: ExcludeAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExcludeAction {
    /// Leave a program alone: always `system`, never a trial
    Add(ProgramJsonArgs),
    /// Stop leaving it alone
    Remove(ProgramJsonArgs),
    /// The programs left alone
    List(JsonArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::definition().debug_assert();
    }

    #[test]
    fn help_fits_one_screen_of_a_hundred_columns_and_has_every_verb() {
        let mut cli = Cli::definition();
        let help = cli.render_help().to_string();
        let shown: Vec<_> = GROUPS.iter().flat_map(|(_, names)| names.iter()).collect();
        assert!(shown.len() <= 20, "{shown:?}");
        for verb in cli.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let about = verb.get_about().unwrap().to_string();
            let line = format!("\n  {:<8}  {about}\n", verb.get_name());
            assert_eq!(help.contains(&line), shown.contains(&&verb.get_name()), "{line}");
            assert!(help.contains(verb.get_name()), "{}", verb.get_name());
        }
        let longest = help.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        assert!(longest <= 100, "{longest}\n{help}");
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
        assert_eq!(bench.runs, crate::command_line::bench_args::RunCount::Fixed(3));
        assert_eq!(bench.command, ["ls", "-n", "--json"]);
        for words in [["imas", "run", "ls", "-n", "--", "--dry-run"], ["imas", "run", "--", "ls", "-n", "--"]]
        {
            let cli = Cli::parse_from(words);
            let Command::Run(run) = cli.command else { panic!("not run") };
            let after = words.into_iter().skip(2).skip_while(|word| *word == "--").map(OsString::from);
            assert_eq!(run.command, after.collect::<Vec<_>>(), "the command need not come after dashes");
            assert!(!run.dry_run);
        }
    }

    #[test]
    fn a_verb_of_its_own_gets_all_that_follows() {
        let cli = Cli::parse_from(["imas", "--system", "top", "--once", "--json", "--help", "--store", "x"]);
        let Command::Top(args) = cli.command else { panic!("not top") };
        assert_eq!(args.words, ["--once", "--json", "--help", "--store", "x"]);
        assert!(cli.places.system);
        let cli = Cli::parse_from(["imas", "serve", "--help"]);
        assert!(matches!(cli.command, Command::Serve(args) if args.words == ["--help"]));
    }

    /// Every verb that answers can answer in JSON, and every one has an example.
    #[test]
    fn every_verb_has_json_and_an_example() {
        for verb in Cli::definition().get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let name = verb.get_name();
            let has_json = |verb: &clap::Command| verb.get_arguments().any(|arg| arg.get_id() == "json");
            let asked = |verb: &&clap::Command| !verb.is_hide_set();
            let below = verb.has_subcommands() && verb.get_subcommands().filter(asked).all(has_json);
            assert!(
                // The first is the program from then on, the second prints a script, the others are programs of
                // their own.
                has_json(verb)
                    || below
                    || ["run", "completions", "top", "serve", "fleet", "kube"].contains(&name),
                "{name} lacks --json"
            );
            let shown = verb.get_subcommands().filter(|below| !below.is_hide_set());
            for one in std::iter::once(verb).chain(shown) {
                let examples = one.get_after_help().is_some_and(|text| text.to_string().contains("imas "));
                assert!(examples, "{name} {} lacks an example", one.get_name());
            }
        }
    }
}
