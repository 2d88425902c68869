// SPDX-License-Identifier: Apache-2.0
//! `imas-top`, which `imas top` runs: the running processes with their allocators, and what IMAS knows of
//! them.
//!
//! ```text
//! words -> column -> listing -> app -> keys
//! history, command ------------^  ^--- pane -> page
//! terminal -> live (all of them), once
//! ```

mod app;
mod cli;
mod column;
mod keys;
mod live;
mod page;
#[cfg(test)]
mod tests;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use imas_cli::manual;
use imas_engine::live::ProcessObserver;
use imas_engine::{entry, flags};

use crate::cli::{Cli, Made};
use column::Listing;

fn main() -> ExitCode {
    let read = || {
        manual::answer_completion(Cli::command);
        flags::read(|cli: &mut Cli| &mut cli.places)
    };
    entry::main_of(read, |cli| run(cli).map(|()| ExitCode::SUCCESS))
}

fn run(cli: Cli) -> Result<()> {
    match &cli.made {
        Some(Made::Completions { shell }) => return manual::completions(Cli::command(), *shell),
        Some(Made::Manpages { folder }) => return manual::manpages(Cli::command(), folder),
        None => {}
    }
    let listing =
        Listing { sort: cli.sort, is_reversed: false, filter: cli.filter.clone(), is_tree: cli.tree };
    if cli.once {
        let mut observer = ProcessObserver::beside(&cli.places, &cli.run_dir)?;
        return live::print_once(&mut observer, &listing, cli.interval, cli.json);
    }
    live::run(&cli, listing)
}
