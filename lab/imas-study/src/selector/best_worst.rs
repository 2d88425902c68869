// SPDX-License-Identifier: Apache-2.0
//! The programs with the largest gains and losses, by name.

use super::Judged;
use super::strategy::{Aim, Strategy};
use super::total::{Metric, signed};
use imas_cli::table::Table;

/// Number of programs shown at each end.
const SHOWN: usize = 6;

pub(crate) fn table(judged: &Judged) -> Table {
    let columns = ["policy, pick", "measured in", "program", "gain %", "picked (share of splits)"];
    let mut table = Table::new("best-and-worst", "Programs that gain and lose most", &columns);
    for (strategy, metric) in shown() {
        for (program, value, picks) in ends(judged, &strategy, metric) {
            table.push(vec![
                strategy.name(),
                metric.name().to_owned(),
                program.to_owned(),
                signed(metric.gain(value)),
                picks,
            ]);
        }
    }
    table
}

fn shown() -> Vec<(Strategy, Metric)> {
    vec![
        (Strategy::Adaptive(Aim::Fastest), Metric::Cpu),
        (Strategy::Adaptive(Aim::Leanest), Metric::Memory),
        (Strategy::Adaptive(Aim::Balanced), Metric::Balance),
        (Strategy::Paper(Aim::Balanced), Metric::Frag),
        (Strategy::Paper(Aim::Balanced), Metric::Time),
    ]
}

/// The first and last programs in the order of their gains, best first. All of them if there are few.
fn ends<'a>(judged: &'a Judged, strategy: &Strategy, metric: Metric) -> Vec<(&'a str, f64, String)> {
    let Some(outcomes) = judged.outcomes.get(strategy) else { return vec![] };
    let line = |(&i, outcome): (&usize, &super::judge::Outcome)| {
        Some((judged.source.programs[i].name.as_str(), metric.of(outcome)?, shares(&outcome.picks)))
    };
    let mut lines: Vec<_> = outcomes.iter().filter_map(line).collect();
    lines.sort_by(|a, b| a.1.total_cmp(&b.1));
    if lines.len() > 2 * SHOWN {
        lines.drain(SHOWN..lines.len() - SHOWN);
    }
    lines
}

/// `jemalloc 90 %, system 10 %`.
pub(crate) fn shares(picks: &[(String, f64)]) -> String {
    let one = |(name, share): &(String, f64)| format!("{name} {:.0} %", share * 100.0);
    picks.iter().map(one).collect::<Vec<_>>().join(", ")
}
