// SPDX-License-Identifier: Apache-2.0
//! Requirements of a library: the version of glibc, and libstdc++.

use std::path::Path;

use object::read::elf::{ElfFile, FileHeader};

use super::{ElfError, library_bytes};

/// Newest version of glibc, major and minor, of whose symbols a library asks for one; an older glibc refuses the library.
/// `None` where it asks for none.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn glibc_asked(library: &Path) -> Result<Option<(u16, u16)>, ElfError> {
    Ok(asked(library)?.iter().filter_map(|name| of_glibc(name)).max())
}

/// Whether a library asks for symbols of libstdc++, which an image may lack: no program starts there with it.
///
/// # Errors
/// When the file cannot be read or is not a readable ELF file.
pub fn asks_for_libstdcxx(library: &Path) -> Result<bool, ElfError> {
    Ok(asked(library)?.iter().any(|name| name.starts_with(b"GLIBCXX_")))
}

/// Names of the versions of symbols for which a library asks.
fn asked(library: &Path) -> Result<Vec<Vec<u8>>, ElfError> {
    let bytes = library_bytes(library)?;
    match object::File::parse(&*bytes)? {
        object::File::Elf32(elf) => Ok(names_of(&elf)?),
        object::File::Elf64(elf) => Ok(names_of(&elf)?),
        _ => Ok(vec![]),
    }
}

fn names_of<Elf: FileHeader>(file: &ElfFile<'_, Elf>) -> Result<Vec<Vec<u8>>, object::Error> {
    let (endian, data, sections) = (file.endian(), file.data(), file.elf_section_table());
    let Some((mut needed, names)) = sections.gnu_verneed(endian, data)? else { return Ok(vec![]) };
    let names = sections.strings(endian, data, names)?;
    let mut asked = vec![];
    while let Some((_, versions)) = needed.next()? {
        for version in versions {
            asked.push(version?.name(endian, names)?.to_vec());
        }
    }
    Ok(asked)
}

/// Major and minor number of a version such as `GLIBC_2.2.5`; `None` for those of other libraries.
fn of_glibc(name: &[u8]) -> Option<(u16, u16)> {
    let mut numbers = std::str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?.split('.');
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_glibc_counts() {
        assert_eq!(of_glibc(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(of_glibc(b"GLIBC_PRIVATE"), None);
        assert_eq!(of_glibc(b"GLIBCXX_3.4.21"), None);
        let folder = tempfile::tempdir().unwrap();
        let asked = |text: &str| {
            let flags = ["-shared", "-fPIC", "-nostartfiles"];
            glibc_asked(&imas_testing::compiled(folder.path(), "a.so", text, &flags)).unwrap()
        };
        assert_eq!(asked("int one(void) { return 1; }"), None);
        let gettid = "int gettid(void); int getpid(void); int two(void) { return gettid() + getpid(); }";
        assert_eq!(asked(gettid), Some((2, 30)));
        assert!(glibc_asked(&folder.path().join("a.c")).is_err());
        assert!(!asks_for_libstdcxx(&folder.path().join("a.so")).unwrap());
    }
}
