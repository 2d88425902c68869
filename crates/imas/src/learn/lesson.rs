// SPDX-License-Identifier: Apache-2.0
//! From a trace to the predictions in the store.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use imas_core::reliability::RecordedRunFacts;
use imas_core::replay_prior::PredictedDifference;
use imas_engine::compared::{DefaultComparison, compared};
use imas_engine::inline_candidate::has_settings;
use imas_engine::replay_knowledge::shipped;
use imas_linux::catalogue::SYSTEM;
use imas_linux::clock::now_unix_s;
use imas_replay::process;
use imas_replay::replayed::{ReplayedCandidate, ReplayedCandidates, replay};
use imas_replay::trace::file::{TraceHeader, TraceProcess};
use imas_replay::trace::raw::Stop;
use imas_store::predictions::StoredPredictions;
use imas_store::samples::StoredProgram;

use super::Learner;
use crate::measure::trace_file;
use imas_cli::message::Hinted;

/// A predicted ratio below this says no more than "very small".
const LEAST: f64 = 1e-3;

/// The recording that is learned from.
pub(super) struct LessonSource<'a> {
    pub(super) trace: &'a Path,
    /// Build-id of the program that was recorded.
    pub(super) build_id: &'a str,
    /// The end of the recording before that of the program is no failure.
    pub(super) is_window: bool,
}

/// Lesson of one recording.
pub(super) struct Lesson {
    pub(super) calls: u64,
    pub(super) processes: usize,
    /// Candidates with a prediction.
    pub(super) candidates: usize,
    /// Candidates without a prediction, and why.
    pub(super) failed: Vec<(String, String)>,
}

/// Replays the trace under the program's candidates and stores what they predict.
pub(super) fn learn(
    learner: &Learner<'_>,
    program: &StoredProgram,
    source: &LessonSource<'_>,
) -> Result<Lesson> {
    let Learner { args, context, store, interruption } = *learner;
    let mut trace = trace_file::open(source.trace)?;
    let processes = trace.header.processes.len();
    let process = representative(&trace.header, source.is_window)?;
    let known = imas_engine::profile::state(context, store, program.clone(), source.build_id)?;
    let is_tested = |one: &&imas_core::Candidate| one.available && one.tested && one.name != SYSTEM;
    let names = match args.with.as_slice() {
        [] => known.candidates().iter().filter(is_tested).map(|one| one.name.clone()).collect(),
        named => named.to_vec(),
    };
    check_names(&names)?;
    let compared = compared(&names, DefaultComparison::DefaultSet, context, Some(store))?;
    let calls = process.counts.calls;
    let answer = replay(&mut trace, process, &compared, args.runs, context, interruption)
        .with_context(|| source.trace.display().to_string())
        .map_err(trace_file::advised)?;
    let version = |name: &str| {
        let found = known.candidates().iter().find(|one| one.name == name);
        found.map(|one| one.version.clone()).unwrap_or_default()
    };
    let differences = differences(&answer, version)?;
    let facts = answer.facts();
    let facts = RecordedRunFacts { allocator_share: facts.allocator_share.min(1.0), ..facts };
    let lesson = Lesson { calls, processes, candidates: differences.len(), failed: failures(&answer) };
    store.set_predictions(
        program.id,
        &StoredPredictions {
            at_s: now_unix_s(),
            build_id: source.build_id.to_owned(),
            machine: known.machine.clone(),
            run: facts,
            differences,
        },
    )?;
    Ok(lesson)
}

fn check_names(names: &[String]) -> Result<()> {
    if names.is_empty() {
        return Err(Hinted::error("there is no candidate beside system", "'imas list' says why"));
    }
    match names.iter().find(|name| has_settings(name)) {
        Some(name) => Err(Hinted::error(
            format!("{name}: trials test candidates of the catalogue"),
            "give the settings a name in your catalogue (docs/adding-an-allocator.md)",
        )),
        None => Ok(()),
    }
}

/// The process whose replay stands for the program.
fn representative(header: &TraceHeader, is_window: bool) -> Result<TraceProcess> {
    let mut header = header.clone();
    if header.cpu_s <= 0.0 {
        // Nothing waited for a start by 'imas run': the processes that were recorded are known.
        header.cpu_s = header.processes.iter().map(|process| process.counts.cpu_ns as f64 / 1e9).sum();
    }
    if is_window {
        let stopped = header.processes.iter_mut().filter(|process| process.stop == Stop::Time);
        stopped.for_each(|process| process.stop = Stop::None);
    }
    process::representative(&header).map_err(|why| {
        Hinted::error(
            why.to_string(),
            "without a prediction, trials test every candidate: imas run -- PROGRAM",
        )
    })
}

fn differences(
    answer: &ReplayedCandidates<'_>,
    version: impl Fn(&str) -> String,
) -> Result<Vec<PredictedDifference>> {
    let recorded = answer.recorded();
    if recorded.cpu_s <= 0.0 || recorded.mean_bytes <= 0.0 {
        bail!("the recorded run was too short");
    }
    let logarithm = |ratio: f64| ratio.max(LEAST).ln();
    let predictions = answer.predictions(&shipped()).into_iter();
    let others = predictions.filter(|(one, _)| !one.candidate.candidate.is_system());
    let predicted = others.filter_map(|(one, prediction)| {
        let prediction = prediction?;
        Some(PredictedDifference {
            candidate: one.name().to_owned(),
            version: version(one.name()),
            cpu: logarithm(prediction.cpu_s.value / recorded.cpu_s),
            memory: logarithm(prediction.mean_bytes.value / recorded.mean_bytes),
        })
    });
    let predicted: Vec<_> = predicted.collect();
    if predicted.is_empty() {
        bail!("no replay succeeded");
    }
    Ok(predicted)
}

fn failures(answer: &ReplayedCandidates<'_>) -> Vec<(String, String)> {
    let of = |one: &ReplayedCandidate<'_>| Some((one.name().to_owned(), one.failure.clone()?));
    answer.candidates.iter().filter_map(of).collect()
}
