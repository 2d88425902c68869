// SPDX-License-Identifier: Apache-2.0
//! What the default policy promises with predictions by replay, however wrong they are, on programs of known
//! truth.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use imas_core::adaptive::board::JudgedTrial;
use imas_core::adaptive::{Board, Point, Role, Settings, judge};
use imas_core::replay_prior::{
    CandidateForecast, Forecast, PredictedDifference, ReplayEvidence, ReplayPrior,
};
use imas_simulate::{Contender, Plan, PolicyResult, SimulatedProgram, World, assess};
use proptest::prelude::*;

/// How a replay errs.
type Prediction = fn(number: usize, candidate: usize, truth: Point) -> (f64, f64);

/// A prior for each program, of which each prediction is believed to within `deviation`.
fn priors(
    programs: &[SimulatedProgram],
    predict: Prediction,
    deviation: f64,
) -> Arc<BTreeMap<String, ReplayPrior>> {
    let forecast = |number: usize, program: &SimulatedProgram, i: usize| {
        let (cpu, memory) = predict(number, i, program.truth.as_ref().unwrap()[i]);
        let of = |mean| Forecast { mean, deviation };
        let (candidate, version) = (program.candidates[i].clone(), String::new());
        let predicted = PredictedDifference { candidate, version, cpu, memory };
        CandidateForecast { predicted, cpu: of(cpu), memory: of(memory) }
    };
    let prior = |(number, program): (usize, &SimulatedProgram)| {
        let all = 1..program.candidates.len();
        let forecasts = all.map(|i| forecast(number, program, i)).collect();
        (program.name.clone(), ReplayPrior { forecasts })
    };
    Arc::new(programs.iter().enumerate().map(prior).collect())
}

fn with_prior(programs: &[SimulatedProgram], predict: Prediction, deviation: f64) -> Contender {
    let priors = priors(programs, predict, deviation);
    Contender::WithPrior { name: "a prior".to_owned(), settings: Settings::default(), priors }
}

fn result(contender: &Contender, programs: &[SimulatedProgram]) -> PolicyResult {
    assess(contender, programs, &Plan { splits: 3, resamples: 20, ..Plan::default() })
}

/// A number from -0.5 to 0.5, without order.
fn scattered(number: usize, candidate: usize) -> f64 {
    ((number * 31 + candidate) as f64 * 0.618_033_988_75).fract() - 0.5
}

const RIGHT: Prediction = |_, _, truth| (truth.cpu, truth.memory);
const WRONG: [(&str, Prediction); 5] = [
    ("the contrary", |_, _, truth| (-truth.cpu, -truth.memory)),
    ("all are praised", |_, _, _| (-0.5, -0.5)),
    ("all are blamed", |_, _, _| (0.5, 0.5)),
    ("one is praised", |number, i, _| if i == 1 + number % 5 { (-0.4, -0.4) } else { (0.4, 0.4) }),
    ("by chance", |number, i, _| (scattered(number, i), scattered(number + 7, i))),
];

#[test]
fn wrong_predictions_make_nothing_worse_and_cost_few_trials() {
    let programs = World { programs: 120, ..World::default() }.programs(5);
    let without = result(&Contender::Adaptive(Settings::default()), &programs);
    for (kind, predict) in WRONG {
        for deviation in [0.02, 0.10] {
            let with = result(&with_prior(&programs, predict, deviation), &programs);
            println!(
                "{kind}, {deviation}: {:.1} trials ({:.1}), harmed {}",
                with.trials, without.trials, with.harmed
            );
            assert_eq!(with.harmed, 0, "{kind}");
            assert!(with.trials <= without.trials + 4.0, "{kind}: {} {}", with.trials, without.trials);
            assert!(with.details.iter().all(|one| one.trials <= 48.0), "{kind}");
        }
    }
}

#[test]
fn right_predictions_spare_trials_and_lose_nothing() {
    let programs = World { programs: 120, candidates: 13, ..World::default() }.programs(5);
    let without = result(&Contender::Adaptive(Settings::default()), &programs);
    let with = result(&with_prior(&programs, RIGHT, 0.05), &programs);
    assert!(with.trials < 0.5 * without.trials, "{} {}", with.trials, without.trials);
    assert!(with.gain > 0.95 * without.gain && with.harmed == 0, "{} {}", with.gain, without.gain);
}

/// One program in twenty may be changed without reason, as without predictions.
#[test]
fn under_pure_noise_the_incumbent_is_kept_whatever_is_predicted() {
    let world = World { indifferent: 1.0, rounds: 8, programs: 200, ..World::default() };
    let programs = world.programs(7);
    let seen: Vec<usize> = (0..8).collect();
    for (kind, predict) in WRONG {
        let contender = with_prior(&programs, predict, 0.05);
        let stays = |(number, program): &(usize, &SimulatedProgram)| {
            let w = [0.5, 1.0, 0.0][number % 3];
            contender.settle(program, &seen, w, 3).unwrap().pick == 0
        };
        let kept = programs.iter().enumerate().filter(stays).count() as f64 / programs.len() as f64;
        println!("{kind}: {kept}");
        assert!(kept >= 0.95, "{kind}: {kept}");
    }
}

proptest! {
    /// Whatever is predicted, a pick has trials here that show a gain of the margin at least, and a proof;
    /// without trials there is none.
    #[test]
    fn a_pick_is_proven_by_trials_alone(
        predicted in prop::collection::vec((-2.0..2.0f64, -2.0..2.0f64, 0.001..0.5f64), 4),
        costs in prop::collection::vec((-0.5..0.5f64, -0.5..0.5f64), 4),
        wobble in 0.0..0.1f64,
        rounds in 0..8u32,
        w in 0.0..1.0f64,
    ) {
        let forecast = |&(cpu, memory, deviation): &(f64, f64, f64)| {
            let of = |mean| Forecast { mean, deviation };
            let predicted = PredictedDifference { cpu, memory, ..PredictedDifference::default() };
            Some(CandidateForecast { predicted, cpu: of(cpu), memory: of(memory) })
        };
        let candidates = std::iter::once(None).chain(predicted.iter().map(forecast)).collect();
        let trial = |round: u32, i: usize| {
            let (cpu, memory) = if i == 0 { (0.0, 0.0) } else { costs[i - 1] };
            let off = wobble * scattered(round as usize, i);
            JudgedTrial { candidate: i, point: Some(Point { cpu: cpu + off, memory: memory - off }) }
        };
        let trials: Vec<JudgedTrial> = (0..rounds).flat_map(|r| (0..5).map(move |i| (r, i))).map(|(r, i)| trial(r, i)).collect();
        let board = Board { replay: Some(ReplayEvidence { candidates }), ..Board::new(&trials, 5, 0) };
        let settings = Settings::default();
        let judgement = judge(&board, &[Role::Tested; 5], 0, w, &settings);
        let standing = &judgement.standings[judgement.pick];
        prop_assert!(rounds >= settings.min_rounds || judgement.pick == 0);
        prop_assert!(judgement.pick == 0 || (standing.proof.is_some() && standing.gain >= settings.margin(w)), "{judgement:?}");
        prop_assert!(judgement.next.is_none_or(|next| board.trials_of(next) <= settings.max_rounds));
    }
}
