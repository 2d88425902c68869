// SPDX-License-Identifier: Apache-2.0
//! The pick of each service beside one setting for all services: what choosing for each gains over choosing once.
//!
//! Pick and setting are compared in the round that judges, which did not choose the pick.

use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::stats::{Interval, mean_and_deviation};
use serde::Serialize;

use crate::services::judge::{HeldOutPicks, JUDGED, JUDGED_COLUMNS, change, geometric_mean, is_proven_above};
use crate::services::round_changes::{RoundChanges, for_every_service};
use crate::study::without_empty_columns;
use imas_core::compare::smallest_difference;

/// The picks beside one setting for all. A ratio below 1 is a gain of the picks.
#[derive(Serialize, Clone, PartialEq, Debug)]
pub struct AgainstSingle {
    /// Name of the setting.
    pub candidate: String,
    /// Number of services in which both ran.
    pub services: usize,
    /// Ratios of the picks to the setting in the order of [`JUDGED`], geometric means over the services with their 95 %
    /// intervals.
    pub ratios: [Option<Interval>; JUDGED.len()],
    /// Services whose pick takes less memory by more than the margin, and those in which that is proven.
    pub leaner: [usize; 2],
    /// Services whose pick takes more memory by more than the margin, and those in which that is proven.
    pub fatter: [usize; 2],
}

impl AgainstSingle {
    /// Every setting that may be given to all services, `system` first, the others by name.
    #[must_use]
    pub fn all(services: &[(&RoundChanges, &HeldOutPicks)]) -> Vec<Self> {
        let names = for_every_service(services.iter().map(|(changes, _)| *changes));
        [SYSTEM].into_iter().chain(names).map(|name| Self::of(name, services)).collect()
    }

    fn of(single: &str, services: &[(&RoundChanges, &HeldOutPicks)]) -> Self {
        let of_each = |figure: &str| -> Vec<Vec<f64>> {
            let logs = services.iter().map(|(changes, picks)| differences(changes, picks, single, figure));
            logs.filter(|logs| !logs.is_empty()).collect()
        };
        let memory = of_each("memory");
        let limit = 1.0 + smallest_difference("memory");
        let beyond = |sign: f64| {
            let turned = |logs: &Vec<f64>| -> Vec<f64> { logs.iter().map(|log| sign * log).collect() };
            let is_above = |logs: &Vec<f64>| mean_and_deviation(logs).0 > limit.ln();
            let all: Vec<Vec<f64>> = memory.iter().map(turned).collect();
            let proven = all.iter().filter(|logs| is_proven_above(logs, limit)).count();
            [all.iter().filter(|logs| is_above(logs)).count(), proven]
        };
        let ratios = |figure: &str| -> Vec<f64> {
            of_each(figure).iter().map(|logs| mean_and_deviation(logs).0.exp()).collect()
        };
        Self {
            candidate: single.to_owned(),
            services: memory.len(),
            ratios: JUDGED.map(|figure| geometric_mean(&ratios(figure))),
            leaner: beyond(-1.0),
            fatter: beyond(1.0),
        }
    }

    /// Table with a row for each setting.
    #[must_use]
    pub fn table(all: &[Self]) -> Table {
        let counted = ["leaner (proven)", "fatter (proven)"];
        let columns = [&["compared with", "services"][..], &JUDGED_COLUMNS, &counted].concat();
        let mut table = Table::new("against-single", "Picks beside one setting for all", &columns);
        for one in all {
            let counts = [one.leaner, one.fatter].map(|[all, proven]| format!("{all} ({proven})"));
            let own = [one.candidate.clone(), one.services.to_string()];
            table.push(own.into_iter().chain(one.ratios.map(change)).chain(counts).collect());
        }
        without_empty_columns(table)
    }
}

/// Logarithms of the ratio of the pick to the setting in each round that judges. A round in which one of them failed or
/// is missing is left out.
fn differences(changes: &RoundChanges, picks: &HeldOutPicks, single: &str, figure: &str) -> Vec<f64> {
    let change = |name: &str, round: u32| match name {
        SYSTEM => Some(0.0),
        name => changes.change(changes.candidates.iter().position(|other| other == name)?, round, figure),
    };
    let is_measured = changes.is_measured(figure)
        && (single == SYSTEM || changes.candidates.iter().any(|name| name == single));
    let difference = |(round, pick): (&u32, &String)| match pick == single {
        true => is_measured.then_some(0.0),
        false => Some(change(pick, *round)? - change(single, *round)?),
    };
    picks.by_round.iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::judge::JudgedService;
    use crate::services::pick_rule::PickRule;
    use imas_core::judgement::Goal;
    use imas_core::run::RawRun;
    use imas_core::server_run::{Figure, ServerRun};

    fn runs(service: &str, memory: [(&str, f64); 3]) -> Vec<RawRun> {
        let of = |round: u32| {
            memory.map(|(candidate, mb)| {
                // A slow round makes all of them larger, alike.
                let figures =
                    ["memory", "memory_idle"].map(|name| Figure::lower(name, mb * f64::from(round + 1), "B"));
                let (program, candidate) = (service.to_owned(), candidate.to_owned());
                RawRun { program, candidate, round, ..RawRun::default() }.with_server(ServerRun::of(figures))
            })
        };
        (0..4).flat_map(of).collect()
    }

    /// `a` is the best of x, `b` the best of y. The picks gain over each of both what the other has there.
    #[test]
    fn picks_are_compared_with_each_setting_on_rounds_that_did_not_choose() {
        let all = [
            runs("x", [("system", 100.0), ("a", 50.0), ("b", 80.0)]),
            runs("y", [("system", 100.0), ("a", 80.0), ("b", 40.0)]),
        ]
        .concat();
        let goal = Goal::Memory;
        let rule = PickRule { goal, rails: vec![], least_gain: 0.05, needs_proof: false, resamples: 10 };
        let changes = RoundChanges::of_all(&all);
        let judged: Vec<JudgedService> = changes.iter().map(|one| JudgedService::of(one, &rule)).collect();
        let pairs: Vec<_> = changes
            .iter()
            .zip(&judged)
            .map(|(one, judged)| (one, judged.held_out.as_ref().unwrap()))
            .collect();
        let found = AgainstSingle::all(&pairs);
        let names: Vec<&str> = found.iter().map(|one| one.candidate.as_str()).collect();
        assert_eq!(names, ["system", "a", "b"]);
        let mid = |at: usize| found[at].ratios[0].unwrap().mid;
        for (at, wanted) in [(0, (0.5_f64 * 0.4).sqrt()), (1, 0.5_f64.sqrt()), (2, (50.0_f64 / 80.0).sqrt())]
        {
            assert!((mid(at) - wanted).abs() < 1e-9, "{}: {} and not {wanted}", names[at], mid(at));
        }
        assert_eq!((found[1].services, found[1].leaner, found[1].fatter), (2, [1, 1], [0, 0]));
        let table = AgainstSingle::table(&found).plain();
        assert!(table.contains("1 (1)") && !table.contains("over the day"), "{table}");
    }
}
