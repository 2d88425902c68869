// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite show`: what the raw runs say so far.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::{format, table};
use imas_core::candidate::SYSTEM;
use imas_core::judgement::FigureAnswer;
use imas_core::run::RunKind;
use imas_core::stats::Interval;
use imas_suite::{ProgramSummary, SuiteError, SuiteSummary, Trouble};
use serde_json::json;

use super::sessions::Sessions;
use crate::study_args::SuiteShowArgs;
use imas_cli::message::Hinted;
use imas_cli::{message, output};

/// Seed of the resampling for the intervals.
const SEED: u64 = 1;
/// A noise above this is worth reporting.
const NOISY: f64 = 0.03;

pub(super) fn run(args: &SuiteShowArgs) -> Result<ExitCode> {
    let path = super::out(&args.places)?.join(super::FILE);
    if !path.is_file() {
        return Err(Hinted::error(
            format!("{}: there are no runs", path.display()),
            "'imas-lab suite run' makes them; --out names their folder",
        ));
    }
    show(&path, args.json.json)
}

/// Shows a record; the answer is no when not one program could be compared, unless runs were only to be
/// counted.
pub(super) fn show(path: &Path, as_json: bool) -> Result<ExitCode> {
    let bytes = std::fs::read(path)
        .map_err(|source| super::hinted(SuiteError::File { path: path.to_owned(), source }))?;
    let Sessions { runs: lines, dropped, .. } = Sessions::of(&String::from_utf8_lossy(&bytes));
    let summary = SuiteSummary::of(&lines, &dropped, SEED);
    if as_json {
        let value = json!({ "schema": 1, "runs": lines.len(), "record": path, "summary": summary });
        output::json(&value)?;
    } else {
        output::text(&text(&summary))?;
        remarks(&summary, path);
    }
    let compared = summary.programs.iter().any(|program| program.rounds > 0);
    let only_counted =
        lines.iter().any(|line| line.ok) && lines.iter().all(|line| line.kind == RunKind::Counted);
    Ok(if compared || only_counted { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn text(summary: &SuiteSummary) -> String {
    let names: Vec<&str> = summary.overall.iter().map(|overall| overall.candidate.as_str()).collect();
    let head = ["program", "rounds", "CPU", "+-", "MiB"].into_iter().chain(names.iter().copied());
    let head: Vec<&str> = head.collect();
    let rows = summary.programs.iter().map(|program| row(program, &names));
    let programs = table::plain(&head, rows);
    let head = ["candidate", "programs", "left out of", "CPU", "memory"];
    let change =
        |ratio: Option<f64>| ratio.map_or_else(dash, |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0));
    let rows = summary.overall.iter().map(|overall| {
        vec![
            overall.candidate.clone(),
            overall.programs.to_string(),
            overall.left_out.to_string(),
            change(overall.cpu),
            change(overall.memory),
        ]
    });
    format!(
        "{programs}\nPer candidate: change of CPU / memory against system in percent; * beyond the noise.\n\n{}\nGeometric means over programs against system.\n",
        table::plain(&head, rows)
    ) + &left_out(summary)
}

/// Everything that is in no figure, or was dropped on the way, with the reason; nothing when all is.
fn left_out(summary: &SuiteSummary) -> String {
    let rounds_of = |name: &str| summary.programs.iter().find(|p| p.name == name).map_or(0, |p| p.rounds);
    let programs = summary.left_out.iter().map(|(name, why)| {
        let why = match rounds_of(name) {
            0 => why.clone(),
            rounds => format!("{why} (dropped after {rounds} rounds, which count)"),
        };
        vec![name.clone(), "all".to_owned(), why]
    });
    let candidates = summary.troubles.iter().map(|trouble| {
        let Trouble { why, runs, of, message, .. } = trouble;
        let why = format!("{why} in {runs} of {of} runs: {message}");
        vec![trouble.program.clone(), trouble.candidate.clone(), why]
    });
    let rows: Vec<Vec<String>> = programs.chain(candidates).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\nLeft out, and why:\n{}", table::plain(&["program", "under", "why"], rows.into_iter()))
}

fn dash() -> String {
    "-".to_owned()
}

fn row(program: &ProgramSummary, names: &[&str]) -> Vec<String> {
    let find = |name: &str| program.comparison.candidates.iter().find(|c| c.name == name);
    let system = find(SYSTEM).and_then(|system| system.median.as_ref());
    let mut row = vec![
        program.name.clone(),
        program.rounds.to_string(),
        system.map_or_else(dash, |median| format::seconds(median.cpu_s)),
        program.noise.map_or_else(dash, |noise| format!("{:.1} %", noise * 100.0)),
        system.map_or_else(dash, |median| format::mib(median.mean_bytes as f64)),
    ];
    row.extend(names.iter().map(|name| match program.left_out.get(*name) {
        Some(why) => why.clone(),
        None => cell(program, name),
    }));
    row
}

fn cell(program: &ProgramSummary, name: &str) -> String {
    let comparison = &program.comparison;
    let Some(result) = comparison.candidates.iter().find(|one| one.name == name) else { return dash() };
    let is_proven = |figure: &str| {
        let figure = comparison.judgement.candidate(name).and_then(|one| one.figures.get(figure));
        figure.is_some_and(|one| matches!(one.answer, FigureAnswer::Better | FigureAnswer::Worse))
    };
    let percent = |ratio: Option<Interval>, figure: &str| {
        let star = if is_proven(figure) { "*" } else { "" };
        ratio.map_or_else(dash, |ratio| format!("{:+.0}{star}", (ratio.mid - 1.0) * 100.0))
    };
    format!("{} / {}", percent(result.ratio.cpu, "cpu"), percent(result.ratio.memory, "memory"))
}

fn remarks(summary: &SuiteSummary, path: &Path) {
    if let Some(noise) = summary.noise.filter(|noise| *noise > NOISY) {
        message::warning(&format!(
            "the machine is noisy: CPU time under system alone is certain to +-{:.1} % only (median over the programs)\nhint: run it on a quiet machine, or make more rounds with --resume --rounds N",
            noise * 100.0
        ));
    }
    message::say(&format!("imas: the raw runs are in {}", path.display()));
}
