// SPDX-License-Identifier: Apache-2.0
//! Which allocator serves a process, and who chose it. The answer is here alone: it is read from the files that the
//! process has mapped and from the environment it was started with.
//!
//! The candidate and the allocator of a process, as far as they are visible.
//!
//! The processes of this moment, counted by the allocator that serves them.

pub mod chooser;

use std::collections::BTreeMap;
use std::path::PathBuf;

use imas_abi::env::JVM_FLAGS;
use procfs::ProcError;
use serde::Serialize;

use crate::catalogue::CatalogueCandidate;
use crate::environment::{GUARD, HOOK, SETTINGS, STUB, has_hidden_settings};
use crate::mapped_files::MappedFiles;
use crate::mapping_text::{self, CLibrary};
use crate::running::Running;
use crate::runtime::Runtime;
use crate::{process, runtime_start};

/// Part of IMAS that a process has mapped.
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
    /// Part of IMAS that the process has mapped.
    #[must_use]
    pub fn injected(&self) -> Injected {
        Injected::among(&self.mapped)
    }
}

/// Answer to whether a process is on a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The candidate that was asked about, for certain.
    Yes,
    /// Another candidate, for certain.
    No,
    /// Settings leave no trace by which they could be recognised.
    Unknown,
}

/// The candidates of a catalogue with the real paths of their libraries: the kernel names what is mapped by
/// its real path, and to find that takes system calls.
#[derive(Debug, Clone, Default)]
pub struct RealCandidates(Vec<CatalogueCandidate>);

impl RealCandidates {
    /// Looks the paths up.
    #[must_use]
    pub fn of<'a>(candidates: impl IntoIterator<Item = &'a CatalogueCandidate>) -> Self {
        Self(candidates.into_iter().map(with_real_library).collect())
    }

    /// Whether a candidate has that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|candidate| candidate.name == name)
    }

    /// The candidates, with the real paths of their libraries.
    #[must_use]
    pub fn all(&self) -> &[CatalogueCandidate] {
        &self.0
    }
}

/// Number of settings: a variable may have several.
fn settings_of(candidate: &CatalogueCandidate) -> usize {
    candidate.environment.values().map(|value| value.split(':').count()).sum()
}

/// Whether no other candidate hands a runtime's objects to the same library.
fn has_its_library_alone(candidate: &CatalogueCandidate, others: &[CatalogueCandidate]) -> bool {
    let is_like = |one: &&CatalogueCandidate| one.library == candidate.library && has_hidden_settings(one);
    others.iter().filter(is_like).count() == 1
}

/// The candidate as processes show it: with flags of a JVM in the environment.
fn with_real_library(candidate: &CatalogueCandidate) -> CatalogueCandidate {
    let real = |library: &PathBuf| std::fs::canonicalize(library).unwrap_or_else(|_| library.clone());
    let flags = runtime_start::jvm_flags(candidate).map(|flags| (JVM_FLAGS.to_owned(), flags));
    let mut environment = candidate.environment.clone();
    environment.extend(flags);
    CatalogueCandidate { library: candidate.library.as_ref().map(real), environment, ..candidate.clone() }
}

impl Running {
    /// Whether the process is on the candidate of that name; not where the name is not among them.
    #[must_use]
    pub fn is_on(&self, name: &str, among: &RealCandidates) -> On {
        let candidate = among.0.iter().find(|candidate| candidate.name == name);
        candidate.map_or(On::No, |candidate| self.is_on_real(candidate, &among.0))
    }

