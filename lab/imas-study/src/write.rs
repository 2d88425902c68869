// SPDX-License-Identifier: Apache-2.0
//! A study as files in a folder.

use crate::error::{StudyError, StudyResult};
use crate::page;
use crate::study::Study;
use imas_cli::output_file;
use imas_cli::table::Table;
use std::path::{Path, PathBuf};

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
