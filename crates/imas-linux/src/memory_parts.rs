// SPDX-License-Identifier: Apache-2.0
//! Resident and swapped memory of a process by its owner, as its mappings show it: each byte of both belongs to one part.
//!
//! Private memory of no file is divided further by looks at its contents ([`crate::heap`],
//! [`crate::object_heaps`]).

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use imas_core::printable;
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use serde::{Deserialize, Serialize};

use crate::foreign_process::{self, Finding};
use crate::mapping_text::{file_name, living_thread, of_task, with_neighbours};
use crate::resident::{self, Kind, ResidentMemory};
use crate::{jvm_heap, object_heaps};

/// Names of one part that are counted one by one, and those that are listed.
const MOST_NAMES: usize = 256;
const LISTED: usize = 3;
/// The variables of a library behind its file are not larger.
const MOST_OF_VARIABLES: u64 = 64 << 20;

/// Owner of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// Heaps of glibc's malloc: `[heap]`, and the heaps of its further arenas.
    Malloc,
    /// Other private memory of no file.
    Anonymous,
    /// Private memory of no file that may be executed: code that was made at run time.
    MadeCode,
    /// Private memory of no file to which the program gave a name.
    Named,
    /// Stacks of the threads.
    Stacks,
    /// Variables of the program and its libraries.
    Variables,
    /// Pages of files as they are on the disk.
    Files,
    /// Shared memory of no file on a disk: memory files, segments, `/dev/shm`.
    Shared,
    /// Tables of the hook of a trial.
    Hook,
    /// Pages that the kernel provides.
    Kernel,
}

/// Bytes of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OwnedBytes {
    /// Resident bytes.
    pub resident: u64,
    /// Bytes that are swapped out.
    pub swapped: u64,
    /// Resident bytes that other processes have too: workers after a fork, or users of the same file.
    pub shared: u64,
    /// Resident bytes in huge pages.
    pub huge: u64,
    /// Names with the most resident and swapped bytes.
    pub largest: Vec<(String, u64)>,
}

/// The parts of one process.
pub type MemoryParts = BTreeMap<Owner, OwnedBytes>;

/// Memory of one process by its mappings.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OwnedMemory {
    /// Its parts.
    pub parts: MemoryParts,
    /// Resident bytes by kind.
    pub resident: ResidentMemory,
    /// Resident bytes under the names that the program gave its mappings, the largest first.
    pub named: Vec<(String, u64)>,
    /// Whether it has the file mapped in which a JVM keeps counters.
    pub has_jvm_counters: bool,
    /// Whether it has an interpreter mapped that keeps objects in pools of its own.
    pub has_objects: bool,
}

/// Memory of a process.
///
/// # Errors
/// As [`foreign_process::read`]; `NotFound` where it has none.
pub fn of(pid: u32) -> Result<OwnedMemory> {
    let text = foreign_process::find_out(pid, Finding::Parts, text_of)?;
    let memory: OwnedMemory = serde_json::from_slice(&text).map_err(Error::other)?;
    if memory.parts.is_empty() { Err(ErrorKind::NotFound.into()) } else { Ok(memory) }
}

/// Memory as a text for [`of`]. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    serde_json::to_vec(&memory_in(of_task(living_thread(pid), "smaps")?)?).map_err(Error::other)
}

