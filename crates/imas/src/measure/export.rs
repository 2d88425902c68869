// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` into files; `-` is standard output.

use std::path::Path;

use anyhow::{Context as _, Result};
use imas_cli::output::is_stdout;
use imas_cli::output_file;
use imas_linux::host::Host;
use imas_report::bench::{BenchLayout, BenchReport};
use imas_runs::journal::Journal;

use crate::command_line::bench_args::BenchArgs;
use imas_cli::message::Hinted;
use imas_cli::output;

/// Options and the files that they name.
fn named(args: &BenchArgs) -> impl Iterator<Item = (&'static str, &Path)> {
    let all = [
        ("--export-json", &args.exports.export_json),
        ("--export-csv", &args.exports.export_csv),
        ("--export-markdown", &args.exports.export_markdown),
        ("--export-runs", &args.exports.export_runs),
        ("--export-junit", &args.exports.export_junit),
    ];
    all.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?)))
}

/// Options that have standard output to themselves: nothing for people may be among it.
fn on_stdout(args: &BenchArgs) -> impl Iterator<Item = &'static str> {
    named(args).filter(|(_, file)| is_stdout(file)).map(|(option, _)| option)
}

/// Whether an option has standard output to itself.
pub(crate) fn takes_stdout(args: &BenchArgs) -> bool {
    on_stdout(args).next().is_some()
}

/// The file of raw runs, to which each run is appended.
pub(crate) fn journal(file: &Path) -> Result<Journal> {
    if is_stdout(file) {
        return Ok(Journal::stdout());
    }
    Journal::open(file).with_context(|| file.display().to_string())
}

/// Finds out before anything is measured whether the files can be written: the result of an hour must not be
/// lost at its end.
pub(crate) fn check(args: &BenchArgs) -> Result<()> {
    let others = [(args.json, "--json"), (args.show_output, "--show-output")];
    let others = others.into_iter().filter_map(|(is_given, option)| is_given.then_some(option));
    let writing: Vec<&str> = on_stdout(args).chain(others).collect();
    if takes_stdout(args) && writing.len() > 1 {
        return Err(Hinted::error(
            format!("{} would be mixed on standard output", writing.join(" and ")),
            "name a file in place of -, or leave the others out",
        ));
    }
    for (_, file) in named(args).filter(|(_, file)| !is_stdout(file)) {
        // A file that is there is opened; beside one that is not, nothing is left should the measuring be
        // interrupted.
        let tried = match std::fs::metadata(file) {
            Ok(_) => output_file::open_to_append(file).map(drop),
            Err(_) => tempfile::tempfile_in(folder_of(file)).map(drop),
        };
        tried.map_err(|error| cannot_write(file, &error))?;
    }
    Ok(())
}

/// The folder of a file that is named as the user typed it.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

fn cannot_write(file: &Path, error: &std::io::Error) -> anyhow::Error {
    Hinted::error(
        format!("{} cannot be written: {error}", file.display()),
        "name a file in a folder that is there and yours, or - for standard output",
    )
}

/// The JSON alone, of whatever report.
pub(crate) fn json(args: &BenchArgs, report: &impl serde::Serialize) -> Result<()> {
    match &args.exports.export_json {
        Some(file) if is_stdout(file) => output::json(report),
        Some(file) => to(file, &(serde_json::to_string_pretty(report)? + "\n")),
        None => Ok(()),
    }
}

/// The results of several commands as one document.
#[derive(serde::Serialize)]
struct Results<'a> {
    schema: u32,
    results: &'a [BenchReport<Host>],
}

/// Every export that was asked for, and the JSON on standard output.
pub(crate) fn write(args: &BenchArgs, reports: &[BenchReport<Host>]) -> Result<()> {
    match reports {
        [report] => as_json(args, report)?,
        results => as_json(args, &Results { schema: 1, results })?,
    }
    if let Some(file) = &args.exports.export_csv {
        to(file, &String::from_utf8(BenchReport::csv(reports)?)?)?;
    }
    if let Some(file) = &args.exports.export_markdown {
        let look = &args.look;
        let layout = BenchLayout { columns: look.columns.clone(), sort: look.sort, width: None };
        let sections: Vec<String> = reports.iter().map(|report| report.markdown(&layout)).collect();
        to(file, &sections.join("\n\n"))?;
    }
    Ok(())
}

fn as_json(args: &BenchArgs, value: &impl serde::Serialize) -> Result<()> {
    if args.json {
        output::json(value)?;
    }
    json(args, value)
}

pub(crate) fn to(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return output::text(text);
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    output_file::write(file, format!("{text}{end}").as_bytes()).map_err(|error| cannot_write(file, &error))
}
