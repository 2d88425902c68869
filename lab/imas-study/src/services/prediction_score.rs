// SPDX-License-Identifier: Apache-2.0
//! Predictions of memory beside what live runs of the same service took.

use std::collections::BTreeMap;

use imas_core::SYSTEM;
use imas_core::stats::{Moments, median};
use serde::Serialize;

use crate::services::prediction::ServicePrediction;
use crate::services::readme::BASELINES;
use imas_core::run::RawRun;

/// One prediction and what the live runs of that candidate took. Memory is that under load, by work.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct JudgedPrediction {
    /// The service.
    pub service: String,
    /// The candidate.
    pub candidate: String,
    /// Predicted bytes.
    pub predicted_bytes: f64,
    /// Live bytes, median over the runs.
    pub live_bytes: f64,
    /// Predicted bytes as a multiple of the recorded run's.
    pub predicted_ratio: f64,
    /// Live bytes as a multiple of the bytes under `system`.
    pub live_ratio: f64,
}

impl JudgedPrediction {
    /// Error of the predicted memory as a part of the live memory, never below 0.
    #[must_use]
    pub fn off(&self) -> f64 {
        (self.predicted_bytes / self.live_bytes - 1.0).abs()
    }

    /// Error of the predicted ratio as a part of the live ratio to `system`, never below 0.
    #[must_use]
    pub fn ratio_off(&self) -> f64 {
        (self.predicted_ratio / self.live_ratio - 1.0).abs()
    }
}

/// Cost of choosing by predictions in one service. Ratios are live memory over the memory under `system`.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct PredictedChoice {
    /// The service.
    pub service: String,
    /// The candidate with the least predicted memory; `system` where none is below it.
    pub first: String,
    /// Live ratio of `first`.
    pub first_ratio: f64,
    /// The least live ratio of the two candidates with the least predicted memory and `system`.
    pub first_two_ratio: f64,
    /// The least live ratio of `glibc:arena1`, `glibc:lean` and `system`: what two trials without any recording find.
    pub baseline_ratio: f64,
    /// The candidate with the least live memory, or `system`.
    pub best: String,
    /// Live ratio of `best`.
    pub best_ratio: f64,
}

/// Score of all predictions that can be judged.
#[derive(Serialize, Clone, PartialEq, Debug, Default)]
pub struct PredictionScore {
    /// Judged predictions in the order of services and candidates.
    pub judged: Vec<JudgedPrediction>,
    /// Choices by predictions, one for each service.
    pub choices: Vec<PredictedChoice>,
    /// Correlation of the logarithms of predicted and live ratios; None with fewer than three.
    pub correlation: Option<f64>,
}

impl PredictionScore {
    /// Judges the predictions by valid live runs. A service without a live run under `system`, and a candidate
    /// without one, are left out.
    #[must_use]
    pub fn of(predictions: &[ServicePrediction], runs: &[RawRun]) -> Self {
        let judged: Vec<JudgedPrediction> =
            latest(predictions).into_iter().filter_map(|one| judged(one, runs)).collect();
        let mut services: Vec<&str> = judged.iter().map(|one| one.service.as_str()).collect();
        services.dedup();
        let choices = services.iter().map(|service| choice(service, &judged)).collect();
        let pairs = judged.iter().map(|one| Moments::of(one.predicted_ratio.ln(), one.live_ratio.ln()));
        let correlation = (judged.len() > 2).then(|| pairs.reduce(Moments::merge)).flatten();
        let correlation = correlation.and_then(|all| crate::band::correlation(&all));
        Self { choices, correlation, judged }
    }

    /// The part of the predictions that are off by at most `most`, from 0 to 1.
    #[must_use]
    pub fn within(&self, most: f64, off: fn(&JudgedPrediction) -> f64) -> f64 {
        let near = self.judged.iter().filter(|one| off(one) <= most).count();
        near as f64 / self.judged.len().max(1) as f64
    }

    /// The number of services for which the ratio of a choice is at most `most` above the best candidate's.
    #[must_use]
    pub fn found(&self, most: f64, ratio: fn(&PredictedChoice) -> f64) -> usize {
        self.choices.iter().filter(|one| ratio(one) <= one.best_ratio * (1.0 + most)).count()
    }
}

/// Latest prediction of each service and candidate. Predictions for `system` are left out.
fn latest(predictions: &[ServicePrediction]) -> Vec<&ServicePrediction> {
    let all: BTreeMap<(&str, &str), &ServicePrediction> =
        predictions.iter().map(|one| ((one.service.as_str(), one.candidate.as_str()), one)).collect();
    all.into_values().filter(|one| one.candidate != SYSTEM).collect()
}

