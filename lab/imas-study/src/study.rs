// SPDX-License-Identifier: Apache-2.0
//! The result of a study, and its files in a folder.

use std::path::{Path, PathBuf};

use imas_cli::output_file;
use imas_cli::table::Table;
use imas_report::chart::Chart;
use serde::Serialize;

use crate::error::{StudyError, StudyResult};
use crate::page;
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
    /// What the verdicts mean.
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
    /// What is drawn, and how the paper's values are marked.
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
    /// Writes `ID.html`, a CSV file for the findings (where there are any), for each table and for each figure, and an SVG file for
    /// each chart into `folder`. Creates the folder if it is missing. Returns the paths, the page first.
    /// Replaces the files of an earlier study with the same id.
    pub fn write(&self, folder: &Path) -> StudyResult<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)
            .map_err(|source| StudyError::Write { path: folder.to_owned(), source })?;
        let put = |name: String, bytes: &[u8]| {
            let path = folder.join(format!("{}{name}", self.id));
            output_file::write(&path, bytes)
                .map(|()| path.clone())
                .map_err(|source| StudyError::Write { path, source })
        };
        let mut written = vec![put(".html".to_owned(), page::render(self).as_bytes())?];
        if !self.findings.is_empty() {
            written.push(put("-findings.csv".to_owned(), &self.findings_table().csv()?)?);
        }
        for table in self.tables.iter().chain(self.figures.iter().map(|f| &f.data)) {
            written.push(put(format!("-{}.csv", table.id), &table.csv()?)?);
        }
        for figure in &self.figures {
            if let Some(chart) = &figure.chart {
                written.push(put(format!("-{}.svg", figure.data.id), chart.document().as_bytes())?);
            }
        }
        Ok(written)
    }

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
