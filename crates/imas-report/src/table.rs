// SPDX-License-Identifier: Apache-2.0
//! Plain tables: columns padded with spaces, a rule below the head, nothing that a script would stumble over.

use comfy_table::{ContentArrangement, Table, presets};
use imas_core::printable;

/// A table without borders; numbers stand to the right.
pub fn plain(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(one_line(row));
    }
    align(&mut table);
    let mut lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    lines.insert(1.min(lines.len()), "-".repeat(width));
    lines.join("\n") + "\n"
}

/// A Markdown table.
pub fn markdown(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(one_line(row).map(|cell| cell.replace('|', "\\|")));
    }
    format!("{table}\n")
}

/// Cells hold names of others: none may end its row or steer the terminal.
fn one_line(row: Vec<String>) -> impl Iterator<Item = String> {
    row.into_iter().map(|cell| printable::name(&cell).into_owned())
}

/// Right-aligns every column whose cells all begin like a number.
fn align(table: &mut Table) {
    let numeric = |text: &str| {
        let text = text.trim();
        text.is_empty()
            || text == "-"
            || text.starts_with(|c: char| c.is_ascii_digit() || c == '+' || c == '-')
    };
    let columns = table.column_count();
    let right: Vec<bool> = (0..columns)
        .map(|column| {
            table
                .row_iter()
                .all(|row| row.cell_iter().nth(column).is_none_or(|cell| numeric(&cell.content())))
        })
        .collect();
    for (column, right) in right.into_iter().enumerate() {
        if let Some(column) = table.column_mut(column).filter(|_| right) {
            column.set_cell_alignment(comfy_table::CellAlignment::Right);
        }
    }
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
    fn markdown_escapes_its_own_sign() {
        let text = markdown(&["x"], [vec!["a|b".to_owned()]].into_iter());
        assert!(text.contains("a\\|b"));
        assert!(text.lines().nth(1).unwrap().contains("--"));
    }
}
