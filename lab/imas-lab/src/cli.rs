// SPDX-License-Identifier: Apache-2.0
//! Definition of the command line. No side effects.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use imas_engine::flags::{self, Places};

use crate::services::ServicesArgs;
use crate::study_args::{SimulateArgs, StudyArgs, SuiteArgs};
use crate::trace::args::{RecordArgs, ReplayArgs};

/// The laboratory of IMAS: measures real programs under memory allocators, and judges what chooses among
/// them.
#[derive(Debug, Parser)]
#[command(
    name = "imas-lab",
    version,
    about,
    max_term_width = 100,
    after_help = "Examples:\n  imas-lab suite run --set quick                     ten real programs under every candidate\n  imas-lab study selector --data lab/data/first.jsonl    the selector beside every single allocator\n  imas-lab simulate --data lab/data/first.jsonl          which policy would have chosen best\n  imas-lab record -o work.trace -- python3 work.py       every malloc call of one run\n  imas-lab replay work.trace                             what each candidate would take for them"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) places: Places,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Real programs with real input, measured under every candidate
    Suite(SuiteArgs),
    /// Servers with real loads, measured under every candidate
    Services(ServicesArgs),
    /// The published experiments, run again: a page with every printed finding and ours
    Study(StudyArgs),
    /// Replay runs through policies and judge their picks on runs they did not see
    Simulate(SimulateArgs),
    /// Run a command under system and write every malloc call of it into a trace
    Record(RecordArgs),
    /// Make the calls of a trace again under every candidate and say what each would take
    Replay(ReplayArgs),
    /// Print shell completions
    Completions { shell: clap_complete::Shell },
    /// Write the man pages into a folder
    #[command(hide = true)]
    Manpages { folder: PathBuf },
}

impl Cli {
    /// Reads the command line. `simulate` gets to know whether a store was named there: IMAS_STORE alone does
    /// not make it replay one.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut cli = flags::read(|cli: &mut Self| &mut cli.places)?;
        if let Command::Simulate(args) = &mut cli.command {
            args.store_named = cli.places.store_named || cli.places.system;
        }
        Ok(cli)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
