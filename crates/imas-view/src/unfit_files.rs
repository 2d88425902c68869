// SPDX-License-Identifier: Apache-2.0
//! Which executables IMAS cannot serve, of those that no store knows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use imas_engine::inspect;
use imas_engine::runtime_command::unfit_reason;

use crate::snapshot::ProcessState;

/// Files that are remembered: a path has up to 4 KiB, and anybody may execute ever new ones.
const MOST: usize = 4096;

/// Why nothing may be preloaded into a file, by its path; None for a file that can be served.
#[derive(Debug, Default)]
pub(crate) struct UnfitFiles(HashMap<PathBuf, Option<String>>);

impl UnfitFiles {
    /// Whether the file was not read yet.
    pub(crate) fn lacks(&self, path: &Path) -> bool {
        !self.0.contains_key(path)
    }

    /// Reads the file, which a process of the user runs. What is replaced later is not read again: its processes go on
    /// with the old file.
    pub(crate) fn read(&mut self, path: &Path, uid: u32) {
        let why = inspect::of_user(path, uid).ok().and_then(|facts| unfit_reason(&facts));
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(path.to_owned(), why);
    }

    /// The state of a process of that file.
    pub(crate) fn state(&self, path: &Path) -> ProcessState {
        match self.0.get(path).cloned().flatten() {
            Some(why) => ProcessState::LeftAlone { why },
            None => ProcessState::Unknown,
        }
    }
}
