// SPDX-License-Identifier: Apache-2.0
//! Arguments to measure a server.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use imas_core::judgement::Goal;
use imas_core::server_bench::{GuardRail, WORTH_OF_CPU, usual_rails};
use imas_runs::service::{Service, StopSignal};

use crate::command_line::lines_args::LinesArgs;

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
