// SPDX-License-Identifier: Apache-2.0
//! The output of `imas tune`.

use std::process::ExitCode;

use anyhow::Result;
use imas_core::stats::Interval;
use imas_report::chart::{Plane, PlanePoint};
use imas_report::page::{Block, PageSection, ResultPage};
use imas_report::table::Table;
use imas_tune::found::{Evaluation, Importance, front};
use imas_tune::goal::PointRatios;
use serde_json::json;

use super::Tuned;
use super::contenders::Contender;
use super::live::LiveCandidate;
use crate::tune_args::TuneArgs;
use crate::{export, output};

/// A setting with a smaller share is not listed.
const LEAST_SHARE: f64 = 0.05;
/// Labels on the picture: of more points, those without a name of their own.
const MOST_DOTS: usize = 60;

pub(super) fn show(args: &TuneArgs, tuned: &Tuned) -> Result<ExitCode> {
    if let Some(file) = &args.export_html {
        export::to(file, &page(tuned).render())?;
    }
    if args.json.json {
        output::json(&as_json(tuned))?;
    } else {
        output::text(&text(args, tuned))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(tuned: &Tuned) -> serde_json::Value {
    json!({
        "schema": 1,
        "goal": tuned.goal,
        "points": tuned.points.evaluations,
        "importance": tuned.points.importance,
        "front": front(&tuned.points.evaluations).iter().map(|one| &one.candidate).collect::<Vec<_>>(),
        "contenders": tuned.field.contenders,
        "live": tuned.live,
        "proven": tuned.live.as_ref().and_then(|live| live.proven.as_ref()),
        "named": tuned.named,
    })
}

fn text(args: &TuneArgs, tuned: &Tuned) -> String {
    let mut parts = vec![summary(tuned), contenders(&tuned.field.contenders).plain()];
    parts.extend(influence(&tuned.points.importance));
    if let Some(live) = &tuned.live {
        parts.push(format!("measured live, against system:\n\n{}", live_table(&live.candidates).plain()));
    }
    parts.push(conclusion(args, tuned));
    parts.join("\n")
}

fn summary(tuned: &Tuned) -> String {
    let all = &tuned.points.evaluations;
    let failed = all.iter().filter(|one| one.failure.is_some()).count();
    let failed = if failed > 0 { format!(", {failed} of them failed") } else { String::new() };
    format!("{} points replayed{failed}; predicted against system, the best first:\n", all.len())
}

fn contenders(all: &[Contender]) -> Table {
    let mut table = Table::new("contenders", "The best", &["candidate", "CPU", "mean memory", "peak"]);
    for one in all {
        let PointRatios { cpu, memory, peak } = one.predicted;
        table.push(vec![one.candidate.clone(), change(cpu), change(memory), change(peak)]);
    }
    table
}

fn live_table(all: &[LiveCandidate]) -> Table {
    let mut table = Table::new("live", "Measured live", &["candidate", "CPU", "mean memory", "peak"]);
    for one in all {
        let cells = [one.cpu, one.memory, one.peak].map(measured);
        table.push([vec![one.candidate.clone()], cells.to_vec()].concat());
    }
    table
}

fn change(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

fn measured(ratio: Option<Interval>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |Interval { lo, mid, hi }| format!("{} ({} to {})", change(mid), change(lo), change(hi)),
    )
}

/// A line for each allocator: what its figures depend on.
fn influence(importance: &[Importance]) -> Option<String> {
    let lines: Vec<String> = importance.iter().filter_map(influence_of).collect();
    (!lines.is_empty())
        .then(|| format!("what the figures depend on (share of their variance):\n  {}\n", lines.join("\n  ")))
}

fn influence_of(one: &Importance) -> Option<String> {
    let large = one.settings.iter().filter(|(_, share)| *share >= LEAST_SHARE);
    let shares: Vec<String> =
        large.map(|(setting, share)| format!("{setting} {:.0} %", share * 100.0)).collect();
    (!shares.is_empty()).then(|| format!("{}: {}", one.allocator, shares.join(", ")))
}

fn conclusion(args: &TuneArgs, tuned: &Tuned) -> String {
    let first = tuned.field.contenders.first();
    match (&tuned.live, &tuned.named) {
        (_, Some(named)) => format!(
            "{} is in your catalogue now: {}\n'imas pin PROGRAM {}' starts a program on it; 'imas bench --with {}' measures it again\n",
            named.name,
            named.file.display(),
            named.name,
            named.name
        ),
        (Some(live), None) => match &live.proven {
            Some(proven) => format!("proven: {proven}; nothing was added to your catalogue (--no-save)\n"),
            None => {
                format!("no settings are proven to be better than the catalogue; the pick is {}\n", live.pick)
            }
        },
        (None, None) if args.trace.is_some() => {
            let best = first.map_or("system", |one| one.candidate.as_str());
            format!("a prediction alone: confirm it with 'imas bench --with '{best}' -- COMMAND'\n")
        }
        (None, None) => {
            let best = first.filter(|one| !one.is_tuned).map_or("system", |one| one.candidate.as_str());
            format!("no settings are predicted to gain over {best}: nothing was measured live\n")
        }
    }
}

/// The page: the picture first.
fn page(tuned: &Tuned) -> ResultPage {
    let sections = vec![
        PageSection::new("best", "The best", vec![Block::Table(contenders(&tuned.field.contenders))]),
        PageSection::new(
            "settings",
            "What the figures depend on",
            vec![Block::List(tuned.points.importance.iter().filter_map(influence_of).collect())],
        ),
        PageSection::new(
            "live",
            "Measured live",
            vec![match &tuned.live {
                Some(live) => Block::Table(live_table(&live.candidates)),
                None => Block::Paragraph("Nothing was measured live.".to_owned()),
            }],
        ),
        PageSection::new("method", "Method", vec![Block::Paragraph(METHOD.to_owned())]),
    ];
    let result = match &tuned.live {
        Some(live) => match &live.proven {
            Some(proven) => format!("{proven} is proven to suit best."),
            None => {
                format!("No settings are proven to be better than the catalogue; the pick is {}.", live.pick)
            }
        },
        None => "A prediction from replays alone.".to_owned(),
    };
    ResultPage {
        title: "imas tune".to_owned(),
        subtitle: format!("{} points replayed", tuned.points.evaluations.len()),
        result,
        picture: plane(&tuned.points.evaluations).draw(),
        sections,
        is_group: false,
    }
}

const METHOD: &str = "One run was recorded under system. Its calls were made again under each point of the space of \
    settings, and the change of CPU time and memory was predicted from the difference. A Parzen estimator chose the \
    points within each allocator; allocators whose points were worse got fewer. The best were replayed again. Live \
    runs decide: settings count as better only if imas bench picks them.";

/// The points; where there are too many, those that are on the front or best.
fn plane(evaluations: &[Evaluation]) -> Plane {
    let on_front = front(evaluations);
    let is_on_front = |one: &&Evaluation| on_front.iter().any(|front| front.candidate == one.candidate);
    let others = evaluations.iter().filter(|one| one.point.is_empty() && !is_on_front(one));
    let points = on_front.iter().chain(others).take(MOST_DOTS).filter_map(dot);
    let system = PlanePoint {
        name: "system".to_owned(),
        cpu: Interval { lo: 1.0, mid: 1.0, hi: 1.0 },
        memory: Interval { lo: 1.0, mid: 1.0, hi: 1.0 },
        text: "as recorded".to_owned(),
    };
    Plane {
        title: "Predicted CPU time and mean memory".to_owned(),
        caption: "The points that no other one beats on both, and each allocator without settings."
            .to_owned(),
        points: std::iter::once(system).chain(points).collect(),
    }
}

fn dot(one: &Evaluation) -> Option<PlanePoint> {
    let ratios = one.ratios.filter(|_| one.candidate != "glibc")?;
    let exact = |mid| Interval { lo: mid, mid, hi: mid };
    Some(PlanePoint {
        name: one.candidate.clone(),
        cpu: exact(ratios.cpu),
        memory: exact(ratios.memory),
        text: format!("{}: CPU {}, memory {}", one.candidate, change(ratios.cpu), change(ratios.memory)),
    })
}
