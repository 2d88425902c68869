// SPDX-License-Identifier: Apache-2.0
//! Libraries as LD_PRELOAD names them where children inherit it: by a path with `$LIB` in it
//! (docs/decisions/0020).
//!
//! A child may be of another libc. musl's loader ends a program when it can open a preload but not use it; it
//! ignores those it cannot open, and does not replace `$LIB`. A 32-bit child's dynamic linker puts another
//! folder there than ours, in which it finds a library that does nothing. `packaging/link-preload` makes the
//! folder, `preload` beside our libraries.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::loader;

/// Name of the folder below that of the libraries.
pub const NAME: &str = "preload";
/// The dynamic linker silently ignores a longer entry.
const LONGEST: usize = 4095;
/// `$LIB` is replaced by at most this number of folders: `lib/x86_64-linux-gnu`, and one to spare.
const DEEPEST_LIB: usize = 3;

/// The entry of LD_PRELOAD for a library. `None`: it cannot be named so here, its plain path has to do.
#[must_use]
pub fn entry(preload_folder: &Path, library: &Path) -> Option<PathBuf> {
    let beside = preload_folder.parent()?;
    if !library.is_absolute() || !preload_folder.is_dir() {
        return None;
    }
    let rest = match library.strip_prefix(beside) {
        Ok(below) => below.as_os_str().to_owned(),
        Err(_) => from_the_root(preload_folder, library)?,
    };
    let through = |lib: &str| [preload_folder, Path::new(lib), Path::new(&rest)].iter().collect::<PathBuf>();
    let leads_there = through(loader::own_lib()?);
    let entry = through("$LIB");
    (leads_there.as_os_str().len().max(entry.as_os_str().len()) <= LONGEST
        && is_same_file(&leads_there, library))
    .then_some(entry)
}

/// A library elsewhere: up from whatever folder `$LIB` stands for. At the root, `..` is the root.
fn from_the_root(preload_folder: &Path, library: &Path) -> Option<OsString> {
    let real = std::fs::canonicalize(preload_folder).ok()?;
    let mut path: PathBuf =
        vec![Component::ParentDir; real.components().count() + DEEPEST_LIB].iter().collect();
    path.push(library.strip_prefix("/").ok()?);
    Some(path.into_os_string())
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| std::fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
    identity(one).is_some_and(|one| Some(one) == identity(other))
}

/// Whether LD_PRELOAD can name the path at all: a space or a colon would end it, and a dollar sign may be
/// replaced.
#[must_use]
pub fn can_be_named(path: &OsStr) -> bool {
    !path.as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b'$'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder of libraries with links for this machine's `$LIB`, and a library elsewhere.
    struct Installed(tempfile::TempDir);

    impl Installed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let of_own_lib = folder.path().join("imas/preload").join(loader::own_lib().unwrap());
            std::fs::create_dir_all(&of_own_lib).unwrap();
            for file in ["imas/guard.so", "elsewhere.so"] {
                std::fs::write(folder.path().join(file), "").unwrap();
            }
            symlink(folder.path().join("imas/guard.so"), of_own_lib.join("guard.so")).unwrap();
            Self(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn entry(&self, library: &str) -> Option<PathBuf> {
            entry(&self.path("imas/preload"), &self.path(library))
        }
    }

    /// Path that the dynamic linker makes of `entry` where `$LIB` is `lib`.
    fn replaced(entry: &Path, lib: &str) -> PathBuf {
        entry.to_str().unwrap().replace("$LIB", lib).into()
    }

    #[test]
    fn a_library_of_ours_goes_through_its_link() {
        let here = Installed::new();
        assert_eq!(here.entry("imas/guard.so"), Some(here.path("imas/preload/$LIB/guard.so")));
    }

    #[test]
    fn a_library_elsewhere_is_found_whatever_stands_for_lib() {
        let here = Installed::new();
        let entry = here.entry("elsewhere.so").unwrap();
        for lib in [loader::own_lib().unwrap(), "lib", "lib64"] {
            std::fs::create_dir_all(here.path("imas/preload").join(lib)).unwrap();
            assert!(is_same_file(&replaced(&entry, lib), &here.path("elsewhere.so")), "{lib}");
        }
        assert!(!entry.exists(), "musl must not be able to open {}", entry.display());
    }

    #[test]
    fn without_the_folder_or_the_link_the_plain_path_is_used() {
        let here = Installed::new();
        assert_eq!(entry(&here.path("none"), &here.path("imas/guard.so")), None);
        std::fs::write(here.path("imas/new.so"), "").unwrap();
        assert_eq!(here.entry("imas/new.so"), None, "no link to it");
        assert_eq!(here.entry("imas/missing.so"), None);
        let link = here.path("imas/preload").join(loader::own_lib().unwrap()).join("new.so");
        symlink(here.path("elsewhere.so"), link).unwrap();
        assert_eq!(here.entry("imas/new.so"), None, "its link leads elsewhere");
    }

    #[test]
    fn an_entry_that_the_dynamic_linker_would_ignore_is_not_made() {
        let here = Installed::new();
        let long = PathBuf::from(format!("/{}", "x/".repeat(2040)));
        assert_eq!(entry(&here.path("imas/preload"), &long), None);
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_refused() {
        assert!(can_be_named(OsStr::new("/a/b.so")));
        for odd in ["/a b.so", "/a:b.so", "/$LIB/b.so"] {
            assert!(!can_be_named(OsStr::new(odd)), "{odd}");
        }
    }
}
