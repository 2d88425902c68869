// SPDX-License-Identifier: Apache-2.0
//! `imas-lab replay --export-html`: the predicted memory of each candidate over time, and all figures.

use imas_cli::format::counted;
use imas_cli::table::Table;
use imas_core::stats::Interval;
use imas_linux::catalogue::SYSTEM;
use imas_replay::reliability::{PredictedRange, Prediction};
use imas_replay::replayed::{ReplayedCandidate, ReplayedCandidates};
use imas_replay::trace::prediction::{Figures, curve, middle};
use imas_report::chart::{Axis, CurveLine, Curves, Plane, PlanePoint};
use imas_report::page::{Block, PageSection, ResultPage};

const MIB: f64 = (1 << 20) as f64;

const METHOD: &str = "One run was recorded under system. Its calls were made again under each candidate, in the same \
    order. Predicted is what was recorded plus the difference between the replays under the candidate and under \
    system. The intervals show how far off predictions were so far. A replay has the allocator's own time, and not \
    the cache misses of the program: confirm a choice with 'imas bench'.";

/// The page.
pub(super) fn page(
    answer: &ReplayedCandidates<'_>,
    recorded: &Figures,
    rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)],
) -> ResultPage {
    let counts = answer.process.counts;
    let figures = vec![Block::Table(table(rows))];
    let memory = curves(answer).draw();
    ResultPage {
        title: "imas-lab replay".to_owned(),
        subtitle: format!(
            "{} of {}, {:.2} s of CPU as recorded",
            counted(counts.calls, "call"),
            counted(counts.threads, "thread"),
            recorded.cpu_s
        ),
        result: "What the program would take under each candidate, predicted from one recorded run."
            .to_owned(),
        picture: plane(recorded, rows).draw(),
        sections: vec![
            PageSection::new("memory", "Memory over time", vec![Block::Charts(memory.into_iter().collect())]),
            PageSection::new("figures", "Figures", figures),
            PageSection::new("method", "Method", vec![Block::Paragraph(METHOD.to_owned())]),
        ],
        is_group: true,
    }
}

/// A line for each candidate; dashed, the bytes in live blocks, below which no allocator can come.
fn curves(answer: &ReplayedCandidates<'_>) -> Curves {
    let system = answer.replays_of(SYSTEM);
    let seconds = |at: usize| answer.looks[at].ns as f64 / 1e9;
    let lines = answer.candidates.iter().filter_map(|one| {
        let predicted = curve(&answer.looks, system, &one.replays)?;
        let points = predicted.iter().enumerate().map(|(at, bytes)| (seconds(at), bytes / MIB)).collect();
        Some(CurveLine::new(one.name(), points))
    });
    let live = middle(system).map(|replay| {
        let bytes = replay.looks.iter().map(|look| look.live_bytes as f64 / MIB).take(answer.looks.len());
        CurveLine::new("live blocks", bytes.enumerate().map(|(at, mib)| (seconds(at), mib)).collect())
    });
    Curves {
        title: "Predicted resident memory".to_owned(),
        caption: "Anonymous memory of the process. Dashed: the bytes in live blocks.".to_owned(),
        x: Axis::new("seconds since the recording began"),
        y: Axis::new("MiB").from_zero(),
        lines: lines.collect(),
        floor: live,
        ..Curves::default()
    }
}

fn plane(recorded: &Figures, rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)]) -> Plane {
    let ratio = |range: &PredictedRange, whole: f64| Interval {
        lo: range.low / whole,
        mid: range.value / whole,
        hi: range.high / whole,
    };
    let point = |(one, predicted): &(&ReplayedCandidate<'_>, Option<Prediction>)| {
        let predicted = predicted.as_ref()?;
        let name = one.name().to_owned();
        let (cpu, memory) =
            (ratio(&predicted.cpu_s, recorded.cpu_s), ratio(&predicted.mean_bytes, recorded.mean_bytes));
        let change = |ratio: Interval| format!("{:+.1} %", (ratio.mid - 1.0) * 100.0);
        let text = format!("{name}: CPU {}, mean memory {}", change(cpu), change(memory));
        Some(PlanePoint { name, cpu, memory, text })
    };
    Plane {
        title: "Predicted CPU time and mean memory".to_owned(),
        caption: "Left and down is better.".to_owned(),
        points: rows.iter().filter_map(point).collect(),
    }
}

fn table(rows: &[(&ReplayedCandidate<'_>, Option<Prediction>)]) -> Table {
    let heads = ["candidate", "CPU s", "peak MiB", "mean MiB", "MiB at the end", "note"];
    let mut table = Table::new("figures", "Predicted figures", &heads);
    for (one, predicted) in rows {
        let cell = |of: fn(&Prediction) -> PredictedRange, unit: f64, digits: usize| {
            predicted
                .as_ref()
                .map_or_else(|| "-".to_owned(), |all| format!("{:.digits$}", of(all).value / unit))
        };
        table.push(vec![
            one.name().to_owned(),
            cell(|all| all.cpu_s, 1.0, 2),
            cell(|all| all.peak_bytes, MIB, 1),
            cell(|all| all.mean_bytes, MIB, 1),
            cell(|all| all.end_bytes, MIB, 1),
            one.failure.clone().unwrap_or_default(),
        ]);
    }
    table
}
