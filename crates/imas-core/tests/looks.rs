// SPDX-License-Identifier: Apache-2.0
//! Runs that are looked at while they are made: when they end. How often noise is taken for a gain is in
//! `one_judge.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_core::bench::{CandidateRuns, Looks, Options, compare};
use imas_core::compare::{Demand, PairedRatio, Resampling, Spread};
use imas_core::judgement::{BenchCourse, BenchEnding};
use imas_core::run::RawRun;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};

/// Nearly normal, with a standard deviation of 1.
fn normal(random: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

/// One more round: `system` and candidates with these ratios of CPU and memory, 4 and 2 % of noise.
fn round(candidates: &mut Vec<CandidateRuns>, ratios: &[(f64, f64)], random: &mut ChaCha8Rng) {
    let all = std::iter::once(&(1.0, 1.0)).chain(ratios);
    for (at, (cpu, memory)) in all.enumerate() {
        if candidates.len() <= at {
            let name = if at == 0 { "system".to_owned() } else { format!("c{at}") };
            candidates.push(CandidateRuns { name, runs: vec![] });
        }
        let runs = &mut candidates[at].runs;
        let user_s = cpu * (1.0 + 0.04 * normal(random));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        let mean_bytes = (1e8 * memory * (1.0 + 0.02 * normal(random))) as u64;
        let round = u32::try_from(runs.len()).unwrap();
        runs.push(RawRun { round, user_s, wall_s: user_s, mean_bytes, ..RawRun::default() });
    }
}

/// Rounds that were made, and whether a candidate was picked.
fn session(ratios: &[(f64, f64)], seed: u64) -> (usize, bool, BenchEnding) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let options = Options { resamples: 50, seed, looks: Some(Looks::AUTO), ..Options::default() };
    let mut candidates = vec![];
    loop {
        round(&mut candidates, ratios, &mut random);
        let made = candidates[0].runs.len();
        if made < 5 {
            continue;
        }
        let judgement = compare(&candidates, &options).judgement;
        if judgement.course != BenchCourse::Open || made == 30 {
            return (made, judgement.best().is_some(), judgement.ending);
        }
    }
}

#[test]
fn a_clear_gain_ends_the_runs_early() {
    let ratios = [(0.7, 0.7), (1.0, 1.0), (1.3, 1.0)];
    let ended: Vec<_> = (0..10).map(|seed| session(&ratios, seed)).collect();
    assert!(ended.iter().all(|(made, picked, _)| *picked && *made < 15), "{ended:?}");
    assert!(ended.iter().all(|(_, _, ending)| *ending == BenchEnding::Picked), "{ended:?}");
}

#[test]
fn a_clearly_worse_candidate_needs_few_rounds() {
    let (made, picked, ending) = session(&[(1.5, 1.5)], 1);
    assert!(made < 15 && !picked, "{made}");
    assert_eq!(ending, BenchEnding::NoneBetter);
}

#[test]
fn faster_and_slower_share_the_error_of_a_look() {
    let demand = Demand { looks: Some(Looks { first: 5, most: 5 }), ..Demand::of(1) };
    let is_shown = |t: f64| {
        let ratio = |deviation: f64| (0.01 * (deviation - t / 5_f64.sqrt())).exp();
        let ratios = [-1.0, -1.0, 0.0, 1.0, 1.0].map(ratio);
        let how = Resampling { seed: 1, resamples: 10 };
        PairedRatio::of(&ratios, Spread::default(), how).unwrap().is_shown(&demand)
    };
    // With four degrees of freedom 2.132 is exceeded with a probability of 0.05, 2.776 with half of that.
    assert!(!is_shown(2.4) && is_shown(2.9));
}
