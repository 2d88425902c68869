// SPDX-License-Identifier: Apache-2.0
//! `imas suite pack`: raw runs made small.

use std::process::ExitCode;

use anyhow::Result;
use imas_suite::packed;
use serde_json::json;

use crate::message::{self, Hinted};
use crate::study_args::SuitePackArgs;
use crate::{output, simulate};

pub(super) fn run(args: &SuitePackArgs) -> Result<ExitCode> {
    let texts = args.files.iter().map(|file| simulate::read(file)).collect::<Result<Vec<_>>>()?;
    let data = simulate::read_data(&args.files)?;
    if data.runs.is_empty() {
        return Err(Hinted::error(
            "there is no run in these files",
            "give files that 'imas suite run' or 'imas bench --export-runs' wrote",
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
    let (runs, bytes) = (data.runs.len(), packed.bytes);
    match args.json.json {
        true => output::json(&json!({ "schema": 1, "written": args.to, "runs": runs, "bytes": bytes }))?,
        false => output::text(&format!("written: {} ({runs} runs, {} kB)", args.to.display(), bytes / 1000))?,
    }
    Ok(ExitCode::SUCCESS)
}
