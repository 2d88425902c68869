// SPDX-License-Identifier: Apache-2.0
//! The contents of the small file: one program's decision. A line with a check sum, then JSON.

use std::collections::BTreeMap;
use std::path::PathBuf;

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Libraries;
use imas_linux::fnv::fnv64;
use imas_linux::program::Program;
use serde::{Deserialize, Serialize};

use super::Kept;
use super::basis::Basis;

/// The decision for the next starts of a program, with all that is needed to make one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettledStart {
    path: PathBuf,
    detail: String,
    pub(crate) build_id: String,
    candidate: String,
    library: Option<PathBuf>,
    gives_back: bool,
    environment: BTreeMap<String, String>,
    hook: PathBuf,
    guard: PathBuf,
    give_back: PathBuf,
    preload_folder: Option<PathBuf>,
    pub(super) basis: Basis,
}

impl SettledStart {
    pub(super) fn new(kept: &Kept<'_>, libraries: &Libraries, basis: Basis) -> Self {
        Self {
            path: kept.program.path.clone(),
            detail: kept.program.detail.clone(),
            build_id: kept.executable.build_id.clone(),
            candidate: kept.candidate.name.clone(),
            library: kept.candidate.library.clone(),
            gives_back: kept.candidate.give_back,
            environment: kept.candidate.environment.clone(),
            hook: libraries.hook.clone(),
            guard: libraries.guard.clone(),
            give_back: libraries.give_back.clone(),
            preload_folder: libraries.preload_folder.clone(),
            basis,
        }
    }

    /// The program, of which the file's name has only a hash.
    pub(super) fn program(&self) -> Program {
        Program { path: self.path.clone(), detail: self.detail.clone() }
    }

    pub(super) fn is_of(&self, program: &Program) -> bool {
        self.path == program.path && self.detail == program.detail
    }

    /// The candidate, with what a start needs of it.
    pub(crate) fn candidate(&self) -> CatalogueCandidate {
        CatalogueCandidate {
            name: self.candidate.clone(),
            library: self.library.clone(),
            give_back: self.gives_back,
            environment: self.environment.clone(),
            ..CatalogueCandidate::default()
        }
    }

    pub(crate) fn libraries(&self) -> Libraries {
        Libraries {
            hook: self.hook.clone(),
            guard: self.guard.clone(),
            give_back: self.give_back.clone(),
            // No candidate with settings of a runtime is kept.
            settings: PathBuf::new(),
            preload_folder: self.preload_folder.clone(),
        }
    }

    /// None for what JSON cannot express, such as a path that is not UTF-8.
    pub(super) fn encoded(&self) -> Option<String> {
        let text = serde_json::to_string(self).ok()?;
        Some(format!("{:016x}\n{text}", fnv64(text.as_bytes())))
    }

    /// None for a text that was damaged, or is of another version.
    pub(super) fn decoded(encoded: &str) -> Option<Self> {
        let (sum, text) = encoded.split_once('\n')?;
        let is_whole = sum == format!("{:016x}", fnv64(text.as_bytes()));
        is_whole.then(|| serde_json::from_str(text).ok()).flatten()
    }
}
