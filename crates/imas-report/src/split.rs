// SPDX-License-Identifier: Apache-2.0
//! Where the resident memory is, by candidate, as a table.

use imas_core::split::{Shares, Split};

use crate::{format, table};

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

/// What stands above the table.
pub const TITLE: &str = "Where the resident memory was, mean over the time of the counted runs:";

/// One candidate as a line of text; the figures are per cent of the resident memory.
#[must_use]
pub fn cells(name: &str, split: &Split) -> Vec<String> {
    let mut cells = vec![name.to_owned(), format::mib(split.resident as f64)];
    cells.extend(shares(split.shares()));
    cells
}

fn shares(shares: Option<Shares>) -> [String; 6] {
    let percent = |share: f64| format!("{:.0}", (share * 100.0).round() + 0.0);
    let Some(Shares { requested, rounding, told, other }) = shares else {
        return [""; 6].map(|_| "-".to_owned());
    };
    let [cached, dirty, own] = told.map_or_else(|| [""; 3].map(|_| "-".to_owned()), |told| told.map(percent));
    [percent(requested), percent(rounding), cached, dirty, own, percent(other)]
}

/// The table with its title and what it leaves open; empty when nothing is known of any candidate.
#[must_use]
pub fn text(rows: &[(&str, Split)]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let lines = rows.iter().map(|(name, split)| cells(name, split));
    let mut text = format!("{TITLE}\n{}", table::plain(&HEAD, lines));
    let silent: Vec<&str> =
        rows.iter().filter(|(_, split)| split.told.is_none()).map(|(name, _)| *name).collect();
    if !silent.is_empty() {
        text.push_str(&format!(
            "Not told by: {}. What it keeps free is part of 'other'.\n",
            silent.join(", ")
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use imas_core::split::Told;

    #[test]
    fn what_is_not_told_is_said() {
        let told = Told { in_use: 620 << 20, cached: 100 << 20, dirty: 60 << 20, own: 0 };
        let split = Split {
            moments: 3,
            resident: 1000 << 20,
            live: 600 << 20,
            requested: 500 << 20,
            told: Some(told),
        };
        let silent = Split { told: None, ..split };
        let text = text(&[("glibc", split), ("hoard", silent)]);
        let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        let words: Vec<&str> = line("glibc").split_whitespace().collect();
        assert_eq!(words, ["glibc", "1000.0", "50", "10", "10", "6", "0", "24"]);
        assert!(line("hoard").split_whitespace().eq(["hoard", "1000.0", "50", "10", "-", "-", "-", "40"]));
        assert!(text.contains("Not told by: hoard."));
        assert_eq!(super::text(&[]), "");
    }
}