    /// The name of the candidate it is on, as far as that is visible.
    #[must_use]
    pub fn name_of_candidate<'a>(&self, among: &'a RealCandidates) -> Option<&'a str> {
        // Children inherit the variables of some runtimes, and need not be programs of these.
        let may_be = among.0.iter().filter(|one| one.runtime.is_none() || self.is_given_settings());
        // A candidate with settings is more specific than the same library without.
        let mut sure: Vec<_> = may_be.filter(|one| self.is_on_real(one, &among.0) == On::Yes).collect();
        sure.sort_by_key(|candidate| std::cmp::Reverse(settings_of(candidate)));
        sure.first().map(|candidate| candidate.name.as_str())
    }

    /// Whether the library is mapped that answers a runtime which asks for its settings.
    pub(super) fn is_given_settings(&self) -> bool {
        self.mapped.named(SETTINGS).is_some()
    }

    /// The name of the candidate of this runtime that a process with [`Self::is_given_settings`] is on, where no other of
    /// the runtime could look like it.
    pub(super) fn name_of_settings<'a>(
        &self,
        runtime: Runtime,
        among: &'a RealCandidates,
    ) -> Option<&'a str> {
        let is_of = |one: &CatalogueCandidate| one.runtime.as_ref().is_some_and(|of| of.runtime == runtime);
        let may_be = |one: &&CatalogueCandidate| {
            is_of(one) && has_hidden_settings(one) && self.is_on_real(one, &among.0) != On::No
        };
        let mut found = among.0.iter().filter(may_be);
        let first = found.next()?;
        found.next().is_none().then_some(first.name.as_str())
    }

    /// The allocator that is mapped: the catalogue's, another one by its file, else the C library's.
    #[must_use]
    pub fn allocator(&self, among: &RealCandidates) -> String {
        let is_mapped = |candidate: &&CatalogueCandidate| {
            candidate.library.as_deref().is_some_and(|library| self.maps(library))
        };
        if let Some(candidate) = among.0.iter().find(is_mapped) {
            return candidate.allocator.clone();
        }
        if let Some(other) = self.mapped().find_map(mapping_text::allocator) {
            return other.to_owned();
        }
        match self.mapped.c_library() {
            Some(CLibrary::Glibc) => "glibc",
            Some(CLibrary::Musl) => "musl",
            None => "in the program",
        }
        .to_owned()
    }

    fn is_on_real(&self, candidate: &CatalogueCandidate, others: &[CatalogueCandidate]) -> On {
        // The flag is one that a program may set itself.
        if candidate.is_huge_pages() {
            return On::Unknown;
        }
        let (answers, hides) = (self.is_given_settings(), has_hidden_settings(candidate));
        // Arguments of a JVM are not looked at.
        if !answers && runtime_start::jvm_flags(candidate).is_some() {
            return if self.loaded(others) { On::No } else { On::Unknown };
        }
        // Without the library that answers, the variables of a runtime are in the environment.
        if answers != hides && (answers || self.has_settings(candidate) != On::Yes) {
            return On::No;
        }
        let loaded = self.loaded(others);
        match &candidate.library {
            // Untouched, or settings of glibc: no library of the catalogue is there.
            None if loaded => On::No,
            None if candidate.is_system() => self.without_settings(others),
            // Arguments alone: they are not looked at.
            None if candidate.runtime.is_some() && candidate.environment.is_empty() => On::Unknown,
            None => self.has_settings(candidate),
            Some(library) if !self.maps(library) => On::No,
            Some(_) if answers && has_its_library_alone(candidate, others) => On::Yes,
            Some(_) if candidate.environment.is_empty() => On::Yes,
            Some(_) => self.has_settings(candidate),
        }
    }

    fn loaded(&self, candidates: &[CatalogueCandidate]) -> bool {
        candidates.iter().filter_map(|candidate| candidate.library.as_ref()).any(|library| self.maps(library))
    }

    /// The guard removes the settings from the environment. So present settings are evidence, but missing
    /// ones are not.
    fn has_settings(&self, candidate: &CatalogueCandidate) -> On {
        let entries = || self.environment.iter().filter_map(|pair| pair.to_str());
        let has = |name: &str, part: &str| {
            entries().any(|pair| {
                let set = pair.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
                pair == part || set.is_some_and(|set| set.split(':').any(|one| one == part))
            })
        };
        // glibc reads its tunables by cutting the text at each ':', and the kernel shows the pieces as entries.
        let is_set = |(name, value): (&String, &String)| value.split(':').all(|part| has(name, part));
        if candidate.environment.iter().all(is_set) { On::Yes } else { On::Unknown }
    }

    fn without_settings(&self, others: &[CatalogueCandidate]) -> On {
        let settings = others.iter().filter(|other| {
            other.library.is_none() && other.runtime.is_none() && !other.environment.is_empty()
        });
        let set = settings.into_iter().any(|other| self.has_settings(other) == On::Yes);
        match (self.injected(), set) {
            (Injected::Hook | Injected::Guard, _) => On::Unknown,
            (Injected::Nothing, true) => On::No,
            (Injected::Nothing, false) => On::Yes,
        }
    }
}

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
    use std::ffi::OsString;

    use super::*;
    use crate::catalogue::SYSTEM;
    use crate::program::Program;
    use crate::runtime::RuntimeSettings;

    fn candidate(name: &str, library: Option<&str>, settings: &[(&str, &str)]) -> CatalogueCandidate {
        CatalogueCandidate {
            name: name.into(),
            library: library.map(PathBuf::from),
            environment: settings.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            ..CatalogueCandidate::default()
        }
    }

    fn process(mapped: &[&str], environment: &[&str]) -> Running {
        Running {
            pid: 1,
            program: Program { path: "/p".into(), detail: String::new() },
            unit: None,
            control_group: String::new(),
            mapped: mapped.iter().collect(),
            environment: environment.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn the_candidate_of_a_process_is_found() {
        let all = [
            candidate(SYSTEM, None, &[]),
            candidate("arena1", None, &[("GLIBC_TUNABLES", "a=1")]),
            candidate("lean", None, &[("GLIBC_TUNABLES", "a=1:b=2")]),
            candidate("je", Some("/l/je.so"), &[]),
            candidate("je:mem", Some("/l/je.so"), &[("CONF", "x")]),
        ];
        let all = RealCandidates::of(&all);
        let on = |process: &Running| process.name_of_candidate(&all).map(str::to_owned);
        assert_eq!(on(&process(&["/p"], &["A=b"])).unwrap(), "system");
        assert_eq!(on(&process(&["/p"], &["GLIBC_TUNABLES=c=2:a=1"])).unwrap(), "arena1");
        assert_eq!(on(&process(&["/p"], &["GLIBC_TUNABLES=a=1:b=2"])).unwrap(), "lean");
        let cut = ["A=b", "GLIBC_TUNABLES=a=1", "b=2", "C=d"];
        assert_eq!(on(&process(&["/p"], &cut)).unwrap(), "lean", "glibc cuts the text at each ':'");
        assert_eq!(on(&process(&["/p", "/l/je.so"], &[])).unwrap(), "je");
        assert_eq!(on(&process(&["/p", "/l/je.so"], &["CONF=x"])).unwrap(), "je:mem");
        // A bundle has all files in one folder of the container.
        let bundled = |environment: &[&str]| process(&["/opt/libimas-guard.so", "/opt/je.so"], environment);
        assert_eq!(on(&bundled(&[])).unwrap(), "je");
        assert_eq!(on(&bundled(&["CONF=x"])).unwrap(), "je:mem");
        let elsewhere = process(&["/i/libimas-guard.so", "/opt/je.so"], &[]);
        assert_eq!(on(&elsewhere), None, "another's of the same name");
        // The guard may have taken the settings out again.
        assert_eq!(on(&process(&["/p", "/i/libimas-guard.so"], &[])), None);
        assert_eq!(process(&["/l/je.so"], &[]).is_on("je:mem", &all), On::Unknown);
        assert_eq!(process(&["/l/je.so"], &[]).is_on(SYSTEM, &all), On::No);
        assert_eq!(process(&[], &[]).is_on("je", &all), On::No);
        assert_eq!(process(&["/p"], &[]).is_on("no such candidate", &all), On::No);
    }

    #[test]
    fn settings_of_a_runtime_show_by_the_library_that_answers() {
        let of = |runtime, name: &str, library, settings: &[(&str, &str)]| CatalogueCandidate {
            runtime: Some(RuntimeSettings::of(runtime)),
            ..candidate(name, library, settings)
        };
        let all = [
            candidate(SYSTEM, None, &[]),
            candidate("je", Some("/l/je.so"), &[]),
            of(Runtime::Jvm, "jvm:x", None, &[]),
            of(Runtime::Go, "go:x", None, &[("GOGC", "200")]),
            of(Runtime::Node, "node:x", None, &[("NODE_OPTIONS", "-x")]),
            of(Runtime::Cpython, "cpython:je", Some("/l/je.so"), &[("PYTHONMALLOC", "malloc")]),
        ];
        let all = RealCandidates::of(&all);
        let on = |process: &Running| process.name_of_candidate(&all).map(str::to_owned);
        let (guard, answers) = ("/i/libimas-guard.so", "/i/libimas-settings.so");
        assert_eq!(on(&process(&[guard, "/l/je.so", answers], &[])).unwrap(), "cpython:je");
        assert_eq!(on(&process(&[guard, "/l/je.so"], &[])).unwrap(), "je");
        let node = process(&[guard, answers], &[]);
        assert_eq!((on(&node), node.is_on("node:x", &all)), (None, On::Unknown), "or another's");
        let of_runtime = |runtime| node.name_of_settings(runtime, &all);
        assert_eq!((of_runtime(Runtime::Node), of_runtime(Runtime::Cpython)), (Some("node:x"), None));
        assert_eq!(of_runtime(Runtime::Go), None, "its variables are not hidden");
        assert_eq!((node.is_on(SYSTEM, &all), node.is_on("cpython:je", &all)), (On::No, On::No));
        let child = process(&["/p"], &["GOGC=200"]);
        assert_eq!(on(&child).unwrap(), SYSTEM, "it need not be a program of Go");
        assert_eq!((child.is_on("go:x", &all), child.is_on("jvm:x", &all)), (On::Yes, On::Unknown));
    }

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
