// SPDX-License-Identifier: Apache-2.0
//! A program as a part of a page, from the store or from a file of raw runs: `imas show` has the same picks
//! and figures.

use anyhow::Result;
use imas_cli::table::Table;
use imas_core::adaptive::{Judgement, Status};
use imas_core::bench::{CandidateRuns, MedianRun};
use imas_core::candidate::in_order_of_time;
use imas_core::raw_runs::data::Data;
use imas_core::run::{Latency, RawRun, RunKind};
use imas_core::sample::{Ended, PageKind, Sample};
use imas_core::split::Split;
use imas_core::stats::Interval;
use imas_core::{ProfileView, TrialRecord};
use imas_report::chart::{BarRow, Bars};
use imas_report::html::{
    self, CandidateFindings, DecisionSection, MemorySection, ProgramFindings, ProgramSection,
};
use imas_store::Store;

use crate::picks::{self, PAPER_HEAD, StoredPick, paper_rows, standing_words};
use crate::program_view::ProgramView;

/// Decisions shown of a program, the newest.
const DECISIONS: u32 = 100;

/// Where the figures come from.
#[must_use]
pub fn notes() -> Vec<String> {
    vec![
        "From the trials in the store: each is one execution of the program on its own work, every call counted. Trials are compared in order, the first of a \
         candidate with the first of system and so on; the work may have differed. So CPU time and memory of a candidate are \
         those of system times its change."
            .to_owned(),
    ]
}

