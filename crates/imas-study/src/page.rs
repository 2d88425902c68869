// SPDX-License-Identifier: Apache-2.0
//! A study as one HTML page: no script, no network, light and dark.

use crate::error::Result;
use crate::study::Study;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

const TEMPLATE: &str = include_str!("page.html");
const NAME: &str = "page.html";

/// The page; every text is escaped, the drawings are ours and go in as they are.
pub(crate) fn render(study: &Study) -> Result<String> {
    let mut environment = Environment::new();
    environment.add_template(NAME, TEMPLATE)?;
    let drawings: Vec<Value> = study.figures.iter().map(|f| Value::from_safe_string(f.svg.clone())).collect();
    Ok(environment.get_template(NAME)?.render(context! { study => Value::from(Serde(study)), drawings })?)
}

#[cfg(test)]
mod tests {
    use super::render;
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
    fn the_page_stands_alone() {
        let page = render(&study()).unwrap();
        for outside in ["http://", "https://", "<script", "<link", "src="] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
