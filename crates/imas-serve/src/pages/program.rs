// SPDX-License-Identifier: Apache-2.0
//! The pages of one program (its candidates by CPU and memory, memory through time, decisions with their evidence) and
//! of the runs of the suite.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use imas_cli::format::when;
use imas_cli::table::Table;
use imas_core::SYSTEM;
use imas_core::candidate::in_order_of_time;
use imas_core::sample::{Ended, PageKind};
use imas_engine::context::Context;
use imas_engine::flags::RulesArgs;
use imas_engine::program_view::{ProgramView, state_where};
use imas_engine::section::{notes, section};
use imas_report::chart::{Axis, Chart, CurveLine, Curves};
use imas_report::html::{self, ProgramSection};
use imas_report::page::{Block, PageSection, ResultPage, SiteLink};
use imas_store::Store;
use serde_json::json;

use super::{Answer, Failure, dash};
use crate::keeper::{ServedProgram, ServedState, Shared, is_usable};
use crate::listing::{Words, address, word};

const MIB: f64 = 1_048_576.0;
/// Decisions in the data.
const DECISIONS: u32 = 100;
/// Crashes shown: all are stored.
const CRASHES: usize = 200;

/// `/program?id=NUMBER`
pub(crate) fn answer(shared: &Shared, known: &ServedState, words: &Words) -> Result<Answer, Failure> {
    let program = word(words, "id").parse().ok().and_then(|id| known.program(id));
    let Some(program) = program else {
        return Err(Failure::not_found("There is no such program; the overview lists those that are known."));
    };
    let context = shared.context.lock().unwrap_or_else(PoisonError::into_inner);
    let store = Store::open_read_only(&context.store_path).map_err(anyhow::Error::from)?;
    // The histograms are not kept; they are read again with the rest.
    let usable = shared.keeper.usable();
    let rules = RulesArgs::of_environment();
    let stored = program.state.known.program.clone();
    let state = state_where((&context, &store), stored, &rules, &|one| is_usable(&usable, one))?;
    let decisions = store.decisions(state.known.program.id, DECISIONS).map_err(anyhow::Error::from)?;
    let page = page(program, html::program_page(&section(&store, &state)?), &state, &context);
    let data = json!({
        "schema": 1,
        "program": program.line,
        "candidates": state.profile.candidates,
        "standings": state.judgement.as_ref().map(|judgement| &judgement.standings),
        "next": state.decision,
        "decisions": decisions,
    });
    Ok(Answer { page, data })
}

fn page(program: &ServedProgram, page: ResultPage, state: &ProgramView, context: &Context) -> ResultPage {
    let own = vec![
        PageSection::new(
            "time",
            "Memory through time",
            vec![Block::Charts(through_time(state).into_iter().collect())],
        ),
        PageSection::new(
            "crashes",
            "Crashes and quarantine",
            vec![Block::Table(crashes(state)), quarantine(state, context)],
        ),
        PageSection::new("method", "Method", notes().into_iter().map(Block::Paragraph).collect()),
    ];
    let line = &program.line;
    let owner = match line.domain.as_str() {
        "own" => String::new(),
        "everybody" => " Measured by root or a system account; counts for everybody.".to_owned(),
        uid => format!(" Of the user with uid {uid} alone."),
    };
    let next = line
        .trial
        .as_ref()
        .map_or_else(String::new, |trial| format!(" Its next start is a trial of {trial}."));
    let has_charts = |section: &PageSection| {
        section.blocks.iter().any(|block| !matches!(block, Block::Charts(charts) if charts.is_empty()))
    };
    ResultPage {
        subtitle: format!("Starts under {}: {}{next}{owner}", line.candidate, line.because),
        sections: page.sections.into_iter().chain(own).filter(has_charts).collect(),
        ..page
    }
}

