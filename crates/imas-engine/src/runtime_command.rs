// SPDX-License-Identifier: Apache-2.0
//! Candidates that one program can be given: settings of its language runtime (docs/decisions/0041),
//! allocators that are built for musl, and none that calls a function which the program defines
//! (docs/decisions/0034).

use std::collections::BTreeSet;
use std::path::Path;

use imas_linux::catalogue::{Catalogue, CatalogueCandidate};
use imas_linux::control_group::memory_limit;
use imas_linux::environment::{Libraries, Variables};
use imas_linux::program::Command;
use imas_linux::runtime::{FoundRuntime, RuntimeEntry, only};
use imas_linux::runtime_start::{Fitted, StartOfProgram, asked_with, fitted, takes};
use imas_linux::{elf, host, preloads};
use imas_store::Store;

use crate::context::{Context, recalled, remembered};
use crate::inspect::ExecutableFacts;

/// A command with what was found in its executable.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeCommand<'a> {
    /// The command.
    pub command: &'a Command,
    /// Facts about its executable.
    pub executable: &'a ExecutableFacts,
    /// The environment that it is to have.
    pub environment: &'a Variables,
    /// Files that it will read are there, and may be looked at. What they set wins.
    pub has_files: bool,
}

impl RuntimeCommand<'_> {
    /// The candidate with its settings as this command gets them. A runtime that can say whether it takes
    /// them is started once for that; the answer is kept in the store until the executable changes.
    ///
    /// # Errors
    /// Why the command does not get it, as a clause for people.
    pub fn fitted(&self, candidate: &CatalogueCandidate, store: Option<&Store>) -> Result<Fitted, String> {
        let start = self.start();
        let fitted = fitted(candidate, &start)?;
        let Some(kind) = question(&fitted, &start) else { return Ok(fitted) };
        match remembered(store, start.file, &kind, || takes(&fitted, &start).err()) {
            None => Ok(fitted),
            Some(why) => Err(why),
        }
    }

    /// Settings that each candidate would make for this command, whether the runtime takes it or not; `None` where the
    /// command does not get it. Commands of one program with the same answer get the same candidates.
    #[must_use]
    pub fn offers(&self, candidates: &[CatalogueCandidate]) -> Vec<Option<String>> {
        if candidates.is_empty() {
            return vec![];
        }
        let start = self.start();
        candidates.iter().map(|candidate| question(&fitted(candidate, &start).ok()?, &start)).collect()
    }

    /// Candidate as the command gets it, as far as that is known without a start of the runtime.
    ///
    /// # Errors
    /// Why the command does not get it, as a clause for people.
    pub fn fitted_unasked(
        &self,
        candidate: &CatalogueCandidate,
        store: Option<&Store>,
    ) -> Result<Fitted, String> {
        if candidate.runtime.is_none() {
            return Ok(candidate.clone());
        }
        let start = self.start();
        let fitted = fitted(candidate, &start)?;
        let known = question(&fitted, &start).and_then(|kind| recalled(store, start.file, &kind)).flatten();
        known.map_or(Ok(fitted), Err)
    }

    fn start(&self) -> StartOfProgram<'_> {
        StartOfProgram {
            found: &self.executable.runtimes,
            file: &self.command.program.path,
            words: &self.command.arguments,
            has_files: self.has_files,
            is_by_script: self.command.is_by_script(),
            unfit: self.executable.unfit.as_deref(),
            environment: self.environment,
            memory_limit: memory_limit(),
        }
    }
}

/// Why the program is not tested under the candidate, fitted to it, unless the candidate is named: its arguments are shown to
/// the program, which may start other JVMs with them. Tools of the JDK start none.
#[must_use]
pub fn seen_arguments(fitted: &Fitted, executable: &ExecutableFacts) -> Option<&'static str> {
    let has_some = fitted.runtime.as_ref().is_some_and(|settings| !settings.arguments.is_empty());
    let is_tool = || served_runtime(executable).is_some_and(|found| found.entry == RuntimeEntry::Tool);
    (has_some && !is_tool()).then_some(
        "this JVM is older than 17 or of unknown version, so it would be given arguments, which the program may hand to others: name the candidate to test it",
    )
}

