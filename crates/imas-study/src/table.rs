// SPDX-License-Identifier: Apache-2.0
//! A table of text, as it is shown and as CSV.

use crate::error::Result;
use serde::Serialize;

/// Rows of text under named columns; every row has as many cells as there are columns.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Part of the file name: lower case, with hyphens.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Column names, with units.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(id: &str, title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&c| c.to_owned()).collect();
        Self { id: id.to_owned(), title: title.to_owned(), columns, rows: Vec::new() }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// RFC 4180, column names first.
    pub(crate) fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        writer.into_inner().map_err(|e| csv::Error::from(e.into_error()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut table = Table::new("t", "T", &["a", "b"]);
        table.push(vec!["1,5".into(), "x".into()]);
        assert_eq!(String::from_utf8(table.csv().unwrap()).unwrap(), "a,b\n\"1,5\",x\n");
    }
}
