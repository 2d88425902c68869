// SPDX-License-Identifier: Apache-2.0
//! What of IMAS a process has mapped.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::environment::{GUARD, HOOK};
use crate::running::Running;

/// What of IMAS a process has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Injected {
    /// Nothing of IMAS is mapped.
    Nothing,
    /// The guard: a production start.
    Guard,
    /// The hook: a trial.
    Hook,
}

impl Injected {
    /// The library of ours among the mapped files.
    #[must_use]
    pub fn among(files: &BTreeSet<PathBuf>) -> Self {
        match (maps_named(files, HOOK), maps_named(files, GUARD)) {
            (true, _) => Self::Hook,
            (false, true) => Self::Guard,
            (false, false) => Self::Nothing,
        }
    }
}

impl Running {
    /// What of IMAS the process has mapped.
    #[must_use]
    pub fn injected(&self) -> Injected {
        Injected::among(&self.mapped)
    }
}

/// Whether a file of that name is mapped, in whatever folder.
pub(crate) fn maps_named(files: &BTreeSet<PathBuf>, name: &str) -> bool {
    files.iter().any(|file| file_name(file) == name)
}

/// The last part of a path; empty where it is not UTF-8.
pub(crate) fn file_name(file: &Path) -> &str {
    file.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