/// Section of the program, from the store.
///
/// # Errors
/// When the store cannot be read.
pub fn section(store: &Store, state: &ProgramView) -> Result<ProgramSection> {
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
    let trials = picks::trial_count(state);
    if counted < trials {
        remarks.push(format!(
            "{} of {} are not in these figures: of another build, without an orderly end, or of a candidate that is no longer tested.",
            trials - counted,
            imas_cli::format::counted(trials, "trial")
        ));
    }
    if trials < state.known.records.len() {
        let production = imas_cli::format::counted(state.known.records.len() - trials, "start");
        remarks.push(format!("Nothing is measured in production: {production} beside the trials."));
    }
    let next = if state.decision.trial { "a trial of" } else { "under" };
    remarks.push(format!(
        "Next start: {next} {}: {}",
        state.decision.candidate,
        state.decision.reason.sentence()
    ));
    Ok(ProgramSection {
        name: state.known.program.to_string(),
        findings: findings(state, &runs),
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
            .map(|d| DecisionSection {
                at: imas_cli::format::when(d.at_s),
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
    let runs = (0u32..).zip(samples.filter_map(as_run)).map(|(round, run)| RawRun { round, ..run });
    CandidateRuns { name: name.to_owned(), runs: runs.collect() }
}

fn as_run(sample: &Sample) -> Option<RawRun> {
    let Ended::Clean { status } = sample.ended else { return None };
    (sample.kind == PageKind::Trial).then_some(())?;
    let usage = sample.usage.as_ref().filter(|_| sample.pass_reason.is_none())?;
    Some(RawRun {
        exit: status.unwrap_or(0),
        user_s: usage.user_s,
        system_s: usage.system_s,
        wall_s: sample.wall_s,
        peak_bytes: sample.memory.resident_peak,
        mean_bytes: sample.memory.resident(),
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        ..RawRun::default()
    })
}

/// Latency histograms of all trials of a candidate added up, one for each class of calls.
fn latencies(records: &[&TrialRecord], name: &str) -> Vec<html::LatencySection> {
    let samples = records.iter().map(|record| &record.sample).filter(|sample| sample.candidate == name);
    let of_each: Vec<Latency> = samples.filter_map(Latency::of).collect();
    added_up(name, &of_each)
}

/// The picks and figures by the policy in force.
fn findings(state: &ProgramView, runs: &[CandidateRuns]) -> ProgramFindings {
    let all = picks::picks(&state.profile);
    let found = match &state.judgement {
        Some(judgement) => by_adaptive(state, judgement, &all, runs),
        None => by_paper(&state.profile, &all),
    };
    ProgramFindings { sentence: picks::sentence(&all), ..found }
}

fn names(all: &[StoredPick]) -> [String; 3] {
    let name = |i: usize| all.get(i).map_or(imas_core::SYSTEM, |one| &one.candidate).to_owned();
    [name(0), name(1), name(2)]
}

fn by_adaptive(
    state: &ProgramView,
    judgement: &Judgement,
    all: &[StoredPick],
    runs: &[CandidateRuns],
) -> ProgramFindings {
    let ratios = state.profile.adaptive().map(picks::ratios).unwrap_or_default();
    let of_system = runs.iter().find(|one| one.name == imas_core::SYSTEM);
    let of_system = of_system.and_then(|system| MedianRun::of(&system.runs));
    let views = state.profile.candidates.iter().zip(&judgement.standings).zip(&ratios).zip(runs);
    let candidates: Vec<CandidateFindings> = views
        .map(|(((view, standing), [cpu, memory]), runs)| {
            let is_system = view.name == imas_core::SYSTEM;
            let or_one = |ratio: &Option<Interval>| if is_system { Some(Interval::ONE) } else { *ratio };
            CandidateFindings {
                name: view.name.clone(),
                runs: usize::try_from(standing.rounds).unwrap_or(usize::MAX),
                median: match is_system {
                    true => of_system.clone(),
                    false => changed(MedianRun::of(&runs.runs), of_system.as_ref(), [*cpu, *memory]),
                },
                cpu: or_one(cpu),
                memory: or_one(memory),
                is_eligible: !matches!(standing.status, Status::Ineligible | Status::Left),
                verdict: standing_words(view, standing.status),
            }
        })
        .collect();
    ProgramFindings::of_candidates(names(all), &candidates, !all.is_empty())
}

/// Medians of a candidate with CPU time and memory of `system` at its changes: its own trials need not belong
/// to the rounds that were compared. None without these.
fn changed(
    own: Option<MedianRun>,
    system: Option<&MedianRun>,
    [cpu, memory]: [Option<Interval>; 2],
) -> Option<MedianRun> {
    let (system, cpu, memory) = (system?, cpu?.mid, memory?.mid);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
    let mean_bytes = (system.mean_bytes as f64 * memory).round() as u64;
    Some(MedianRun { cpu_s: system.cpu_s * cpu, mean_bytes, ..own? })
}

/// The figures of the paper: time of an operation, and fragmentation.
fn by_paper(profile: &ProfileView, all: &[StoredPick]) -> ProgramFindings {
    let mut table = Table::new("", "Means over the trials, as in the paper", &PAPER_HEAD);
    paper_rows(profile, all).for_each(|row| table.push(row));
    let known = profile.candidates.iter().filter(|view| view.summary.has_data());
    let bar = |value: f64| Interval { lo: value, mid: value, hi: value };
    let picture = Bars {
        title: "Time of an operation, nanoseconds".to_owned(),
        caption: "Mean over the trials that count, of malloc, realloc, memalign and free.".to_owned(),
        unit: " ns".to_owned(),
        series: vec!["ns per operation".to_owned()],
        rows: known
            .map(|view| BarRow { name: view.name.clone(), bars: vec![bar(view.summary.ns_per_op)] })
            .collect(),
        ..Bars::default()
    };
    let picks = names(all);
    let short = if all.is_empty() { "nothing is known yet" } else { &picks[2] };
    ProgramFindings { short: short.to_owned(), table, picture: picture.draw(), picks, ..Default::default() }
}

// A program of a file of raw runs as a part of a page.

/// Section of the program, from its runs: picks and figures are those that `imas bench` printed.
#[must_use]
pub fn runs_section(data: &Data, name: &str) -> ProgramSection {
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
    let failed: Vec<&RawRun> = raw_runs_of(data, program, candidate).filter(|run| !run.ok).collect();
    let first = failed.first()?;
    let why = first.why.clone().unwrap_or_else(|| format!("exit {}", first.exit));
    Some(format!("{candidate}: {} of its runs failed ({why})", failed.len()))
}

fn raw_runs_of<'a>(data: &'a Data, program: &str, candidate: &str) -> impl Iterator<Item = &'a RawRun> {
    data.runs.iter().filter(move |run| run.program == program && run.candidate == candidate)
}

/// The counted runs of a candidate; none of one with a run that failed.
fn counted_of<'a>(data: &'a Data, program: &str, candidate: &str) -> Vec<&'a RawRun> {
    match raw_runs_of(data, program, candidate).any(|run| !run.ok) {
        true => vec![],
        false => raw_runs_of(data, program, candidate).filter(|run| run.kind == RunKind::Counted).collect(),
    }
}

/// Memory of the first run that has it. A mean of runs of different speed would hide the course over time.
fn memory(candidate: &str, counted: &[&RawRun]) -> Option<MemorySection> {
    let curve = counted.iter().find_map(|run| run.curve.as_ref())?;
    Some(MemorySection { candidate: candidate.to_owned(), looks: curve.looks() })
}

// Histograms of several trials as one.

/// Latencies of a candidate added up, one section for each class of calls.
#[must_use]
pub fn added_up(candidate: &str, of_each: &[Latency]) -> Vec<html::LatencySection> {
    let ns_per_tick = of_each.iter().map(|latency| latency.ns_per_tick).find(|ns| *ns > 0.0);
    let classes = Latency::CLASSES.into_iter().enumerate();
    classes
        .map(|(i, class)| {
            let mut sum: Vec<u64> = vec![];
            for histogram in of_each.iter().map(|latency| latency.classes()[i].histogram()) {
                sum.resize(sum.len().max(histogram.len()), 0);
                sum.iter_mut().zip(histogram).for_each(|(sum, n)| *sum = sum.saturating_add(n));
            }
            html::LatencySection { class, candidate: candidate.to_owned(), histogram_ticks: sum, ns_per_tick }
        })
        .collect()
}
