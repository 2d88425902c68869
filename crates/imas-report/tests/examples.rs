// SPDX-License-Identifier: Apache-2.0
//! Twenty benches of real programs and servers, as `imas bench` prints them: each kind of ending is among them. The
//! texts are made of stored runs, so a change of words or rules changes `examples.txt`, and the change is read in
//! review.
//!
//! `IMAS_WRITE_EXAMPLES=1 cargo test -p imas-report --test examples` writes the file anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use imas_core::bench::{Options, Warning};
use imas_core::compare::CostLimits;
use imas_core::judgement::BenchJudgement;
use imas_core::raw_runs::data::{Data, read};
use imas_core::run::RawRun;
use imas_core::server_bench::{GuardRail, ServiceOptions, compare_services};
use imas_report::bench::{BenchLayout, BenchReport};
use imas_report::service;

const WIDTHS: [usize; 2] = [80, 100];

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/examples").join(name)
}

/// The options that a bench was started with.
fn options(data: &Data, name: &str) -> Options {
    let most_cost = match name.ends_with("max-memory-0") {
        true => CostLimits { memory: 0.0, ..CostLimits::USUAL },
        false => CostLimits::USUAL,
    };
    Options { most_cost, seed: 1, ..data.options(name) }
}

fn command(data: &Data, name: &str) -> (String, BenchJudgement) {
    let (runs, comparison) = data.observed(name).compare(&options(data, name));
    let report = BenchReport::of_runs(vec![name.to_owned()], runs, comparison);
    let table = |width| report.table(&BenchLayout { width: Some(width), ..BenchLayout::default() });
    let warnings =
        Warning::few_lines(&report.warnings).into_iter().map(|(what, _)| format!("warning: {what}\n"));
    let noise = Warning::noise(&report.warnings).map(|noise| noise + "\n");
    let tables: String = WIDTHS.map(|width| table(width) + "\n").concat();
    let told: String = warnings.chain(noise).collect();
    (format!("{tables}{}\n{told}", report.sentence()), report.judgement)
}

fn server(data: &Data, name: &str) -> (String, BenchJudgement) {
    let names: Vec<String> = data.candidates_of(name).into_iter().map(str::to_owned).collect();
    let runs: Vec<RawRun> = data.runs.iter().filter(|run| run.program == name).cloned().collect();
    let rails: Vec<GuardRail> = ["cpu+2%", "p99+5%"].map(|rail| rail.parse().unwrap()).to_vec();
    let comparison =
        compare_services(&names, &runs, &ServiceOptions { rails, seed: 1, ..ServiceOptions::default() });
    let tables = WIDTHS.map(|width| service::terminal_table(&comparison, &[], width) + "\n").concat();
    (format!("{tables}{}\n", service::sentence(&comparison)), comparison.judgement)
}

#[test]
fn the_texts_of_twenty_benches_are_these() {
    let data = read(&std::fs::read_to_string(file("runs.jsonl")).unwrap());
    let mut names: Vec<&str> = data.runs.iter().map(|run| run.program.as_str()).collect();
    names.dedup();
    assert!(names.len() >= 20, "{}", names.len());
    let mut text = String::new();
    let mut endings = BTreeMap::new();
    for name in names {
        let (shown, judgement) = match name.starts_with("server") {
            true => server(&data, name),
            false => command(&data, name),
        };
        text += &format!("==== {name}\n{shown}\n");
        *endings.entry(serde_json::to_value(&judgement.ending).unwrap()["kind"].to_string()).or_insert(0) +=
            1;
    }
    println!("{endings:?}");
    if std::env::var_os("IMAS_WRITE_EXAMPLES").is_some() {
        std::fs::write(file("examples.txt"), &text).unwrap();
    }
    let stored = std::fs::read_to_string(file("examples.txt")).unwrap();
    for (now, before) in text.lines().zip(stored.lines()) {
        assert_eq!(now, before, "IMAS_WRITE_EXAMPLES=1 writes examples.txt anew");
    }
    assert_eq!(text, stored);
}
