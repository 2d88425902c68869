// SPDX-License-Identifier: Apache-2.0
//! What of IMAS a process has mapped.

use serde::Serialize;

use crate::environment::{GUARD, HOOK};
use crate::mapped_files::MappedFiles;
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
    pub fn among(files: &MappedFiles) -> Self {
        match (files.named(HOOK).is_some(), files.named(GUARD).is_some()) {
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
