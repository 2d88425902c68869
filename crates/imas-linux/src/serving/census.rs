// SPDX-License-Identifier: Apache-2.0
//! The processes of this moment, counted by the allocator that serves them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use procfs::ProcError;
use serde::Serialize;

use super::injected::Injected;
use crate::catalogue::CatalogueCandidate;
use crate::environment::STUB;
use crate::process;

/// One allocator in the processes of one executable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Serving {
    /// File that the processes execute.
    pub executable: PathBuf,
    /// Allocator that serves them.
    pub allocator: String,
    /// Whether calls are counted.
    pub trial: bool,
    /// Number of processes.
    pub processes: usize,
}

/// The processes there are.
#[derive(Debug, Default, Serialize)]
pub struct ProcessCensus {
    /// Number of processes whose files were read.
    pub looked_at: usize,
    /// Number of processes of others, which cannot be read.
    pub not_readable: usize,
    /// Number of processes that have the stub mapped.
    pub with_library: usize,
    /// Number of processes that have a stub mapped that was deleted or replaced since.
    pub with_old_library: usize,
    /// Allocators of the processes into which IMAS was put.
    pub serving: Vec<Serving>,
}

/// The allocators of libraries, by the real path of each.
#[derive(Debug, Default)]
pub struct LibraryNames(BTreeMap<PathBuf, String>);

impl LibraryNames {
    /// The libraries of the candidates.
    #[must_use]
    pub fn of(candidates: &[CatalogueCandidate]) -> Self {
        let named = candidates.iter().filter_map(|one| Some((one.library.clone()?, one.allocator.clone())));
        named.collect()
    }
}

impl FromIterator<(PathBuf, String)> for LibraryNames {
    /// The kernel names what is mapped by its real path.
    fn from_iter<T: IntoIterator<Item = (PathBuf, String)>>(libraries: T) -> Self {
        let real =
            |(library, name): (PathBuf, String)| (std::fs::canonicalize(&library).unwrap_or(library), name);
        Self(libraries.into_iter().map(real).collect())
    }
}

impl ProcessCensus {
    /// Counts the processes. `unknown` names what serves where no library of `libraries` is mapped.
    #[must_use]
    pub fn now(libraries: &LibraryNames, unknown: &str) -> Self {
        let mut seen = Self::default();
        let mut serving = BTreeMap::<(PathBuf, String, bool), usize>::new();
        for pid in process::pids().unwrap_or_default() {
            let (executable, files) = match process::mapped_files(pid) {
                Ok(found) => found,
                Err(ProcError::PermissionDenied(_)) => {
                    seen.not_readable += 1;
                    continue;
                }
                Err(_) => continue, // ended, or a thread of the kernel
            };
            seen.looked_at += 1;
            seen.with_library += usize::from(files.named(STUB).is_some() && !files.is_replaced(STUB));
            seen.with_old_library += usize::from(files.is_replaced(STUB));
            let injected = Injected::among(&files);
            if injected != Injected::Nothing {
                let known = files.iter().find_map(|file| libraries.0.get(file));
                let allocator = known.map_or_else(|| unknown.to_owned(), Clone::clone);
                *serving.entry((executable, allocator, injected == Injected::Hook)).or_default() += 1;
            }
        }
        let row =
            |((executable, allocator, trial), processes)| Serving { executable, allocator, trial, processes };
        seen.serving = serving.into_iter().map(row).collect();
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_looked_at_and_not_served() {
        let own = std::fs::canonicalize(std::env::current_exe().unwrap()).unwrap();
        let census = ProcessCensus::now(&LibraryNames::default(), "unknown");
        assert!(census.looked_at > 0);
        assert!(census.serving.iter().all(|serving| serving.executable != own));
        let files = |names: &[&str]| names.iter().collect();
        let cases = [
            (files(&["/l/libimas.so", "/l/libimas-guard.so"]), Injected::Hook),
            (files(&["/l/libimas-guard.so"]), Injected::Guard),
            (files(&["/l/libimas-preload.so", "/l/libimas.so.old"]), Injected::Nothing),
        ];
        for (files, injected) in cases {
            assert_eq!(Injected::among(&files), injected, "{files:?}");
        }
    }
}
