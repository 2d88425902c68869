// SPDX-License-Identifier: Apache-2.0
//! Memory of each service, how much of it could be saved at most, and how much the pick saves.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::format::mib;
use imas_cli::message::Hinted;
use imas_cli::{output, table};
use imas_study::services::{MemoryUse, Moment};

use super::journal::read_whole;
use super::show::{compared, measured};

#[derive(Debug, Args)]
pub(super) struct PossibleArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints the use of memory under system.
pub(super) fn possible(args: &PossibleArgs) -> Result<ExitCode> {
    let journal = read_whole(&args.file)?;
    let compared = compared(&journal.runs, false);
    let services = measured(&compared, &journal.runs);
    let all: Vec<MemoryUse> =
        services.iter().flat_map(|service| MemoryUse::of(service, &journal.counted)).collect();
    if all.is_empty() {
        return Err(Hinted::error(
            format!("no run of {} says what is live", args.file.display()),
            "runs of an older IMAS do not; make new ones with 'imas-lab services run'",
        ));
    }
    output::json_or(args.json, &all, || text(&all))?;
    Ok(ExitCode::SUCCESS)
}

fn text(all: &[MemoryUse]) -> String {
    let heads = [
        "service",
        "at the end of",
        "resident MiB",
        "live",
        "kept by threads",
        "free blocks",
        "free pages",
        "stacks",
        "other",
        "possible",
        "reached",
        "by",
    ];
    let row = |one: &MemoryUse| {
        let when = if one.moment == Moment::Load { "the load" } else { "the pause" };
        let parts = one.parts.map_or_else(
            || [(); 5].map(|()| "-".to_owned()),
            |parts| [parts.cached, parts.free_blocks, parts.free_pages, parts.stacks, parts.other].map(mib),
        );
        let own = [one.service.clone(), when.to_owned(), mib(one.resident), mib(one.live)];
        let saved = [one.possible, one.reached].map(mib);
        own.into_iter().chain(parts).chain(saved).chain([one.pick.clone()]).collect()
    };
    format!(
        "Memory under system by its use, MiB, medians. Live, kept and free are of glibc's heaps; where another malloc \
         serves, live is what the hook counted. Settings of a language runtime save memory of its own heap, which no \
         allocator could.\n\n{}",
        table::plain(&heads, all.iter().map(row))
    )
}
