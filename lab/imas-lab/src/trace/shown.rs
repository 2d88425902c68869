// SPDX-License-Identifier: Apache-2.0
//! The output of `imas-lab replay`.

use anyhow::Result;
use imas_cli::format::counted;
use imas_cli::table;
use imas_replay::reliability::{COVERAGE, PredictedRange, Prediction, ReliabilityTable};
use imas_replay::replayed::{ReplayedCandidate, ReplayedCandidates};
use imas_replay::trace::prediction::Figures;
use serde_json::{Value, json};

use super::args::ReplayArgs;
use imas_cli::message::Hinted;
use imas_cli::{output, output_file};

const MIB: f64 = (1 << 20) as f64;

pub(crate) fn show(
    args: &ReplayArgs,
    answer: &ReplayedCandidates<'_>,
    reliability: &ReliabilityTable,
) -> Result<()> {
    let (recorded, rows) = (answer.recorded(), answer.predictions(reliability));
    if let Some(file) = &args.export_html {
        let page = super::page::page(answer, &recorded, &rows).render();
        output_file::write(file, page.as_bytes()).map_err(|error| {
            Hinted::error(
                format!("{} cannot be written: {error}", file.display()),
                "name a file in a folder that is there and yours",
            )
        })?;
    }
    if args.json.json {
        return output::json(&as_json(answer, &recorded, &rows, reliability));
    }
    output::text(&page(answer, &recorded, &rows, reliability))
}

fn as_json(
    answer: &ReplayedCandidates<'_>,
    recorded: &Figures,
    rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)],
    reliability: &ReliabilityTable,
) -> Value {
    let candidates: Vec<Value> = rows
        .iter()
        .map(|(one, predicted)| {
            json!({
                "candidate": one.name(),
                "predicted": predicted,
                "failure": one.failure,
                "replay_cpu_s": one.replays.iter().map(|replay| replay.cpu_s).collect::<Vec<_>>(),
                "replay_faults": one.replays.iter().map(|replay| replay.faults).collect::<Vec<_>>(),
                "refused": one.replays.iter().map(|replay| replay.refused).max(),
            })
        })
        .collect();
    let intervals = json!({ "share": COVERAGE, "programs": reliability.programs });
    json!({
        "schema": 1,
        "process": answer.process,
        "recorded": recorded,
        "candidates": candidates,
        "allocator_share": answer.facts().allocator_share,
        "intervals": intervals,
    })
}

fn page(
    answer: &ReplayedCandidates<'_>,
    recorded: &Figures,
    rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)],
    reliability: &ReliabilityTable,
) -> String {
    let head = ["candidate", "CPU s", "peak MiB", "mean MiB", "end MiB"];
    let counts = answer.process.counts;
    format!(
        "process {} of the trace: {}, {}, {:.2} s of CPU as recorded\n\n{}\n\
         predicted: what was recorded under system + what the replay differs by from the replay under system;\n\
         in brackets: where four of five live figures lay, in a study of {} (docs/trace-format.md);\n\
         confirm a choice with 'imas bench'\n{}",
        answer.process.number,
        counted(counts.calls, "call"),
        counted(counts.threads, "thread"),
        recorded.cpu_s,
        table::plain(&head, rows.iter().map(row)),
        counted(reliability.programs, "program"),
        failures(rows)
    )
}

fn row((one, predicted): &(&ReplayedCandidate<'_>, Option<Prediction>)) -> Vec<String> {
    let name = one.name().to_owned();
    let Some(predicted) = predicted else {
        return vec![name, "-".into(), "-".into(), "-".into(), "-".into()];
    };
    let mib = |interval: &PredictedRange| range(interval, MIB, 1);
    vec![
        name,
        range(&predicted.cpu_s, 1.0, 2),
        mib(&predicted.peak_bytes),
        mib(&predicted.mean_bytes),
        mib(&predicted.end_bytes),
    ]
}

fn range(interval: &PredictedRange, unit: f64, digits: usize) -> String {
    let PredictedRange { value, low, high } = interval;
    let value = value / unit;
    if low == high {
        return format!("{value:.digits$}");
    }
    format!("{value:.digits$} ({:.digits$} to {:.digits$})", low / unit, high / unit)
}

fn failures(rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)]) -> String {
    let failed = rows.iter().filter_map(|(one, _)| Some((one, one.failure.as_ref()?)));
    failed.map(|(one, why)| format!("{}: no replay: {why}\n", one.name())).collect()
}
