// SPDX-License-Identifier: Apache-2.0
//! `imas-kube`, which `imas kube` runs: candidates for the pods of a Kubernetes cluster.
//!
//! - [`cli`]: what may be typed
//! - [`candidate`]: what a candidate is in a cluster: its name there and its environment
//! - [`policy`]: the admission policy with its binding
//! - [`yaml`]: objects of a cluster, printed
//!
//! ```text
//! candidate -> policy -> yaml
//! ```

mod candidate;
mod cli;
mod policy;
mod yaml;

use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory;
use imas_cli::{manual, message};
use imas_engine::context::Context;
use imas_engine::probe;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    if let Some(answer) = probe::answer() {
        return answer;
    }
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(usage) => {
            let _ = usage.print(); // if this fails, the error cannot be reported either
            return ExitCode::from(if usage.use_stderr() { 2 } else { 0 });
        }
    };
    match run(cli) {
        Ok(code) => code,
        Err(error) if message::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            message::error(&error);
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Policy(args) => policy::print(&args, &Context::new(&cli.places)?)?,
        Command::Completions { shell } => manual::completions(Cli::command(), shell)?,
        Command::Manpages { folder } => manual::manpages(Cli::command(), &folder)?,
    }
    Ok(ExitCode::SUCCESS)
}
