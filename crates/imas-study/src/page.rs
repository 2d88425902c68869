// SPDX-License-Identifier: Apache-2.0
//! A study as one HTML page: no script, no network, light and dark.

use crate::error::Result;
use crate::study::Study;
use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, Value, context};

const TEMPLATE: &str = include_str!("page.html");
const NAME: &str = "page.html";

/// The page; every text is escaped, the drawings are ours and go in as they are.
pub(crate) fn render(study: &Study) -> Result<String> {
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    environment.add_filter("cell", |text: &str| Value::from_safe_string(cell(text)));
    let drawings: Vec<Value> = study.figures.iter().map(|f| Value::from_safe_string(f.svg.clone())).collect();
    Ok(environment.get_template(NAME)?.render(context! { study => Value::from(Serde(study)), drawings })?)
}

/// Escaped; an interval stays on one line, so that a narrow column breaks before it and not within.
fn cell(text: &str) -> String {
    let is_figure = text.starts_with(['+', '-']);
    match text.split_once(" [").and_then(|(before, rest)| Some((before, rest.split_once(']')?))) {
        Some((before, (interval, after))) if is_figure => format!(
            "{} <span class=\"interval\">[{}]</span>{}",
            HtmlEscape(before),
            HtmlEscape(interval),
            HtmlEscape(after)
        ),
        _ => HtmlEscape(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{cell, render};
    use crate::study::Study;
    use crate::table::Table;
    use crate::verdict::{Finding, Verdict};

    fn study() -> Study {
        let mut table = Table::new("t", "A table", &["column"]);
        table.rows.push(vec!["<cell>".into()]);
        Study {
            id: "fit".into(),
            title: "A study".into(),
            paper: "A paper".into(),
            method: vec!["A method".into()],
            rule: "A rule".into(),
            findings: vec![Finding {
                claim: "a < b".into(),
                printed: "1".into(),
                ours: "2".into(),
                verdict: Verdict::NotReproduced,
                remark: "because".into(),
            }],
            tables: vec![table],
            figures: vec![],
        }
    }

    #[test]
    fn text_is_escaped_and_verdicts_are_words() {
        let page = render(&study()).unwrap();
        assert!(page.contains("a &lt; b") && page.contains("&lt;cell&gt;"));
        assert!(page.contains("not reproduced"));
    }

    #[test]
    fn an_interval_is_kept_together() {
        let interval = "+1.0 <span class=\"interval\">[-2.0, +3.0]</span> (4 programs)";
        assert_eq!(cell("+1.0 [-2.0, +3.0] (4 programs)"), interval);
        assert_eq!(cell("a [b] <c>"), "a [b] &lt;c&gt;");
        assert_eq!(cell("+<a> [<b>]<c>"), "+&lt;a&gt; <span class=\"interval\">[&lt;b&gt;]</span>&lt;c&gt;");
        let nothing = Study { tables: vec![Table::new("t", "A table", &["a", "b"])], ..study() };
        assert!(render(&nothing).unwrap().contains("<td colspan=\"2\">none</td>"));
    }

    #[test]
    fn the_page_stands_alone() {
        let page = render(&study()).unwrap();
        for outside in ["http://", "https://", "<script", "<link", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
