// SPDX-License-Identifier: Apache-2.0
//! Four placement policies under eight programs: Ramos, "Implementation of Custom Malloc and Its Performance
//! Against System Malloc", UTA CSE 3320.

mod claims;
mod figures;
mod findings;
mod runs;
mod tables;

use crate::error::{StudyError, StudyResult};
use crate::page;
use crate::program::Progress;
use crate::study::Study;
use crate::verdict::RULE_OF_BANDS;
use std::path::PathBuf;

/// The options of the study.
#[derive(Clone, Debug)]
pub struct FitOptions {
    /// The installed tree `lib/imas`, with the folders `study/` and `allocators/`.
    pub library_dir: PathBuf,
    /// Number of runs of each of the eight programs under each allocator; the seeds count from 1. The paper
    /// made one run.
    pub seeds: u32,
    /// Called after each program run.
    pub progress: Progress,
}

impl FitOptions {
    /// The default: 20 seeds, about a minute.
    pub fn new(library_dir: impl Into<PathBuf>) -> Self {
        Self { library_dir: library_dir.into(), seeds: 20, progress: Progress::default() }
    }
}

/// Runs the eight programs under system, first, next, best and worst fit and judges the paper's findings.
///
/// # Errors
/// When a program or library of the study is missing, fails or prints unusable output; when there is no
/// pseudo-terminal.
pub fn fit(options: &FitOptions) -> StudyResult<Study> {
    if options.seeds == 0 {
        return Err(StudyError::NoRuns { option: "seeds" });
    }
    let runs = runs::Runs::make(options)?;
    let (findings, figures) = (findings::findings(&runs), figures::figures(&runs));
    Ok(Study {
        id: "fit".to_owned(),
        title: "First, next, best and worst fit".to_owned(),
        paper:
            "E. Ramos, Implementation of Custom Malloc and Its Performance Against System Malloc, University \
                of Texas at Arlington, CSE 3320"
                .to_owned(),
        method: method(options),
        rule: RULE_OF_BANDS.to_owned(),
        result: page::verdicts(&findings),
        picture: figures.first().and_then(|figure| figure.chart.clone()),
        findings,
        tables: tables::tables(&runs),
        figures,
    })
}

fn method(options: &FitOptions) -> Vec<String> {
    vec![
        format!(
            "Eight programs, each on a pseudo-terminal, with the system's malloc and with the four allocators \
             preloaded, in turn, {} times. Tests 1 to 3 are the paper's; their statistics hold to the digit. The \
             paper does not say what its other five did: ours are made so that the policies must differ.",
            options.seeds
        ),
        "Test 4: placement by address. Test 5: fragmentation, (heap - live) / heap, of a mixed load in balance. \
         Test 6: heap growth under sizes that creep up. Test 7: largest heap of a load with peaks. Test 8: time of \
         a long mixed load. Tests 5 to 8 take a seed, the same for all allocators."
            .to_owned(),
        "The four allocators share everything but the search: one block list in address order, headers of 8 \
         bytes, sizes rounded to 16, splitting, merging, growth by sbrk. Times are processor time, user \
         and system, and compared as ratios to the system's within the same seed; the paper's are elapsed."
            .to_owned(),
    ]
}
