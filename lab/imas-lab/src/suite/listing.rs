// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite list`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::table;
use imas_suite::{Place, Set, Suite, SuiteProgram, packages};
use serde::Serialize;

use super::fit::{Fit, fit};
use crate::study_args::SuiteListArgs;
use imas_cli::output;
use imas_engine::context::Context;

/// One program; the shape of `--json`.
#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    category: &'a str,
    packages: BTreeSet<String>,
    command: &'a str,
    installed: bool,
    /// Sets that the program is in, besides `full`.
    sets: &'a [Set],
    threads: u32,
    /// Elapsed seconds that the suite expects.
    seconds: f64,
    /// The program is a server under a load.
    server: bool,
    /// Why the program is not measured here. None where it is.
    excluded: Option<String>,
}

#[derive(Debug, Serialize)]
struct Listing<'a> {
    schema: u32,
    programs: Vec<Row<'a>>,
}

pub(super) fn run(args: &SuiteListArgs, context: &Context) -> Result<ExitCode> {
    let suite = super::read(context)?;
    let place = super::place(args.places.cache.as_deref(), context)?;
    let installed = packages::installed();
    let set = args.set.map_or(Set::Full, super::set);
    let rows = suite.set(set).map(|program| row(program, &suite, &installed, &place)).collect();
    let listing = Listing { schema: 1, programs: rows };
    output::json_or(args.json.json, &listing, || text(&listing))?;
    Ok(ExitCode::SUCCESS)
}

fn row<'a>(program: &'a SuiteProgram, suite: &Suite, installed: &BTreeSet<String>, place: &Place) -> Row<'a> {
    let wanted = suite.packages(program);
    let here = wanted.is_subset(installed) && packages::missing_tools(program, place).is_empty();
    let excluded = match fit(program, place) {
        Fit::No(why) => Some(why),
        Fit::Absent if here => Some(format!("its packages have no {}", program.executable())),
        Fit::Yes(_) | Fit::Absent => None,
    };
    let registries = [&program.pip, &program.npm, &program.cargo].into_iter().flatten().cloned();
    Row {
        name: &program.name,
        category: &program.category,
        packages: wanted.into_iter().chain(registries).collect(),
        command: &program.command,
        installed: here,
        sets: &program.sets,
        threads: program.threads,
        seconds: program.seconds,
        server: program.server.is_some(),
        excluded,
    }
}

fn text(listing: &Listing<'_>) -> String {
    let head =
        ["name", "category", "installed", "seconds", "threads", "sets", "command, or why it is not run"];
    let rows = listing.programs.iter().map(|row| {
        let sets: Vec<String> = row.sets.iter().map(|set| format!("{set:?}").to_lowercase()).collect();
        let command: String = row.command.chars().take(60).collect();
        vec![
            row.name.to_owned(),
            row.category.to_owned(),
            if row.installed { "yes" } else { "no" }.to_owned(),
            format!("{:.1}", row.seconds),
            row.threads.to_string(),
            sets.join(" "),
            row.excluded.as_ref().map_or(command, |why| format!("not run: {why}")),
        ]
    });
    let excluded = listing.programs.iter().filter(|row| row.excluded.is_some()).count();
    let installed = listing.programs.iter().filter(|row| row.installed).count();
    let sum =
        format!("{}, {installed} installed, {excluded} not run", counted(listing.programs.len(), "program"));
    format!("{}\n{sum}", table::plain(&head, rows))
}
