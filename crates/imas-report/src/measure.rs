// SPDX-License-Identifier: Apache-2.0
//! Figures with their names, intervals and units: rows of tables that people and programs read.
//!
//! A row is one allocator under one load, whatever was measured of it:
//!
//! ```
//! use imas_report::measure::{self, MeasuredFigure, MeasuredRow, Unit};
//!
//! let row = |name: &str, latency_s: f64, requests: f64| MeasuredRow {
//!     name: name.to_owned(),
//!     figures: vec![
//!         MeasuredFigure::new("requests", requests, Unit::PerSecond),
//!         MeasuredFigure::new("p99", latency_s, Unit::Seconds).within(latency_s * 0.9, latency_s * 1.1),
//!     ],
//! };
//! let rows = [row("system", 0.0021, 51_000.0), row("jemalloc", 0.0017, 55_000.0)];
//! let table = measure::table("load", "Load of 50 clients", &rows);
//! assert_eq!(table.columns, ["candidate", "requests", "p99"]);
//! assert_eq!(table.rows[1], ["jemalloc", "55000 /s", "1.7 ms [1.5 ms, 1.9 ms]"]);
//! ```
//!
//! Last, where the resident memory is, by candidate, as a table ([`split_text`]).

use imas_cli::format;
use imas_cli::table::{self, Table};
use imas_core::split::{Shares, Split};
use serde::Serialize;

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Seconds; shown in microseconds, milliseconds or seconds.
    Seconds,
    /// Bytes; shown in MiB.
    Bytes,
    /// Hundredths of something.
    Percent,
    /// A change in hundredths, which has a sign.
    PercentChange,
    /// Events in a second.
    PerSecond,
    /// A number of things.
    Count,
}

/// One figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredFigure {
    /// Name of the figure; the head of its column.
    pub name: String,
    /// The middle.
    pub value: f64,
    /// The ends of its 95 % interval.
    pub interval: Option<(f64, f64)>,
    /// Unit of the value.
    pub unit: Unit,
}

/// The figures of one allocator.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredRow {
    /// The allocator.
    pub name: String,
    /// Figures in the order of the columns; a row may lack some.
    pub figures: Vec<MeasuredFigure>,
}

impl Unit {
    /// The value with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Seconds => format::seconds(value),
            Self::Bytes => format!("{} MiB", format::mib(value)),
            Self::Percent => format!("{value:.1} %"),
            Self::PercentChange => format!("{:+.1} %", (value * 10.0).round() / 10.0 + 0.0),
            Self::PerSecond => format!("{value:.0} /s"),
            Self::Count => format!("{value:.0}"),
        }
    }
}

impl MeasuredFigure {
    /// A figure without an interval.
    #[must_use]
    pub fn new(name: &str, value: f64, unit: Unit) -> Self {
        Self { name: name.to_owned(), value, interval: None, unit }
    }

    /// This figure with its interval.
    #[must_use]
    pub fn within(self, low: f64, high: f64) -> Self {
        Self { interval: Some((low, high)), ..self }
    }

    /// The value with its unit, and the interval in brackets.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |value| self.unit.text(value);
        match self.interval {
            Some((low, high)) if matches!(self.unit, Unit::Percent | Unit::PercentChange) => {
                let number = |value| text(value).trim_end_matches(" %").to_owned();
                format!("{} [{}, {}]", text(self.value), number(low), number(high))
            }
            Some((low, high)) => format!("{} [{}, {}]", text(self.value), text(low), text(high)),
            None => text(self.value),
        }
    }
}

/// A row for each allocator, a column for each figure that any of them has; a dash where one lacks it.
#[must_use]
pub fn table(id: &str, title: &str, rows: &[MeasuredRow]) -> Table {
    let mut names: Vec<&str> = vec![];
    for figure in rows.iter().flat_map(|row| &row.figures) {
        if !names.contains(&figure.name.as_str()) {
            names.push(&figure.name);
        }
    }
    let columns: Vec<&str> = std::iter::once("candidate").chain(names.iter().copied()).collect();
    let mut table = Table::new(id, title, &columns);
    for row in rows {
        let cell = |name: &&str| {
            let figure = row.figures.iter().find(|figure| figure.name == **name);
            figure.map_or_else(|| "-".to_owned(), MeasuredFigure::text)
        };
        table.push(std::iter::once(row.name.clone()).chain(names.iter().map(cell)).collect());
    }
    table
}

/// A line for each figure, unrounded: candidate, figure, value, low, high, unit.
///
/// # Errors
/// When a value cannot be written as CSV.
pub fn csv(rows: &[MeasuredRow]) -> Result<Vec<u8>, csv::Error> {
    #[derive(Serialize)]
    struct Line<'a> {
        candidate: &'a str,
        figure: &'a str,
        value: f64,
        low: Option<f64>,
        high: Option<f64>,
        unit: Unit,
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    for (row, figure) in rows.iter().flat_map(|row| row.figures.iter().map(move |figure| (row, figure))) {
        writer.serialize(Line {
            candidate: &row.name,
            figure: &figure.name,
            value: figure.value,
            low: figure.interval.map(|(low, _)| low),
            high: figure.interval.map(|(_, high)| high),
            unit: figure.unit,
        })?;
    }
    writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
}

/// The heads of [`split_cells`].
pub const SPLIT_HEAD: [&str; 8] = [
    "candidate",
    "resident MiB",
    "asked for %",
    "rounding %",
    "free blocks %",
    "free pages %",
    "own %",
    "other %",
];

