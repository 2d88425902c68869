// SPDX-License-Identifier: Apache-2.0
//! `imas list`: every candidate, usable or not, and why not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use imas_engine::candidates::version;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::runtime::RuntimeSettings;
use serde::Serialize;

use crate::command_line::cli::ListArgs;
use imas_cli::{message, output};
use imas_engine::context::Context;

/// One candidate's row; the shape of `--json`.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    available: bool,
    library: Option<PathBuf>,
    version: String,
    origin: String,
    licence: String,
    environment: BTreeMap<String, String>,
    /// Settings of a runtime: the candidate is for its programs alone.
    runtime: Option<RuntimeSettings>,
    /// Reason why the candidate is not available.
    reason: Option<String>,
    /// File and line of the catalogue.
    defined: String,
    summary: String,
    default: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    schema: u32,
    candidates: Vec<Row>,
    /// Entries and files of the catalogue that could not be used.
    problems: Vec<String>,
}

pub(crate) fn run(args: &ListArgs, context: &Context) -> Result<ExitCode> {
    // Only a cache here: what takes seconds to find out about libraries is kept. Listing works without a
    // store.
    let store = context.open_store().ok();
    let candidates = context.catalogue.all().filter(|c| c.default || !args.default);
    let rows =
        candidates.map(|candidate| row(candidate, context.obstacle(candidate, store.as_ref()))).collect();
    let problems: Vec<_> = context.catalogue.problems().iter().map(ToString::to_string).collect();
    for problem in &problems {
        message::warning(&format!("catalogue: {problem}"));
    }
    let listing = Listing { schema: 1, candidates: rows, problems };
    for (row, reason) in listing.candidates.iter().filter_map(|row| Some((row, row.reason.as_ref()?))) {
        // A user can correct an entry that the user added, so its fault is reported. For the built-in ones
        // the table is enough.
        if context.catalogue.find(&row.name).is_some_and(|candidate| candidate.added) {
            message::warning(&format!("catalogue: {}: candidate '{}': {reason}", row.defined, row.name));
        }
    }
    for candidate in context.catalogue.all() {
        for fact in &candidate.accept {
            let fact = imas_linux::contract::in_words(fact);
            message::warning(&format!(
                "{} is used although it may break malloc's contract: {fact}",
                candidate.name
            ));
        }
    }
    output::json_or(args.json.json, &listing, || table(&listing, width()))?;
    Ok(ExitCode::SUCCESS)
}

fn row(candidate: &CatalogueCandidate, obstacle: Option<String>) -> Row {
    Row {
        name: candidate.name.clone(),
        available: obstacle.is_none(),
        library: candidate.library.clone(),
        version: full_version(candidate),
        origin: candidate.origin.clone(),
        licence: candidate.licence.clone(),
        environment: candidate.environment.clone(),
        runtime: candidate.runtime.clone(),
        reason: obstacle,
        defined: format!("{}:{}", candidate.defined.0.display(), candidate.defined.1),
        summary: candidate.summary.clone(),
        default: candidate.default,
    }
}

/// The version, with the package's for what the distribution brings.
fn full_version(candidate: &CatalogueCandidate) -> String {
    let package = candidate.needs.as_deref().and_then(imas_linux::host::package_version);
    match package {
        Some(package) => format!("{package} ({})", version(candidate)),
        None => version(candidate),
    }
}

/// Width of the terminal, or the one in COLUMNS; None elsewhere, where a row is a line that programs can
/// read.
fn width() -> Option<usize> {
    let terminal = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    let columns = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.filter(|width| *width > 0).or_else(columns)
}

fn table(listing: &Listing, width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = listing
        .candidates
        .iter()
        .map(|row| {
            let state = row
                .reason
                .clone()
                .map_or_else(|| row.summary.clone(), |reason| format!("not usable: {reason}"));
            let used = if row.default { "yes" } else { "" };
            let runtime = row.runtime.as_ref().map_or("", |settings| settings.runtime.id());
            vec![
                row.name.clone(),
                runtime.to_owned(),
                row.version.clone(),
                row.origin.clone(),
                used.to_owned(),
                state,
            ]
        })
        .collect();
    let head = ["candidate", "only for", "version", "origin", "tested", "what it is"];
    imas_cli::table::fitted(&head, &rows, width)
}