/// Key under which the store keeps the runtime's answer; `None` where there is nothing to ask.
fn question(fitted: &Fitted, start: &StartOfProgram<'_>) -> Option<String> {
    let settings = fitted.runtime.as_ref()?;
    let found = only(start.found).ok().flatten();
    let version = found.and_then(|found| found.version.as_deref()).unwrap_or_default();
    let (arguments, environment) = (&settings.arguments, &fitted.environment);
    let beside = asked_with(start);
    Some(format!("takes {arguments:?} {environment:?} beside {beside:?} in '{version}'"))
}

/// The runtime whose candidates a program with these facts gets; `None` where it has none, or has it inside.
#[must_use]
pub fn served_runtime(executable: &ExecutableFacts) -> Option<&FoundRuntime> {
    only(&executable.runtimes).ok().flatten().filter(|found| found.entry != RuntimeEntry::Inside)
}

/// Whether settings of its runtime are given to the program with nothing loaded into it. Trials of them are then
/// measured from outside ([`crate::outside`]).
#[must_use]
pub fn is_served_by_settings(executable: &ExecutableFacts) -> bool {
    let is_bare = |found: &FoundRuntime| executable.unfit.is_some() || found.runtime.starts_bare();
    served_runtime(executable).is_some_and(is_bare)
}

/// Why nothing can be loaded into the program, and what serves it all the same.
#[must_use]
pub fn unfit_reason(executable: &ExecutableFacts) -> Option<String> {
    let why = executable.unfit.as_ref()?;
    Some(match served_runtime(executable) {
        Some(found) => {
            format!("{why}; served by settings of {}: 'imas run', 'imas apply'", found.runtime.name())
        }
        None => why.clone(),
    })
}

/// The candidates of the program's runtime, in the order of the catalogue.
pub fn of_program<'a>(
    catalogue: &'a Catalogue,
    executable: &ExecutableFacts,
) -> impl Iterator<Item = &'a CatalogueCandidate> {
    served_runtime(executable).into_iter().flat_map(|found| catalogue.of_runtime(found.runtime))
}

// Candidates of programs of musl: a guard and allocators of their own. Nothing counts calls there: `imas bench`
// measures from outside, and so do trials of `imas run` ([`crate::outside`]).

/// Folder with what is built for musl, below the library folder. `make musl` fills it.
const FOLDER: &str = "musl";

/// Libraries of ours for programs of musl.
#[must_use]
pub fn libraries_of_musl(lib_dir: &Path) -> Libraries {
    Libraries::plain(&lib_dir.join(FOLDER))
}

/// Allocators that are built for musl (allocators/lib/musl.sh).
pub const ALLOCATORS_OF_MUSL: [&str; 3] = ["jemalloc", "mimalloc", "snmalloc"];

/// The candidate as programs of musl get it.
///
/// # Errors
/// Why they do not get it, as a clause for people.
pub fn candidate_of_musl(
    context: &Context,
    candidate: &CatalogueCandidate,
) -> Result<CatalogueCandidate, String> {
    in_folder_of_musl(&context.lib_dir, candidate, host::page_bytes())
}

fn in_folder_of_musl(
    lib_dir: &Path,
    candidate: &CatalogueCandidate,
    page_bytes: u64,
) -> Result<CatalogueCandidate, String> {
    let is_built_here = !candidate.added && candidate.needs.is_none() && candidate.runtime.is_none();
    let file = candidate.library.as_deref().and_then(Path::file_name);
    let Some(file) = file.filter(|_| is_built_here) else {
        return Err(format!("{} is for programs of glibc alone", candidate.name));
    };
    // The allocators for musl are built by the same recipe.
    if candidate.page_size.is_some_and(|built_for| built_for < page_bytes) {
        return Err(format!("built for smaller pages than this machine's {page_bytes} bytes"));
    }
    let guard = libraries_of_musl(lib_dir).guard;
    let library = lib_dir.join(FOLDER).join("allocators").join(file);
    let missing = [&guard, &library].into_iter().find(|file| !file.is_file()).cloned();
    match missing {
        Some(missing)
            if missing == library && !ALLOCATORS_OF_MUSL.contains(&candidate.allocator.as_str()) =>
        {
            Err(format!("{} is not built for musl", candidate.allocator))
        }
        Some(missing) => Err(format!("{} is missing ('make musl' builds it)", missing.display())),
        None => Ok(CatalogueCandidate { library: Some(library), ..candidate.clone() }),
    }
}

// Whether a candidate calls a function that a program defines: then the program is left alone under that candidate
// (docs/decisions/0034).

