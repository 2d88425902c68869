// SPDX-License-Identifier: Apache-2.0
//! The contents of the small file: one program's decision. A line with a check sum, then JSON.

use std::path::PathBuf;

use imas_engine::inspect::ExecutableFacts;
use imas_engine::runtime_command::RuntimeCommand;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::{Libraries, Variables};
use imas_linux::fnv::fnv64;
use imas_linux::program::{Command, Program};
use imas_linux::runtime_start::Fitted;
use serde::{Deserialize, Serialize};

use super::basis::Basis;

/// The decision for the next starts of a program, with all that is needed to make one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SettledStart {
    path: PathBuf,
    detail: String,
    executable: ExecutableFacts,
    candidate: CatalogueCandidate,
    /// The candidates of the program's runtime, and what each would set for the command of the decision.
    of_runtime: Vec<CatalogueCandidate>,
    offers: Vec<Option<String>>,
    pub(crate) libraries: Libraries,
    pub(super) basis: Basis,
}

impl SettledStart {
    pub(super) fn new(
        of_command: &RuntimeCommand<'_>,
        candidate: &CatalogueCandidate,
        of_runtime: Vec<CatalogueCandidate>,
        libraries: &Libraries,
        basis: Basis,
    ) -> Self {
        let Program { path, detail } = of_command.command.program.clone();
        Self {
            path,
            detail,
            executable: of_command.executable.clone(),
            candidate: candidate.clone(),
            offers: of_command.offers(&of_runtime),
            of_runtime,
            libraries: libraries.clone(),
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

    pub(crate) fn executable(&self) -> &ExecutableFacts {
        &self.executable
    }

    pub(crate) fn build_id(&self) -> &str {
        &self.executable.build_id
    }

    /// The candidate as this command gets it. None where a candidate of the runtime, the decided one or another,
    /// would set something else for it than for the command of the decision.
    pub(crate) fn fitted(&self, command: &Command, environment: &Variables) -> Option<Fitted> {
        let of_command =
            RuntimeCommand { command, executable: &self.executable, environment, has_files: true };
        let is_offered_the_same = of_command.offers(&self.of_runtime) == self.offers;
        is_offered_the_same.then(|| of_command.fitted_unasked(&self.candidate, None).ok()).flatten()
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
