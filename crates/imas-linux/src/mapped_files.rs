// SPDX-License-Identifier: Apache-2.0
//! The files that a process has mapped, and which libraries they are.
//!
//! A library is known by the name of its file ([`crate::library_name`]) where that tells something, else by the name
//! that it gives itself (its soname, in the memory of the process). A file that was replaced or removed since is still
//! what the process goes on with. All looks at processes ask here.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};

use procfs::ProcResult;
use procfs::process::{MMapPath, MemoryMap};

use crate::environment::GUARD;
use crate::foreign_process::{self, Finding, MOST_OF_MAPPED_FILES as MOST_BYTES};
use crate::library_name::{CLibrary, file_name, former_path, release};
use crate::living_thread;
use crate::mapping_text::of_task;
use crate::replaced_libraries::{ReplacedLibraries, may_be_replaced};

/// Most files of a process, and most bytes of their names: a database may have thousands.
const MOST_FILES: usize = 1 << 14;

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
    /// When there is no such process, it is not ours to look at, or it has more than 16,384 files, or a mebibyte of their
    /// names.
    pub fn of(pid: u32) -> ProcResult<Self> {
        Ok(Self::in_text(&foreign_process::find_out(pid, Finding::MappedFiles, text_of)?))
    }

    /// The files in the text of a helper; lines that are none are left out.
    fn in_text(text: &[u8]) -> Self {
        let mut found = Self::default();
        for (kind, path) in String::from_utf8_lossy(text).lines().filter_map(|line| line.split_once(' ')) {
            match kind {
                "-" => {}
                "?" => drop(found.replaced.insert(path.into(), None)),
                "0" | "1" => drop(found.replaced.insert(path.into(), Some(kind == "1"))),
                _ => continue,
            }
            found.files.insert(path.into());
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

    /// Whether an earlier version of the library is mapped, whose file an upgrade has removed.
    pub(crate) fn has_earlier(&self, library: &Path) -> bool {
        let is_earlier =
            |file: &PathBuf| file.parent() == library.parent() && release(file) == release(library);
        release(library).is_some() && self.replaced.keys().any(is_earlier)
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

/// The files that a process has mapped, a line each: what became of it, and its path. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let task = living_thread::of(pid);
    let files = distinct(of_task(task, "maps")?)?;
    let libraries = ReplacedLibraries::of(task, files.values().flatten().copied());
    let mut text = String::new();
    for (file, address) in &files {
        let library = address.and_then(|address| libraries.at(address));
        let path = library.map_or_else(|| former_path(file), |library| library.path(file));
        let kind = match (address, library) {
            (None, _) => "-",
            (Some(_), None) => "?",
            (Some(_), Some(library)) if library.defines_malloc => "1",
            (Some(_), Some(_)) => "0",
        };
        text += &format!("{kind} {}\n", path.display());
        if text.len() > MOST_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
    }
    Ok(text.into_bytes())
}

/// Each file once, with the address of its first bytes where it may be a library that was replaced or removed.
fn distinct(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<BTreeMap<PathBuf, Option<u64>>> {
    let mut files = BTreeMap::new();
    let mut bytes = 0;
    for map in maps {
        let map = map?;
        let address = may_be_replaced(&map).then_some(map.address.0);
        let MMapPath::Path(path) = map.pathname else { continue };
        if let Some(known) = files.get_mut(&path) {
            *known = address.or(*known);
            continue;
        }
        bytes += path.as_os_str().len();
        if bytes > MOST_BYTES || files.len() >= MOST_FILES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        files.insert(path, address);
    }
    Ok(files)
}

impl<P: Into<PathBuf>> FromIterator<P> for MappedFiles {
    fn from_iter<T: IntoIterator<Item = P>>(files: T) -> Self {
        Self { files: files.into_iter().map(|file| former_path(&file.into())).collect(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests;
