// SPDX-License-Identifier: Apache-2.0
//! Whether a candidate calls a function that a program defines: then the program is left alone under that candidate
//! (docs/decisions/0034).

use std::collections::BTreeSet;

use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::elf;
use imas_linux::environment::Variables;
use imas_linux::user_preloads;

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

/// Functions that the user's own preloaded libraries define.
#[must_use]
pub fn defined_by_preloads(variables: &Variables) -> Vec<String> {
    let libraries = user_preloads::libraries(variables);
    libraries.iter().filter_map(|library| elf::defined_by(library).ok()).flatten().collect()
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
    fn a_preload_by_its_bare_name_is_read_and_a_file_that_is_no_library_defines_nothing() {
        let defined =
            |list: &str| defined_by_preloads(&Variables::from([("LD_PRELOAD".into(), list.into())]));
        assert!(defined("libm.so.6").contains(&"cos".to_owned()));
        assert!(!defined("/no/such/file /etc/passwd").contains(&"cos".to_owned()));
    }
}
