// SPDX-License-Identifier: Apache-2.0
//! Reading executables. Whoever runs a program has made its file, perhaps to hurt its reader: it is read only if it is the file that
//! was seen running, once, and not again if imasd has died twice over it.

use std::path::Path;

use anyhow::Result;
use imas_linux::elf::{self, ElfError};
use imas_linux::index::Executable;
use imas_linux::program_file::ProgramFile;
use serde::{Deserialize, Serialize};

use crate::daemon::Daemon;

/// Name of what was found, in the store.
const FOUND: &str = "imasd-executable-interface";
/// Name of the count of readings that were begun and have not ended.
const BEGUN: &str = "imasd-executable-begun";
/// So many of them, and the file is not read any more.
const MOST_DEATHS: u32 = 2;

/// What was found in an executable; remembered in the store until the file changes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Why nothing may be preloaded into it, as a sentence.
    pub(crate) unfit: Option<String>,
    /// Hexadecimal; empty if it has none.
    pub(crate) build_id: String,
}

impl Found {
    fn unfit(why: String) -> Self {
        Self { unfit: Some(why), build_id: String::new() }
    }
}

impl Daemon {
    /// Reads the executable at `path`, or remembers what was read.
    pub(crate) fn inspect(&self, path: &Path, executable: Executable) -> Result<Found> {
        let file = ProgramFile::open_executable(path, executable)?;
        if let Some(known) = self.store.recall_of(path, file.about(), FOUND)? {
            return Ok(known);
        }
        let begun: u32 = self.store.recall_of(path, file.about(), BEGUN)?.unwrap_or(0);
        if begun >= MOST_DEATHS {
            let why = format!(
                "imasd has died {begun} times while it read this file: it is not read until it changes"
            );
            return Ok(Found::unfit(why));
        }
        // Before the first byte is read: should this be the end of us, it is known at what.
        self.store.remember_of(path, file.about(), BEGUN, &(begun + 1))?;
        let found = read(&file, path);
        self.store.remember_of(path, file.about(), BEGUN, &begun)?;
        let found = found?;
        self.store.remember_of(path, file.about(), FOUND, &found)?;
        Ok(found)
    }

    /// Whether the file that stands at the path was read before and has not changed since.
    pub(crate) fn is_remembered(&self, path: &Path) -> bool {
        let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        let found = about.map(|about| self.store.recall_of::<Found>(path, &about, FOUND));
        matches!(found, Some(Ok(Some(_))))
    }
}

/// What is wrong with a file is found in it like anything else, and not looked for again.
fn read(file: &ProgramFile, path: &Path) -> Result<Found, ElfError> {
    match elf::Executable::of(file.file(), path) {
        Ok(elf) => {
            let unfit = elf.unfit().map(|unfit| unfit.why().to_owned());
            Ok(Found { unfit, build_id: elf.build_id.unwrap_or_default() })
        }
        Err(error) if error.is_of_the_file() => Ok(Found::unfit(error.to_string())),
        Err(error) => Err(error),
    }
}
