// SPDX-License-Identifier: Apache-2.0
//! The project's aims, and what the default policy reaches.

use super::Judged;
use super::judge::Outcomes;
use super::strategy::{Aim, Strategy};
use super::total::{Metric, ahead, total, with_interval};
use imas_cli::table::Table;

/// A gain that is to be reached by one kind of pick.
struct Wanted {
    text: &'static str,
    aim: Aim,
    metric: Metric,
    at_least: f64,
    /// False: mean memory must not grow.
    may_cost_memory: bool,
}

const WANTED: [Wanted; 5] = [
    Wanted {
        text: "fastest picks: less CPU than system",
        aim: Aim::Fastest,
        metric: Metric::Cpu,
        at_least: 12.0,
        may_cost_memory: true,
    },
    Wanted {
        text: "leanest picks: less resident memory than system",
        aim: Aim::Leanest,
        metric: Metric::Memory,
        at_least: 7.2,
        may_cost_memory: true,
    },
    Wanted {
        text: "balanced picks: less CPU than system at no more memory",
        aim: Aim::Balanced,
        metric: Metric::Cpu,
        at_least: 8.0,
        may_cost_memory: false,
    },
    Wanted {
        text: "paper's metric, policy paper: less fragmentation than system, points",
        aim: Aim::Balanced,
        metric: Metric::Frag,
        at_least: 7.16,
        may_cost_memory: true,
    },
    Wanted {
        text: "paper's metric, policy paper: faster operations than system",
        aim: Aim::Balanced,
        metric: Metric::Time,
        at_least: 1.79,
        may_cost_memory: true,
    },
];

pub(crate) fn table(judged: &Judged, outcomes: &Outcomes, id: &str, title: &str) -> Table {
    let columns = ["aim", "wanted %", "reached %, mean [95 %]", "reached", "beside it"];
    let mut table = Table::new(id, title, &columns);
    for wanted in &WANTED {
        table.push(row(judged, outcomes, wanted).unwrap_or_else(|| no_row(wanted)));
    }
    table.push(ahead_of_all(judged, outcomes));
    table
}

fn no_row(wanted: &Wanted) -> Vec<String> {
    [wanted.text, &wanted.at_least.to_string(), "no figure", "no", "the runs have none"]
        .map(str::to_owned)
        .to_vec()
}

fn row(judged: &Judged, outcomes: &Outcomes, wanted: &Wanted) -> Option<Vec<String>> {
    let of = |strategy: Strategy, metric| total(outcomes, &strategy, metric, judged.by);
    let policy = match wanted.metric {
        Metric::Time | Metric::Frag => Strategy::Paper(wanted.aim),
        _ => Strategy::Adaptive(wanted.aim),
    };
    let ours = of(policy.clone(), wanted.metric)?;
    let memory = of(policy, Metric::Memory)?;
    let geometric = ours.geometric.map(|i| format!("geometric mean {}; ", with_interval(&i)));
    let beside = |of: Option<super::total::Total>| of.map_or_else(|| "-".to_owned(), |t| t.mean_and_count());
    let is_reached = ours.mean.mid >= wanted.at_least && (wanted.may_cost_memory || memory.mean.mid >= 0.0);
    Some(vec![
        wanted.text.to_owned(),
        wanted.at_least.to_string(),
        ours.mean_and_count(),
        if is_reached { "yes" } else { "no" }.to_owned(),
        format!(
            "{}resident memory {}; best of the runs seen, without proof: {}; oracle in hindsight, which noise flatters: {}",
            geometric.unwrap_or_default(),
            with_interval(&memory.mean),
            beside(of(Strategy::Best(wanted.aim), wanted.metric)),
            beside(of(Strategy::Hindsight(wanted.aim), wanted.metric)),
        ),
    ])
}

fn ahead_of_all(judged: &Judged, outcomes: &Outcomes) -> Vec<String> {
    let (mut behind, mut unsure) = (vec![], vec![]);
    for (aim, metric) in Aim::ALL.into_iter().zip(Metric::OURS) {
        for candidate in &judged.source.candidates {
            let other = Strategy::Always(candidate.clone());
            let lead = ahead(outcomes, (&Strategy::Adaptive(aim), &other), metric, judged.by);
            let Some((_, lead)) = lead else { continue };
            let text = format!("{candidate} in {} ({})", metric.name(), with_interval(&lead));
            match lead.mid <= 0.0 {
                true => behind.push(text),
                false if lead.lo <= 0.0 => unsure.push(text),
                false => (),
            }
        }
    }
    let list = |title: &str, names: &[String]| match names {
        [] => String::new(),
        list => format!("{title}: {}. ", list.join(", ")),
    };
    vec![
        "ahead of every single candidate in CPU, memory and both (geometric means)".to_owned(),
        "all".to_owned(),
        format!("behind {}, within the interval of {}", behind.len(), unsure.len()),
        if behind.is_empty() { "yes" } else { "no" }.to_owned(),
        format!("{}{}", list("Behind", &behind), list("Within the interval", &unsure)).trim_end().to_owned(),
    ]
}
