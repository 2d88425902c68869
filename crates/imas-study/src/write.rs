// SPDX-License-Identifier: Apache-2.0
//! A study as files in a folder.

use crate::error::{Result, StudyError};
use crate::page::render;
use crate::study::Study;
use crate::table::Table;
use std::path::{Path, PathBuf};

impl Study {
    /// Writes `ID.html`, a CSV file for the findings, each table and each figure, and an SVG file for each
    /// figure into `folder`, which is made if need be. Returns the paths, the page first. Files of an earlier
    /// study of the same id are replaced.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)
            .map_err(|source| StudyError::Write { path: folder.to_owned(), source })?;
        let put = |name: String, bytes: &[u8]| {
            let path = folder.join(format!("{}{name}", self.id));
            std::fs::write(&path, bytes)
                .map(|()| path.clone())
                .map_err(|source| StudyError::Write { path, source })
        };
        let mut written = vec![put(".html".to_owned(), render(self)?.as_bytes())?];
        written.push(put("-findings.csv".to_owned(), &self.findings_table().csv()?)?);
        for table in self.tables.iter().chain(self.figures.iter().map(|f| &f.data)) {
            written.push(put(format!("-{}.csv", table.id), &table.csv()?)?);
        }
        for figure in &self.figures {
            written.push(put(format!("-{}.svg", figure.data.id), figure.svg.as_bytes())?);
        }
        Ok(written)
    }

    /// The findings as a table, for terminals and CSV.
    pub fn findings_table(&self) -> Table {
        let columns = ["claim", "printed", "ours", "verdict", "remark"];
        let mut table = Table::new("findings", "Printed findings and ours", &columns);
        for f in &self.findings {
            let verdict = f.verdict.to_string();
            table.push(vec![f.claim.clone(), f.printed.clone(), f.ours.clone(), verdict, f.remark.clone()]);
        }
        table
    }
}
