// SPDX-License-Identifier: Apache-2.0
//! Prints predictions for services beside the memory of live runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueHint};
use imas_cli::format::{counted, mib};
use imas_cli::message::Hinted;
use imas_cli::{output, table};
use imas_study::services::{JudgedPrediction, PredictionScore, ServicePrediction};

use super::{journal, replay};

/// A prediction that is off by at most this part of the live memory counts as right.
const NEAR: f64 = 0.1;

#[derive(Debug, Args)]
pub(super) struct PredictedArgs {
    /// The file of predictions, of 'imas-lab services replay'
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,
    /// The journal of live runs, of 'imas-lab services run'
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    live: PathBuf,
    /// Print JSON instead of the text
    #[arg(long)]
    json: bool,
}

/// A choice whose memory is at most this part above the leanest counts as the leanest.
const AS_GOOD: f64 = 0.01;

/// Prints the judgement.
pub(super) fn predicted(args: &PredictedArgs) -> Result<ExitCode> {
    let predictions = replay::read(&args.file)?;
    let score = PredictionScore::of(&predictions, &journal::read(&args.live)?);
    if score.judged.is_empty() {
        return Err(Hinted::error(
            format!("no service of {} has valid live runs in {}", args.file.display(), args.live.display()),
            "measure the same services with 'imas-lab services run'",
        ));
    }
    output::json_or(args.json, &score, || page(&score, &predictions))?;
    Ok(ExitCode::SUCCESS)
}

fn page(score: &PredictionScore, predictions: &[ServicePrediction]) -> String {
    [summary(score), each(score), choices(score), failures(predictions)].join("\n")
}

fn summary(score: &PredictionScore) -> String {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    let correlation = score.correlation.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.2}"));
    format!(
        "{} of {}\n\
         predicted memory within 10 % of the live memory: {}\n\
         predicted change against system within 10 % of the live change: {}\n\
         correlation of predicted and live change (logarithms): {correlation}\n\
         leanest of system and the first two predictions, within 1 % of the live leanest: {} of {}\n\
         leanest of system, glibc:arena1 and glibc:lean, without any recording, within 1 %: {} of {}\n",
        counted(score.judged.len(), "prediction"),
        counted(score.choices.len(), "service"),
        percent(score.within(NEAR, JudgedPrediction::off)),
        percent(score.within(NEAR, JudgedPrediction::ratio_off)),
        score.found(AS_GOOD, |one| one.first_two_ratio),
        score.choices.len(),
        score.found(AS_GOOD, |one| one.baseline_ratio),
        score.choices.len(),
    )
}

fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn each(score: &PredictionScore) -> String {
    let heads = ["service", "candidate", "predicted MiB", "live MiB", "predicted", "live", "off"];
    let row = |one: &JudgedPrediction| {
        vec![
            one.service.clone(),
            one.candidate.clone(),
            mib(one.predicted_bytes),
            mib(one.live_bytes),
            change(one.predicted_ratio),
            change(one.live_ratio),
            change(one.predicted_ratio / one.live_ratio),
        ]
    };
    table::plain(&heads, score.judged.iter().map(row))
}

fn choices(score: &PredictionScore) -> String {
    let heads = [
        "service",
        "first prediction",
        "live",
        "best of the first two",
        "of arena1, lean",
        "live best",
        "live",
    ];
    let rows = score.choices.iter().map(|one| {
        vec![
            one.service.clone(),
            one.first.clone(),
            change(one.first_ratio),
            change(one.first_two_ratio),
            change(one.baseline_ratio),
            one.best.clone(),
            change(one.best_ratio),
        ]
    });
    table::plain(&heads, rows)
}

fn failures(predictions: &[ServicePrediction]) -> String {
    let failed = predictions.iter().filter_map(|one| {
        let failure = one.failure.as_ref()?;
        Some(format!("{} under {}: not predicted: {failure}\n", one.service, one.candidate))
    });
    failed.collect()
}