fn judged(prediction: &ServicePrediction, runs: &[RawRun]) -> Option<JudgedPrediction> {
    let live = |candidate: &str| {
        let own = runs.iter().filter(|run| run.program == prediction.service && run.candidate == candidate);
        median(&own.filter(|run| run.ok).filter_map(|run| run.value("memory")).collect::<Vec<_>>())
            .filter(|bytes| *bytes > 0.0)
    };
    let predicted_bytes = prediction.memory_bytes.filter(|bytes| *bytes > 0.0)?;
    let (live_bytes, system_bytes) = (live(&prediction.candidate)?, live(SYSTEM)?);
    let recorded = Some(prediction.recorded_bytes).filter(|bytes| *bytes > 0.0)?;
    Some(JudgedPrediction {
        service: prediction.service.clone(),
        candidate: prediction.candidate.clone(),
        predicted_bytes,
        live_bytes,
        predicted_ratio: predicted_bytes / recorded,
        live_ratio: live_bytes / system_bytes,
    })
}

fn choice(service: &str, judged: &[JudgedPrediction]) -> PredictedChoice {
    let mut own: Vec<(&str, f64, f64)> = judged
        .iter()
        .filter(|one| one.service == service)
        .map(|one| (one.candidate.as_str(), one.predicted_ratio, one.live_ratio))
        .chain([(SYSTEM, 1.0, 1.0)])
        .collect();
    own.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (best, _, best_ratio) = own[0];
    own.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (first, _, first_ratio) = own[0];
    let two = own.iter().filter(|one| one.0 != SYSTEM).take(2).map(|one| one.2);
    let baseline = own.iter().filter(|one| BASELINES.contains(&one.0));
    PredictedChoice {
        service: service.to_owned(),
        first: first.to_owned(),
        first_ratio,
        first_two_ratio: two.fold(1.0, f64::min),
        baseline_ratio: baseline.map(|one| one.2).fold(1.0, f64::min),
        best: best.to_owned(),
        best_ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::server_run::{Figure, ServerRun};

    fn run(candidate: &str, bytes: f64) -> RawRun {
        RawRun { program: "s".to_owned(), candidate: candidate.to_owned(), ..RawRun::default() }
            .with_server(ServerRun::of([Figure::lower("memory", bytes, "B")]))
    }

    fn prediction(candidate: &str, bytes: f64) -> ServicePrediction {
        ServicePrediction {
            service: "s".to_owned(),
            candidate: candidate.to_owned(),
            memory_bytes: Some(bytes),
            recorded_bytes: 110.0,
            ..ServicePrediction::default()
        }
    }

    #[test]
    fn predictions_are_compared_with_the_median_of_live_runs() {
        let runs = [run(SYSTEM, 100.0), run("a", 60.0), run("a", 50.0), run("a", 70.0), run("b", 90.0)];
        let predictions =
            [prediction("a", 1.0), prediction("a", 66.0), prediction("b", 55.0), prediction("c", 9.0)];
        let score = PredictionScore::of(&predictions, &runs);
        let [a, b] = &score.judged[..] else { panic!("{score:?}") };
        assert_eq!((a.predicted_bytes, a.live_bytes, a.live_ratio), (66.0, 60.0, 0.6), "the last line of a");
        assert!((a.off() - 0.1).abs() < 1e-9 && a.ratio_off() < 1e-9, "{a:?}");
        assert!((b.predicted_ratio - 0.5).abs() < 1e-9, "{b:?}");
        assert_eq!(score.within(0.11, JudgedPrediction::off), 0.5);
        let [choice] = &score.choices[..] else { panic!("{score:?}") };
        assert_eq!((choice.first.as_str(), choice.first_ratio), ("b", 0.9));
        assert_eq!((choice.best.as_str(), choice.best_ratio, choice.first_two_ratio), ("a", 0.6, 0.6));
    }

    #[test]
    fn without_live_runs_under_system_nothing_is_judged() {
        let score = PredictionScore::of(&[prediction("a", 66.0)], &[run("a", 60.0)]);
        assert_eq!(score, PredictionScore::default());
    }

    /// `b` is the leanest, and predicted to be so; lean is not half as good.
    #[test]
    fn predictions_are_beside_what_two_trials_find_without_them() {
        let names = [(SYSTEM, 100.0), ("glibc:arena1", 90.0), ("glibc:lean", 80.0), ("b", 50.0)];
        let runs: Vec<RawRun> = names.iter().map(|(name, bytes)| run(name, *bytes)).collect();
        let predictions: Vec<ServicePrediction> =
            names.iter().map(|(name, bytes)| prediction(name, *bytes * 1.1)).collect();
        let score = PredictionScore::of(&predictions, &runs);
        assert_eq!((score.choices[0].baseline_ratio, score.choices[0].first_two_ratio), (0.8, 0.5));
        assert_eq!(score.found(0.01, |one| one.baseline_ratio), 0);
        assert_eq!(score.found(0.01, |one| one.first_two_ratio), 1);
    }

    #[test]
    fn where_nothing_is_predicted_to_be_leaner_system_stays() {
        let score = PredictionScore::of(&[prediction("a", 120.0)], &[run(SYSTEM, 100.0), run("a", 130.0)]);
        assert_eq!((score.choices[0].first.as_str(), score.choices[0].first_ratio), (SYSTEM, 1.0));
        assert_eq!(score.choices[0].first_two_ratio, 1.0);
    }
}
