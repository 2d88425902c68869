// SPDX-License-Identifier: Apache-2.0
//! The noise of a journal: how far runs of one and the same thing differ, and how often a bench errs by it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::output;
use imas_cli::table::Table;
use imas_core::compare::Margins;
use imas_core::judgement::Goal;
use imas_core::stats::RESAMPLES;
use imas_runs::service::SYSTEM_RUNS;
use imas_study::services::{BenchShape, EqualBenches, EqualPairs, NOISE_OF, PickRule, ServiceNoise};
use serde::Serialize;

use super::journal::read;
use super::sets::{in_words, nothing, rails};

#[derive(Debug, Args)]
pub(super) struct NoiseArgs {
    /// The journal
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// Made-up benchmarks
    #[arg(long, value_name = "N", default_value_t = 2000)]
    benches: usize,
    /// Equal candidates in each
    #[arg(long, value_name = "N", default_value_t = 4)]
    candidates: usize,
    /// Rounds of each
    #[arg(long, value_name = "N", default_value_t = 6)]
    rounds: u32,
    /// Runs under system in each round
    #[arg(long, value_name = "N", default_value_t = SYSTEM_RUNS as usize)]
    system_runs: usize,
    /// Print JSON instead of the text
    #[arg(long)]
    json: bool,
}

/// Noise, as it is printed.
#[derive(Serialize)]
struct NoiseReport {
    candidates: Vec<(String, String)>,
    noise: Vec<ServiceNoise>,
    benches: Option<EqualBenches>,
}

/// Prints the noise of each service, and the share of equal candidates that a bench rejects or picks.
pub(super) fn noise(args: &NoiseArgs) -> Result<ExitCode> {
    let pairs = EqualPairs::of(&read(&args.file)?);
    let rule = PickRule {
        goal: Goal::Memory,
        rails: rails(false),
        least_gain: Margins::USUAL.memory,
        needs_proof: true,
        resamples: RESAMPLES,
    };
    let shape = BenchShape { equal: args.candidates, rounds: args.rounds, system_runs: args.system_runs };
    let report = NoiseReport {
        noise: pairs.noise(),
        benches: pairs.benches(&rule, shape, args.benches),
        candidates: pairs.candidates,
    };
    if report.noise.iter().all(|one| one.pairs == 0) {
        return Err(nothing(&args.file));
    }
    output::json_or(args.json, &report, || text(&report, args))?;
    Ok(ExitCode::SUCCESS)
}

fn text(report: &NoiseReport, args: &NoiseArgs) -> String {
    let heads: Vec<&str> = ["service", "pairs"].into_iter().chain(NOISE_OF).collect();
    let mut table = Table::new("noise", "Noise", &heads);
    for one in &report.noise {
        let name = if one.service.is_empty() { "all" } else { &one.service };
        let percent =
            |sd: Option<f64>| sd.map_or_else(|| "-".to_owned(), |sd| format!("{:.1} %", sd * 100.0));
        let own = [name.to_owned(), one.pairs.to_string()];
        table.push(own.into_iter().chain(one.deviations.map(percent)).collect());
    }
    let benches = report.benches.map_or_else(String::new, |found| {
        let share = |count: usize| 100.0 * count as f64 / found.benches.max(1) as f64;
        format!(
            "\n{} made-up benchmarks of {} equal candidates with this noise, {} rounds, system {} times a round, \
             guard rails {}:\n{:.1} % of the candidates are picked or rejected (aim: at most 5 %); \
             a candidate is picked in {:.1} % of the benchmarks, one or more are rejected in {:.1} %\n",
            found.benches,
            args.candidates,
            args.rounds,
            args.system_runs,
            in_words(&rails(false)),
            100.0 * found.share,
            share(found.picked),
            share(found.rejecting)
        )
    });
    format!(
        "Runs of one and the same thing in one round: under system, and beside it under candidates that cannot act \
         ({} of a service). Standard deviation of the logarithm of their ratio.\n\n{}{benches}",
        report.candidates.len(),
        imas_study::without_empty_columns(table).plain()
    )
}
