// SPDX-License-Identifier: Apache-2.0
//! Which of libc's functions a program defines itself, and which an allocator calls. Where a function is both, the
//! allocator reaches the program's definition; if that calls malloc, the allocator is entered a second time and the
//! program hangs (docs/decisions/0034). The hook asks the same of what is loaded (`hook/wrapped.c`).

use std::collections::BTreeSet;
use std::path::Path;

use super::headers::Headers;
use super::interface::{MOST_LIBRARIES, find};
use super::symbols::{self, Kind};
use super::{ElfError, MOST_BYTES};
use crate::program_file::ProgramFile;

/// Most names that are kept. A program that defines more of libc's functions brings a libc of its own.
const MOST_NAMES: usize = 64;

/// Parts of glibc, the compiler's runtime, and allocators whose place a candidate takes.
const HARMLESS: [&str; 11] = [
    "libpthread.so",
    "libdl.so",
    "libm.so",
    "librt.so",
    "ld-linux",
    "libgcc_s.so",
    "libstdc++.so",
    "libtcmalloc",
    "libjemalloc",
    "libmimalloc",
    "libtbbmalloc",
];

/// gperftools defines these and calls them by their names: a definition that comes before its own is reached.
const INTERPOSED: [&str; 5] = ["sbrk", "mmap", "mmap64", "munmap", "mremap"];

/// Names that the compiler's start files refer to; a program may define them.
fn is_of_compiler(name: &str) -> bool {
    name == "__gmon_start__" || name == "__cxa_finalize" || name.starts_with("_ITM_")
}

/// The functions of libc that the program, or a library that it is linked with and that comes before libc, defines.
/// A file that cannot be read counts as defining nothing: the hook looks again when the program starts.
pub(super) fn of_program(
    source: &mut (impl std::io::Read + std::io::Seek),
    program: &Headers,
    path: &Path,
) -> Vec<String> {
    let before_libc = || program.needed.iter().take_while(|name| !name.starts_with("libc.so"));
    let libc = find("libc.so.6", path, &program.folders);
    let Some(of_libc) = libc.and_then(|libc| names(&libc, Kind::Defined, &mut MOST_BYTES.clone()).ok())
    else {
        return vec![];
    };
    let mut left = MOST_BYTES;
    let mut defined = BTreeSet::new();
    let mut keep = |name: &str| {
        if of_libc.contains(name) && !is_of_compiler(name) && defined.len() < MOST_NAMES {
            defined.insert(name.to_owned());
        }
    };
    let _ = symbols::names_of(source, program.table, left, Kind::Defined, &mut keep); // nothing is found in it
    let suspects = before_libc().filter(|name| !HARMLESS.iter().any(|known| name.starts_with(known)));
    for file in suspects.take(MOST_LIBRARIES).filter_map(|name| find(name, path, &program.folders)) {
        names(&file, Kind::Defined, &mut left).unwrap_or_default().iter().for_each(|name| keep(name));
    }
    defined.into_iter().collect()
}

/// The functions that a library defines.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn defined_by(library: &Path) -> Result<BTreeSet<String>, ElfError> {
    names(library, Kind::Defined, &mut MOST_BYTES.clone())
}

/// The functions of others that a library calls.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn called_by(library: &Path) -> Result<BTreeSet<String>, ElfError> {
    let mut called = names(library, Kind::Undefined, &mut MOST_BYTES.clone())?;
    called.retain(|name| !name.is_empty() && !is_of_compiler(name));
    let defined = names(library, Kind::Defined, &mut MOST_BYTES.clone())?;
    called.extend(INTERPOSED.iter().filter(|name| defined.contains(**name)).map(|name| (*name).to_owned()));
    Ok(called)
}

/// Names of the file's symbols; what is read for them is taken off `left`.
fn names(file: &Path, kind: Kind, left: &mut u64) -> Result<BTreeSet<String>, ElfError> {
    let opened = ProgramFile::open(file)?;
    let (headers, mut source, _) = super::headers(opened.file())?;
    let mut found = BTreeSet::new();
    let mut keep = |name: &str| {
        found.insert(name.to_owned());
    };
    symbols::names_of(&mut source, headers.table, *left, kind, &mut keep)?;
    let read = headers.table.map_or(0, |table| table.symbols.bytes.saturating_add(table.names.bytes));
    *left = left.saturating_sub(read);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::ElfImage;
    use crate::elf::tests::linked;

    const WRAPS: &str = "int munmap(void *a, unsigned long n){return a && n;} int mine(void){return 1;}";

    #[test]
    fn what_the_program_and_its_libraries_define_of_libc_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let main = "int munmap(void *, unsigned long); int main(void){return munmap(0, 0);}";
        let defines = |file: &Path| ElfImage::read(file).unwrap().defines;
        let plain = linked(folder.path(), "plain", main, &[]);
        assert_eq!(defines(&plain), Vec::<String>::new(), "a reference is no definition");
        let own = linked(folder.path(), "own", &WRAPS.replace("mine", "main"), &["-rdynamic"]);
        assert_eq!(defines(&own), ["munmap"]);
        linked(folder.path(), "libwraps.so", WRAPS, &["-shared", "-fPIC"]);
        let used = linked(folder.path(), "used", main, &["-lwraps"]);
        assert_eq!(defines(&used), ["munmap"]);
        let behind = linked(folder.path(), "behind", main, &["-lc", "-lwraps"]);
        assert_eq!(defines(&behind), Vec::<String>::new(), "libc comes first");
    }

    #[test]
    fn calls_and_definitions_of_a_library_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let source = "int munmap(void *, unsigned long); int mine(void){return munmap(0, 0);}";
        let library = linked(folder.path(), "libcalls.so", source, &["-shared", "-fPIC"]);
        assert_eq!(called_by(&library).unwrap().into_iter().collect::<Vec<_>>(), ["munmap"]);
        assert!(defined_by(&library).unwrap().contains("mine"));
        std::fs::write(folder.path().join("text"), "no ELF").unwrap();
        assert!(called_by(&folder.path().join("text")).is_err());
    }
}
