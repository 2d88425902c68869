// SPDX-License-Identifier: Apache-2.0
//! A table in a page. Its first column stays visible on a narrow screen. There the rows of a listing, and of a table that
//! ends in a verdict, become cards: what matters most would be out of sight.
//! Last, names in their colours, and the figures in cells of text.

use imas_cli::table::Table;
use maud::{Markup, html};

use crate::look::Look;

/// Rows up to which a table is shown unfolded.
const UNFOLDED: usize = 60;
/// Characters from which on a column is kept wide enough to be read.
const LONG: usize = 48;
/// Characters up to which a cell is not broken into lines.
const SHORT: usize = 10;
/// Where a dash is sorted: below everything else.
const LAST: &str = "1e308";

/// How the cells of one column are shown.
#[derive(Default)]
struct Column {
    is_figure: bool,
    is_long: bool,
    is_candidate: bool,
    /// Some cell has more than a word or two.
    has_phrases: bool,
}

impl Column {
    fn class(&self, tone: Option<&str>) -> Option<String> {
        let is_words = self.has_phrases && !self.is_figure && !self.is_long && !self.is_candidate;
        let own =
            [(self.is_figure, "n"), (self.is_long, "long"), (self.is_candidate, "who"), (is_words, "words")];
        let words: Vec<&str> =
            own.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).chain(tone).collect();
        (!words.is_empty()).then(|| words.join(" "))
    }
}

/// A table whose rows the server has sorted, and shows in part: its heads are links to other orders, its rows
/// lead to pages.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The part.
    pub table: Table,
    /// Where each row leads.
    pub links: Vec<String>,
    /// For each column the address of the page in that order, if there is one, and how it is sorted now.
    pub heads: Vec<Option<Head>>,
}

/// The head of a column by which the server can sort.
#[derive(Debug, Clone, Default)]
pub struct Head {
    /// Address of the page that is sorted by this column.
    pub href: String,
    /// Whether the order is rising; None where the page is not sorted by this column now.
    pub rising: Option<bool>,
}

impl Listing {
    pub(super) fn render(&self) -> Markup {
        body(&self.table, &self.links, Some(&self.heads))
    }
}

/// The table; `links` are the targets of the first column, row by row.
pub(super) fn table(table: &Table, links: &[String]) -> Markup {
    let count = table.rows.len();
    match count > UNFOLDED && links.is_empty() {
        true => {
            html! { details { summary { (table.title) " (" (count) " rows)" } (body(table, links, None)) } }
        }
        false => body(table, links, None),
    }
}

fn body(table: &Table, links: &[String], heads: Option<&[Option<Head>]>) -> Markup {
    let columns = columns(table);
    let id = Some(&table.id).filter(|id| !id.is_empty()).map(|id| format!("table-{id}"));
    html! {
        // A region without a name would be announced as one all the same.
        div.wide tabindex="0" role=[(!table.title.is_empty()).then_some("region")]
            aria-label=[Some(&table.title).filter(|title| !title.is_empty())] {
            table.sortable[heads.is_none()].cards[heads.is_some() || ends_in_a_verdict(table)] id=[id] {
                @if !table.title.is_empty() { caption { span { (table.title) } } }
                thead { tr {
                    @for (at, (name, column)) in table.columns.iter().zip(&columns).enumerate() {
                        (head(name, column, heads.and_then(|heads| heads.get(at)?.as_ref())))
                    }
                } }
                tbody {
                    @for (at, cells) in table.rows.iter().enumerate() { (row(table, cells, &columns, links.get(at))) }
                    @if table.rows.is_empty() { tr { td colspan=(table.columns.len()) { "none" } } }
                }
            }
        }
    }
}

fn ends_in_a_verdict(table: &Table) -> bool {
    table.columns.last().is_some_and(|last| last == "verdict")
}

fn head(name: &str, column: &Column, head: Option<&Head>) -> Markup {
    let order =
        head.and_then(|head| head.rising).map(|rising| if rising { "ascending" } else { "descending" });
    html! {
        th scope="col" class=[column.class(None)] aria-sort=[order] {
            @match head { Some(head) => { a href=(head.href) { (name) } }, None => { (name) } }
        }
    }
}

