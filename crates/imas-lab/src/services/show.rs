// SPDX-License-Identifier: Apache-2.0
//! What a journal of services says: as a table, a page, Markdown or JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use imas_report::format::counted;
use imas_report::{output, table};
use imas_service::page::{self, MeasuredService};
use imas_service::{GuardRail, ServiceGoal, ServiceRun, compare_services};

use super::journal::read;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Print the table of a README, and what one candidate for all would have done
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write a page for a browser, with a memory curve for each candidate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Judge by memory alone: other work on the machine made CPU time and latency worthless
    #[arg(long)]
    memory_only: bool,
}

/// Prints it, and writes the page.
pub(super) fn show(args: &ShowArgs) -> Result<ExitCode> {
    let runs = read(&args.file)?;
    let names = |runs: &[&ServiceRun], of: fn(&ServiceRun) -> &String| {
        let mut names: Vec<String> = Vec::new();
        for name in runs.iter().map(|run| of(run)) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    };
    let usual = [("cpu", 0.02), ("p99", 0.05)];
    let rails: Vec<GuardRail> = usual
        .into_iter()
        .filter(|_| !args.memory_only)
        .map(|(figure, most)| GuardRail { figure: figure.into(), most })
        .collect();
    let all: Vec<&ServiceRun> = runs.iter().collect();
    let compared: Vec<_> = names(&all, |run| &run.service)
        .into_iter()
        .map(|service| {
            let own: Vec<ServiceRun> = runs.iter().filter(|run| run.service == service).cloned().collect();
            let candidates = names(&own.iter().collect::<Vec<_>>(), |run| &run.candidate);
            (service, compare_services(&candidates, &own, ServiceGoal::Memory, &rails, 1))
        })
        .collect();
    let services: Vec<MeasuredService<'_>> = compared
        .iter()
        .map(|(name, comparison)| MeasuredService {
            name,
            comparison,
            runs: runs.iter().filter(|run| run.service == *name).collect(),
        })
        .collect();
    if let Some(file) = &args.html {
        let page = page::page("Services under every allocator", &services, &method(&runs, args.memory_only));
        std::fs::write(file, page.render()).with_context(|| file.display().to_string())?;
    }
    if args.json {
        output::json(&compared)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.markdown {
        let text = page::summary(&services).markdown() + "\n" + &page::one_for_all(&services);
        output::text(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = compared.iter().map(|(service, found)| {
        let system = found.candidates.iter().find(|one| one.name == imas_core::SYSTEM);
        let memory = system.and_then(|system| system.figures.get("memory"));
        let mib = memory.map_or_else(|| "-".to_owned(), |memory| imas_report::format::mib(memory.median));
        let took: Vec<f64> =
            runs.iter().filter(|run| run.service == *service).map(|run| run.took_s).collect();
        let took = imas_core::stats::median(&took).unwrap_or(0.0);
        let rounds = system.map_or(0, |system| system.rounds);
        vec![
            service.clone(),
            rounds.to_string(),
            format!("{took:.0}"),
            mib,
            found.pick.clone(),
            found.sentence.clone(),
        ]
    });
    output::text(&table::plain(&["service", "rounds", "s/run", "memory MiB", "pick", "verdict"], rows))?;
    Ok(ExitCode::SUCCESS)
}

/// How the runs were made, for the end of the page.
fn method(runs: &[ServiceRun], memory_only: bool) -> Vec<String> {
    let loads: Vec<f64> = runs.iter().filter_map(|run| run.load1).collect();
    let mut notes = vec![
        format!("{}; each starts the server, repeats its load, waits, and stops it", counted(runs.len(), "run")),
        "Changes are against system in the same round; intervals are of 95 %, and with fewer than three rounds they say nothing"
            .to_owned(),
    ];
    notes.extend(
        imas_core::stats::median(&loads)
            .map(|load| format!("Load of the machine before a run, middle one: {load:.1}")),
    );
    if memory_only {
        notes.push(
            "Other work ran on the machine meanwhile: memory counts, CPU time and latency do not".to_owned(),
        );
    }
    notes
}
