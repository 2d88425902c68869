// SPDX-License-Identifier: Apache-2.0
//! Columns of a table.

use imas_cli::table::Table;

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