fn memory_in(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<OwnedMemory> {
    let mut memory = OwnedMemory::default();
    let parts = &mut memory.parts;
    let mut names: BTreeMap<Owner, BTreeMap<String, u64>> = BTreeMap::new();
    // Variables without a value in the file lie behind it.
    let mut file: Option<(String, u64)> = None;
    let (stack, mut named) = (resident::stack_bytes(), resident::NamedSums::default());
    with_neighbours(maps, |below, map, next| {
        let kind = resident::kind_of(map, (below, next), stack);
        memory.resident.add(kind, map);
        named.add(map);
        if let MMapPath::Path(path) = &map.pathname {
            memory.has_jvm_counters |= jvm_heap::is_one(path);
            memory.has_objects |= object_heaps::of_file(path).is_some();
            file = Some((printable::name(file_name(path)).into_owned(), map.address.1));
        }
        let behind = file.as_ref().filter(|(_, end)| *end == map.address.0).map(|(name, _)| name.as_str());
        for (owner, resident, swapped) in owners(map, kind, behind) {
            let of_owner = parts.entry(owner).or_default();
            of_owner.resident += resident;
            of_owner.swapped += swapped;
            let name = name_of(map, owner, behind);
            if let Some(name) = name.filter(|_| resident + swapped > 0) {
                let names = names.entry(owner).or_default();
                let name = if names.len() < MOST_NAMES || names.contains_key(&name) {
                    name
                } else {
                    "others".into()
                };
                *names.entry(name).or_default() += resident + swapped;
            }
        }
        if let Some(first) = owners(map, kind, behind).first().and_then(|(owner, ..)| parts.get_mut(owner)) {
            first.shared += field(map, "Shared_Clean") + field(map, "Shared_Dirty");
            first.huge +=
                field(map, "AnonHugePages") + field(map, "ShmemPmdMapped") + field(map, "FilePmdMapped");
        }
    })?;
    for (owner, names) in names {
        let mut largest: Vec<_> = names.into_iter().collect();
        largest.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        largest.truncate(LISTED);
        parts.entry(owner).or_default().largest = largest;
    }
    parts.retain(|_, bytes| bytes.resident + bytes.swapped > 0);
    memory.named = named.sorted();
    Ok(memory)
}

fn field(map: &MemoryMap, name: &str) -> u64 {
    map.extension.map.get(name).copied().unwrap_or(0)
}

/// Owners of a mapping's bytes: each with resident and swapped ones. What was written of a private file is the
/// program's, the rest is the file's.
fn owners(map: &MemoryMap, kind: Kind, behind: Option<&str>) -> Vec<(Owner, u64, u64)> {
    let (resident, swapped) = (field(map, "Rss"), field(map, "Swap"));
    let one = |owner| vec![(owner, resident, swapped)];
    match kind {
        Kind::Heap | Kind::Arena => one(Owner::Malloc),
        Kind::Stack => one(Owner::Stacks),
        Kind::Shared => one(Owner::Shared),
        Kind::Hook => one(Owner::Hook),
        Kind::Other => one(Owner::Kernel),
        Kind::File => {
            let written = field(map, "Anonymous").min(resident);
            vec![(Owner::Files, resident - written, 0), (Owner::Variables, written, swapped)]
        }
        Kind::Anonymous if map.perms.contains(MMPermissions::EXECUTE) => one(Owner::MadeCode),
        Kind::Anonymous if matches!(map.pathname, MMapPath::Other(_)) => one(Owner::Named),
        Kind::Anonymous => {
            let bytes = map.address.1 - map.address.0;
            let is_library = |name: &str| name.contains(".so");
            let is_behind = behind.is_some_and(|name| !is_library(name) || bytes <= MOST_OF_VARIABLES);
            one(if is_behind { Owner::Variables } else { Owner::Anonymous })
        }
    }
}

fn name_of(map: &MemoryMap, owner: Owner, behind: Option<&str>) -> Option<String> {
    let name = match (&map.pathname, owner) {
        (MMapPath::Path(path), _) => file_name(path),
        (MMapPath::Other(name), _) => name.strip_prefix("anon:").unwrap_or(name),
        (_, Owner::Variables) => behind?,
        (MMapPath::Vsys(_), _) => "System V segments",
        (_, Owner::Shared) => "memory shared with children",
        _ => return None,
    };
    Some(printable::name(name.trim()).into_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    #[test]
    fn each_byte_has_one_owner() {
        let text = "\
            10000000-10003000 rw-p 00000000 08:01 7 /usr/bin/x\nRss: 12 kB\nAnonymous: 8 kB\nSwap: 4 kB\n\
            10003000-10005000 rw-p 00000000 00:00 0 \nRss: 8 kB\n\
            20000000-20003000 rw-p 00000000 00:00 0 [heap]\nRss: 12 kB\nSwap: 4 kB\n\
            30000000-30002000 rwxp 00000000 00:00 0 \nRss: 8 kB\n\
            40000000-40004000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 16 kB\nShared_Dirty: 4 kB\n\
            50000000-50004000 rw-p 00000000 00:00 0 \nRss: 16 kB\nAnonHugePages: 8 kB\n\
            60000000-60004000 rw-s 00000000 00:00 5 /memfd:pool (deleted)\nRss: 4 kB\n\
            70000000-70001000 r-xp 00000000 00:00 0 [vdso]\nRss: 4 kB\n";
        let memory = memory_in(mappings(text.as_bytes())).unwrap();
        let parts = memory.parts;
        let bytes = |owner| (parts[&owner].resident >> 10, parts[&owner].swapped >> 10);
        assert_eq!(bytes(Owner::Files), (4, 0));
        assert_eq!(bytes(Owner::Variables), (16, 4));
        assert_eq!([Owner::Malloc, Owner::MadeCode, Owner::Named].map(bytes), [(12, 4), (8, 0), (16, 0)]);
        assert_eq!([Owner::Anonymous, Owner::Shared, Owner::Kernel].map(bytes), [(16, 0), (4, 0), (4, 0)]);
        assert_eq!((parts[&Owner::Named].shared, parts[&Owner::Anonymous].huge), (4 << 10, 8 << 10));
        assert_eq!(parts[&Owner::Variables].largest, [("x".to_owned(), 20 << 10)]);
        assert_eq!(parts[&Owner::Named].largest[0].0, "Go: heap");
        assert_eq!(memory.named, [(" Go: heap".to_owned(), 16 << 10)]);
        let sum: u64 = parts.values().map(|part| part.resident).sum();
        assert_eq!(
            (memory.resident.total(), memory.has_jvm_counters, memory.has_objects),
            (sum, false, false)
        );
    }

    #[test]
    fn files_of_runtimes_are_seen_in_the_same_pass() {
        let text = "10000000-10001000 rw-p 00000000 08:01 7 /usr/lib/libpython3.11.so.1.0\nRss: 4 kB\n\
            20000000-20001000 rw-s 00000000 08:01 8 /tmp/hsperfdata_root/28216\nRss: 4 kB\n";
        let memory = memory_in(mappings(text.as_bytes())).unwrap();
        assert!(memory.has_objects && memory.has_jvm_counters);
    }

    #[test]
    fn the_parts_of_this_process_add_up_to_what_the_kernel_counts() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let parts = of(std::process::id()).unwrap().parts;
        let sum: u64 = parts.values().map(|part| part.resident).sum();
        let kernel = crate::process::resident_bytes(std::process::id()).unwrap();
        // Other tests run in this process meanwhile.
        assert!(
            sum.abs_diff(kernel) < 16 << 20 && parts[&Owner::Anonymous].resident > 30 << 20,
            "{sum} {parts:?}"
        );
        drop(std::hint::black_box(block));
        assert!(of(u32::MAX).is_err());
    }
}
