// SPDX-License-Identifier: Apache-2.0
//! Both studies on the real allocators: build them first with `make -C allocators/textbook`.
//! `IMAS_LIBRARY_DIR` names another tree than `build/lib/imas`; `IMAS_STUDY_OUT` keeps the files.

use imas_study::{FitOptions, FreelistOptions, Progress, Study, Verdict, fit, freelist};
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

fn verdict(study: &Study, claim: &str) -> Verdict {
    let finding = study.findings.iter().find(|f| f.claim.starts_with(claim));
    finding.unwrap_or_else(|| panic!("no finding '{claim}'")).verdict
}

#[test]
fn free_lists_behave_as_published_where_they_must() {
    let mut options = FreelistOptions::new(library_dir());
    (options.seeds, options.write_runs) = (30, 1);
    let study = freelist(&options).unwrap();
    for claim in ["The first free block", "Without merging the free list grows", "1,000 blocks of 16 bytes"] {
        assert_eq!(verdict(&study, claim), Verdict::Reproduced, "{claim}");
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
        assert_eq!(verdict(&study, claim), Verdict::Reproduced, "{claim}");
    }
    assert_eq!(verdict(&study, "Whatever the policy"), Verdict::NotReproduced);
    assert_eq!(runs.load(Ordering::Relaxed), 4 * 8 * 5);
    assert_eq!(written(&study).len(), 1 + 1 + study.tables.len() + 2 * 4);
}

#[test]
fn no_runs_are_refused() {
    let mut options = FitOptions::new(library_dir());
    options.seeds = 0;
    assert!(fit(&options).unwrap_err().hint().is_some());
}