/// Chart of the memory that each trial held, in the time before the last one.
fn through_time(state: &ProgramView) -> Option<Chart> {
    let records = in_order_of_time(&state.known.records);
    let (first_s, last_s) = (records.first()?.sample.made_unix_s, records.last()?.sample.made_unix_s);
    let (unit, unit_s) = unit(last_s - first_s);
    let points = |name: &str| -> Vec<(f64, f64)> {
        let of_it = records.iter().map(|record| &record.sample).filter(|sample| sample.candidate == name);
        let held = of_it.filter(|sample| sample.kind == PageKind::Trial && sample.memory.resident() > 0);
        held.map(|sample| ((sample.made_unix_s - last_s) / unit_s, sample.memory.resident() as f64 / MIB))
            .collect()
    };
    let names = state.profile.candidates.iter().map(|view| view.name.as_str());
    let lines =
        names.map(|name| CurveLine::new(name, points(name)).dotted()).filter(|line| !line.points.is_empty());
    Curves {
        title: "Resident memory of each trial, MiB".to_owned(),
        caption: format!(
            "By the time of the trial, {unit} before the last one. Builds of the program may differ."
        ),
        x: Axis::new(unit),
        y: Axis::new("MiB").from_zero(),
        lines: lines.collect(),
        ..Curves::default()
    }
    .draw()
}

/// The largest unit that the span has twice.
fn unit(span_s: f64) -> (&'static str, f64) {
    let units = [("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)];
    units.into_iter().find(|(_, seconds)| span_s > 2.0 * seconds).unwrap_or(("seconds", 1.0))
}

fn crashes(state: &ProgramView) -> Table {
    let mut table = Table::new(
        "crashes",
        "Starts that crashed or hung, newest first",
        &["when", "candidate", "how", "start"],
    );
    let newest = in_order_of_time(&state.known.records).into_iter().rev().map(|record| &record.sample);
    for sample in newest.filter(|sample| sample.ended.is_crash()).take(CRASHES) {
        let kind = if sample.kind == PageKind::Trial { "trial" } else { "in use" };
        table.push(vec![
            when(sample.made_unix_s),
            sample.candidate.clone(),
            how(sample.ended),
            kind.to_owned(),
        ]);
    }
    table
}

fn how(ended: Ended) -> String {
    match ended {
        Ended::Signal { signal } => {
            i32::try_from(signal).map_or_else(|_| dash(), imas_linux::process::signal_name)
        }
        Ended::Hung => "hung".to_owned(),
        Ended::Excess => "took far too much".to_owned(),
        Ended::Failed { status } => format!("exit status {status}"),
        Ended::OutOfMemory => "killed at its memory limit".to_owned(),
        Ended::NeverEntered => "died before it began".to_owned(),
        Ended::Clean { .. } | Ended::Killed { .. } | Ended::Unknown => dash(),
    }
}

fn quarantine(state: &ProgramView, context: &Context) -> Block {
    let quarantined = state.profile.candidates.iter().filter_map(|view| view.quarantine.as_ref());
    let line = |one: &imas_core::quarantine::Quarantine| {
        let until = one.until_unix_s.map_or_else(
            || "until the program or the allocator changes".to_owned(),
            |until_s| format!("until {}", when(until_s)),
        );
        let [under, system] = [&one.under_candidate, &one.under_system];
        let lift = format!("imas pin --unblock {} {}", state.known.program.id, one.candidate);
        format!(
            "{} is not used since {}, {until}: {} of {} starts under it ended so, {} of {} under system. To end it: {}",
            one.candidate,
            when(one.since_unix_s),
            under.crashed,
            under.starts,
            system.crashed,
            system.starts,
            context.on_this_store(&lift)
        )
    };
    Block::List(quarantined.map(line).collect())
}

/// `/suite`, `/suite?program=NAME`, `/suite?candidate=NAME`
pub(crate) fn answer_suite(shared: &Shared, _: &ServedState, words: &Words) -> Result<Answer, Failure> {
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

fn suite_link(name: &str, value: &str) -> String {
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
    let links = programs.keys().map(|name| suite_link("program", name)).collect();
    let names = candidates(programs);
    let by_candidate = names.iter().map(|name| SiteLink::new(&suite_link("candidate", name), name)).collect();
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
            links.push(suite_link("program", &section.name));
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
