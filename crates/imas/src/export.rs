// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` into files; `-` is standard output.

use std::path::Path;

use anyhow::Result;
use imas_linux::host::Host;
use imas_report::bench::Report;
use imas_report::output::is_stdout;

use crate::cli::BenchArgs;
use crate::message::Hinted;
use crate::output;

/// Options and the files that they name.
fn named(args: &BenchArgs) -> impl Iterator<Item = (&'static str, &Path)> {
    let all = [
        ("--export-json", &args.export_json),
        ("--export-csv", &args.export_csv),
        ("--export-markdown", &args.export_markdown),
        ("--export-runs", &args.export_runs),
    ];
    all.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?)))
}

/// Options that have standard output to themselves: nothing for people may be among it.
fn on_stdout(args: &BenchArgs) -> impl Iterator<Item = &'static str> {
    named(args).filter(|(_, file)| is_stdout(file)).map(|(option, _)| option)
}

/// Whether one of them has.
pub(crate) fn takes_stdout(args: &BenchArgs) -> bool {
    on_stdout(args).next().is_some()
}

/// Finds out before anything is measured whether the files can be written: the result of an hour must not be lost at its end.
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
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(file);
        opened.map_err(|error| cannot_write(file, &error))?;
    }
    Ok(())
}

fn cannot_write(file: &Path, error: &std::io::Error) -> anyhow::Error {
    Hinted::error(
        format!("{} cannot be written: {error}", file.display()),
        "name a file in a folder that is there and yours, or - for standard output",
    )
}

pub(crate) fn write(args: &BenchArgs, report: &Report<Host>) -> Result<()> {
    match &args.export_json {
        Some(file) if is_stdout(file) => output::json(report)?,
        Some(file) => to(file, &(serde_json::to_string_pretty(report)? + "\n"))?,
        None => {}
    }
    if let Some(file) = &args.export_csv {
        to(file, &String::from_utf8(report.csv()?)?)?;
    }
    if let Some(file) = &args.export_markdown {
        to(file, &report.markdown())?;
    }
    Ok(())
}

fn to(file: &Path, text: &str) -> Result<()> {
    if is_stdout(file) {
        return output::text(text);
    }
    std::fs::write(file, text).map_err(|error| cannot_write(file, &error))
}
