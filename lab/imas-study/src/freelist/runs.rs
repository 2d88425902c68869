// SPDX-License-Identifier: Apache-2.0
//! All runs of the study.

use super::FreelistOptions;
use super::walk::{self, Walks};
use super::writing::{self, Footprint, Writing};
use crate::error::StudyResult;
use crate::program::locate;
use std::path::Path;

/// The versions as the driver names them.
const VERSIONS: [&str; 3] = ["plain", "merging", "small-head"];

#[derive(Debug)]
pub(crate) struct Runs {
    pub(crate) plain: Walks,
    pub(crate) merging: Walks,
    pub(crate) small_head: Walks,
    pub(crate) writing: Writing,
    pub(crate) footprints: Vec<Footprint>,
}

/// Counts the program runs for the caller.
struct Counter<'a> {
    options: &'a FreelistOptions,
    done: u64,
}

impl Counter<'_> {
    fn step(&mut self) {
        self.done += 1;
        let walks = u64::from(self.options.seeds) * VERSIONS.len() as u64;
        self.options.progress.report(self.done, walks + u64::from(self.options.write_runs));
    }
}

impl Runs {
    pub(crate) fn make(options: &FreelistOptions) -> StudyResult<Self> {
        let driver = locate(&options.library_dir, "study/freelist-driver")?;
        let mut counter = Counter { options, done: 0 };
        let [plain, merging, small_head] = VERSIONS.map(|version| walks(&driver, version, &mut counter));
        Ok(Self {
            plain: plain?,
            merging: merging?,
            small_head: small_head?,
            writing: timed(&driver, &mut counter)?,
            footprints: writing::footprints(&driver)?,
        })
    }

    /// The versions in the paper's order, with the driver's names.
    pub(crate) fn versions(&self) -> [(&'static str, &Walks); 3] {
        let [plain, merging, small_head] = VERSIONS;
        [(plain, &self.plain), (merging, &self.merging), (small_head, &self.small_head)]
    }
}

fn walks(driver: &Path, version: &str, counter: &mut Counter<'_>) -> StudyResult<Walks> {
    let mut walks = Vec::new();
    for seed in 1..=counter.options.seeds {
        walks.push(walk::one(driver, version, seed)?);
        counter.step();
    }
    Ok(Walks(walks))
}

fn timed(driver: &Path, counter: &mut Counter<'_>) -> StudyResult<Writing> {
    let mut runs = Vec::new();
    for _ in 0..counter.options.write_runs {
        runs.push(writing::one(driver)?);
        counter.step();
    }
    Ok(Writing(runs))
}
