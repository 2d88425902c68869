// SPDX-License-Identifier: Apache-2.0
//! The studies with the real allocators and with stored runs of real programs. Build the allocators first
//! with `make -C lab/textbook`. `IMAS_LIBRARY_DIR` replaces the default tree `build/lib/imas`.
//! `IMAS_STUDY_OUT` is a folder for the written files; without it they are deleted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use imas_replay::reliability::ReliabilityTable;
use imas_study::{
    FitOptions, FreelistOptions, Progress, ReplayJudgement, Reproduction, SelectorOptions, Study, StudyError,
    fit, freelist, selector,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn library_dir() -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/lib/imas");
    std::env::var_os("IMAS_LIBRARY_DIR").map_or(built, PathBuf::from)
}

fn written(study: &Study) -> Vec<PathBuf> {
    let kept = std::env::var_os("IMAS_STUDY_OUT").map(PathBuf::from);
    let folder = tempfile::tempdir().expect("a temporary folder");
    study.write(&kept.unwrap_or_else(|| folder.path().to_owned())).expect("written files")
}

fn verdict(study: &Study, claim: &str) -> Reproduction {
    let finding = study.findings.iter().find(|f| f.claim.starts_with(claim));
    finding.unwrap_or_else(|| panic!("no finding '{claim}'")).verdict
}

#[test]
fn free_lists_behave_as_published_where_they_must() {
    let mut options = FreelistOptions::new(library_dir());
    (options.seeds, options.write_runs) = (30, 1);
    let study = freelist(&options).unwrap();
    for claim in ["The first free block", "Without merging the free list grows", "1,000 blocks of 16 bytes"] {
        assert_eq!(verdict(&study, claim), Reproduction::Reproduced, "{claim}");
    }
    assert_eq!(study.figures.len(), 4);
    assert_eq!(study.figures[0].data.rows.len(), 1001);
    assert_eq!(written(&study).len(), 1 + 1 + study.tables.len() + 2 * 4);
}

#[test]
fn the_printed_fit_runs_match_and_worst_fit_fragments() {
    let runs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&runs);
    let mut options = FitOptions::new(library_dir());
    options.seeds = 4;
    options.progress = Progress::new(move |done, _| counted.store(done, Ordering::Relaxed));
    let study = fit(&options).unwrap();
    for claim in ["Test 1", "Test 2", "Test 3", "Worst fit is extremely likely"] {
        assert_eq!(verdict(&study, claim), Reproduction::Reproduced, "{claim}");
    }
    assert_eq!(verdict(&study, "Whatever the policy"), Reproduction::NotReproduced);
    assert_eq!(runs.load(Ordering::Relaxed), 4 * 8 * 5);
    assert_eq!(written(&study).len(), 1 + 1 + study.tables.len() + 2 * 4);
}

#[test]
fn no_runs_are_refused() {
    let mut options = FitOptions::new(library_dir());
    options.seeds = 0;
    assert!(fit(&options).unwrap_err().hint().is_some());
}

fn table<'a>(study: &'a Study, id: &str) -> &'a imas_study::Table {
    study.tables.iter().find(|t| t.id == id).unwrap_or_else(|| panic!("no table '{id}'"))
}

/// Columns of the row that begins with `first`.
fn row<'a>(study: &'a Study, id: &str, first: &str) -> &'a [String] {
    let rows = &table(study, id).rows;
    rows.iter().find(|row| row[0] == first).unwrap_or_else(|| panic!("no row '{first}' in '{id}'"))
}

fn number(cell: &str) -> f64 {
    cell.split(' ').next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("no number: '{cell}'"))
}

#[test]
fn the_selector_is_judged_on_stored_runs() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/first.jsonl");
    let mut options = SelectorOptions::new(vec![data]);
    options.splits = 4;
    let study = selector(&options).unwrap();
    assert_eq!(row(&study, "totals", "system for all")[2], "+0.00 [+0.00, +0.00]");
    let cpu = |name: &str| number(&row(&study, "totals", name)[2]);
    assert!(cpu("oracle in hindsight (upper bound), fastest") >= cpu("best of the runs seen, fastest"));
    assert_eq!(study.figures.len(), 5);
    assert!(study.figures.iter().all(|f| f.chart.is_some() && !f.data.rows.is_empty()));
    assert_eq!(table(&study, "measurements").rows.len(), 9 * 6);
    assert_eq!(written(&study).len(), 1 + 1 + study.tables.len() + 2 * 5);
}

