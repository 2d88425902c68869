// SPDX-License-Identifier: Apache-2.0
//! `imas report --html`: what is known, as one page, from the store or from files of raw runs.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use imas_core::bench::{CandidateRuns, Run, prepare};
use imas_core::latency::Latency;
use imas_core::record::in_order_of_time;
use imas_core::sample::{Ended, Sample};
use imas_core::simulate::data::{Data, RawRun, RunKind};
use imas_core::split::Split;
use imas_core::{SYSTEM, TrialRecord};
use imas_report::html::{self, Decision, Memory, Program, Report};
use imas_store::Store;
use serde_json::json;

use crate::cli::{Places, ReportArgs, RulesArgs};
use crate::context::Context;
use crate::message::Hinted;
use crate::output;
use crate::profile::find;
use crate::show::state;

/// Decisions shown of a program, the newest.
const DECISIONS: u32 = 100;

pub(crate) fn run(args: &ReportArgs, places: &Places) -> Result<ExitCode> {
    let report = match args.data.as_slice() {
        [] => of_store(args, &Context::new(places)?)?,
        files => {
            let program = args.program.as_deref();
            of_files(files, program).map_err(|error| program_among_files(error, files, program))?
        }
    };
    if report.programs.is_empty() {
        return Err(Hinted::error(
            "there is nothing to report",
            "let IMAS learn with 'imas run -- PROGRAM', or give files of raw runs: --data FILE...",
        ));
    }
    let page = html::render(&report)?;
    std::fs::write(&args.html, &page).map_err(|error| {
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

fn counted(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `--data FILE PROGRAM`: the option takes all words behind it, and the last of them is no file.
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

fn of_store(args: &ReportArgs, context: &Context) -> Result<Report> {
    let store = context.open_store()?;
    crate::harvest::harvest_quietly(context, &store);
    let programs = match &args.program {
        Some(word) => vec![find(&store, word)?],
        None => store.programs()?,
    };
    let title = match (&args.program, programs.first()) {
        (Some(_), Some(program)) => program.to_string(),
        _ => "Memory allocators: what IMAS knows".to_owned(),
    };
    let programs = programs.into_iter().map(|program| of_program(context, &store, program));
    Ok(Report { title, notes: notes_of_store(), programs: programs.collect::<Result<_>>()? })
}

fn notes_of_store() -> Vec<String> {
    vec![
        "From the trials in the store: each is one execution of the program on its own work, every call counted. Trials are compared in order, the first of a \
         candidate with the first of system and so on; the work may have differed."
            .to_owned(),
    ]
}

fn of_program(context: &Context, store: &Store, program: imas_store::samples::Program) -> Result<Program> {
    let state = state(context, store, program, &RulesArgs::of_environment())?;
    let mut decisions = store.decisions(state.known.program.id, DECISIONS)?;
    decisions.reverse();
    let records: Vec<&TrialRecord> = in_order_of_time(&state.known.records)
        .into_iter()
        .filter(|record| record.is_of_build(&state.known.build_id))
        .collect();
    let names: Vec<&str> = state.profile.candidates.iter().map(|view| view.name.as_str()).collect();
    let runs: Vec<CandidateRuns> = names.iter().map(|name| runs_of(&records, name)).collect();
    let counted: usize = runs.iter().map(|candidate| candidate.runs.len()).sum();
    let mut remarks = vec![];
    if counted < state.known.records.len() {
        remarks.push(format!(
            "{} of {} trials are not in these figures: of another build, without an orderly end, or of a candidate that is no longer tested.",
            state.known.records.len() - counted,
            state.known.records.len()
        ));
    }
    let next = if state.decision.trial { "a trial of" } else { "under" };
    remarks.push(format!(
        "Next start: {next} {}: {}",
        state.decision.candidate,
        state.decision.reason.sentence()
    ));
    Ok(Program {
        name: state.known.program.to_string(),
        latencies: names.iter().flat_map(|name| latencies(&records, name)).collect(),
        splits: state
            .profile
            .candidates
            .iter()
            .filter_map(|view| Some((view.name.clone(), view.split?)))
            .collect(),
        runs,
        decisions: decisions
            .into_iter()
            .map(|d| Decision {
                at: crate::when::when(d.at_s),
                candidate: d.candidate,
                trial: d.trial,
                because: d.because,
            })
            .collect(),
        remarks,
        memory: vec![],
    })
}

/// Trials of a candidate that came to an orderly end, numbered in order of time.
fn runs_of(records: &[&TrialRecord], name: &str) -> CandidateRuns {
    let samples = records.iter().map(|record| &record.sample).filter(|sample| sample.candidate == name);
    let runs = (0u32..).zip(samples.filter_map(as_run)).map(|(round, run)| Run { round, ..run });
    CandidateRuns { name: name.to_owned(), runs: runs.collect() }
}

fn as_run(sample: &Sample) -> Option<Run> {
    let Ended::Clean { status } = sample.ended else { return None };
    let usage = sample.usage.as_ref().filter(|_| sample.pass_reason.is_none())?;
    Some(Run {
        exit: status.unwrap_or(0),
        user_s: usage.user_s,
        system_s: usage.system_s,
        wall_s: sample.wall_s,
        peak_bytes: sample.memory.resident_peak,
        mean_bytes: sample.memory.resident(),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        ..Run::default()
    })
}

/// Of every class, the histograms of all trials of a candidate added up.
fn latencies(records: &[&TrialRecord], name: &str) -> Vec<html::Latency> {
    let samples = records.iter().map(|record| &record.sample).filter(|sample| sample.candidate == name);
    let of_each: Vec<Latency> = samples.filter_map(Latency::of).collect();
    added_up(name, &of_each)
}

/// One for each class of calls.
fn added_up(candidate: &str, of_each: &[Latency]) -> Vec<html::Latency> {
    let ns_per_tick = of_each.iter().map(|latency| latency.ns_per_tick).find(|ns| *ns > 0.0);
    let classes = Latency::CLASSES.into_iter().enumerate();
    classes
        .map(|(i, class)| {
            let mut sum: Vec<u64> = vec![];
            for histogram in of_each.iter().map(|latency| latency.classes()[i].histogram()) {
                sum.resize(sum.len().max(histogram.len()), 0);
                sum.iter_mut().zip(histogram).for_each(|(sum, n)| *sum = sum.saturating_add(n));
            }
            html::Latency { class, candidate: candidate.to_owned(), histogram_ticks: sum, ns_per_tick }
        })
        .collect()
}

fn of_files(files: &[PathBuf], program: Option<&OsStr>) -> Result<Report> {
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
    Ok(Report {
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
            crate::when::when(header.began_unix_s)
        ));
    }
    notes
}

fn of_raw(data: &Data, name: &str) -> Program {
    let of_it = || data.runs.iter().filter(move |run| run.program == name);
    let mut candidates: Vec<&str> = vec![];
    for run in of_it() {
        if !candidates.contains(&run.candidate.as_str()) {
            candidates.push(&run.candidate);
        }
    }
    // The order of the first round is random; a colour means the same candidate in every program that was run under all of them.
    candidates.sort_by_key(|name| (*name != SYSTEM, *name));
    let mut remarks = vec![];
    for candidate in &candidates {
        let failed: Vec<&RawRun> = of_it().filter(|run| !run.ok && run.candidate == *candidate).collect();
        if let Some(first) = failed.first() {
            let why = first.why.clone().unwrap_or_else(|| format!("exit {}", first.exit));
            remarks.push(format!("{candidate}: {} runs do not count ({why})", failed.len()));
        }
    }
    let is_out = |candidate: &str| of_it().any(|run| run.candidate == candidate && !run.ok);
    let runs = candidates.iter().map(|candidate| {
        let counts = |run: &&RawRun| {
            run.ok && run.kind == RunKind::Measured && run.candidate == *candidate && !is_out(candidate)
        };
        CandidateRuns {
            name: (*candidate).to_owned(),
            runs: of_it().filter(counts).map(as_measured).collect(),
        }
    });
    let counted = |candidate: &str| {
        let counts = |run: &&RawRun| run.ok && run.kind == RunKind::Counted && run.candidate == candidate;
        if is_out(candidate) { vec![] } else { of_it().filter(counts).collect::<Vec<_>>() }
    };
    let latencies = candidates.iter().flat_map(|candidate| {
        let of_each: Vec<Latency> = counted(candidate).iter().filter_map(|run| run.latency.clone()).collect();
        added_up(candidate, &of_each)
    });
    let splits = candidates.iter().filter_map(|candidate| {
        let of_each: Vec<Split> = counted(candidate).iter().filter_map(|run| run.split).collect();
        Some(((*candidate).to_owned(), Split::mean(&of_each)?))
    });
    let memory = candidates.iter().filter_map(|candidate| memory(candidate, &counted(candidate)));
    let mut runs: Vec<CandidateRuns> = runs.collect();
    prepare(&mut runs);
    Program {
        name: name.to_owned(),
        runs,
        latencies: latencies.collect(),
        splits: splits.collect(),
        memory: memory.collect(),
        remarks,
        ..Program::default()
    }
}

/// Of the first run that has it: a mean of runs, each with its own speed, would smooth away what is to be seen.
fn memory(candidate: &str, counted: &[&RawRun]) -> Option<Memory> {
    let curve = counted.iter().find_map(|run| run.curve.as_ref())?;
    Some(Memory { candidate: candidate.to_owned(), looks: curve.looks() })
}

fn as_measured(run: &RawRun) -> Run {
    Run {
        round: run.round,
        exit: run.exit,
        user_s: run.user_s,
        system_s: run.system_s,
        wall_s: run.wall_s,
        peak_bytes: run.peak_bytes,
        mean_bytes: run.mean_bytes,
        minor_faults: run.minor_faults,
        major_faults: run.major_faults,
        pace: run.pace,
        ..Run::default()
    }
}
