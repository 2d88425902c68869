// SPDX-License-Identifier: Apache-2.0
//! From the runs to what is reported of them.

use std::collections::{BTreeMap, BTreeSet};

use imas_core::Sample;
use imas_core::bench::{CandidateRuns, Options, Warning};
use imas_core::split::Split;
use imas_engine::compared::ComparedCandidate;
use imas_linux::host::Host;
use imas_report::bench::{BenchReport, CandidateReport as Row, PaperFigures, RoundsMade};

use super::collected::{CollectedRuns, Collector};

/// Facts that are known beside the runs.
pub(super) struct Context {
    pub(super) command: Vec<String>,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) began_unix_s: f64,
    pub(super) seed: u64,
    pub(super) options: Options,
    pub(super) kept_on_cpu: Option<usize>,
    /// Notes of the runner.
    pub(super) notes: Vec<String>,
    pub(super) rounds: RoundsMade,
}

pub(super) fn report(collector: &Collector<'_>, around: Context) -> BenchReport<Host> {
    let options = Options { output_varies: collector.output_varies, ..around.options };
    let (runs, comparison) = collector.observed().compare(&options);
    let expected: BTreeSet<i32> =
        collector.system().map(CollectedRuns::exits).into_iter().flatten().collect();
    let notes = collector.notes.iter().cloned().chain(collector.system_note()).chain(pace_note(&runs));
    let notes = notes.chain(around.notes).chain(around.rounds.note()).collect();
    let unusable: Vec<&str> = collector
        .compared
        .iter()
        .filter(|one| one.obstacle.is_some())
        .map(|one| one.candidate.name.as_str())
        .collect();
    // A candidate that could not be used is listed with its reason; that it has no runs needs no second
    // warning.
    let is_listed = |warning: &Warning| warning.candidate().is_some_and(|name| unusable.contains(&name));
    let warnings = comparison.warnings.into_iter().filter(|warning| !is_listed(warning)).collect();
    let with_runs = collector.compared.iter().zip(&collector.collected).zip(runs);
    let rows = with_runs.zip(comparison.candidates).map(|(((compared, collected), ready), result)| {
        let ComparedCandidate { candidate, obstacle } = compared;
        let version = imas_engine::candidates::version(candidate);
        match obstacle {
            Some(reason) => Row::unusable(&candidate.name, &version, reason),
            None => Row::measured(&version, ready.runs, result, paper(&collected.samples(&expected))),
        }
    });
    BenchReport {
        schema: 1,
        command: around.command,
        began_unix_s: around.began_unix_s,
        seed: around.seed,
        host: Host::now(),
        candidates: rows.collect(),
        judgement: comparison.judgement,
        kept_on_cpu: around.kept_on_cpu,
        parameters: around.parameters,
        rounds: Some(around.rounds),
        checks: vec![],
        warnings,
        notes,
    }
}

/// Changes of pace below this are not worth reporting.
const EVEN: f64 = 0.02;

/// The changes that are printed are not the ratios of the medians beside them, where the pace was taken out.
fn pace_note(candidates: &[CandidateRuns]) -> Option<String> {
    let runs = candidates.iter().flat_map(|candidate| &candidate.runs);
    let paces: Vec<f64> = runs.filter_map(|run| Some(run.cpu_s() / run.even_cpu_s? - 1.0)).collect();
    let most = paces.iter().copied().fold(0.0, f64::max);
    let least = paces.iter().copied().fold(0.0, f64::min);
    (most > EVEN || least < -EVEN).then(|| {
        format!(
            "the CPU did not always work equally fast: runs took from {:.0} % less to {:.0} % more CPU time by that alone; it is taken out of what is compared \
             (normalised CPU time)",
            -least * 100.0,
            most * 100.0
        )
    })
}

/// The paper's figures: medians are not in the paper, so the mean over the counted runs, as Algorithm 8
/// averages tests.
fn paper(samples: &[&Sample]) -> Option<PaperFigures> {
    let first = samples.first()?;
    let mean = |figure: fn(&Sample) -> Option<f64>| {
        let figures: Vec<f64> = samples.iter().copied().filter_map(figure).collect();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    };
    let count = samples.len() as u64;
    Some(PaperFigures {
        ns_per_op: mean(Sample::ns_per_op),
        frag_virtual: mean(Sample::frag_virtual),
        frag_resident: mean(Sample::frag_resident),
        heap_bytes: samples.iter().map(|s| s.memory.heap_mean / count).sum(),
        operations: samples.iter().map(|s| s.classes().iter().map(|op| op.calls).sum::<u64>() / count).sum(),
        served: first.served.clone(),
        split: Split::mean(&samples.iter().filter_map(|s| s.memory.split).collect::<Vec<_>>()),
    })
}
