// SPDX-License-Identifier: Apache-2.0
//! Live runs of the best: `imas bench` decides by its own rule.

use anyhow::{Context as _, Result};
use imas_core::stats::Interval;
use imas_report::bench::{BenchReport, CandidateReport};
use imas_tune::goal::{Goal, PointRatios};
use serde::Serialize;
use serde_json::Value;

use super::contenders::Few;
use super::work::{WorkFolder, itself};
use crate::context::Context;
use crate::message::{self, Hinted};
use crate::record::pass_on_signals;
use crate::tune_args::{TuneArgs, TuneObjective};

/// Figures of the live runs.
#[derive(Debug, Serialize)]
pub(super) struct LiveResult {
    /// The settings that are proven to suit best. None: the catalogue, or `system`, is as good.
    pub(super) proven: Option<String>,
    /// What suits best by the objective.
    pub(super) pick: String,
    pub(super) candidates: Vec<LiveCandidate>,
}

/// One candidate in the live runs, as ratios to `system`.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LiveCandidate {
    pub(super) candidate: String,
    pub(super) cpu: Option<Interval>,
    pub(super) memory: Option<Interval>,
    pub(super) peak: Option<Interval>,
}

/// Measures `system`, the best of the catalogue and the best settings.
pub(super) fn measure(
    args: &TuneArgs,
    few: &Few<'_>,
    goal: &Goal,
    folder: &WorkFolder,
    context: &Context,
) -> Result<LiveResult> {
    let file = folder.file("live.json");
    let names = few.of_catalogue.into_iter().chain(few.tuned.iter().copied());
    let names: Vec<&str> = names.map(|one| one.candidate.as_str()).collect();
    message::say(&format!("imas: measuring {} live", names.join(", ")));
    let mut bench = itself(context)?;
    bench.arg("bench").args(["--trials", "0", "--style", "basic", "--export-json"]).arg(&file);
    if let Some(input) = &args.input {
        bench.arg("--input").arg(input);
    }
    bench.stdin(std::process::Stdio::null());
    bench.args(names.iter().flat_map(|name| ["--with", name])).arg("--").args(&args.command);
    // The table goes to standard error: standard output is for the result.
    bench.stdout(std::io::stderr());
    let mut child = bench.spawn().context("imas bench")?;
    pass_on_signals(child.id())?;
    let status = child.wait()?;
    if !status.success() {
        return Err(Hinted::error(
            format!("the live runs ended with {status}"),
            "what was found by replay is kept in --folder DIR, if one was given",
        ));
    }
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let report: BenchReport<Value> =
        serde_json::from_str(&text).with_context(|| file.display().to_string())?;
    Ok(result(&report, args.objective, few, goal))
}

fn result(report: &BenchReport<Value>, objective: TuneObjective, few: &Few<'_>, goal: &Goal) -> LiveResult {
    let pick = match objective {
        TuneObjective::Cpu => &report.picks.fastest,
        TuneObjective::Memory => &report.picks.leanest,
        TuneObjective::Balanced => &report.picks.balanced,
    };
    let is_tuned = few.tuned.iter().any(|one| one.candidate == *pick);
    let row = report.candidates.iter().find(|one| one.name == *pick);
    let keeps_limits = row.and_then(measured_ratios).is_some_and(|ratios| goal.allows(&ratios));
    LiveResult {
        proven: (is_tuned && keeps_limits).then(|| pick.clone()),
        pick: pick.clone(),
        candidates: report.candidates.iter().map(LiveCandidate::of).collect(),
    }
}

/// The middles of the measured ratios. A figure that was not compared counts as unchanged.
fn measured_ratios(row: &CandidateReport) -> Option<PointRatios> {
    let mid = |ratio: Option<Interval>| ratio.map_or(1.0, |ratio| ratio.mid);
    let memory = row.ratio.memory?;
    Some(PointRatios { cpu: mid(row.ratio.cpu), memory: memory.mid, peak: mid(row.ratio.peak) })
}

impl LiveCandidate {
    fn of(row: &CandidateReport) -> Self {
        let ratio = &row.ratio;
        Self { candidate: row.name.clone(), cpu: ratio.cpu, memory: ratio.memory, peak: ratio.peak }
    }
}
