// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` into files; `-` is standard output.

use std::path::Path;

use anyhow::Result;
use imas_linux::host::Host;
use imas_report::bench::Report;

use crate::cli::BenchArgs;
use crate::message::Hinted;
use crate::output;

/// Finds out before anything is measured whether the files can be written: the result of an hour must not be lost at its end.
pub(crate) fn check(args: &BenchArgs) -> Result<()> {
    let files =
        [&args.export_json, &args.export_csv, &args.export_markdown, &args.export_runs].into_iter().flatten();
    for file in files.filter(|file| *file != Path::new("-")) {
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
    if let Some(file) = &args.export_json {
        to(file, &(serde_json::to_string_pretty(report)? + "\n"))?;
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
    if file == Path::new("-") {
        return output::text(text);
    }
    std::fs::write(file, text).map_err(|error| cannot_write(file, &error))
}
