// SPDX-License-Identifier: Apache-2.0
//! Libraries that a process was to load, and whether it has them: the one look afterwards whether a candidate serves.

use std::ffi::OsString;
use std::path::Path;

use crate::activity::age_s;
use crate::environment::{GUARD, HOOK};
use crate::library_name::file_name;
use crate::mapped_files::MappedFiles;
use crate::process;

/// A process younger than this may not have loaded its libraries yet.
pub const YOUNG_S: f64 = 3.0;

/// Names of the guard, or the hook, and of what follows it in a list of preloads: the allocator, where the candidate
/// has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedLibraries(Vec<String>);

impl WantedLibraries {
    /// Returns what a list of preloads asks for; `None` where nothing of ours is in it, as under settings alone.
    #[must_use]
    pub fn of_preload(list: &str) -> Option<Self> {
        let entries = list.split([':', ' ']).filter(|entry| !entry.is_empty());
        let names: Vec<&str> = entries.map(|entry| entry.rsplit('/').next().unwrap_or(entry)).collect();
        let ours = names.iter().position(|name| [GUARD, HOOK].contains(name))?;
        Some(Self(names[ours..].iter().take(2).map(|name| (*name).to_owned()).collect()))
    }

    /// Returns what an environment asks for, `NAME=VALUE` each.
    fn of_environment(environment: &[OsString]) -> Option<Self> {
        let mut lists = environment.iter().filter_map(|pair| pair.to_str()?.strip_prefix("LD_PRELOAD="));
        lists.find_map(Self::of_preload)
    }

    /// Whether all of them are mapped.
    #[must_use]
    pub fn is_in(&self, files: &MappedFiles) -> bool {
        self.0.iter().all(|name| files.iter().any(|file| is_named(file, name)))
    }

    /// Returns the process that holds the most memory among those that may be looked into, where it lacks them.
    #[must_use]
    pub fn missed_by(&self, pids: impl IntoIterator<Item = u32>) -> Option<u32> {
        let sized = pids.into_iter().filter_map(|pid| Some((process::resident_bytes(pid)?, pid)));
        let mut sized: Vec<_> = sized.collect();
        sized.sort_unstable_by_key(|one| std::cmp::Reverse(*one));
        let (largest, files) = sized.iter().find_map(|(_, pid)| Some((*pid, MappedFiles::of(*pid).ok()?)))?;
        (!self.is_in(&files)).then_some(largest)
    }
}

/// Returns the library that the environment of a process asks for and that it lacks: the allocator, else the library of
/// ours. `None` for a young process, which may not have loaded it yet.
#[must_use]
pub fn asked_in_vain(pid: u32) -> Option<String> {
    let wanted = WantedLibraries::of_environment(&process::environment(pid).ok()?)?;
    let is_old = age_s(process::start_ticks(pid).ok()?)? > YOUNG_S;
    let lacks = is_old && !wanted.is_in(&MappedFiles::of(pid).ok()?);
    if lacks { wanted.0.last().cloned() } else { None }
}

/// Whether the file is the library of that name. The kernel names what is mapped by its real path, and distributions
/// have links: `libmimalloc.so.2` leads to `libmimalloc.so.2.0`.
fn is_named(file: &Path, name: &str) -> bool {
    let rest = file_name(file).strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || (name.contains(".so.") && rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(list: &str) -> WantedLibraries {
        WantedLibraries::of_preload(list).unwrap()
    }

    #[test]
    fn the_guard_and_what_follows_it_are_wanted() {
        assert_eq!(wanted("/l/libimas-guard.so:/l/$LIB/libje.so:/u/own.so").0, [GUARD, "libje.so"]);
        assert_eq!(wanted("/l/libimas-giveback.so /l/libimas-guard.so").0, [GUARD]);
        assert_eq!(wanted("/l/libimas.so:/l/libje.so").0, [HOOK, "libje.so"], "a trial");
        let environment = ["A=b", "LD_PRELOAD=/l/libimas-guard.so"].map(OsString::from);
        assert_eq!(WantedLibraries::of_environment(&environment).unwrap().0, [GUARD]);
        assert_eq!(WantedLibraries::of_preload("/u/own.so"), None, "settings alone load nothing");
    }

    #[test]
    fn what_is_mapped_is_known_by_its_name_or_the_name_of_its_link() {
        let has = |list: &str, files: &[&str]| wanted(list).is_in(&files.iter().collect());
        let distribution = "/i/libimas-guard.so:/usr/lib/libmimalloc.so.2";
        assert!(has(distribution, &["/i/libimas-guard.so", "/usr/lib/libmimalloc.so.2.0"]));
        assert!(has(distribution, &["/i/libimas-guard.so (deleted)", "/usr/lib/libmimalloc.so.2"]));
        assert!(!has(distribution, &["/i/libimas-guard.so", "/usr/lib/libmimalloc.so.20"]));
        let ours = "/i/libimas-guard.so:/i/libjemalloc.so";
        assert!(!has(ours, &["/i/libimas-guard.so", "/usr/lib/libjemalloc.so.2"]), "the program's own");
        assert!(!has(ours, &["/i/libjemalloc.so"]) && !has(ours, &["/i/libimas-guard.so"]));
    }

    #[test]
    fn a_process_that_lacks_them_is_found() {
        let own = std::process::id();
        assert_eq!(wanted("/i/libimas-guard.so").missed_by([own]), Some(own));
        assert_eq!(wanted("/i/libimas-guard.so").missed_by([u32::MAX]), None, "it is gone");
    }
}
