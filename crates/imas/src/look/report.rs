// SPDX-License-Identifier: Apache-2.0
//! `imas report --html`: what is known, as one page, from the store or from files of raw runs.

mod files;
mod stored;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::output_file;
use imas_report::html;
use serde_json::json;

use crate::command_line::cli::{Places, ReportArgs};
use imas_cli::message::Hinted;
use imas_cli::output;
use imas_engine::context::Context;

pub(crate) fn run(args: &ReportArgs, places: &Places) -> Result<ExitCode> {
    let report = match args.data.as_slice() {
        [] => stored::page(args, &Context::new(places)?)?,
        files => {
            let program = args.program.as_deref();
            files::page(files, program).map_err(|error| program_among_files(error, files, program))?
        }
    };
    if report.programs.is_empty() {
        return Err(Hinted::error(
            "there is nothing to report",
            "let IMAS learn with 'imas run -- PROGRAM', or give files of raw runs: --data FILE...",
        ));
    }
    let page = html::render(&report);
    output_file::write(&args.html, page.as_bytes()).map_err(|error| {
        Hinted::error(
            format!("{}: cannot be written: {error}", args.html.display()),
            "--html names the file to write; its folder must exist",
        )
    })?;
    let programs: Vec<&str> = report.programs.iter().map(|p| p.name.as_str()).collect();
    match args.json.json {
        true => output::json(&json!({ "schema": 1, "written": args.html, "programs": programs }))?,
        false => output::text(&format!(
            "written: {} ({}, {} kB)",
            args.html.display(),
            counted(programs.len(), "program"),
            page.len() / 1000
        ))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// `--data FILE PROGRAM`: the option takes all words after it, so the program is taken for a file.
fn program_among_files(error: anyhow::Error, files: &[PathBuf], program: Option<&OsStr>) -> anyhow::Error {
    match files {
        [.., file, last] if program.is_none() && !last.exists() && file.exists() => {
            let last = last.display();
            let hint = format!(
                "if it is a program, name it first: imas report {last} --html FILE --data {}",
                file.display()
            );
            Hinted::error(format!("{last}: there is no such file of runs"), hint)
        }
        _ => error,
    }
}
