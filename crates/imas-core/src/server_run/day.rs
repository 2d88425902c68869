// SPDX-License-Identifier: Apache-2.0
//! Memory over a day: a load with busy, quiet and bursting parts, each of a fixed length.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::work::{mean_between, with_ends};
use super::{Figure, ServerRun};

/// A part of a day that was made.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug, Default)]
#[serde(default)]
pub struct DayFigures {
    /// Name of the part.
    pub part: String,
    /// Seconds since the start of the server.
    pub began_s: f64,
    /// Elapsed seconds.
    pub wall_s: f64,
    /// CPU seconds of the server.
    pub cpu_s: f64,
}

/// The figures of a day: `memory_day`, the mean over its time, which is its integral over its length; the same for
/// each part (`memory_day_busy`, a second one of a name `memory_day_quiet_2`); and `cpu_day`, CPU seconds. Empty
/// without a day or a curve.
#[must_use]
pub fn day_figures(run: &ServerRun) -> Vec<Figure> {
    let curve = with_ends(run);
    let (Some(first), Some(last), false) = (run.day.first(), run.day.last(), curve.is_empty()) else {
        return vec![];
    };
    let memory = |name: String, from_s, to_s| Figure::lower(&name, mean_between(&curve, from_s, to_s), "B");
    let cpu_s = run.day.iter().map(|part| part.cpu_s).sum();
    let mut figures = vec![
        memory("memory_day".to_owned(), first.began_s, last.began_s + last.wall_s),
        Figure::lower("cpu_day", cpu_s, "s"),
    ];
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    for part in &run.day {
        let number = seen.entry(&part.part).or_default();
        *number += 1;
        let name = match number {
            1 => format!("memory_day_{}", part.part),
            number => format!("memory_day_{}_{number}", part.part),
        };
        figures.push(memory(name, part.began_s, part.began_s + part.wall_s));
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_weighted_by_time_and_has_its_parts() {
        let part =
            |part: &str, began_s, wall_s| DayFigures { part: part.into(), began_s, wall_s, cpu_s: 1.0 };
        let run = ServerRun {
            curve: vec![(0.0, 100), (10.0, 100), (10.001, 400), (20.0, 400), (20.001, 200), (100.0, 200)],
            day: vec![part("quiet", 0.0, 10.0), part("busy", 10.0, 10.0), part("quiet", 20.0, 20.0)],
            ..ServerRun::default()
        };
        let figures = day_figures(&run);
        let of = |name: &str| figures.iter().find(|figure| figure.name == name).unwrap().value.round();
        assert_eq!(
            [of("memory_day_quiet"), of("memory_day_busy"), of("memory_day_quiet_2")],
            [100.0, 400.0, 200.0]
        );
        assert_eq!((of("memory_day"), of("cpu_day")), (225.0, 3.0));
        assert_eq!(day_figures(&ServerRun { day: vec![], ..run }), []);
    }
}
