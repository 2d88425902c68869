// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use imas_fleet_agent::settings;

/// Many hosts learn together: the agent of this host, and what an operator does with the fleet.
#[derive(Debug, Parser)]
#[command(
    name = "imas-fleet",
    bin_name = "imas fleet",
    version,
    about,
    max_term_width = 100,
    disable_help_subcommand = true,
    after_help = "Examples:\n  imas fleet init --certificates fleet --server fleet-1.example.org --host web-1   files for servers and hosts\n  imas fleet init --settings fleet/imas/operator/fleet.toml                        stream and bucket on the servers\n  imas fleet doctor                                                                what this host needs, tried"
)]
pub(crate) struct Cli {
    /// The settings of this host, or of the operator
    #[arg(long, global = true, default_value = settings::FILE, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) settings: PathBuf,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What is to be done.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Publish what this host measured, and fetch what the fleet knows: until SIGTERM
    #[command(after_help = "Example: imas fleet agent --exchange /var/lib/imas/fleet")]
    Agent(AgentArgs),
    /// Make a fleet: with --certificates files for its servers and hosts, else stream and bucket
    #[command(
        after_help = "Example: imas fleet init --certificates fleet --servers 3 --merger web-1 --host web-2"
    )]
    Init(InitArgs),
    /// How stream, bucket and this host's agent are
    #[command(after_help = "Example: imas fleet status --json")]
    Status(AskArgs),
    /// What this host needs for the fleet, each thing tried
    #[command(after_help = "Example: imas fleet doctor --settings /etc/imas/fleet.toml")]
    Doctor(AskArgs),
    /// What a user of the servers must be allowed, for fleets whose users have NATS credentials
    #[command(after_help = "Example: imas fleet rights web-1")]
    Rights(RightsArgs),
    /// The programs that the fleet knows
    #[command(after_help = "Example: imas fleet programs --json")]
    Programs(AskArgs),
    /// Allocators that are not the best for any program of the fleet
    #[command(after_help = "Example: imas fleet unnecessary --margin 0.02")]
    Unnecessary(UnnecessaryArgs),
    /// Remove all that the fleet has of a program
    #[command(after_help = "Example: imas fleet forget abcdefghijklmnopqrstuvwxyz")]
    Forget {
        /// Its key, as 'imas fleet programs' lists it, with or without an environment behind it
        program: String,
    },
    /// Fold new aggregates of all programs into statistics, once
    #[command(after_help = "Example: imas fleet merge --json")]
    Merge(AskArgs),
    /// Print shell completions
    #[command(hide = true)]
    Completions { shell: clap_complete::Shell },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// The exchange folder [default: that of the settings]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) exchange: Option<PathBuf>,
}

/// Arguments of verbs that print an answer.
#[derive(Debug, Args)]
pub(crate) struct AskArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `rights`.
#[derive(Debug, Args)]
pub(crate) struct RightsArgs {
    /// The host's name
    pub(crate) name: String,
    /// It folds aggregates for all
    #[arg(long, conflicts_with = "operator")]
    pub(crate) merger: bool,
    /// It is the operator
    #[arg(long)]
    pub(crate) operator: bool,
    /// The account on the servers
    #[arg(long, default_value = "imas", value_name = "NAME")]
    pub(crate) tenant: String,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `unnecessary`.
#[derive(Debug, Args)]
pub(crate) struct UnnecessaryArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The smallest share of CPU or memory that counts as a gain
    #[arg(long, default_value = "0.01", value_name = "SHARE")]
    pub(crate) margin: f64,
}

/// Arguments of `init`.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Write an authority, and files for servers and hosts, into this folder; nothing is sent anywhere
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) certificates: Option<PathBuf>,
    /// A server: HOST or HOST:PORT; for each one [default: those of before]
    #[arg(long = "server", value_name = "HOST", requires = "certificates", conflicts_with = "servers")]
    pub(crate) server: Vec<String>,
    /// For trying out: this number of servers on this machine
    #[arg(long, value_name = "N", requires = "certificates", value_parser = clap::value_parser!(u16).range(1..=5))]
    pub(crate) servers: Option<u16>,
    /// A host of the fleet
    #[arg(long = "host", value_name = "NAME", requires = "certificates")]
    pub(crate) hosts: Vec<String>,
    /// A host of the fleet that folds aggregates for all
    #[arg(long = "merger", value_name = "NAME", requires = "certificates")]
    pub(crate) mergers: Vec<String>,
    /// The account on the servers; several fleets can share servers
    #[arg(long, default_value = "imas", value_name = "NAME", requires = "certificates")]
    pub(crate) tenant: String,
    /// Days that new certificates are valid
    #[arg(long, default_value = "825", value_name = "DAYS", requires = "certificates", value_parser = clap::value_parser!(i64).range(1..=3650))]
    pub(crate) valid_days: i64,
    /// Days that the stream keeps an aggregate
    #[arg(long, default_value = "30", value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=365))]
    pub(crate) keep_days: u32,
    /// Aggregates that the stream keeps, the newest: each may take 1 kB of memory on each server
    #[arg(long, default_value = "300000", value_name = "N", value_parser = clap::value_parser!(i64).range(1000..=100_000_000))]
    pub(crate) most_aggregates: i64,
    /// Disk space on each server, GiB: four fifths for the stream, the rest for the bucket
    #[arg(long, default_value = "5", value_name = "GIB", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) disk_gib: u16,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
