// SPDX-License-Identifier: Apache-2.0
//! The judgement of a policy that always picks the true best. It is not perfect, because the judging runs
//! have noise.

use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::assess::{Plan, PolicyResult, one_program, summary};
use crate::contender::Contender;
use crate::program::SimulatedProgram;
use crate::program::cost;
use imas_core::adaptive::Point;

/// Judgement of the best candidate itself, on runs made up after these programs: each round is
/// what the candidates cost over `system` (the median of all rounds), plus the deviations of a round drawn at
/// random times a normal variable (the wild bootstrap: C. F. J. Wu, "Jackknife, bootstrap and other
/// resampling methods in regression analysis", Annals of Statistics 14, 1986). There the best is known. None
/// where the programs' truth is known and the judgement has no noise.
pub fn floor(programs: &[SimulatedProgram], plan: &Plan) -> Option<PolicyResult> {
    let mut random = ChaCha8Rng::seed_from_u64(plan.seed);
    let of = |(number, program): (usize, &SimulatedProgram)| {
        let (again, best) = made_again(program, plan.w, &mut random)?;
        one_program(&Contender::Always(best), &again, plan, number as u64)
    };
    let judged: Vec<_> = programs.iter().enumerate().filter_map(of).collect();
    (!judged.is_empty()).then(|| summary("best candidate itself".to_owned(), judged, plan))
}

/// The program with new runs, and its best candidate.
fn made_again(
    program: &SimulatedProgram,
    w: f64,
    random: &mut ChaCha8Rng,
) -> Option<(SimulatedProgram, String)> {
    if program.truth.is_some() {
        return None;
    }
    let all: Vec<usize> = (0..program.rounds.len()).collect();
    let truth: Vec<Option<Point>> = (0..program.candidates.len()).map(|i| cost(program, &all, i)).collect();
    let scores = truth.iter().enumerate().filter_map(|(i, point)| Some((i, point.as_ref()?.score(w))));
    let (best, _) = scores.min_by(|a, b| a.1.total_cmp(&b.1))?;
    let mut round = || {
        let drawn = &program.rounds[random.random_range(0..program.rounds.len())];
        let times = Normal::standard().inverse_cdf(random.random::<f64>().clamp(1e-12, 1.0 - 1e-12));
        let cell = |(truth, point): (&Option<Point>, &Option<Point>)| {
            let (truth, seen) = ((*truth)?, point.as_ref()?.over(drawn[0]?));
            let off = seen.over(truth);
            Some(Point { cpu: truth.cpu + times * off.cpu, memory: truth.memory + times * off.memory })
        };
        truth.iter().zip(drawn).map(cell).collect()
    };
    let rounds = (0..program.rounds.len()).map(|_| round()).collect();
    Some((SimulatedProgram { rounds, ..program.clone() }, program.candidates[best].clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    fn floor_at(noise: f64) -> PolicyResult {
        let world = World { programs: 40, cpu_noise: noise, memory_noise: noise, ..World::default() };
        let mut programs = world.programs(3);
        programs.iter_mut().for_each(|program| program.truth = None);
        floor(&programs, &Plan { splits: 4, resamples: 20, ..Plan::default() }).unwrap()
    }

    /// On average no policy is better than the true best. In single cases it looks wrong, more often with
    /// more noise.
    #[test]
    fn noise_makes_even_the_true_best_look_imperfect() {
        let (quiet, loud) = (floor_at(0.001), floor_at(0.20));
        assert!(quiet.regret.abs() < 0.01 && quiet.within_3_pct > 0.95, "{quiet:?}");
        assert!(loud.regret < 0.01, "{}", loud.regret);
        assert!(
            loud.within_3_pct < quiet.within_3_pct || loud.regret < quiet.regret,
            "{}",
            loud.within_3_pct
        );
    }

    #[test]
    fn known_truth_has_no_floor() {
        let programs = World { programs: 3, ..World::default() }.programs(3);
        assert_eq!(floor(&programs, &Plan::default()), None);
    }
}
