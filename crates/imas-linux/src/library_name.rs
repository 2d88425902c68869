// SPDX-License-Identifier: Apache-2.0
//! Libraries by the names of their files. The kernel writes ` (deleted)` after the name of a file that was replaced or
//! removed since it was mapped.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

const MARK: &str = " (deleted)";

/// Begins of the names of libraries with a malloc of their own, wherever they come from.
const ALLOCATORS: [&str; 8] = [
    "libhoard",
    "libjemalloc",
    "libmimalloc",
    "librpmalloc",
    "libscudo",
    "libsnmalloc",
    "libtbbmalloc",
    "libtcmalloc",
];

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CLibrary {
    /// GNU libc.
    Glibc,
    /// musl.
    Musl,
}

impl CLibrary {
    /// Returns the C library of which the file is, by its name. Before glibc 2.34 the file behind `libc.so.6` has the
    /// version in its name.
    #[must_use]
    pub fn of_file(file: &Path) -> Option<Self> {
        let name = file_name(file);
        if name == "libc.so.6" || version_behind(name, "libc-").is_some() {
            return Some(Self::Glibc);
        }
        let is_musl = name == "libc.so" || ["ld-musl-", "libc.musl-"].iter().any(|one| name.starts_with(one));
        is_musl.then_some(Self::Musl)
    }

    /// Returns the first C library among the files; `None` where none is mapped, as in a static program.
    pub fn among<'a>(files: impl IntoIterator<Item = &'a Path>) -> Option<Self> {
        files.into_iter().find_map(Self::of_file)
    }
}

/// Whether the file is the C library or the loader of glibc, by its name.
#[must_use]
pub fn is_of_glibc(file: &Path) -> bool {
    let name = file_name(file);
    let is_loader = name.starts_with("ld-linux") || version_behind(name, "ld-").is_some();
    is_loader || CLibrary::of_file(file) == Some(CLibrary::Glibc)
}

/// Returns the name of a library that has a malloc of its own, without what the kernel adds.
pub(crate) fn allocator(file: &Path) -> Option<&str> {
    let name = file_name(file);
    ALLOCATORS.iter().any(|begin| name.starts_with(begin)).then_some(name)
}

/// Returns the version in the name of a file of glibc before 2.34: `2.31` of `libc-2.31.so`.
#[must_use]
pub fn version_in_name(file: &Path) -> Option<&str> {
    version_behind(file_name(file), "libc-")
}

fn version_behind<'a>(name: &'a str, begin: &str) -> Option<&'a str> {
    let version = name.strip_prefix(begin)?.strip_suffix(".so")?;
    let is_sound = version.starts_with("2.") && version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_sound.then_some(version)
}

/// Returns the name of a library up to the first number of its version, by which the loader looks for it:
/// `libx.so.2` of `libx.so.2.0`. `None` where the name has no version.
pub(crate) fn release(file: &Path) -> Option<&str> {
    let name = file_name(file);
    let version = name.find(".so.")? + ".so.".len();
    let digits = name[version..].bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then(|| &name[..version + digits])
}

/// Returns the last part of a path without what the kernel adds; empty where it is not UTF-8.
#[must_use]
pub fn file_name(file: &Path) -> &str {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_suffix(MARK).unwrap_or(name)
}

/// Returns the path that a file had when it was mapped.
#[must_use]
pub fn former_path(file: &Path) -> PathBuf {
    let bytes = file.as_os_str().as_bytes();
    OsString::from_vec(bytes.strip_suffix(MARK.as_bytes()).unwrap_or(bytes).to_vec()).into()
}

/// Whether the file was replaced or removed since it was mapped.
pub(crate) fn is_replaced(file: &Path) -> bool {
    file.as_os_str().as_bytes().ends_with(MARK.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_with_a_malloc_of_its_own_is_known_wherever_it_lies() {
        let of = |file: &'static str| allocator(Path::new(file));
        assert_eq!(of("/opt/x/libjemalloc.so.2 (deleted)"), Some("libjemalloc.so.2"));
        assert_eq!(of("/x/libtcmalloc_minimal.so.4"), Some("libtcmalloc_minimal.so.4"));
        assert_eq!([of("/jemalloc/libc.so.6"), of("/var/lib/jemalloc.conf")], [None, None]);
    }
}
