// SPDX-License-Identifier: Apache-2.0
//! The runs of the suite, by program and by candidate: picks and figures are those of `imas bench`.

use std::collections::BTreeMap;

use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_report::html::{self, ProgramSection};
use imas_report::page::{Block, PageSection, ResultPage, SiteLink};
use serde_json::json;

use super::{Answer, Failure};
use crate::listing::{Words, address, word};
use crate::served_state::ServedState;
use crate::shared::Shared;

/// `/suite`, `/suite?program=NAME`, `/suite?candidate=NAME`
pub(crate) fn answer(shared: &Shared, _: &ServedState, words: &Words) -> Result<Answer, Failure> {
    let Some(programs) = shared.suite.programs() else {
        return Err(Failure::not_found(
            "There are no results of the suite here; name a file with --results FILE.",
        ));
    };
    let programs = programs.map_err(Failure::internal)?;
    match (word(words, "program"), word(words, "candidate")) {
        ("", "") => Ok(all(programs)),
        ("", candidate) => of_candidate(programs, candidate),
        (name, _) => match programs.get(name) {
            Some(section) => Ok(of_program(section)),
            None => Err(Failure::not_found("The suite has no such program.")),
        },
    }
}

fn link(name: &str, value: &str) -> String {
    address("/suite", &Words::from([(name.to_owned(), value.to_owned())]))
}

/// The candidates in the order of the first program that has them.
fn candidates(programs: &BTreeMap<String, ProgramSection>) -> Vec<&str> {
    let mut names: Vec<&str> = vec![];
    for runs in programs.values().flat_map(|section| &section.runs) {
        if !names.contains(&runs.name.as_str()) {
            names.push(&runs.name);
        }
    }
    names
}

fn all(programs: &BTreeMap<String, ProgramSection>) -> Answer {
    let mut table = Table::new(
        "suite",
        "Programs of the suite",
        &["program", "fastest", "leanest", "balanced, and what it changes"],
    );
    for section in programs.values() {
        let [fastest, leanest, _] = &section.findings.picks;
        table.push(vec![
            section.name.clone(),
            fastest.clone(),
            leanest.clone(),
            section.findings.short.clone(),
        ]);
    }
    let better = programs.values().filter(|section| section.findings.picks[2] != SYSTEM).count();
    let links = programs.keys().map(|name| link("program", name)).collect();
    let names = candidates(programs);
    let by_candidate = names.iter().map(|name| SiteLink::new(&link("candidate", name), name)).collect();
    let data = json!({
        "schema": 1,
        "programs": programs.values().map(of_data).collect::<Vec<_>>(),
        "candidates": names,
    });
    let page = ResultPage {
        title: "Results of the suite".to_owned(),
        subtitle: "Measured on the machine of the project, not here.".to_owned(),
        result: format!(
            "For {better} of {} programs another allocator is better than system beyond the noise.",
            programs.len()
        ),
        sections: vec![
            PageSection::new("programs", "By program", vec![Block::Index(table, links)]),
            PageSection::new(
                "candidates",
                "By candidate",
                vec![Block::Links("Candidates".to_owned(), by_candidate)],
            ),
        ],
        ..ResultPage::default()
    };
    Answer { page, data }
}

fn of_data(section: &ProgramSection) -> serde_json::Value {
    let findings = &section.findings;
    json!({ "program": section.name, "picks": findings.picks, "short": findings.short, "table": findings.table })
}

fn of_program(section: &ProgramSection) -> Answer {
    let page = html::program_page(section);
    let subtitle = "A program of the suite, measured on the machine of the project.".to_owned();
    Answer {
        page: ResultPage { subtitle, ..page },
        data: json!({ "schema": 1, "program": of_data(section) }),
    }
}

/// One candidate under every program: the rows that the tables of the programs have of it.
fn of_candidate(programs: &BTreeMap<String, ProgramSection>, candidate: &str) -> Result<Answer, Failure> {
    let first =
        programs.values().next().map(|section| section.findings.table.columns.clone()).unwrap_or_default();
    let mut table =
        Table { title: format!("{candidate} against system"), columns: first, ..Table::default() };
    if let Some(column) = table.columns.first_mut() {
        "program".clone_into(column);
    }
    let mut links = vec![];
    for section in programs.values() {
        let rows = section
            .findings
            .table
            .rows
            .iter()
            .filter(|row| row.first().is_some_and(|name| name == candidate));
        for row in rows {
            let cells = std::iter::once(section.name.clone()).chain(row.iter().skip(1).cloned());
            table.rows.push(cells.collect());
            links.push(link("program", &section.name));
        }
    }
    if table.rows.is_empty() {
        return Err(Failure::not_found("The suite has no such candidate."));
    }
    let data = json!({ "schema": 1, "candidate": candidate, "table": table });
    let page = ResultPage {
        title: format!("{candidate} in the suite"),
        result: format!("{candidate} ran {} of the suite's {} programs.", table.rows.len(), programs.len()),
        sections: vec![PageSection::new("programs", "By program", vec![Block::Index(table, links)])],
        ..ResultPage::default()
    };
    Ok(Answer { page, data })
}