fn columns(table: &Table) -> Vec<Column> {
    let figures = table.figure_columns();
    let column = |(at, is_figure): (usize, bool)| {
        let has_more =
            |length: usize| table.rows.iter().any(|row| row.get(at).is_some_and(|cell| cell.len() > length));
        Column {
            is_figure: is_figure && at > 0,
            is_long: has_more(LONG),
            is_candidate: table.columns[at].eq_ignore_ascii_case("candidate"),
            has_phrases: has_more(SHORT),
        }
    };
    figures.into_iter().enumerate().map(column).collect()
}

fn row(table: &Table, cells: &[String], columns: &[Column], link: Option<&String>) -> Markup {
    let candidate = cells.iter().zip(columns).find(|(_, column)| column.is_candidate).map(|(name, _)| name);
    html! {
        tr data-candidate=[candidate] {
            @for (at, (text, column)) in cells.iter().zip(columns).enumerate() {
                @if at == 0 {
                    th scope="row" class=[column.class(None)] data-sort=[sort(text)] {
                        @match link { Some(to) => { a href=(to) { (text) } }, None => { (content(text, column)) } }
                    }
                } @else {
                    td class=[column.class(tone(text))] data-sort=[sort(text)] data-head=(table.columns[at]) {
                        (content(text, column))
                    }
                }
            }
        }
    }
}

fn content(text: &str, column: &Column) -> Markup {
    html! { @if column.is_candidate { (mark(text)) } (cell_text(text)) }
}

fn sort(text: &str) -> Option<String> {
    if text == "-" { Some(LAST.to_owned()) } else { sort_key(text).map(|key| key.to_string()) }
}

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
pub(super) fn cell_text(text: &str) -> Markup {
    let is_figure = text.starts_with(['+', '-']) || text.starts_with(|c: char| c.is_ascii_digit());
    match text.split_once(" [").and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (interval, after))) if is_figure => html! {
            (before) " " span.interval { "[" (interval) "]" } (after)
        },
        _ => html! { (text) },
    }
}

/// Words with a colour of their own, which say the same.
fn tone(text: &str) -> Option<&'static str> {
    match text {
        "reproduced" | "faster" | "less memory" | "faster, less memory" => Some("good"),
        "differs" => Some("mid"),
        "not reproduced" | "slower" | "more memory" | "slower, more memory" => Some("bad"),
        _ => None,
    }
}

/// Key that a column is sorted by: the figure that the cell begins with, in the least of its units; None of
/// other text.
fn sort_key(text: &str) -> Option<f64> {
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

    fn shown(rows: usize) -> String {
        let mut table = Table::new("t", "A table", &["candidate", "gain", "verdict"]);
        for _ in 0..rows {
            table.push(["jemalloc", "+1.0 [-2.0, +3.0]", "not reproduced"].map(str::to_owned).to_vec());
        }
        super::table(&table, &[]).into_string()
    }

    #[test]
    fn a_row_names_its_candidate_and_its_figures_sort() {
        let html = shown(1);
        assert!(
            html.contains("<tr data-candidate=\"jemalloc\">") && html.contains("class=\"key c-jemalloc\"")
        );
        assert!(
            html.contains("<th scope=\"row\" class=\"who\">") && html.contains("data-sort=\"1\""),
            "{html}"
        );
        assert!(html.contains("class=\"words bad\""), "{html}");
        assert!(html.contains("<table class=\"sortable cards\""), "it ends in a verdict: {html}");
    }

    #[test]
    fn a_long_table_is_folded_and_an_empty_one_is_marked() {
        assert!(shown(61).starts_with("<details>") && !shown(60).starts_with("<details>"));
        assert!(shown(0).contains("<td colspan=\"3\">none</td>"));
    }

    #[test]
    fn an_interval_is_kept_together() {
        let shown = |cell: &str| cell_text(cell).into_string();
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
