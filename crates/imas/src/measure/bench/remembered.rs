// SPDX-License-Identifier: Apache-2.0
//! Results of `imas bench` in the store, so that `imas run` needs no trial of what is proven and never sees a
//! crash again: each measured run of a command as a trial that is marked, and how a run did harm.

use anyhow::Result;
use imas_core::bench::prepare;
use imas_core::run::RawRun;
use imas_core::sample::{Ended, MEASURED_BY_BENCH, MemoryFigures, PageKind, Usage};
use imas_core::{Sample, TrialRecord};
use imas_engine::inline_candidate::is_typed;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::{machine_state, now_unix_s};
use imas_linux::page;
use imas_linux::program::Command;
use imas_store::Store;

use super::collected::Collector;

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