/// The table's heads for a terminal of 80 columns; [`SPLIT_TITLE`] says what each is.
const SPLIT_TEXT_HEAD: [&str; 8] = ["candidate", "MiB", "asked", "round", "blocks", "pages", "own", "other"];

/// The title of the table on a terminal.
const SPLIT_TITLE: &str = "Where the resident memory was, mean over the time of the counted runs, in %:\n\
     asked for by the program, rounding, free blocks, free pages, the allocator's\n\
     own, other:";

/// One candidate as a line of text; the figures are per cent of the resident memory.
#[must_use]
pub fn split_cells(name: &str, split: &Split) -> Vec<String> {
    let mut cells = vec![name.to_owned(), format::mib(split.resident as f64)];
    cells.extend(shares(split.shares()));
    cells
}

fn shares(shares: Option<Shares>) -> [String; 6] {
    let percent = |share: f64| format!("{:.0}", (share * 100.0).round() + 0.0);
    let dashes = || [""; 6].map(|_| "-".to_owned());
    let Some(Shares { requested, rounding, reported, other }) = shares else { return dashes() };
    if requested > 1.0 {
        let mut cells = dashes();
        cells[0] = ">100".to_owned();
        return cells;
    }
    let [cached, dirty, own] =
        reported.map_or_else(|| [""; 3].map(|_| "-".to_owned()), |reported| reported.map(percent));
    [percent(requested), percent(rounding), cached, dirty, own, percent(other)]
}

/// The table with its title and the allocators that report nothing; empty without rows.
#[must_use]
pub fn split_text(rows: &[(&str, Split)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let lines = rows.iter().map(|(name, split)| split_cells(name, split));
    let mut text = format!("{SPLIT_TITLE}\n{}", table::plain(&SPLIT_TEXT_HEAD, lines));
    let silent: Vec<&str> =
        rows.iter().filter(|(_, split)| split.reported.is_none()).map(|(name, _)| *name).collect();
    if !silent.is_empty() {
        text.push_str(&format!(
            "Not reported by: {}. What it keeps free is part of 'other'.\n",
            silent.join(", ")
        ));
    }
    let untouched: Vec<&str> = rows
        .iter()
        .filter(|(_, split)| split.shares().is_some_and(|shares| shares.requested > 1.0))
        .map(|(name, _)| *name)
        .collect();
    if !untouched.is_empty() {
        text.push_str(&format!(
            "More was asked for than is resident under: {}. Blocks were never touched, or processes were looked at one after the other; no parts can be named.\n",
            untouched.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::split::AllocatorReport;

    #[test]
    fn a_figure_that_is_missing_is_a_dash() {
        let row = |name: &str, figures| MeasuredRow { name: name.into(), figures };
        let peak = MeasuredFigure::new("peak", 1_048_576.0, Unit::Bytes);
        let change = MeasuredFigure::new("CPU", -0.01, Unit::PercentChange).within(-2.0, 2.0);
        let rows = [row("a", vec![peak.clone()]), row("b", vec![peak, change])];
        let table = table("t", "T", &rows);
        assert_eq!(table.columns, ["candidate", "peak", "CPU"]);
        assert_eq!(table.rows, [["a", "1.00 MiB", "-"], ["b", "1.00 MiB", "+0.0 % [-2.0, +2.0]"]]);
        let csv = String::from_utf8(csv(&rows).unwrap()).unwrap();
        assert_eq!(csv.lines().next(), Some("candidate,figure,value,low,high,unit"));
        assert_eq!(csv.lines().last(), Some("b,CPU,-0.01,-2.0,2.0,percent_change"));
        assert_eq!(csv.lines().nth(1), Some("a,peak,1048576.0,,,bytes"));
    }

    #[test]
    fn an_allocator_without_a_report_is_named() {
        let reported = AllocatorReport { in_use: 620 << 20, cached: 100 << 20, dirty: 60 << 20, own: 0 };
        let split = Split {
            moments: 3,
            resident: 1000 << 20,
            live: 600 << 20,
            requested: 500 << 20,
            reported: Some(reported),
        };
        let silent = Split { reported: None, ..split };
        let text = split_text(&[("glibc", split), ("hoard", silent)]);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let table = text.lines().take_while(|line| !line.starts_with("Not reported"));
        assert!(table.into_iter().all(|line| line.chars().count() <= 80), "{text}");
        let words: Vec<&str> = line("glibc").split_whitespace().collect();
        assert_eq!(words, ["glibc", "1000.0", "50", "10", "10", "6", "0", "24"]);
        assert!(line("hoard").split_whitespace().eq(["hoard", "1000.0", "50", "10", "-", "-", "-", "40"]));
        assert!(text.contains("Not reported by: hoard."));
        assert_eq!(split_text(&[]), "");
    }

    #[test]
    fn no_part_is_larger_than_the_whole() {
        let split =
            Split { moments: 1, resident: 1 << 20, live: 6 << 20, requested: 6 << 20, reported: None };
        let text = split_text(&[("glibc", split)]);
        let line = text.lines().find(|line| line.trim_start().starts_with("glibc")).unwrap();
        assert!(line.split_whitespace().eq(["glibc", "1.00", ">100", "-", "-", "-", "-", "-"]), "{line}");
        assert!(text.contains("More was asked for than is resident under: glibc."), "{text}");
    }
}
