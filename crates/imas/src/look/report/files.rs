// SPDX-License-Identifier: Apache-2.0
//! The page of files of raw runs: picks and figures are those that `imas bench` printed.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;
use imas_core::raw_runs::data::Data;
use imas_report::html::ReportPage;

use super::counted;
use imas_cli::message::Hinted;

pub(super) fn page(files: &[PathBuf], program: Option<&OsStr>) -> Result<ReportPage> {
    let data = imas_runs::data::read_data(files)?;
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
            imas_cli::when::when(header.began_unix_s)
        ));
    }
    notes
}
