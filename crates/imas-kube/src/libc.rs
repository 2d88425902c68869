// SPDX-License-Identifier: Apache-2.0
//! The C library of a container, by what a process has mapped.

use std::fmt;

use imas_linux::library_name::{CLibrary, version_in_name};
use imas_linux::mapped_files::MappedFiles;
use serde::Serialize;

/// A C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Libc {
    Glibc,
    Musl,
    /// None is mapped.
    Static,
}

impl Libc {
    /// The library among the files that a process has mapped.
    pub(crate) fn of(files: &MappedFiles) -> Self {
        match files.c_library() {
            Some(CLibrary::Musl) => Self::Musl,
            Some(CLibrary::Glibc) => Self::Glibc,
            None => Self::Static,
        }
    }
}

/// Version of glibc in the name of its file, `libc-2.31.so`. From 2.34 on the name has none.
pub(crate) fn glibc_version(files: &MappedFiles) -> Option<String> {
    files.iter().find_map(version_in_name).map(str::to_owned)
}

impl fmt::Display for Libc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Glibc => "glibc",
            Self::Musl => "musl",
            Self::Static => "none",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_known_by_its_file() {
        let of = |files: &[&str]| Libc::of(&files.iter().collect());
        assert_eq!(of(&["/usr/bin/x", "/usr/lib/x86_64-linux-gnu/libc.so.6"]), Libc::Glibc);
        assert_eq!(of(&["/lib/libc-2.31.so"]), Libc::Glibc);
        assert_eq!(of(&["/lib/ld-musl-x86_64.so.1"]), Libc::Musl);
        assert_eq!(of(&["/usr/lib/x86_64-linux-musl/libc.so"]), Libc::Musl);
        assert_eq!(of(&["/server"]), Libc::Static);
    }

    #[test]
    fn the_version_is_in_the_name_of_older_files() {
        let of = |file: &str| glibc_version(&[file].into_iter().collect());
        assert_eq!(of("/lib/x86_64-linux-gnu/libc-2.31.so").as_deref(), Some("2.31"));
        for none in ["/lib/libc.so.6", "/x/libc-2.\u{1b}.so", "/x/libc-client.so", "/x/libc-2.31.so.1"] {
            assert_eq!(of(none), None, "{none}");
        }
    }
}
