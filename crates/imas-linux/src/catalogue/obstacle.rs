// SPDX-License-Identifier: Apache-2.0
//! Why a candidate cannot be used here, judged from files alone.

use std::path::Path;

use super::CatalogueCandidate;
use crate::elf::{Class, ElfImage};
use crate::trust;

/// Why the candidate is not offered although it may load: the catalogue's word, the conformance kit's, or that another
/// user could change a library that was added.
/// Changes without the library changing, so it is asked each time.
#[must_use]
pub fn withheld(candidate: &CatalogueCandidate) -> Option<String> {
    let stated = candidate.withheld.as_ref().map(|reason| format!("withheld: {reason}"));
    let library = candidate.library.as_ref();
    let foreign = || {
        let why = trust::foreign(library.filter(|_| candidate.added)?)?;
        Some(format!("withheld: another user could change it: {why}"))
    };
    stated.or_else(foreign).or_else(|| failed_conformance(&candidate.name, library?))
}

/// Why a candidate cannot be used here, found without starting anything.
///
/// A finding of `None` means that no obstacle was found, not that it loads: see [`crate::process::probe`].
#[must_use]
pub fn obstacle(candidate: &CatalogueCandidate, page_size: u64) -> Option<String> {
    if candidate.page_size.is_some_and(|built_for| built_for < page_size) {
        return Some(format!("built for smaller pages than this machine's {page_size} bytes"));
    }
    let library = candidate.library.as_ref()?;
    match ElfImage::read(library) {
        Ok(elf) if elf.class != Class::Native => Some("built for another architecture".to_owned()),
        Ok(_) => None,
        Err(_) if !library.exists() => Some(why_missing(candidate, library)),
        Err(error) => Some(error.to_string()),
    }
}

/// The build leaves the reason of a failed recipe beside where the library should be (`NAME.failed`).
fn why_missing(candidate: &CatalogueCandidate, library: &Path) -> String {
    if candidate.added {
        return format!("its library {} is missing", library.display());
    }
    let stem = library.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    let note = library.with_file_name(format!("{}.failed", stem.trim_start_matches("lib")));
    match std::fs::read_to_string(note) {
        Ok(reason) => format!("not built: {}", reason.trim()),
        Err(_) => "its library is missing (run 'make build')".to_owned(),
    }
}

/// The conformance kit leaves what was failed beside the library (`libNAME.so.withheld`, a line
/// `CANDIDATE<tab>REASON` each, for settings share libraries); a new build takes the note away.
fn failed_conformance(name: &str, library: &Path) -> Option<String> {
    let mut note = library.as_os_str().to_owned();
    note.push(".withheld");
    let note = std::fs::read_to_string(note).ok()?;
    let mut lines = note.lines().filter_map(|line| line.split_once('\t'));
    let (_, reason) = lines.find(|(candidate, _)| *candidate == name)?;
    Some(format!("withheld: it failed conformance: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(library: &Path) -> CatalogueCandidate {
        CatalogueCandidate {
            name: "x".into(),
            library: Some(library.to_owned()),
            ..CatalogueCandidate::default()
        }
    }

    #[test]
    fn each_obstacle_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libx.so");
        let why = |candidate: &CatalogueCandidate| obstacle(candidate, 4096);
        assert_eq!(why(&of(&library)).unwrap(), "its library is missing (run 'make build')");
        std::fs::write(folder.path().join("x.failed"), "no compiler\n").unwrap();
        assert_eq!(why(&of(&library)).unwrap(), "not built: no compiler");
        std::fs::write(&library, "text").unwrap();
        assert!(why(&of(&library)).unwrap().contains("ELF"));
        // Its own header, with the machine of an IBM S/390 and of a 32-bit Intel.
        let mut elf = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        elf[18] = 22;
        std::fs::write(&library, &elf).unwrap();
        assert_eq!(why(&of(&library)).unwrap(), "built for another architecture");
        std::fs::copy(std::env::current_exe().unwrap(), &library).unwrap();
        assert_eq!(why(&of(&library)), None);
    }

    #[test]
    fn a_withheld_candidate_has_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("libx.so");
        std::fs::copy(std::env::current_exe().unwrap(), &library).unwrap();
        std::fs::write(folder.path().join("libx.so.withheld"), "x:small\tother\nx\tforks: child-works\n")
            .unwrap();
        let why = withheld(&of(&library)).unwrap();
        assert_eq!(why, "withheld: it failed conformance: forks: child-works");
        let stated = CatalogueCandidate { withheld: Some("eats data".into()), ..of(&library) };
        assert_eq!(withheld(&stated).unwrap(), "withheld: eats data");
        assert_eq!(withheld(&CatalogueCandidate { name: "x:other".into(), ..of(&library) }), None);
        let small = CatalogueCandidate { page_size: Some(4096), ..of(&library) };
        assert!(obstacle(&small, 65536).unwrap().contains("65536"));
    }
}
