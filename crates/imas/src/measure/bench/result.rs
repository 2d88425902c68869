// SPDX-License-Identifier: Apache-2.0
//! From the runs to what is reported of them, and to what the store remembers: so `imas run` needs no trial of what is
//! proven and never sees a crash again. Each measured run of a command becomes a trial that is marked, with how it did harm.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use imas_core::bench::{CandidateRuns, Options, Warning, prepare};
use imas_core::run::RawRun;
use imas_core::sample::{Ended, MEASURED_BY_BENCH, MemoryFigures, PageKind, Usage};
use imas_core::split::Split;
use imas_core::{Sample, TrialRecord};
use imas_engine::compared::ComparedCandidate;
use imas_engine::inline_candidate::is_typed;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::{Host, machine_state, now_unix_s};
use imas_linux::page;
use imas_linux::program::Command;
use imas_report::bench::{BenchReport, CandidateReport as Row, PaperFigures, RoundsMade};
use imas_store::Store;

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

/// A program of the store, in one build.
pub(super) struct Remembered<'a> {
    pub(super) store: &'a Store,
    pub(super) command: &'a Command,
    pub(super) build_id: &'a str,
}

impl Remembered<'_> {
    /// Stores how a run of the command ended under a candidate.
    pub(super) fn harm(&self, candidate: &CatalogueCandidate, ended: Ended) -> Result<()> {
        let sample = Sample {
            trial_id: page::new_trial_id()?,
            candidate: candidate.name.clone(),
            made_unix_s: now_unix_s(),
            ended,
            kind: PageKind::Flight,
            ..Sample::default()
        };
        self.keep(&[self.record(candidate, sample)])
    }

    /// Stores the rounds of a command whose runs were one process: a candidate reaches the children of a
    /// bench, and not the children of a start by `imas run`.
    pub(super) fn rounds(&self, collector: &Collector<'_>) -> Result<()> {
        let is_one_process = collector.system().is_some_and(|system| system.processes() == Some(1));
        if !is_one_process {
            return Ok(());
        }
        let (mut prepared, machine) = (collector.observed().runs, machine_state());
        prepare(&mut prepared);
        let mut records = vec![];
        for ((candidate, _), own) in collector.named().zip(&prepared) {
            // Candidates of the command line alone are not offered again.
            let is_offered = !is_typed(&candidate.name);
            for run in own.runs.iter().filter(|run| is_offered && run.ok && has_figures(run)) {
                let sample = Sample { machine: machine.clone(), ..sample(candidate, run)? };
                records.push(self.record(candidate, sample));
            }
        }
        self.keep(&records)
    }

    fn record(&self, candidate: &CatalogueCandidate, sample: Sample) -> TrialRecord {
        TrialRecord {
            sample,
            build_id: self.build_id.to_owned(),
            allocator_version: imas_engine::candidates::version_for_policy(candidate),
            retest_s: None,
        }
    }

    fn keep(&self, records: &[TrialRecord]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let program = self.command.program.path.to_string_lossy();
        let program = self.store.program(&program, &self.command.program.detail)?;
        Ok(self.store.add_trials(program.id, records)?)
    }
}

fn has_figures(run: &RawRun) -> bool {
    run.cpu_s() > 0.0 && run.mean_bytes > 0
}

/// The run as a trial: nothing was counted inside.
fn sample(candidate: &CatalogueCandidate, run: &RawRun) -> Result<Sample> {
    // The changes of the CPU's pace are taken out, as in the table.
    let even = run.even_cpu_s.map_or(1.0, |even| even / run.cpu_s());
    Ok(Sample {
        trial_id: page::new_trial_id()?,
        candidate: candidate.name.clone(),
        made_unix_s: run.at_s,
        ended: Ended::Clean { status: Some(run.exit) },
        served: MEASURED_BY_BENCH.to_owned(),
        processes: 1,
        memory: MemoryFigures {
            snapshots: 1,
            resident_mean: run.mean_bytes,
            resident_over_time: run.mean_bytes,
            resident_peak: run.peak_bytes,
            ..MemoryFigures::default()
        },
        usage: Some(Usage {
            user_s: run.user_s * even,
            system_s: run.system_s * even,
            minor_faults: run.minor_faults,
            major_faults: run.major_faults,
            max_rss_bytes: run.peak_bytes,
            voluntary_switches: run.voluntary_switches,
            involuntary_switches: run.involuntary_switches,
        }),
        wall_s: run.wall_s,
        ..Sample::default()
    })
}