/// Why the candidate cannot serve a program that defines these functions of libc; `None` when it can.
///
/// A library that cannot be read is an obstacle of its own, which others report.
#[must_use]
pub fn wrapped_obstacle(candidate: &CatalogueCandidate, defined: &[String]) -> Option<String> {
    if defined.is_empty() {
        return None;
    }
    let libraries = [candidate.library.as_deref(), candidate.needs.as_deref()];
    let called: BTreeSet<String> = libraries
        .into_iter()
        .flatten()
        .filter_map(|library| elf::called_by(library).ok())
        .flatten()
        .collect();
    let name = defined.iter().find(|name| called.contains(*name))?;
    Some(format!(
        "the program, or a library of it, defines {name}, which this allocator calls: it could be entered a second time and hang"
    ))
}

/// Functions that the user's own preloaded libraries define.
#[must_use]
pub fn defined_by_preloads(variables: &Variables) -> Vec<String> {
    let libraries = preloads::libraries(variables);
    libraries.iter().filter_map(|library| elf::defined_by(library).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn only_what_is_built_for_musl_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let lib_dir = folder.path();
        let of = |name: &str, library: Option<&str>| CatalogueCandidate {
            name: name.into(),
            library: library.map(|file| lib_dir.join("allocators").join(file)),
            ..CatalogueCandidate::default()
        };
        let jemalloc = of("jemalloc", Some("libjemalloc.so"));
        let why = in_folder_of_musl(lib_dir, &jemalloc, PAGE).unwrap_err();
        assert!(why.contains("musl/libimas-guard.so is missing"));
        let allocators = lib_dir.join("musl/allocators");
        std::fs::create_dir_all(&allocators).unwrap();
        std::fs::write(libraries_of_musl(lib_dir).guard, "").unwrap();
        std::fs::write(allocators.join("libjemalloc.so"), "").unwrap();
        let given = in_folder_of_musl(lib_dir, &jemalloc, PAGE).unwrap();
        assert_eq!(given.library, Some(allocators.join("libjemalloc.so")));
        assert_eq!(given.name, "jemalloc");
        let hoard = of("hoard", Some("libhoard.so"));
        assert!(in_folder_of_musl(lib_dir, &hoard, PAGE).unwrap_err().contains("not built for musl"));
        let small = CatalogueCandidate { page_size: Some(PAGE), ..jemalloc.clone() };
        assert!(in_folder_of_musl(lib_dir, &small, PAGE).is_ok());
        assert!(in_folder_of_musl(lib_dir, &small, 4 * PAGE).unwrap_err().contains("smaller pages"));
        let users = CatalogueCandidate { added: true, ..jemalloc };
        for of_glibc in [of("glibc:lean", None), of("system", None), users] {
            let why = in_folder_of_musl(lib_dir, &of_glibc, PAGE).unwrap_err();
            assert!(why.contains("glibc alone"), "{of_glibc:?}");
        }
    }

    fn candidate(library: &str) -> CatalogueCandidate {
        CatalogueCandidate {
            name: "c".into(),
            library: Some(library.into()),
            ..CatalogueCandidate::default()
        }
    }

    #[test]
    fn what_a_candidate_does_not_call_is_no_obstacle() {
        let itself = candidate("/proc/self/exe");
        assert_eq!(wrapped_obstacle(&itself, &[]), None);
        assert_eq!(wrapped_obstacle(&itself, &["no_such_function".to_owned()]), None);
        let why = wrapped_obstacle(&itself, &["clock_gettime".to_owned()]);
        assert!(why.unwrap().contains("defines clock_gettime"), "the standard library calls it");
        assert_eq!(wrapped_obstacle(&candidate("/no/such/file"), &["mmap".to_owned()]), None);
        assert_eq!(
            wrapped_obstacle(&CatalogueCandidate::default(), &["mmap".to_owned()]),
            None,
            "settings alone"
        );
    }

    #[test]
    fn a_preload_by_its_bare_name_is_read_and_a_file_that_is_no_library_defines_nothing() {
        let defined =
            |list: &str| defined_by_preloads(&Variables::from([("LD_PRELOAD".into(), list.into())]));
        assert!(defined("libm.so.6").contains(&"cos".to_owned()));
        assert!(!defined("/no/such/file /etc/passwd").contains(&"cos".to_owned()));
    }
}
