// SPDX-License-Identifier: Apache-2.0
//! `imas-lab replay`: repeats the calls of a trace under every candidate and predicts the program's figures.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_engine::compared::{DefaultComparison, compared};
use imas_replay::recording::busiest;
use imas_replay::reliability::shipped;
use imas_replay::replayed::replay;
use imas_replay::trace::file::TraceProcess;
use imas_runs::interruption::{InterruptedBy, Interruption};

use super::args::ReplayArgs;
use super::{file, shown};
use imas_cli::message::{self, Hinted};
use imas_engine::context::Context;

pub(crate) fn run(args: &ReplayArgs, context: &Context) -> Result<ExitCode> {
    let mut trace = file::open(&args.trace)?;
    let process = chosen(args, &trace.header.processes)?;
    let reliability = shipped();
    let interruption = Interruption::watch()?;
    let store = context.open_store().inspect_err(message::error).ok();
    let compared = compared(&args.with, DefaultComparison::DefaultSet, context, store.as_ref())?;
    let named = || args.trace.display().to_string();
    match replay(&mut trace, process, &compared, args.runs, context, &interruption).with_context(named) {
        Ok(replayed) => shown::show(args, &replayed, &reliability)?,
        Err(error) => {
            let Some(interrupted) = error.downcast_ref::<InterruptedBy>() else {
                return Err(file::advised(error));
            };
            return Ok(ExitCode::from(interrupted.exit_status()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The process that was named, or that with the most calls.
fn chosen(args: &ReplayArgs, processes: &[TraceProcess]) -> Result<TraceProcess> {
    let found = match args.process {
        Some(number) => processes.iter().find(|process| process.number == number),
        None => busiest(processes),
    };
    let found = found.filter(|process| process.counts.calls > 0).cloned();
    found.ok_or_else(|| {
        let numbers: Vec<String> = processes.iter().map(|process| process.number.to_string()).collect();
        Hinted::error(
            format!("{}: no calls to replay", args.trace.display()),
            format!("it has the processes {}", numbers.join(", ")),
        )
    })
}
