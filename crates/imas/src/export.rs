// SPDX-License-Identifier: Apache-2.0
//! The result of `imas bench` into files; `-` is standard output.

use std::path::Path;

use anyhow::{Context, Result};
use imas_linux::host::Host;
use imas_report::bench::Report;

use crate::cli::BenchArgs;
use crate::output;

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
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}
