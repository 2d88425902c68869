// SPDX-License-Identifier: Apache-2.0
//! The paper's four figures, as medians and bands.

use imas_report::chart::{Axis, Chart, CurveLine, Curves, ReferenceLine, Spacing};

use super::runs::Runs;
use super::walk::Walks;
use super::writing::SETTLED_SESSION;
use crate::band::Band;
use crate::study::StudyFigure;
use imas_cli::table::Table;

const NS_PER_MS: f64 = 1e6;

/// A value that the paper reads off a walk, and the iteration from which it holds.
struct Printed {
    from_iteration: f64,
    blocks: f64,
    mean_bytes: f64,
}

struct WalkFigure<'a> {
    id: &'a str,
    title: &'a str,
    walks: &'a Walks,
    printed: Option<Printed>,
}

pub(crate) fn figures(runs: &Runs) -> Vec<StudyFigure> {
    let plain = WalkFigure { id: "figure1", title: "Without merging", walks: &runs.plain, printed: None };
    let merging = WalkFigure {
        id: "figure2",
        title: "With merging",
        walks: &runs.merging,
        printed: Some(Printed { from_iteration: 400.0, blocks: 30.0, mean_bytes: 1000.0 }),
    };
    let small_head = WalkFigure {
        id: "figure3",
        title: "With merging and 8-byte headers",
        walks: &runs.small_head,
        printed: Some(Printed { from_iteration: 300.0, blocks: 20.0, mean_bytes: 2000.0 }),
    };
    let walks = [plain, merging, small_head];
    walks.iter().map(walk_figure).chain([write_figure(runs)]).collect()
}

/// A line of medians in the band of the central nine tenths. The first point is at `first_x`; the distance of
/// the points is 1.
fn line(name: &str, first_x: u32, bands: &[Band]) -> CurveLine {
    CurveLine {
        name: name.to_owned(),
        points: (first_x..).map(f64::from).zip(bands.iter().map(|band| band.median)).collect(),
        band: bands.iter().map(|band| (band.low, band.high)).collect(),
        dots: false,
    }
}

/// A printed value for the curve `of`.
fn printed(name: &str, of: &str, value: f64, from_x: f64) -> ReferenceLine {
    ReferenceLine { name: name.to_owned(), of: of.to_owned(), value, from_x }
}

fn walk_figure(figure: &WalkFigure<'_>) -> StudyFigure {
    let blocks = figure.walks.bands(|r| r.free_blocks);
    let means = figure.walks.bands(|r| r.mean_free_bytes);
    let panel = |title: &str, y: Axis, bands: &[Band], of: fn(&Printed) -> f64| {
        let mark = |p: &Printed| printed("printed", "", of(p), p.from_iteration);
        Curves {
            title: title.to_owned(),
            x: Axis::new("iteration"),
            y,
            lines: vec![line("median", 0, bands)],
            references: figure.printed.iter().map(mark).collect(),
            ..Curves::default()
        }
    };
    let panels = [
        panel("Length of the free list, blocks", Axis::new("free blocks").from_zero(), &blocks, |p| p.blocks),
        panel(
            "Mean size of a free block, bytes",
            Axis::new("bytes").spaced(Spacing::Logarithmic),
            &means,
            |p| p.mean_bytes,
        ),
    ];
    let names = ["iteration", "free_blocks", "mean_free_bytes"];
    let data = series(figure.id, figure.title, &names, 0, &[&blocks, &means]);
    let charts: Vec<Chart> = panels.iter().filter_map(Curves::draw).collect();
    let caption = caption("seeds");
    StudyFigure { chart: Chart::stacked(figure.title, &caption, &charts), caption, data }
}

fn write_figure(runs: &Runs) -> StudyFigure {
    const LARGE: &str = "24-byte headers";
    const SMALL: &str = "8-byte headers";
    let ms = |bands: Vec<Band>| -> Vec<Band> { bands.iter().map(|b| b.scaled(1.0 / NS_PER_MS)).collect() };
    let large = ms(runs.writing.bands(|s| s.large_header_ns));
    let small = ms(runs.writing.bands(|s| s.small_header_ns));
    #[expect(clippy::cast_precision_loss, reason = "30")]
    let from_x = SETTLED_SESSION as f64;
    let title = "Time of a write session";
    let chart = Curves {
        title: format!("{title}, milliseconds"),
        caption: caption("runs"),
        x: Axis::new("session").spaced(Spacing::Whole),
        y: Axis::new("milliseconds").from_zero(),
        lines: vec![line(LARGE, 1, &large), line(SMALL, 1, &small)],
        references: vec![
            printed("printed, 24 bytes", LARGE, 8.0, from_x),
            printed("printed, 8 bytes", SMALL, 6.0, from_x),
        ],
        ..Curves::default()
    };
    let names = ["session", "header24_ms", "header8_ms"];
    let data = series("figure4", title, &names, 1, &[&large, &small]);
    StudyFigure { caption: caption("runs"), chart: chart.draw(), data }
}

fn caption(over: &str) -> String {
    format!("Line: median over the {over}; shade: central nine tenths; dashed: the value the paper prints.")
}

/// Three columns (median, low, high) for each series, under the names after the first.
fn series(id: &str, title: &str, names: &[&str], first: usize, bands: &[&Vec<Band>]) -> Table {
    let (x_name, series_names) = names.split_first().unwrap_or((&"", &[]));
    let quantiles = ["median", "low", "high"];
    let mut columns = vec![(*x_name).to_owned()];
    columns.extend(series_names.iter().flat_map(|n| quantiles.map(|q| format!("{n}_{q}"))));
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(id, title, &columns);
    let length = bands.iter().map(|b| b.len()).min().unwrap_or(0);
    for i in 0..length {
        let cells = bands.iter().filter_map(|b| b.get(i)).flat_map(|b| [b.median, b.low, b.high]);
        let numbers = cells.map(|v| format!("{v:.3}"));
        table.push(std::iter::once((i + first).to_string()).chain(numbers).collect());
    }
    table
}