/// Runs of programs `p0`, `p1`, ...: `a` takes a tenth less CPU than system, exactly; `b` crashed once.
fn exact_runs(programs: u32) -> String {
    let mut lines = String::from("{\"imas\":\"runs\",\"schema\":1,\"host\":{\"cpu\":\"<b>\"}}\n");
    for (program, round) in (0..programs).flat_map(|p| (0..8).map(move |r| (p, r))) {
        let slow = 1.0 + f64::from((program * 7 + round * 3) % 5) / 20.0;
        for (candidate, cpu) in [("system", 1.0), ("a", 0.9), ("b", 0.5)] {
            let ok = candidate != "b" || round != 3;
            let (user_s, why) = (cpu * slow, if ok { "null" } else { "\"crash\"" });
            lines.push_str(&format!(
                "{{\"program\":\"p<i>{program}\",\"candidate\":\"{candidate}\",\"round\":{round},\"ok\":{ok},\"why\":{why},\
                 \"user_s\":{user_s},\"mean_bytes\":1000000}}\n"
            ));
        }
    }
    lines + "{\"program\":\"torn"
}

fn of_text(text: &str) -> imas_study::StudyResult<Study> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("runs.jsonl");
    std::fs::write(&path, text).expect("a written file");
    selector(&SelectorOptions::new(vec![path]))
}

#[test]
fn a_known_gain_is_found_and_a_crash_is_reported() {
    let study = of_text(&exact_runs(5)).unwrap();
    assert_eq!(row(&study, "totals", "a for all")[2], "+10.00 [+10.00, +10.00]");
    let fastest = row(&study, "totals", "IMAS adaptive, fastest");
    assert!((9.0..=10.0).contains(&number(&fastest[2])), "{fastest:?}");
    assert!(
        table(&study, "totals").rows.iter().all(|row| row[0] != "b for all"),
        "b crashed with every program"
    );
    let out = row(&study, "left-out", "p<i>0");
    assert_eq!((out[1].as_str(), out[2].as_str()), ("b", "1 x crash"));
    assert!(study.method[0].contains("1 lines are no runs"), "{}", study.method[0]);
    let page = written_page(&study);
    assert!(!page.contains("p<i>") && !page.contains("<b>"), "text from the file must be escaped");
}

fn written_page(study: &Study) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let paths = study.write(folder.path()).expect("written files");
    std::fs::read_to_string(&paths[0]).expect("the page")
}

#[test]
fn runs_without_figures_are_refused() {
    for text in ["", "no json\n", "{\"program\":\"p\",\"candidate\":\"system\",\"ok\":true,\"user_s\":1}\n"] {
        let error = of_text(text).unwrap_err();
        assert!(matches!(error, StudyError::NoPrograms { .. }) && error.hint().is_some(), "{error}");
    }
    let error = selector(&SelectorOptions::new(vec!["does/not/exist".into()])).unwrap_err();
    assert!(error.to_string().contains("does/not/exist") && error.hint().is_some());
}

/// A file of `results/`.
fn result(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../results").join(name)
}

/// The committed predictions and live runs: both are read, most programs have both, and the table of reliability
/// that is shipped is the one that they give.
#[test]
fn the_committed_predictions_are_judged() {
    let judgement = ReplayJudgement::read(&[result("replay.jsonl.gz")], &[result("suite.jsonl.gz")]).unwrap();
    let study = judgement.study();
    let choices = study.tables.iter().find(|table| table.id == "choices").unwrap();
    let programs: u32 = choices.rows[0][1].parse().unwrap();
    assert!(programs >= 60, "{programs}");
    assert_eq!(choices.rows.len(), 3);
    assert!(study.result.contains("CPU time") && study.result.contains("memory"), "{}", study.result);
    assert_eq!(written(&study).len(), 1 + study.tables.len() + 2 * study.figures.len());
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/imas-replay/replay-reliability.json");
    let shipped = ReliabilityTable::parse(&std::fs::read_to_string(shipped).unwrap()).unwrap();
    assert_eq!(shipped, judgement.reliability());
}

#[test]
fn predictions_without_live_runs_are_refused() {
    let error = ReplayJudgement::read(&[result("replay.jsonl.gz")], &[result("services.jsonl")]).unwrap_err();
    assert!(matches!(error, StudyError::NoPredictions { .. }), "{error}");
    assert!(error.hint().unwrap().contains("--live"));
}
