// SPDX-License-Identifier: Apache-2.0
//! Libraries of a process whose files were replaced or removed: their memory has what they are. Every byte of it is
//! untrusted.

use std::collections::BTreeMap;
use std::io::Result;
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

/// What replaced libraries of the process are, a line each: address, whether it defines malloc, soname. Read in this very
/// process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let memory = ProcessMemory::open(pid)?;
    let maps = memory.maps()?.unwrap_or_default();
    let mut text = String::new();
    for map in maps.iter().filter(|map| may_be_replaced(map)).take(MOST_REPLACED) {
        let Some(library) = InMemory::at(&memory, map.address.0) else { continue };
        let defines_malloc = u8::from(library.symbol(b"malloc").is_some());
        let soname = library.soname().filter(|name| !name.contains(char::is_whitespace)).unwrap_or_default();
        text += &format!("{:x} {defines_malloc} {soname}\n", map.address.0);
    }
    Ok(text.into_bytes())
}

/// The libraries in the text of a helper; lines that are none are left out.
pub(crate) fn libraries_in(text: &[u8]) -> BTreeMap<u64, Library> {
    let text = String::from_utf8_lossy(text);
    let library = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        let defines_malloc = words.next()? == "1";
        Some((address, Library { defines_malloc, soname: words.next()?.to_owned() }))
    };
    text.lines().filter_map(library).collect()
}
