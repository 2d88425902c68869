// SPDX-License-Identifier: Apache-2.0
//! The best points and the best of the catalogue, replayed several times more.

use anyhow::Result;
use imas_engine::compared::{DefaultComparison, compared};
use imas_linux::catalogue::SYSTEM;
use imas_trace::result::Replay;
use imas_tune::found;
use imas_tune::goal::{Goal, PointRatios};
use serde::Serialize;

use super::points::{Baseline, Points};
use super::{OF_CATALOGUE, TUNED};

/// Replays of each contender.
const ROUNDS: usize = 3;

/// A candidate that was replayed several times.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Contender {
    pub(super) candidate: String,
    /// Whether it has searched settings.
    pub(super) is_tuned: bool,
    pub(super) predicted: PointRatios,
}

/// All contenders, the best first.
#[derive(Debug, Serialize)]
pub(super) struct Field {
    pub(super) contenders: Vec<Contender>,
}

/// The best of the catalogue (None: `system`) and of the points.
pub(super) struct Few<'a> {
    pub(super) of_catalogue: Option<&'a Contender>,
    pub(super) tuned: Vec<&'a Contender>,
}

struct Replayed {
    candidate: String,
    is_tuned: bool,
    replays: Vec<Replay>,
}

/// Replays the contenders and `system` in turn.
pub(super) fn replayed(points: &Points, baseline: &Baseline<'_>, goal: &Goal) -> Result<Field> {
    let best = found::best(&points.evaluations, goal, TUNED + 1);
    let mut all: Vec<Replayed> = vec![];
    for one in best.iter().filter(|one| !one.point.is_empty()).take(TUNED) {
        let candidate = baseline.simplified(one, goal)?.candidate;
        if all.iter().all(|known| known.candidate != candidate) {
            all.push(Replayed::new(&candidate, true));
        }
    }
    all.extend(best_of_catalogue(baseline, goal)?);
    let mut system = Replayed::new(SYSTEM, false);
    for _ in 0..ROUNDS {
        system.add(baseline)?;
        for one in &mut all {
            one.add(baseline)?;
        }
    }
    let contender = |one: &Replayed| {
        let predicted = baseline.ratios(&one.replays, &system.replays)?;
        Some(Contender { candidate: one.candidate.clone(), is_tuned: one.is_tuned, predicted })
    };
    let mut contenders: Vec<Contender> = all.iter().filter_map(contender).collect();
    contenders.retain(|one| goal.allows(&one.predicted));
    contenders.sort_by(|a, b| goal.score(&a.predicted).total_cmp(&goal.score(&b.predicted)));
    Ok(Field { contenders })
}

/// One replay of every usable candidate of the catalogue; the best.
fn best_of_catalogue(baseline: &Baseline<'_>, goal: &Goal) -> Result<Vec<Replayed>> {
    let mut system = Replayed::new(SYSTEM, false);
    system.add(baseline)?;
    let context = baseline.replayer.context;
    let mut scored = vec![];
    for one in compared(&["all".to_owned()], DefaultComparison::DefaultSet, context, None)? {
        if one.obstacle.is_some() || one.candidate.is_system() {
            continue;
        }
        let mut replayed = Replayed::new(&one.candidate.name, false);
        replayed.add(baseline)?;
        if let Some(ratios) = baseline.ratios(&replayed.replays, &system.replays).filter(|r| goal.allows(r)) {
            scored.push((goal.score(&ratios), replayed));
        }
    }
    scored.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(scored.into_iter().map(|(_, one)| one).take(OF_CATALOGUE).collect())
}

impl Replayed {
    fn new(candidate: &str, is_tuned: bool) -> Self {
        Self { candidate: candidate.to_owned(), is_tuned, replays: vec![] }
    }

    /// One replay more. One that fails adds none.
    fn add(&mut self, baseline: &Baseline<'_>) -> Result<()> {
        self.replays.extend(baseline.replay(&self.candidate, 0)?.ok());
        Ok(())
    }
}

impl Field {
    /// The best contenders, if settings are predicted to gain more than `least` over the catalogue.
    pub(super) fn worth_live_runs(&self, goal: &Goal, most: usize, least: f64) -> Option<Few<'_>> {
        let of_catalogue = self.contenders.iter().find(|one| !one.is_tuned);
        let of_catalogue = of_catalogue.filter(|one| goal.score(&one.predicted) < 0.0);
        let to_beat = of_catalogue.map_or(0.0, |one| goal.score(&one.predicted));
        let gains = |one: &&Contender| one.is_tuned && goal.score(&one.predicted) < to_beat - least;
        let tuned: Vec<&Contender> = self.contenders.iter().filter(gains).take(most).collect();
        (!tuned.is_empty()).then_some(Few { of_catalogue, tuned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(candidate: &str, is_tuned: bool, memory: f64) -> Contender {
        let predicted = PointRatios { cpu: 1.0, memory, peak: memory };
        Contender { candidate: candidate.to_owned(), is_tuned, predicted }
    }

    #[test]
    fn settings_that_gain_nothing_over_the_catalogue_are_not_measured() {
        let goal = Goal { cpu_weight: 0.0, limits: vec![] };
        let field = |tuned: f64, of_catalogue: f64| Field {
            contenders: vec![
                contender("jemalloc?narenas:1", true, tuned),
                contender("jemalloc:mem", false, of_catalogue),
            ],
        };
        assert!(field(0.8, 0.801).worth_live_runs(&goal, 2, LEAST).is_none());
        let good = field(0.8, 0.9);
        let few = good.worth_live_runs(&goal, 2, LEAST).unwrap();
        assert_eq!((few.tuned.len(), few.of_catalogue.unwrap().candidate.as_str()), (1, "jemalloc:mem"));
        let against_system = field(0.98, 1.2);
        assert!(against_system.worth_live_runs(&goal, 2, LEAST).unwrap().of_catalogue.is_none());
        assert!(field(1.1, 1.2).worth_live_runs(&goal, 2, LEAST).is_none(), "worse than system");
    }

    const LEAST: f64 = 0.005;
}
