// SPDX-License-Identifier: Apache-2.0
//! Libraries of a process whose files were replaced or removed: their memory has what they are. Every byte of it is
//! untrusted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use crate::heap::{InMemory, ProcessMemory};
use crate::library_name::{file_name, former_path, is_replaced};

/// Beginnings of the names of files that never had one on a disk.
const NAMELESS: [&str; 3] = ["/memfd:", "/SYSV", "/dev/"];
/// Begin of the name under which a server of files keeps what was removed.
const KEPT: &str = ".nfs";
/// Most of them in a process that are looked at.
const MOST_REPLACED: usize = 256;

/// A library whose file is gone, as it is in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Library {
    pub(crate) defines_malloc: bool,
    /// Empty where it gives itself none.
    pub(crate) soname: String,
}

impl Library {
    fn of(memory: &InMemory<'_>) -> Self {
        let soname = memory.soname().filter(|name| !name.contains(char::is_whitespace)).unwrap_or_default();
        Self { defines_malloc: memory.symbol(b"malloc").is_some(), soname }
    }

    /// The path it had, with its own name where the file's tells nothing.
    pub(crate) fn path(&self, mapped: &Path) -> PathBuf {
        let path = former_path(mapped);
        let tells_nothing = file_name(&path).starts_with(KEPT) || !file_name(&path).contains(".so");
        if tells_nothing && !self.soname.is_empty() { path.with_file_name(&self.soname) } else { path }
    }
}

/// Whether it begins the memory of a file that may be a library without its name.
pub(crate) fn may_be_replaced(map: &MemoryMap) -> bool {
    let MMapPath::Path(path) = &map.pathname else { return false };
    let is_gone = is_replaced(path) || file_name(path).starts_with(KEPT);
    let never_had_one = || NAMELESS.iter().any(|begin| path.to_string_lossy().starts_with(begin));
    is_gone && map.offset == 0 && map.perms.contains(MMPermissions::READ) && !never_had_one()
}

/// Libraries of a process whose files are gone, by the addresses of their first bytes.
#[derive(Debug, Default)]
pub(crate) struct ReplacedLibraries(BTreeMap<u64, Library>);

impl ReplacedLibraries {
    /// Reads the memory of a task at these addresses, in this very process.
    pub(crate) fn of(task: u32, addresses: impl Iterator<Item = u64>) -> Self {
        let mut addresses = addresses.take(MOST_REPLACED).peekable();
        let Some(memory) = addresses.peek().and_then(|_| ProcessMemory::open(task).ok()) else {
            return Self::default();
        };
        let library = |at| Some((at, Library::of(&InMemory::at(&memory, at)?)));
        Self(addresses.filter_map(library).collect())
    }

    /// The library there.
    pub(crate) fn at(&self, address: u64) -> Option<&Library> {
        self.0.get(&address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_tells_nothing_gives_way_to_the_librarys_own() {
        let library = Library { defines_malloc: true, soname: "libx.so".into() };
        assert_eq!(library.path(Path::new("/a/.nfs01")), Path::new("/a/libx.so"));
        assert_eq!(library.path(Path::new("/a/liby.so (deleted)")), Path::new("/a/liby.so"));
    }
}
