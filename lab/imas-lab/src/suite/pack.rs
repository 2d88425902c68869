// SPDX-License-Identifier: Apache-2.0
//! `imas-lab suite pack`: raw runs made small.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;

use super::packed;
use crate::study_args::SuitePackArgs;
use imas_cli::message::{self, Hinted};
use imas_cli::output;
use imas_runs::journal;

pub(super) fn run(args: &SuitePackArgs) -> Result<ExitCode> {
    let texts = args.files.iter().map(|file| journal::read_or_hint(file)).collect::<Result<Vec<_>>>()?;
    let runs = journal::read_data(&args.files)?;
    if runs.runs.is_empty() {
        return Err(Hinted::error(
            "there is no run in these files",
            "give files that 'imas-lab suite run' or 'imas bench --export-runs' wrote",
        ));
    }
    let packed = packed::write(&texts, &args.to).map_err(|error| {
        Hinted::error(
            format!("{}: cannot be written: {error}", args.to.display()),
            "--to names the file to write; its folder must exist",
        )
    })?;
    if packed.skipped > 0 {
        message::warning(&format!("{} lines are no runs and are not in it", packed.skipped));
    }
    let (runs, bytes) = (runs.runs.len(), packed.bytes);
    match args.json.json {
        true => output::json(&json!({ "schema": 1, "written": args.to, "runs": runs, "bytes": bytes }))?,
        false => output::text(&format!("written: {} ({runs} runs, {} kB)", args.to.display(), bytes / 1000))?,
    }
    Ok(ExitCode::SUCCESS)
}
