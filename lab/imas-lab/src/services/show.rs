// SPDX-License-Identifier: Apache-2.0
//! Contents of a journal of services: as a table, a page, Markdown or JSON.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Args, ValueHint};
use imas_cli::format::counted;
use imas_cli::{output, table};
use imas_core::run::RawRun;
use imas_core::server_bench::{ServiceComparison, ServiceOptions, compare_services};
use imas_report::page::{Block, PageSection};
use imas_report::service as page;
use imas_report::service::MeasuredService;
use imas_study::services::{CandidateForAll, JournalJudgement, JudgeOptions, MemoryUse, Moment, readme};

use super::journal::{ServiceJournal, read_whole};
use super::sets::rails;

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Print the table of the README, with what one candidate for all would have done
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Write a page for a browser, with a memory curve for each candidate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
    /// Judge by memory alone: other work on the machine made CPU time and latency worthless
    #[arg(long)]
    memory_only: bool,
}

/// Prints what a journal says, and writes the page.
pub(super) fn show(args: &ShowArgs) -> Result<ExitCode> {
    let ServiceJournal { runs, counted, own_allocator } = read_whole(&args.file)?;
    let compared = compared(&runs, args.memory_only);
    let services = measured(&compared, &runs);
    let options = JudgeOptions {
        rails: rails(args.memory_only),
        least_bytes: 0.0,
        own_allocator: &own_allocator,
        least_heap_bytes: None,
    };
    if let Some(file) = &args.html {
        let mut page =
            page::page("Services under every allocator", &services, &method(&runs, args.memory_only));
        if services.len() > 1 {
            page.sections.insert(1, for_all(&JournalJudgement::of(&runs, &options)));
        }
        imas_cli::output_file::write(file, page.render().as_bytes())
            .with_context(|| file.display().to_string())?;
    }
    if args.json {
        output::json(&compared)?;
    } else if args.markdown {
        output::text(&readme(&services, &JournalJudgement::of(&runs, &options)))?;
    } else {
        let heads = ["service", "rounds", "s/run", "memory MiB", "possible, reached MiB", "pick", "verdict"];
        output::text(&table::plain(&heads, services.iter().map(|service| row(service, &counted))))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Results that one candidate for all services would have had.
fn for_all(judgement: &JournalJudgement) -> PageSection {
    let table = CandidateForAll::table(&judgement.for_all);
    let note = judgement.of_fewer_services();
    let note = (!note.is_empty()).then_some(Block::Paragraph(note));
    let blocks = std::iter::once(Block::Table(table)).chain(note).collect();
    PageSection::new("one-for-all", "One candidate for all", blocks)
}

/// Services with their comparisons and runs.
pub(super) fn measured<'a>(
    compared: &'a [(String, ServiceComparison)],
    runs: &'a [RawRun],
) -> Vec<MeasuredService<'a>> {
    let of = |(name, comparison): &'a (String, ServiceComparison)| MeasuredService {
        name,
        comparison,
        runs: runs.iter().filter(|run| run.program == *name).collect(),
    };
    compared.iter().map(of).collect()
}

/// Services, each with its comparison, in the order in which they were measured first.
pub(super) fn compared(runs: &[RawRun], memory_only: bool) -> Vec<(String, ServiceComparison)> {
    let options = ServiceOptions { rails: rails(memory_only), seed: 1, ..ServiceOptions::default() };
    let comparison = |service: String| {
        let own: Vec<RawRun> = runs.iter().filter(|run| run.program == service).cloned().collect();
        let candidates = names(&own, |run| &run.candidate);
        (service, compare_services(&candidates, &own, &options))
    };
    names(runs, |run| &run.program).into_iter().map(comparison).collect()
}

/// Names that `of` returns for the runs, each once.
fn names(runs: &[RawRun], of: fn(&RawRun) -> &String) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in runs.iter().map(of) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// One service in the table for the terminal.
fn row(service: &MeasuredService<'_>, counted: &[RawRun]) -> Vec<String> {
    let MeasuredService { name, comparison, runs } = service;
    let system = comparison.candidates.iter().find(|one| one.name == imas_core::SYSTEM);
    let memory = system.and_then(|system| system.figures.get("memory"));
    let mib = memory.map_or_else(|| "-".to_owned(), |memory| imas_cli::format::mib(memory.median));
    let took: Vec<f64> = runs.iter().map(|run| run.wall_s).collect();
    let took = imas_core::stats::median(&took).unwrap_or(0.0);
    let rounds = system.map_or(0, |system| system.rounds);
    let (pick, sentence) = (comparison.pick().to_owned(), page::sentence(comparison));
    let saving = saving(service, counted);
    vec![(*name).to_owned(), rounds.to_string(), format!("{took:.0}"), mib, saving, pick, sentence]
}

/// Memory that could be saved at most and memory that the pick saves, MiB, under load and after the pause.
/// `-` where no run says how much is live.
fn saving(service: &MeasuredService<'_>, counted: &[RawRun]) -> String {
    let mib = imas_cli::format::mib;
    let parts = MemoryUse::of(service, counted).into_iter().map(|one| {
        let when = if one.moment == Moment::Load { "" } else { "pause " };
        format!("{when}{}, {}", mib(one.possible), mib(one.reached))
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { "-".to_owned() } else { parts.join("; ") }
}

/// How the runs were made, for the end of the page.
fn method(runs: &[RawRun], memory_only: bool) -> Vec<String> {
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
