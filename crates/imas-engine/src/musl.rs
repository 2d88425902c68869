// SPDX-License-Identifier: Apache-2.0
//! Candidates of programs of musl: a guard and allocators of their own. Nothing counts calls there: `imas bench`
//! measures from outside, and so do trials of `imas run` ([`crate::outside`]).

use std::path::Path;

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::environment::Libraries;
use imas_linux::host;

use crate::context::Context;

/// Folder with what is built for musl, below the library folder. `make musl` fills it.
const FOLDER: &str = "musl";

/// Libraries of ours for programs of musl.
#[must_use]
pub fn libraries(lib_dir: &Path) -> Libraries {
    Libraries::plain(&lib_dir.join(FOLDER))
}

/// The candidate as programs of musl get it.
///
/// # Errors
/// Why they do not get it, as a clause for people.
pub fn candidate(context: &Context, candidate: &CatalogueCandidate) -> Result<CatalogueCandidate, String> {
    in_folder(&context.lib_dir, candidate, host::page_bytes())
}

fn in_folder(
    lib_dir: &Path,
    candidate: &CatalogueCandidate,
    page_bytes: u64,
) -> Result<CatalogueCandidate, String> {
    let is_built_here = !candidate.added && candidate.needs.is_none() && candidate.runtime.is_none();
    let file = candidate.library.as_deref().and_then(Path::file_name);
    let Some(file) = file.filter(|_| is_built_here && !candidate.give_back) else {
        return Err(format!("{} is for programs of glibc alone", candidate.name));
    };
    // What is built for musl is built by the same recipe.
    if candidate.page_size.is_some_and(|built_for| built_for < page_bytes) {
        return Err(format!("built for smaller pages than this machine's {page_bytes} bytes"));
    }
    let guard = libraries(lib_dir).guard;
    let library = lib_dir.join(FOLDER).join("allocators").join(file);
    let missing = [&guard, &library].into_iter().find(|file| !file.is_file()).cloned();
    match missing {
        Some(missing) => Err(format!("{} is missing ('make musl' builds it)", missing.display())),
        None => Ok(CatalogueCandidate { library: Some(library), ..candidate.clone() }),
    }
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
        let why = in_folder(lib_dir, &jemalloc, PAGE).unwrap_err();
        assert!(why.contains("musl/libimas-guard.so is missing"));
        let allocators = lib_dir.join("musl/allocators");
        std::fs::create_dir_all(&allocators).unwrap();
        std::fs::write(libraries(lib_dir).guard, "").unwrap();
        std::fs::write(allocators.join("libjemalloc.so"), "").unwrap();
        let given = in_folder(lib_dir, &jemalloc, PAGE).unwrap();
        assert_eq!(given.library, Some(allocators.join("libjemalloc.so")));
        assert_eq!(given.name, "jemalloc");
        let hoard = of("hoard", Some("libhoard.so"));
        assert!(in_folder(lib_dir, &hoard, PAGE).unwrap_err().contains("make musl"));
        let small = CatalogueCandidate { page_size: Some(PAGE), ..jemalloc.clone() };
        assert!(in_folder(lib_dir, &small, PAGE).is_ok());
        assert!(in_folder(lib_dir, &small, 4 * PAGE).unwrap_err().contains("smaller pages"));
        let trim = CatalogueCandidate { give_back: true, ..jemalloc.clone() };
        let users = CatalogueCandidate { added: true, ..jemalloc };
        for of_glibc in [of("glibc:lean", None), of("system", None), trim, users] {
            let why = in_folder(lib_dir, &of_glibc, PAGE).unwrap_err();
            assert!(why.contains("glibc alone"), "{of_glibc:?}");
        }
    }
}
