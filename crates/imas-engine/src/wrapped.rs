// SPDX-License-Identifier: Apache-2.0
//! Whether a candidate calls a function that a program defines: then the program is left alone under that candidate
//! (docs/decisions/0034).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf;

/// Why the candidate cannot serve a program that defines these functions of libc; `None` when it can.
///
/// A library that cannot be read is an obstacle of its own, which others report.
#[must_use]
pub fn obstacle(candidate: &CatalogueCandidate, defined: &[String]) -> Option<String> {
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

/// Functions that the libraries of an LD_PRELOAD define. Bare names are looked for by ld.so alone; the guard asks of
/// those when the program starts.
#[must_use]
pub fn defined_by_preloads(preloads: &OsStr) -> Vec<String> {
    let paths = preloads.as_bytes().split(|byte| matches!(byte, b':' | b' '));
    let paths = paths.map(|path| Path::new(OsStr::from_bytes(path))).filter(|path| path.is_absolute());
    paths.filter_map(|path| elf::defined_by(path).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(obstacle(&itself, &[]), None);
        assert_eq!(obstacle(&itself, &["no_such_function".to_owned()]), None);
        let why = obstacle(&itself, &["clock_gettime".to_owned()]);
        assert!(why.unwrap().contains("defines clock_gettime"), "the standard library calls it");
        assert_eq!(obstacle(&candidate("/no/such/file"), &["mmap".to_owned()]), None);
        assert_eq!(obstacle(&CatalogueCandidate::default(), &["mmap".to_owned()]), None, "settings alone");
    }

    #[test]
    fn bare_names_and_missing_files_of_a_preload_define_nothing() {
        assert_eq!(
            defined_by_preloads(OsStr::new("libm.so.6:/no/such/file /etc/passwd")),
            Vec::<String>::new()
        );
    }
}
