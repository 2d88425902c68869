// SPDX-License-Identifier: Apache-2.0
//! The paper's four figures, as medians and bands.

use super::runs::Runs;
use super::walk::Walks;
use super::writing::SETTLED_SESSION;
use crate::band::Band;
use crate::chart::{BLUE_LINE, Curve, GREEN_LINE, Mark, Panel, RED_LINE, curves};
use crate::error::Result;
use crate::study::Figure;
use crate::table::Table;

const NS_PER_MS: f64 = 1e6;

/// What the paper reads off a walk: a value and from which iteration on.
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

pub(crate) fn figures(runs: &Runs) -> Result<Vec<Figure>> {
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
    let mut figures = [plain, merging, small_head].iter().map(walk_figure).collect::<Result<Vec<_>>>()?;
    figures.push(write_figure(runs)?);
    Ok(figures)
}

fn walk_figure(figure: &WalkFigure<'_>) -> Result<Figure> {
    let blocks = figure.walks.bands(|r| r.free_blocks);
    let means = figure.walks.bands(|r| r.mean_free_bytes);
    let mark = |of: fn(&Printed) -> f64, name| {
        figure
            .printed
            .iter()
            .map(move |p| Mark { name, colour: RED_LINE, value: of(p), from_x: p.from_iteration })
            .collect()
    };
    let list = Panel {
        x_name: "iteration",
        y_name: "free blocks",
        logarithmic: false,
        curves: vec![Curve {
            name: "length of the free list",
            colour: BLUE_LINE,
            first_x: 0.0,
            bands: &blocks,
        }],
        marks: mark(|p| p.blocks, "printed"),
    };
    let size = Panel {
        x_name: "iteration",
        y_name: "mean bytes (log)",
        logarithmic: true,
        curves: vec![Curve {
            name: "mean size of a free block",
            colour: GREEN_LINE,
            first_x: 0.0,
            bands: &means,
        }],
        marks: mark(|p| p.mean_bytes, "printed"),
    };
    let svg = curves(&[list, size])?;
    let names = ["iteration", "free_blocks", "mean_free_bytes"];
    let data = series(figure.id, figure.title, &names, 0, &[&blocks, &means]);
    Ok(Figure { caption: caption("seeds"), svg, data })
}

fn write_figure(runs: &Runs) -> Result<Figure> {
    let ms = |bands: Vec<Band>| -> Vec<Band> { bands.iter().map(|b| b.scaled(1.0 / NS_PER_MS)).collect() };
    let large = ms(runs.writing.bands(|s| s.large_header_ns));
    let small = ms(runs.writing.bands(|s| s.small_header_ns));
    #[expect(clippy::cast_precision_loss, reason = "30")]
    let from_x = SETTLED_SESSION as f64;
    let svg = curves(&[Panel {
        x_name: "session",
        y_name: "milliseconds",
        logarithmic: false,
        curves: vec![
            Curve { name: "24-byte headers", colour: BLUE_LINE, first_x: 1.0, bands: &large },
            Curve { name: "8-byte headers", colour: GREEN_LINE, first_x: 1.0, bands: &small },
        ],
        marks: vec![
            Mark { name: "printed, 24 bytes", colour: BLUE_LINE, value: 8.0, from_x },
            Mark { name: "printed, 8 bytes", colour: GREEN_LINE, value: 6.0, from_x },
        ],
    }])?;
    let names = ["session", "header24_ms", "header8_ms"];
    let data = series("figure4", "Time of a write session", &names, 1, &[&large, &small]);
    Ok(Figure { caption: caption("runs"), svg, data })
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
