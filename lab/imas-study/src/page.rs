// SPDX-License-Identifier: Apache-2.0
//! A study as files in a folder, and as one page: its result, the findings, charts and tables, and how it was made.

use std::path::{Path, PathBuf};

use imas_cli::output_file;
use imas_cli::table::Table;
use imas_report::chart::Chart;
use imas_report::page::{Block, PageSection, ResultPage};

use crate::error::{StudyError, StudyResult};
use crate::study::{Study, StudyFigure};
use crate::verdict::{Finding, Reproduction};

impl Study {
    /// Writes `ID.html`, a CSV file for the findings (where there are any), for each table and for each figure, and an SVG file for
    /// each chart into `folder`. Creates the folder if it is missing. Returns the paths, the page first.
    /// Replaces the files of an earlier study with the same id.
    pub fn write(&self, folder: &Path) -> StudyResult<Vec<PathBuf>> {
        std::fs::create_dir_all(folder)
            .map_err(|source| StudyError::Write { path: folder.to_owned(), source })?;
        let put = |name: String, bytes: &[u8]| {
            let path = folder.join(format!("{}{name}", self.id));
            output_file::write(&path, bytes)
                .map(|()| path.clone())
                .map_err(|source| StudyError::Write { path, source })
        };
        let mut written = vec![put(".html".to_owned(), render(self).as_bytes())?];
        if !self.findings.is_empty() {
            written.push(put("-findings.csv".to_owned(), &self.findings_table().csv()?)?);
        }
        for table in self.tables.iter().chain(self.figures.iter().map(|f| &f.data)) {
            written.push(put(format!("-{}.csv", table.id), &table.csv()?)?);
        }
        for figure in &self.figures {
            if let Some(chart) = &figure.chart {
                written.push(put(format!("-{}.svg", figure.data.id), chart.document().as_bytes())?);
            }
        }
        Ok(written)
    }
}

fn render(study: &Study) -> String {
    let paragraphs = study.method.iter().cloned().map(Block::Paragraph).collect();
    let sections = [
        PageSection::new("findings", "Printed findings and ours", findings(study)),
        PageSection::new("figures", "Figures", figures(study)),
        PageSection::new("tables", "Tables", study.tables.iter().cloned().map(Block::Table).collect()),
        PageSection::new("method", "Method", paragraphs),
    ];
    let page = ResultPage {
        title: study.title.clone(),
        subtitle: study.paper.clone(),
        result: study.result.clone(),
        picture: study.picture.clone(),
        sections: sections.into_iter().filter(|section| !section.blocks.is_empty()).collect(),
        is_group: false,
    };
    page.render()
}

fn findings(study: &Study) -> Vec<Block> {
    if study.findings.is_empty() {
        return vec![];
    }
    let heads = ["What the paper says", "Printed", "Ours", "Verdict", "Why"];
    let (title, columns) = (String::new(), heads.map(str::to_owned).to_vec());
    let table = Table { title, columns, ..study.findings_table() };
    vec![Block::Table(table), Block::Note(study.rule.clone())]
}

/// All charts except the chart at the top.
fn figures(study: &Study) -> Vec<Block> {
    let at_the_top = study.picture.as_ref().map(Chart::title);
    let is_below =
        |figure: &&StudyFigure| figure.chart.as_ref().is_some_and(|chart| Some(chart.title()) != at_the_top);
    let below = study.figures.iter().filter(is_below);
    below.map(|figure| Block::Charts(figure.chart.clone().into_iter().collect())).collect()
}

/// A sentence with the number of findings for each verdict.
pub(crate) fn verdicts(findings: &[Finding]) -> String {
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let all = [
        Reproduction::Reproduced,
        Reproduction::Differs,
        Reproduction::NotReproduced,
        Reproduction::Undecided,
    ];
    let counted = all.map(|verdict| (count(verdict), verdict)).into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> =
        counted.map(|(count, verdict)| format!("{count} {}", in_words(verdict, count))).collect();
    format!("Of {} printed findings {}.", findings.len(), words.join(", "))
}

fn in_words(verdict: Reproduction, count: usize) -> String {
    match (verdict, count) {
        (Reproduction::Differs, 1) => "differs".to_owned(),
        (Reproduction::Differs, _) => "differ".to_owned(),
        (_, 1) => format!("is {verdict}"),
        _ => format!("are {verdict}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(verdict: Reproduction) -> Finding {
        Finding {
            claim: "a < b".into(),
            printed: "1".into(),
            ours: "2".into(),
            verdict,
            remark: "because".into(),
        }
    }

    fn study() -> Study {
        let mut table = Table::new("t", "A table", &["column"]);
        table.rows.push(vec!["<cell>".into()]);
        Study {
            id: "fit".into(),
            title: "A study".into(),
            paper: "A paper".into(),
            result: "A result".into(),
            picture: None,
            method: vec!["A method".into()],
            rule: "A rule".into(),
            findings: vec![finding(Reproduction::NotReproduced)],
            tables: vec![table],
            figures: vec![],
        }
    }

    #[test]
    fn text_is_escaped_and_verdicts_are_words() {
        let page = render(&study());
        assert!(page.contains("a &lt; b") && page.contains("&lt;cell&gt;"));
        assert!(page.contains("not reproduced"));
    }

    #[test]
    fn the_result_is_first_and_the_method_last() {
        let page = render(&study());
        let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
        assert!(at("A result") < at("a &lt; b") && at("A table") < at("A method"));
        assert!(!page.contains("id=\"figures\""), "a section without figures must be left out");
    }

    #[test]
    fn verdicts_are_counted() {
        let all = [Reproduction::Reproduced, Reproduction::Differs, Reproduction::Reproduced].map(finding);
        assert_eq!(verdicts(&all), "Of 3 printed findings 2 are reproduced, 1 differs.");
    }
}
