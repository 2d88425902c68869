// SPDX-License-Identifier: Apache-2.0
//! Libraries that a user preloads himself. One that defines a function of malloc's family is there for a reason: it looks for
//! mistakes (Electric Fence), it counts (libmemusage), or it is the allocator of his choice. A candidate
//! before it would switch it off.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::elf;
use crate::loader;
use crate::variables::Variables;

const LD_PRELOAD: &str = "LD_PRELOAD";
const FOR_ALL: &str = "/etc/ld.so.preload";
/// Our libraries are named so.
const OURS: &[u8] = b"libimas";
/// Functions by which a library takes part in what malloc does. `hook/preloaded.c` has the same.
const FAMILY: [&str; 10] = [
    "malloc",
    "free",
    "calloc",
    "realloc",
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
];
/// Most entries that are read.
const MOST: usize = 64;

/// Why a program that is started with these variables keeps its malloc, and what to do about it.
#[must_use]
pub fn own_malloc(variables: &Variables) -> Option<String> {
    let taken_by = |(place, path): (&'static str, PathBuf)| Some((place, takes(&path)?, path));
    let (place, function, library) = preloads(variables).find_map(taken_by)?;
    let library = library.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some(format!(
        "{library} in {place} defines {function}, and a candidate would switch it off; without it there IMAS chooses"
    ))
}

/// The first function of the family that the library defines.
fn takes(library: &Path) -> Option<&'static str> {
    let defined = elf::defined_by(library).ok()?;
    FAMILY.into_iter().find(|function| defined.contains(*function))
}

/// The libraries that ld.so preloads for a program with these variables, without ours.
#[must_use]
pub fn libraries(variables: &Variables) -> Vec<PathBuf> {
    preloads(variables).map(|(_, path)| path).collect()
}

/// Libraries, each with the place that names it.
fn preloads(variables: &Variables) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let by_user = named(variables).into_iter().map(|path| (LD_PRELOAD, path));
    by_user.chain(for_all().into_iter().map(|path| (FOR_ALL, path))).take(MOST)
}

/// Whether the first library of LD_PRELOAD is one of ours.
pub(crate) fn begins_with_ours(variables: &Variables) -> bool {
    variables.get(LD_PRELOAD).is_some_and(|list| entries(list.as_bytes()).next().is_some_and(is_ours))
}

/// The libraries of LD_PRELOAD, without ours and the allocator that we put behind ours.
fn named(variables: &Variables) -> Vec<PathBuf> {
    let mut list = variables.get(LD_PRELOAD).map(|list| list.as_os_str());
    if begins_with_ours(variables) {
        let was = format!("{}{LD_PRELOAD}", imas_abi::env::WAS);
        list = variables.get(was).map(|list| list.as_os_str());
    }
    let list = list.unwrap_or_default().as_bytes();
    let mut is_behind_ours = false;
    let is_of_user = |entry: &&[u8]| {
        let is_candidate = is_behind_ours && !variables.contains_key(imas_abi::env::ALONE);
        is_behind_ours = is_ours(entry);
        !is_behind_ours && !is_candidate
    };
    entries(list).filter(is_of_user).filter_map(|entry| find(entry, variables)).collect()
}

fn for_all() -> Vec<PathBuf> {
    let text = std::fs::read(FOR_ALL).unwrap_or_default();
    let lines = text.split(|&byte| byte == b'\n');
    let plain = lines.filter_map(|line| line.split(|&byte| byte == b'#').next());
    let none = Variables::new();
    plain.flat_map(entries).filter(|entry| !is_ours(entry)).filter_map(|entry| find(entry, &none)).collect()
}

fn entries(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| matches!(byte, b':' | b' ' | b'\t' | b'\r')).filter(|entry| !entry.is_empty())
}

fn is_ours(entry: &[u8]) -> bool {
    Path::new(OsStr::from_bytes(entry)).file_name().is_some_and(|name| name.as_bytes().starts_with(OURS))
}

/// The file that the dynamic linker takes for an entry.
fn find(entry: &[u8], variables: &Variables) -> Option<PathBuf> {
    let entry = std::str::from_utf8(entry).ok()?;
    let entry = match entry.contains('$') {
        true => entry.replace("${LIB}", "$LIB").replace("$LIB", loader::own_lib()?),
        false => entry.to_owned(),
    };
    if entry.contains('/') {
        return Some(entry.into());
    }
    let own = variables.get("LD_LIBRARY_PATH").cloned().unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&own).collect();
    folders.extend(["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from));
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    folders.extend(["/lib", "/usr/lib"].map(|folder| Path::new(folder).join(&multiarch)));
    folders.into_iter().map(|folder| folder.join(&entry)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a library of that name that has this source.
    fn library(name: &str, source: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        imas_testing::compiled(folder.path(), name, source, &["-shared", "-fPIC"]);
        folder
    }

    fn with(pairs: &[(&str, String)]) -> Option<String> {
        own_malloc(&pairs.iter().map(|(name, value)| ((*name).into(), value.into())).collect())
    }

    const CHECKER: &str = "void *malloc(unsigned long n) { return (void *)n; }";

    #[test]
    fn a_library_with_a_malloc_is_found_by_path_and_by_name() {
        let folder = library("checker.so", CHECKER);
        let (path, folder) = (folder.path().join("checker.so").display().to_string(), folder.path());
        let why = with(&[(LD_PRELOAD, format!("libc.so.6.none {path}"))]).unwrap();
        assert!(why.starts_with("checker.so in LD_PRELOAD defines malloc"), "{why}");
        let folder = folder.display().to_string();
        assert!(with(&[(LD_PRELOAD, "checker.so".into()), ("LD_LIBRARY_PATH", folder)]).is_some());
        assert_eq!(with(&[(LD_PRELOAD, "checker.so".into())]), None, "it is nowhere");
    }

    #[test]
    fn a_library_without_one_and_those_of_a_start_by_us_are_no_reason() {
        let (clock, checker) = (library("clock.so", "int clock_of_mine;"), library("checker.so", CHECKER));
        let path = |folder: &tempfile::TempDir, name: &str| folder.path().join(name).display().to_string();
        assert_eq!(with(&[(LD_PRELOAD, path(&clock, "clock.so"))]), None);
        let checker = path(&checker, "checker.so");
        let ours = format!("/l/libimas-guard.so:{checker}");
        assert_eq!(with(&[(LD_PRELOAD, ours.clone())]), None, "the allocator behind our guard");
        assert!(with(&[(LD_PRELOAD, ours), ("IMAS_WAS_LD_PRELOAD", checker.clone())]).is_some());
        let between = format!("{}:/l/libimas.so:{checker}", path(&clock, "clock.so"));
        assert_eq!(with(&[(LD_PRELOAD, between.clone())]), None, "the allocator behind our hook");
        assert!(with(&[(LD_PRELOAD, between), ("IMAS_ALONE", "1".into())]).is_some());
    }

    #[test]
    fn a_rare_function_of_the_family_counts() {
        let rare = library("rare.so", "void *valloc(unsigned long n) { return (void *)n; }");
        let why = with(&[(LD_PRELOAD, rare.path().join("rare.so").display().to_string())]).unwrap();
        assert!(why.starts_with("rare.so in LD_PRELOAD defines valloc"), "{why}");
    }
}
