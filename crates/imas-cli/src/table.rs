// SPDX-License-Identifier: Apache-2.0
//! Tables of text, as CSV, Markdown, on a terminal and, with `imas_report::page`, in a page.
//!
//! On a terminal columns are padded with spaces below a rule: nothing that a script would stumble over.

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use imas_core::printable;
use serde::Serialize;

/// Rows of text under named columns; every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Table {
    /// Part of the file name: lower case, with hyphens.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Column names, with units. In a page the cells of the column "candidate" have the allocator's colour.
    pub columns: Vec<String>,
    /// Cells.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new(id: &str, title: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|&c| c.to_owned()).collect();
        Self { id: id.to_owned(), title: title.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row at the end.
    pub fn push(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    /// RFC 4180, column names first.
    ///
    /// # Errors
    /// When a cell cannot be written as CSV.
    pub fn csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&self.columns)?;
        for row in &self.rows {
            writer.write_record(row)?;
        }
        writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))
    }

    /// The table as it is printed on a terminal, without its title.
    #[must_use]
    pub fn plain(&self) -> String {
        plain(&self.heads(), self.rows.iter().cloned())
    }

    /// The table as Markdown, without its title.
    #[must_use]
    pub fn markdown(&self) -> String {
        markdown(&self.heads(), self.rows.iter().cloned())
    }

    fn heads(&self) -> Vec<&str> {
        self.columns.iter().map(String::as_str).collect()
    }

    /// For each column whether it is one of figures.
    pub fn figure_columns(&self) -> Vec<bool> {
        (0..self.columns.len()).map(|at| is_of_figures(&self.rows, at)).collect()
    }
}

/// Whether every cell of the column is a figure or a dash, and at least one a figure: it stands to the right.
fn is_of_figures(rows: &[Vec<String>], column: usize) -> bool {
    let is_dash = |text: &str| text.is_empty() || text == "-";
    let is_figure = |text: &str| {
        let digits = text.trim_start_matches(['+', '-', '<', ' ']);
        digits.starts_with(|c: char| c.is_ascii_digit())
    };
    let cells = || rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.trim());
    cells().all(|cell| is_dash(cell) || is_figure(cell)) && cells().any(is_figure)
}

/// A table without borders; numbers stand to the right.
pub fn plain(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    wrapped(head, rows, None)
}

/// The table in lines of at most `width` columns, as far as wrapping the last column makes them fit.
#[must_use]
pub fn fitted(head: &[&str], rows: &[Vec<String>], width: Option<usize>) -> String {
    const LEAST: u16 = 16;
    let whole = plain(head, rows.iter().cloned());
    let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    let Some(width) = width.filter(|width| longest(&whole) > *width) else { return whole };
    let most = u16::try_from(width).unwrap_or(u16::MAX).max(LEAST);
    let mut tries = (LEAST..=most).rev().map(|last| wrapped(head, rows.iter().cloned(), Some(last)));
    tries
        .find(|text| longest(text) <= width)
        .unwrap_or_else(|| wrapped(head, rows.iter().cloned(), Some(LEAST)))
}

/// A table as [`plain`] makes it, with the last column wrapped to at most `last` characters; None: not
/// wrapped.
pub fn wrapped(head: &[&str], rows: impl Iterator<Item = Vec<String>>, last: Option<u16>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    let rows: Vec<Vec<String>> = rows.collect();
    for row in &rows {
        table.add_row(row.iter().map(|cell| printable::name(cell).into_owned()));
    }
    for (_, column) in table.column_iter_mut().enumerate().filter(|(at, _)| is_of_figures(&rows, *at)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if let (Some(width), Some(column)) = (last, table.column_mut(head.len().saturating_sub(1))) {
        column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(width)));
    }
    let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    lines.insert(1.min(lines.len()), "-".repeat(width));
    lines.join("\n") + "\n"
}

/// A Markdown table.
pub fn markdown(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(one_line(row).map(|cell| cell.replace('|', "\\|")));
    }
    format!("{table}\n")
}

/// Code in a line of Markdown. It is quoted by one backtick more than it has in a row, so that none of them ends it.
pub fn markdown_code(text: &str) -> String {
    let text = printable::name(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let quote = "`".repeat(longest + 1);
    // Spaces keep a backtick at the end of the code apart from the quote; Markdown removes one on each side.
    let space = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{quote}{space}{text}{space}{quote}")
}

/// Cells hold names of others: none may end its row or steer the terminal.
fn one_line(row: Vec<String>) -> impl Iterator<Item = String> {
    row.into_iter().map(|cell| printable::name(&cell).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> impl Iterator<Item = Vec<String>> {
        [["a", "1.5"], ["bcd", "10.0"]].into_iter().map(|row| row.map(str::to_owned).to_vec())
    }

    #[test]
    fn numbers_stand_to_the_right() {
        let lines: Vec<String> = plain(&["name", "figure"], rows()).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[2].ends_with(" 1.5") && lines[3].ends_with("10.0"));
        assert_eq!(lines[2].len(), lines[3].len());
        assert!(lines[1].chars().all(|c| c == '-'));
    }

    #[test]
    fn no_cell_ends_its_row_or_steers_the_terminal() {
        let rows = || [vec!["x\u{1b}]0;t\u{7}\ny".to_owned(), "1".to_owned()]].into_iter();
        for table in [plain(&["name", "figure"], rows()), markdown(&["name", "figure"], rows())] {
            assert_eq!(table.lines().count(), 3, "{table}");
            assert!(!table.contains(['\u{1b}', '\u{7}']), "{table:?}");
        }
    }

    #[test]
    fn csv_quotes_what_needs_it() {
        let mut table = Table::new("t", "T", &["a", "b"]);
        table.push(vec!["1,5".into(), "x".into()]);
        assert_eq!(String::from_utf8(table.csv().unwrap()).unwrap(), "a,b\n\"1,5\",x\n");
        assert!(table.plain().contains("1,5") && table.markdown().contains("1,5"));
    }

    #[test]
    fn columns_of_figures_stand_to_the_right() {
        let mut table = Table::new("t", "T", &["name", "figure", "nothing", "limit"]);
        table.push(["jemalloc", "-1.5 [-2.0, -1.0]", "-", "< 2 ns"].map(str::to_owned).to_vec());
        table.push(["8 of 9", "-", "", "3 ns"].map(str::to_owned).to_vec());
        assert_eq!(table.figure_columns(), [false, true, false, true]);
    }

    #[test]
    fn code_does_not_end_its_quotation() {
        assert_eq!(markdown_code("echo a"), "`echo a`");
        assert_eq!(markdown_code("echo `id`"), "`` echo `id` ``");
        assert_eq!(markdown_code("a``b\u{1b}[2J\n# head"), "```a``b\\u{1b}[2J\\n# head```");
    }

    #[test]
    fn markdown_escapes_its_own_sign() {
        let text = markdown(&["x"], [vec!["a|b".to_owned()]].into_iter());
        assert!(text.contains("a\\|b"));
        assert!(text.lines().nth(1).unwrap().contains("--"));
    }
}
