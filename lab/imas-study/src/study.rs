// SPDX-License-Identifier: Apache-2.0
//! The result of a study.

use imas_cli::table::Table;
use imas_report::chart::Chart;
use serde::Serialize;

use crate::verdict::Finding;

/// A published experiment, reproduced. The serialised form has the data of the drawings but not the drawings.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// "freelist", "fit", "selector", "mobile" or "replay"; the stem of every file that is written.
    pub id: String,
    /// Heading of the page.
    pub title: String,
    /// Author, title, place and year of what is reproduced.
    pub paper: String,
    /// The result in one sentence.
    #[serde(skip)]
    pub result: String,
    /// The result in one picture.
    #[serde(skip)]
    pub picture: Option<Chart>,
    /// How the study was run, a sentence or two each.
    pub method: Vec<String>,
    /// Meaning of the verdicts.
    pub rule: String,
    /// Every printed finding beside our figure; none where nothing is reproduced.
    pub findings: Vec<Finding>,
    /// The tables.
    pub tables: Vec<Table>,
    /// The figures, in the paper's order.
    pub figures: Vec<StudyFigure>,
}

/// A drawing and the numbers in it.
#[derive(Clone, Debug, Serialize)]
pub struct StudyFigure {
    /// Content of the drawing, and how the paper's values are marked.
    pub caption: String,
    /// The drawing; None when there is nothing to draw.
    #[serde(skip)]
    pub chart: Option<Chart>,
    /// The numbers that are drawn. The figure has the id and title of the table.
    pub data: Table,
}

/// The table without the columns in which no cell says anything.
#[must_use]
pub fn without_empty_columns(table: Table) -> Table {
    let Table { id, title, columns, rows } = table;
    let says = |at: usize| rows.iter().any(|row| !matches!(row[at].trim(), "" | "-"));
    let kept: Vec<bool> = (0..columns.len()).map(says).collect();
    let of = |cells: Vec<String>| {
        cells.into_iter().zip(&kept).filter(|(_, kept)| **kept).map(|(cell, _)| cell).collect()
    };
    Table { id, title, columns: of(columns), rows: rows.into_iter().map(of).collect() }
}

impl Study {
    /// The findings as a table, for terminals and CSV.
    pub(crate) fn findings_table(&self) -> Table {
        let columns = ["claim", "printed", "ours", "verdict", "remark"];
        let mut table = Table::new("findings", "Printed findings and ours", &columns);
        for f in &self.findings {
            let verdict = f.verdict.to_string();
            table.push(vec![f.claim.clone(), f.printed.clone(), f.ours.clone(), verdict, f.remark.clone()]);
        }
        table
    }
}
