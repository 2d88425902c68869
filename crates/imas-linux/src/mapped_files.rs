// SPDX-License-Identifier: Apache-2.0
//! The files that a process has mapped, and which libraries they are.
//!
//! A library is known by the name of its file ([`crate::library_name`]) where that tells something, else by the name
//! that it gives itself (its soname, in the memory of the process). A file that was replaced or removed since is still
//! what the process goes on with. All looks at processes ask here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use procfs::ProcResult;
use procfs::process::{MMapPath, MemoryMap};

use crate::environment::GUARD;
use crate::foreign_process::{self, ForeignFile, mappings};
use crate::library_name::{CLibrary, file_name, former_path};
use crate::replaced_libraries::{Library, libraries_in, may_be_replaced};

/// The files that a process has mapped.
#[derive(Debug, Clone, Default)]
pub struct MappedFiles {
    /// The path of each when it was mapped. Where its name is none that we know, and the library has one that we
    /// know, the path has that.
    files: BTreeSet<PathBuf>,
    /// Files among them that were replaced or removed since, and whether each defines malloc, where that can be read.
    replaced: BTreeMap<PathBuf, Option<bool>>,
}

impl MappedFiles {
    /// Returns the files that a process has mapped.
    ///
    /// # Errors
    /// When there is no such process, or it is not ours to look at.
    pub fn of(pid: u32) -> ProcResult<Self> {
        let maps = mappings(pid, ForeignFile::Maps)?.0;
        let is_asked = maps.iter().any(may_be_replaced);
        let text = is_asked.then(|| foreign_process::read(pid, ForeignFile::Libraries).ok()).flatten();
        Ok(Self::in_maps(&maps, &libraries_in(&text.unwrap_or_default())))
    }

    /// `libraries`: those whose files are gone, by the address of each.
    fn in_maps(maps: &[MemoryMap], libraries: &BTreeMap<u64, Library>) -> Self {
        let mut found = Self::default();
        let mut known = BTreeMap::<&Path, PathBuf>::new();
        for map in maps {
            let MMapPath::Path(path) = &map.pathname else { continue };
            if may_be_replaced(map) {
                let library = libraries.get(&map.address.0);
                let path_then = library.map_or_else(|| former_path(path), |library| library.path(path));
                found.replaced.insert(path_then.clone(), library.map(|library| library.defines_malloc));
                known.insert(path, path_then);
            }
        }
        for map in maps {
            let MMapPath::Path(path) = &map.pathname else { continue };
            found.files.insert(known.get(path.as_path()).cloned().unwrap_or_else(|| former_path(path)));
        }
        found
    }

    /// Returns each file once.
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Whether a file with that path is mapped, or was before it was replaced.
    #[must_use]
    pub fn contains(&self, file: &Path) -> bool {
        self.files.contains(file)
    }

    /// Returns the file of that name, in whatever folder.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Path> {
        self.iter().find(|file| file_name(file) == name)
    }

    /// Whether the file of that name was replaced or removed since it was mapped.
    #[must_use]
    pub fn is_replaced(&self, name: &str) -> bool {
        self.replaced.keys().any(|file| file_name(file) == name)
    }

    /// Whether a library was replaced or removed since the process loaded it.
    #[must_use]
    pub fn has_replaced_library(&self) -> bool {
        self.replaced.values().any(Option::is_some)
    }

    /// Whether a library that was replaced or removed defines malloc; `None` for a file that is as it was, and where its
    /// memory does not say.
    pub(crate) fn replaced_defines_malloc(&self, file: &Path) -> Option<bool> {
        self.replaced.get(file).copied().flatten()
    }

    /// Returns the C library; `None` where none is mapped, as in a static program.
    #[must_use]
    pub fn c_library(&self) -> Option<CLibrary> {
        CLibrary::among(self.iter())
    }

    /// Returns the folder of the guard, where that is mapped.
    #[must_use]
    pub fn folder_of_guard(&self) -> Option<&Path> {
        self.named(GUARD)?.parent()
    }
}

impl<P: Into<PathBuf>> FromIterator<P> for MappedFiles {
    fn from_iter<T: IntoIterator<Item = P>>(files: T) -> Self {
        Self { files: files.into_iter().map(|file| former_path(&file.into())).collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
