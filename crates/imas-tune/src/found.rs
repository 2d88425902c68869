// SPDX-License-Identifier: Apache-2.0
//! What a search found.

use optimizer::Direction;
use optimizer::pareto::pareto_front_indices;
use serde::{Deserialize, Serialize};

use crate::goal::{Goal, PointRatios};
use crate::space::SettingsPoint;

/// One point and what was predicted of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Name of the candidate, with its settings.
    pub candidate: String,
    /// Its allocator.
    pub allocator: String,
    /// The settings that are not at their default.
    pub point: SettingsPoint,
    /// Its figures; None if it failed.
    pub ratios: Option<PointRatios>,
    /// Why there are none.
    pub failure: Option<String>,
}

/// How much the settings of one allocator matter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Importance {
    /// The allocator.
    pub allocator: String,
    /// Each setting's share of what the score varies by, the largest first.
    pub settings: Vec<(String, f64)>,
}

impl Evaluation {
    pub(crate) fn open(candidate: &str, allocator: &str, point: SettingsPoint) -> Self {
        let (candidate, allocator) = (candidate.to_owned(), allocator.to_owned());
        Self { candidate, allocator, point, ratios: None, failure: None }
    }

    pub(crate) fn set(&mut self, ratios: Result<PointRatios, String>) {
        match ratios {
            Ok(ratios) => self.ratios = Some(ratios),
            Err(why) => self.failure = Some(why),
        }
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.ratios.is_some() || self.failure.is_some()
    }
}

/// At most `most` evaluations with the best scores that keep all limits, the best first. Between equals the
/// one with fewer settings comes first.
#[must_use]
pub fn best(evaluations: &[Evaluation], goal: &Goal, most: usize) -> Vec<Evaluation> {
    let allowed = evaluations.iter().filter_map(|one| Some((one, one.ratios.as_ref()?)));
    let mut by_score: Vec<(f64, &Evaluation)> = allowed
        .filter(|(_, ratios)| goal.allows(ratios))
        .map(|(one, ratios)| (goal.score(ratios), one))
        .collect();
    by_score.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.point.len().cmp(&b.1.point.len())));
    by_score.into_iter().map(|(_, one)| one.clone()).take(most).collect()
}

/// The evaluations that no other one beats on both CPU and memory, the fastest first.
#[must_use]
pub fn front(evaluations: &[Evaluation]) -> Vec<Evaluation> {
    let with_ratios: Vec<(&Evaluation, PointRatios)> =
        evaluations.iter().filter_map(|one| Some((one, one.ratios?))).collect();
    let figures: Vec<Vec<f64>> =
        with_ratios.iter().map(|(_, ratios)| vec![ratios.cpu, ratios.memory]).collect();
    let mut front: Vec<(&Evaluation, PointRatios)> =
        pareto_front_indices(&figures, &[Direction::Minimize, Direction::Minimize])
            .into_iter()
            .map(|at| with_ratios[at])
            .collect();
    front.sort_by(|a, b| a.1.cpu.total_cmp(&b.1.cpu));
    front.into_iter().map(|(one, _)| one.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goal::{Limit, LimitedFigure};

    fn evaluation(candidate: &str, cpu: f64, memory: f64) -> Evaluation {
        let mut one = Evaluation::open(candidate, "a", SettingsPoint::new());
        one.set(Ok(PointRatios { cpu, memory, peak: memory }));
        one
    }

    fn names(evaluations: &[Evaluation]) -> Vec<&str> {
        evaluations.iter().map(|one| one.candidate.as_str()).collect()
    }

    #[test]
    fn the_best_keep_the_limits() {
        let mut failed = Evaluation::open("failed", "a", SettingsPoint::new());
        failed.set(Err("signal 11".to_owned()));
        let all = [
            evaluation("lean", 1.2, 0.5),
            evaluation("even", 0.9, 0.9),
            evaluation("fast", 0.7, 1.5),
            failed,
        ];
        let limits = vec![Limit { figure: LimitedFigure::Cpu, most: 1.05 }];
        let goal = Goal { cpu_weight: 0.0, limits };
        assert_eq!(names(&best(&all, &goal, 5)), ["even", "fast"]);
        assert_eq!(names(&best(&all, &Goal { limits: vec![], ..goal }, 1)), ["lean"]);
    }

    #[test]
    fn the_front_has_no_point_that_is_beaten() {
        let all = [
            evaluation("lean", 1.2, 0.5),
            evaluation("beaten", 1.3, 0.6),
            evaluation("fast", 0.7, 1.5),
            evaluation("even", 0.9, 0.9),
        ];
        assert_eq!(names(&front(&all)), ["fast", "even", "lean"]);
        assert_eq!(front(&[]), []);
    }
}
