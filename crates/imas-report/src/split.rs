// SPDX-License-Identifier: Apache-2.0
//! Where the resident memory is, by candidate, as a table.

use imas_core::split::{Shares, Split};

use imas_cli::{format, table};

/// The heads of [`cells`].
pub const HEAD: [&str; 8] = [
    "candidate",
    "resident MiB",
    "asked for %",
    "rounding %",
    "free blocks %",
    "free pages %",
    "own %",
    "other %",
];

/// The table's heads for a terminal of 80 columns; [`TITLE`] says what each is.
const TEXT_HEAD: [&str; 8] = ["candidate", "MiB", "asked", "round", "blocks", "pages", "own", "other"];

/// The title of the table on a terminal.
const TITLE: &str = "Where the resident memory was, mean over the time of the counted runs, in %:\n\
     asked for by the program, rounding, free blocks, free pages, the allocator's\n\
     own, other:";

/// One candidate as a line of text; the figures are per cent of the resident memory.
#[must_use]
pub fn cells(name: &str, split: &Split) -> Vec<String> {
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
pub fn text(rows: &[(&str, Split)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let lines = rows.iter().map(|(name, split)| cells(name, split));
    let mut text = format!("{TITLE}\n{}", table::plain(&TEXT_HEAD, lines));
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
        let text = text(&[("glibc", split), ("hoard", silent)]);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let table = text.lines().take_while(|line| !line.starts_with("Not reported"));
        assert!(table.into_iter().all(|line| line.chars().count() <= 80), "{text}");
        let words: Vec<&str> = line("glibc").split_whitespace().collect();
        assert_eq!(words, ["glibc", "1000.0", "50", "10", "10", "6", "0", "24"]);
        assert!(line("hoard").split_whitespace().eq(["hoard", "1000.0", "50", "10", "-", "-", "-", "40"]));
        assert!(text.contains("Not reported by: hoard."));
        assert_eq!(super::text(&[]), "");
    }

    #[test]
    fn no_part_is_larger_than_the_whole() {
        let split =
            Split { moments: 1, resident: 1 << 20, live: 6 << 20, requested: 6 << 20, reported: None };
        let text = text(&[("glibc", split)]);
        let line = text.lines().find(|line| line.trim_start().starts_with("glibc")).unwrap();
        assert!(line.split_whitespace().eq(["glibc", "1.00", ">100", "-", "-", "-", "-", "-"]), "{line}");
        assert!(text.contains("More was asked for than is resident under: glibc."), "{text}");
    }
}
