// SPDX-License-Identifier: Apache-2.0
//! Names in their colours, and the figures in cells of text.

use maud::{Markup, html};

use crate::look::Look;

/// The mark of an allocator: its colour and shape.
pub(super) fn mark(name: &str) -> Markup {
    let look = Look::of(name);
    html! {
        svg class={"key " (look.class())} viewBox="-6.5 -6.5 13 13" aria-hidden="true" { path d=(look.dot()) {} }
    }
}

/// A line of names.
pub(super) fn keys(names: &[String]) -> Markup {
    html! {
        p.keys { @for name in names { span data-candidate=(name) { (mark(name)) (name) } } }
    }
}

/// The text; an interval stays on one line, so that a narrow column breaks before it and not within.
pub(super) fn text(text: &str) -> Markup {
    let is_figure = text.starts_with(['+', '-']) || text.starts_with(|c: char| c.is_ascii_digit());
    match text.split_once(" [").and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (interval, after))) if is_figure => html! {
            (before) " " span.interval { "[" (interval) "]" } (after)
        },
        _ => html! { (text) },
    }
}

/// Words with a colour of their own, which say the same.
pub(super) fn tone(text: &str) -> Option<&'static str> {
    match text {
        "reproduced" | "faster" | "less memory" | "faster, less memory" => Some("good"),
        "differs" => Some("mid"),
        "not reproduced" | "slower" | "more memory" | "slower, more memory" => Some("bad"),
        _ => None,
    }
}

/// Key that a column is sorted by: the figure that the cell begins with, in the least of its units; None of
/// other text.
pub(super) fn sort_key(text: &str) -> Option<f64> {
    let text = text.trim().trim_start_matches(['<', ' ']);
    let digits = text.find(|c: char| !(c.is_ascii_digit() || ".+-".contains(c))).unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].split_whitespace().next() {
        Some("ns") => 1e-9,
        Some("us" | "\u{b5}s") => 1e-6,
        Some("ms") => 1e-3,
        Some("KiB") => 1024.0,
        Some("MiB") => 1_048_576.0,
        Some("GiB") => 1_073_741_824.0,
        _ => 1.0,
    };
    Some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_kept_together() {
        let shown = |cell: &str| text(cell).into_string();
        let interval = "+1.0 <span class=\"interval\">[-2.0, +3.0]</span> (4 programs)";
        assert_eq!(shown("+1.0 [-2.0, +3.0] (4 programs)"), interval);
        assert_eq!(shown("a [b] <c>"), "a [b] &lt;c&gt;");
        assert_eq!(shown("+<a> [<b>]<c>"), "+&lt;a&gt; <span class=\"interval\">[&lt;b&gt;]</span>&lt;c&gt;");
    }

    #[test]
    fn cells_sort_by_their_figures_in_one_unit() {
        let cells = ["< 4.0 ns", "13 ns", "2.5 \u{b5}s", "12.3 ms [11.0 ms, 14.0 ms]", "0.80 s", "-1.5 %"];
        let keys: Vec<f64> = cells.into_iter().filter_map(sort_key).collect();
        assert_eq!(keys.len(), cells.len());
        assert!(keys[..5].windows(2).all(|pair| pair[0] < pair[1]), "{keys:?}");
        assert_eq!(
            (sort_key("-1.5 % [-2.0, -1.0]"), sort_key("+7"), sort_key("-")),
            (Some(-1.5), Some(7.0), None)
        );
        assert_eq!(sort_key("jemalloc"), None);
    }
}
