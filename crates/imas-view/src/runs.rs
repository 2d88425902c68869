// SPDX-License-Identifier: Apache-2.0
//! A program of a file of raw runs as a part of a page.

use imas_core::latency::Latency;
use imas_core::raw_runs::data::Data;
use imas_core::run::{RawRun, RunKind};
use imas_core::split::Split;
use imas_report::html::{MemorySection, ProgramFindings, ProgramSection};

use crate::added_up;

/// What the runs of the program say: picks and figures are those that `imas bench` printed.
#[must_use]
pub fn section(data: &Data, name: &str) -> ProgramSection {
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
