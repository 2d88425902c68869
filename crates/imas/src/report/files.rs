// SPDX-License-Identifier: Apache-2.0
//! The page of files of raw runs: picks and figures are those that `imas bench` printed.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;
use imas_core::latency::Latency;
use imas_core::simulate::data::{Data, RawRun, RunKind};
use imas_core::split::Split;
use imas_report::html::{MemorySection, ProgramFindings, ProgramSection, ReportPage};

use super::counted;
use crate::message::Hinted;
use imas_view::added_up;

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
        programs: names.into_iter().map(|name| of_raw(&data, name)).collect(),
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
            imas_view::when::when(header.began_unix_s)
        ));
    }
    notes
}

fn of_raw(data: &Data, name: &str) -> ProgramSection {
    let candidates = data.candidates_of(name);
    let counted = |candidate: &str| counted_of(data, name, candidate);
    let latencies = candidates.iter().flat_map(|candidate| {
        let of_each: Vec<Latency> = counted(candidate).iter().filter_map(|run| run.latency.clone()).collect();
        added_up(candidate, &of_each)
    });
    let splits = candidates.iter().filter_map(|candidate| {
        let of_each: Vec<Split> = counted(candidate).iter().filter_map(|run| run.split).collect();
        Some(((*candidate).to_owned(), Split::mean(&of_each)?))
    });
    let memory = candidates.iter().filter_map(|candidate| memory(candidate, &counted(candidate)));
    let (runs, comparison) = data.observed(name).compare(&data.options(name));
    ProgramSection {
        name: name.to_owned(),
        findings: ProgramFindings::of_runs(&runs, comparison),
        runs,
        latencies: latencies.collect(),
        splits: splits.collect(),
        memory: memory.collect(),
        remarks: candidates.iter().filter_map(|candidate| failed(data, name, candidate)).collect(),
        ..ProgramSection::default()
    }
}

/// How many runs of a candidate failed, and why the first did.
fn failed(data: &Data, program: &str, candidate: &str) -> Option<String> {
    let failed: Vec<&RawRun> = runs_of(data, program, candidate).filter(|run| !run.ok).collect();
    let first = failed.first()?;
    let why = first.why.clone().unwrap_or_else(|| format!("exit {}", first.exit));
    Some(format!("{candidate}: {} of its runs failed ({why})", failed.len()))
}

fn runs_of<'a>(data: &'a Data, program: &str, candidate: &str) -> impl Iterator<Item = &'a RawRun> {
    data.runs.iter().filter(move |run| run.program == program && run.candidate == candidate)
}

/// The counted runs of a candidate; none of one with a run that failed.
fn counted_of<'a>(data: &'a Data, program: &str, candidate: &str) -> Vec<&'a RawRun> {
    match runs_of(data, program, candidate).any(|run| !run.ok) {
        true => vec![],
        false => runs_of(data, program, candidate).filter(|run| run.kind == RunKind::Counted).collect(),
    }
}

/// Memory of the first run that has it. A mean of runs of different speed would hide the course over time.
fn memory(candidate: &str, counted: &[&RawRun]) -> Option<MemorySection> {
    let curve = counted.iter().find_map(|run| run.curve.as_ref())?;
    Some(MemorySection { candidate: candidate.to_owned(), looks: curve.looks() })
}
