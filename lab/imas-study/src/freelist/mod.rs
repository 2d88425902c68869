// SPDX-License-Identifier: Apache-2.0
//! Free lists in a 64 KiB arena: Öberg, "Malloc", KTH ID1206, 2021.

mod figures;
mod findings;
mod runs;
mod tables;
mod walk;
mod writing;

use crate::error::{StudyError, StudyResult};
use crate::page;
use crate::program::Progress;
use crate::study::Study;
use crate::verdict::RULE_OF_BANDS;
use std::path::PathBuf;

/// Index of the figure that shows the result of the study.
const WITH_MERGING: usize = 1;

/// The options of the study.
#[derive(Clone, Debug)]
pub struct FreelistOptions {
    /// The installed tree `lib/imas`, with `study/freelist-driver`.
    pub library_dir: PathBuf,
    /// Number of random walks for each version of the allocator; the seeds count from 1. The paper made one.
    pub seeds: u32,
    /// Number of runs of the timed experiment, each with 100 sessions per header size. The paper made one.
    pub write_runs: u32,
    /// Called after each program run.
    pub progress: Progress,
}

impl FreelistOptions {
    /// The default: 200 walks and 10 timed runs, about half a minute.
    pub fn new(library_dir: impl Into<PathBuf>) -> Self {
        Self { library_dir: library_dir.into(), seeds: 200, write_runs: 10, progress: Progress::default() }
    }
}

/// Runs the experiments of the paper and judges its findings.
///
/// # Errors
/// When a program of the study is missing, fails or prints unusable output.
pub fn freelist(options: &FreelistOptions) -> StudyResult<Study> {
    if options.seeds == 0 {
        return Err(StudyError::NoRuns { option: "seeds" });
    }
    if options.write_runs == 0 {
        return Err(StudyError::NoRuns { option: "write_runs" });
    }
    let runs = runs::Runs::make(options)?;
    let (findings, figures) = (findings::findings(&runs), figures::figures(&runs));
    Ok(Study {
        id: "freelist".to_owned(),
        title: "Free lists in a 64 KiB arena".to_owned(),
        paper: "F. Öberg, Malloc, KTH Royal Institute of Technology, ID1206, 2021".to_owned(),
        method: method(options),
        rule: RULE_OF_BANDS.to_owned(),
        result: page::verdicts(&findings),
        picture: figures.get(WITH_MERGING).and_then(|figure| figure.chart.clone()),
        findings,
        tables: tables::tables(&runs),
        figures,
    })
}

fn method(options: &FreelistOptions) -> Vec<String> {
    vec![
        format!(
            "Three first-fit allocators over one arena each: 24-byte headers without merging, 24-byte headers \
             with merging, 8-byte headers with merging. {} seeds each: 40 requests of a uniformly random size \
             (8 to 1,024 bytes; 16 to 1,024 with the small header), then 1,000 iterations, each with one chance \
             in two of an allocation and, independently, of a deallocation of a random live block. A request \
             that no free block can serve is counted as refused and left out.",
            options.seeds
        ),
        format!(
            "Write sessions: 1,000 blocks of 16 bytes are allocated once, then each is written once in each of \
             10,000 rounds, 100 sessions, both header sizes in turn; {} runs. Times are processor time, for \
             comparing the two within a run; the printed ones are of another machine.",
            options.write_runs
        ),
        "The free list is last freed, first found; a merged block keeps the place of its upper part."
            .to_owned(),
    ]
}
