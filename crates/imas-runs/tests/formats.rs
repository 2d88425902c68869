// SPDX-License-Identifier: Apache-2.0
//! Runs that were written before there was one record format are read as they were meant.

#![allow(clippy::unwrap_used, reason = "a panic is a test's way of failing")]

use std::path::{Path, PathBuf};

use imas_core::raw_runs::data::{self, Line};
use imas_core::run::RunKind;
use imas_runs::journal::Journal;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// `imas-lab suite run` of a program under two candidates: two measured rounds and a counted one.
#[test]
fn runs_of_the_suite_are_read() {
    let runs = imas_runs::journal::read_data(&[fixture("suite.jsonl")]).unwrap().runs;
    assert_eq!(runs.len(), 6);
    assert!(runs.iter().all(|run| run.ok && run.output.is_some() && run.load1.is_some()));
    let counted: Vec<_> = runs.iter().filter(|run| run.kind == RunKind::Counted).collect();
    assert!(counted.iter().all(|run| run.ns_per_op.unwrap() > 0.0 && run.heap_bytes.unwrap() > 0));
    assert!(runs[0].voluntary_switches > 0);
}

/// `imas bench --export-runs` of a command that writes something else under mimalloc.
#[test]
fn exported_runs_of_a_bench_are_read() {
    let data = imas_runs::journal::read_data(&[fixture("bench.jsonl")]).unwrap();
    assert_eq!((data.headers.len(), data.runs.len(), data.unreadable.len()), (1, 6, 0));
    let rejected: Vec<_> = data.runs.iter().filter(|run| !run.ok).collect();
    assert!(rejected.iter().all(|run| run.candidate == "mimalloc" && run.why.as_deref() == Some("output")));
    assert_eq!(rejected.len(), 2);
}

/// A journal that today's program goes on with keeps every line of before.
#[test]
fn an_old_journal_is_appended_to() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let before = std::fs::read_to_string(fixture("suite.jsonl")).unwrap();
    std::fs::write(file.path(), &before).unwrap();
    let mut journal = Journal::open(file.path()).unwrap();
    let mut run = data::read(journal.text()).runs.remove(0);
    run.round = 9;
    journal.append(&run).unwrap();
    let after = std::fs::read_to_string(file.path()).unwrap();
    let added = after.strip_prefix(&before).unwrap();
    assert_eq!(Line::parse(added.trim_end()), Ok(Line::Run(Box::new(run))));
}
