// SPDX-License-Identifier: Apache-2.0
//! `imas report --html`: what is known, as one page, from the store or from files of raw runs.
//!
//! The page of files of raw runs: picks and figures are those that `imas bench` printed.
//!
//! The page of what the store holds: `imas show` has the same picks and figures.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::message::Hinted;
use imas_cli::{output, output_file};
use imas_core::raw_runs::data::Data;
use imas_engine::context::Context;
use imas_engine::program_view::state;
use imas_engine::section::{notes, section};
use imas_report::html::{self, ProgramSection, ReportPage};
use imas_store::Store;
use imas_store::samples::StoredProgram;
use serde_json::json;

use crate::command_line::cli::{Places, ReportArgs, RulesArgs};
use crate::stored::find;

pub(crate) fn run(args: &ReportArgs, places: &Places) -> Result<ExitCode> {
    let report = match args.data.as_slice() {
        [] => page_of_store(args, &Context::new(places)?)?,
        files => {
            let program = args.program.as_deref();
            page_of_files(files, program).map_err(|error| program_among_files(error, files, program))?
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

fn page_of_files(files: &[PathBuf], program: Option<&OsStr>) -> Result<ReportPage> {
    let data = imas_runs::journal::read_data(files)?;
    let mut names: Vec<&str> = data.runs.iter().map(|run| run.program.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    if let Some(word) = program {
        let wanted = word.to_string_lossy();
        if !names.contains(&&*wanted) {
            let hint = format!("these files have {}", names.join(", "));
            let what = match data.dropped().get(&*wanted) {
                Some(why) => format!("{wanted}: has no runs: {why}"),
                None => format!("{wanted}: no such program in the runs"),
            };
            return Err(Hinted::error(what, hint));
        }
        names.retain(|name| *name == wanted);
    }
    Ok(ReportPage {
        title: program.map_or_else(
            || "Memory allocators, program by program".to_owned(),
            |word| word.to_string_lossy().into_owned(),
        ),
        notes: notes_of_files(&data, program),
        programs: names.into_iter().map(|name| imas_engine::section::runs_section(&data, name)).collect(),
    })
}

fn notes_of_files(data: &Data, program: Option<&OsStr>) -> Vec<String> {
    let is_shown = |name: &str| program.is_none_or(|wanted| wanted.to_string_lossy() == name);
    let shown = data.runs.iter().filter(|run| is_shown(&run.program)).count();
    let mut notes = vec![format!(
        "From {}. Every pick here was chosen by the runs shown; 'imas-lab study selector' judges picks on others.",
        counted(shown, "raw run")
    )];
    let has_runs = |name: &str| data.runs.iter().any(|run| run.program == name);
    let left_out = |(name, why): (&&str, &&str)| match has_runs(name) {
        true => format!("{name} ({why}; its runs from before count)"),
        false => format!("{name} ({why})"),
    };
    let left_out: Vec<String> = match program {
        None => data.dropped().iter().map(left_out).collect(),
        Some(_) => vec![],
    };
    if !left_out.is_empty() {
        notes.push(format!("Left out: {}.", left_out.join("; ")));
    }
    if let Some(header) = data.headers.last() {
        let text = |key: &str| header.host[key].as_str().unwrap_or("unknown").to_owned();
        notes.push(format!(
            "{}, {} CPUs, {}, {}; begun {}.",
            text("cpu"),
            data.cpus(),
            text("kernel"),
            text("libc"),
            imas_cli::format::when(header.began_unix_s)
        ));
    }
    notes
}

fn page_of_store(args: &ReportArgs, context: &Context) -> Result<ReportPage> {
    let store = crate::stored::view(context)?;
    let programs = match &args.program {
        Some(word) => vec![find(&store, word)?],
        None => store.programs()?,
    };
    let title = match (&args.program, programs.first()) {
        (Some(_), Some(program)) => program.to_string(),
        _ => "Memory allocators: what IMAS knows".to_owned(),
    };
    let programs = programs.into_iter().map(|program| of_program(context, &store, program));
    Ok(ReportPage { title, notes: notes(), programs: programs.collect::<Result<_>>()? })
}

fn of_program(context: &Context, store: &Store, program: StoredProgram) -> Result<ProgramSection> {
    section(store, &state(context, store, program, &RulesArgs::of_environment())?)
}
