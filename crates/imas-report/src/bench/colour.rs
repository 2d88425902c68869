// SPDX-License-Identifier: Apache-2.0
//! Colours of the table of `imas bench`, for a terminal.

use anstyle::{AnsiColor, Style};

/// What is coloured, and how.
fn words() -> [(&'static str, Style); 7] {
    let (good, bad) = (AnsiColor::Green.on_default(), AnsiColor::Red.on_default());
    [
        ("faster", good),
        ("less memory", good),
        ("slower", bad),
        ("more memory", bad),
        ("*fastest*", good.bold()),
        ("*leanest*", good.bold()),
        ("*balanced*", good.bold()),
    ]
}

/// The table with its head in bold and its verdicts in colour. The text has no escape sequences of its own.
#[must_use]
pub fn coloured(table: &str) -> String {
    let bold = Style::new().bold();
    let line = |(at, line): (usize, &str)| match at {
        0 => format!("{bold}{line}{bold:#}\n"),
        _ => verdict(line) + "\n",
    };
    table.lines().enumerate().map(line).collect()
}

/// Names stand first in a line and are left alone.
fn verdict(line: &str) -> String {
    let name =
        line.trim_start().find(' ').map_or(line.len(), |end| end + line.len() - line.trim_start().len());
    let (name, rest) = line.split_at(name);
    let coloured = words()
        .into_iter()
        .fold(rest.to_owned(), |rest, (word, style)| rest.replace(word, &format!("{style}{word}{style:#}")));
    format!("{name}{coloured}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_coloured_and_names_are_not() {
        let text = coloured(" candidate  verdict\n---\n faster     1.4 x faster, *fastest*\n");
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains('\u{1b}') && !lines[1].contains('\u{1b}'));
        assert!(lines[2].starts_with(" faster     1.4 x \u{1b}"), "{:?}", lines[2]);
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string().lines().next(),
            Some(" candidate  verdict")
        );
    }
}
