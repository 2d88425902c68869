// SPDX-License-Identifier: Apache-2.0
//! The raw runs prepared for the study: the programs that can be judged, and the reasons why other programs
//! and candidates cannot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use imas_core::candidate::SYSTEM;
use imas_core::printable::counted;
use imas_core::raw_runs::data::{self, Data};
use imas_core::run::{RawRun, RunKind};
use imas_simulate::SimulatedProgram;
use imas_simulate::program::{ExcludedProgram, programs};

use crate::error::{StudyError, StudyResult};

/// The contents of the files.
pub(crate) struct Source {
    pub(crate) data: Data,
    /// Programs with enough rounds, by name.
    pub(crate) programs: Vec<SimulatedProgram>,
    /// Programs that were left out.
    pub(crate) left_out: Vec<ExcludedProgram>,
    /// Candidates of any program, `system` first.
    pub(crate) candidates: Vec<String>,
    /// Invalid runs, by program and candidate.
    pub(crate) failures: BTreeMap<(String, String), Failure>,
}

/// Invalid runs of one program under one candidate.
#[derive(Default)]
pub(crate) struct Failure {
    pub(crate) runs: usize,
    pub(crate) reasons: BTreeSet<String>,
}

impl Failure {
    /// Text for tables: `3 x crash`.
    pub(crate) fn text(&self) -> String {
        format!("{} x {}", self.runs, self.reasons.iter().cloned().collect::<Vec<_>>().join(", "))
    }
}

impl Source {
    /// Reads and merges the files.
    pub(crate) fn read(files: &[PathBuf]) -> StudyResult<Self> {
        let text = |path: &PathBuf| {
            imas_runs::journal::read_text(path)
                .map_err(|source| StudyError::Read { path: path.clone(), source })
        };
        let texts: Vec<String> = files.iter().map(text).collect::<StudyResult<_>>()?;
        Self::of(data::read_all(texts.iter().map(String::as_str)))
    }

    pub(crate) fn of(data: Data) -> StudyResult<Self> {
        let (programs, left_out) = programs(&data);
        if programs.is_empty() {
            let why = left_out.first().map_or_else(
                || format!("none of {} lines is a run", data.unreadable.len()),
                |one| {
                    format!(
                        "of {} none is complete ({}: {})",
                        counted(left_out.len(), "program"),
                        one.name,
                        one.why
                    )
                },
            );
            return Err(StudyError::NoPrograms { why });
        }
        Ok(Self { candidates: candidates(&data), failures: failures(&data), programs, left_out, data })
    }

    /// Valid runs of one program under one candidate.
    pub(crate) fn runs<'a>(
        &'a self,
        program: &'a str,
        candidate: &'a str,
        kind: RunKind,
    ) -> impl Iterator<Item = &'a RawRun> {
        let is_it = move |run: &&RawRun| {
            run.ok && run.kind == kind && run.program == program && run.candidate == candidate
        };
        self.data.runs.iter().filter(is_it)
    }

    /// The reason why a candidate is left out of a program. None if it is not.
    pub(crate) fn excluded(&self, program: &SimulatedProgram, candidate: &str) -> Option<String> {
        if program.candidates.iter().any(|name| name == candidate) {
            return None;
        }
        let failure = self.failures.get(&(program.name.clone(), candidate.to_owned()));
        Some(failure.map_or_else(|| "not run".to_owned(), Failure::text))
    }
}

/// `system` first, then in the order of the published tables (not of today's default set), then
/// by name.
fn candidates(data: &Data) -> Vec<String> {
    const ORDER: [&str; 7] =
        [SYSTEM, "glibc:arena1", "glibc:arena2", "jemalloc", "tcmalloc", "hoard", "mimalloc"];
    let place = |name: &str| ORDER.iter().position(|known| *known == name).unwrap_or(ORDER.len());
    let names: BTreeSet<&str> = data.runs.iter().map(|run| run.candidate.as_str()).collect();
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    names.sort_by_key(|name| (place(name), name.clone()));
    names
}

fn failures(data: &Data) -> BTreeMap<(String, String), Failure> {
    let mut failures: BTreeMap<(String, String), Failure> = BTreeMap::new();
    for run in data.runs.iter().filter(|run| !run.ok) {
        let failure = failures.entry((run.program.clone(), run.candidate.clone())).or_default();
        failure.runs += 1;
        failure.reasons.insert(run.why.clone().unwrap_or_else(|| format!("exit {}", run.exit)));
    }
    failures
}
