// SPDX-License-Identifier: Apache-2.0
//! What the resident memory of a process consists of, as its mappings show it from outside
//! (proc_pid_smaps(5)).
//!
//! The kernel walks the process's page tables to answer. The process itself is neither stopped nor signalled.

use std::io::{Error, Result};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::arenas;
use crate::footprint;
use crate::mapping_text::{of_task, with_neighbours};

/// Bytes by kind. The kinds add up to [`ResidentMemory::total`]; the last three are parts of them, or beside
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResidentMemory {
    /// `[heap]`: the first arena of glibc's malloc.
    pub heap: u64,
    /// The other arenas of glibc's malloc.
    pub arenas: u64,
    /// Heaps of those arenas: one for each 64 MiB begun of an arena.
    pub arena_heaps: u64,
    /// Other private anonymous memory: large blocks of glibc's malloc, the whole heap of another allocator,
    /// pools of a runtime.
    pub anonymous: u64,
    /// Stacks of the threads.
    pub stacks: u64,
    /// Pages of files: code, read-only data, and private copies of writable data.
    pub files: u64,
    /// Memory shared with other processes that is no file on a disk.
    pub shared: u64,
    /// Memory of the hook of a trial, in which it counts.
    pub hook: u64,
    /// The rest: pages that the kernel provides.
    pub other: u64,
    /// Bytes of the kinds above that are in huge pages.
    pub huge: u64,
    /// Bytes of the kinds above that were given back lazily: the kernel takes them when it needs memory.
    pub given_back: u64,
    /// Bytes that are swapped out, not resident.
    pub swapped: u64,
}

/// Kind of memory that a mapping belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Heap,
    Arena,
    Anonymous,
    Stack,
    File,
    Shared,
    Hook,
    Other,
}

/// What libc gives to the stacks of threads where the limit is none, on most machines.
const UNLIMITED: u64 = 2 << 20;

impl ResidentMemory {
    /// All resident bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.heap_bytes() + self.stacks + self.files + self.shared + self.hook + self.other
    }

    /// Bytes that an allocator may hold: `[heap]`, arenas, anonymous memory.
    #[must_use]
    pub fn heap_bytes(&self) -> u64 {
        self.heap + self.arenas + self.anonymous
    }

    fn add(&mut self, kind: Kind, map: &MemoryMap) {
        let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
        let place = match kind {
            Kind::Heap => &mut self.heap,
            Kind::Arena => &mut self.arenas,
            Kind::Anonymous => &mut self.anonymous,
            Kind::Stack => &mut self.stacks,
            Kind::File => &mut self.files,
            Kind::Shared => &mut self.shared,
            Kind::Hook => &mut self.hook,
            Kind::Other => &mut self.other,
        };
        *place += field("Rss");
        self.arena_heaps += u64::from(kind == Kind::Arena);
        self.huge += field("AnonHugePages") + field("ShmemPmdMapped") + field("FilePmdMapped");
        self.given_back += field("LazyFree");
        self.swapped += field("Swap");
    }
}

/// Resident memory of a task as a text ([`crate::process_mappings`]). All is read in this very process.
pub(crate) fn text_of(task: u32) -> Result<Vec<u8>> {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(UNLIMITED);
    serde_json::to_vec(&sum(of_task(task, "smaps")?, stack)?).map_err(Error::other)
}

/// `stack` is the size that libc gives to the stacks of threads, guard included.
fn sum(maps: impl Iterator<Item = Result<MemoryMap>>, stack: u64) -> Result<ResidentMemory> {
    let mut sum = ResidentMemory::default();
    with_neighbours(maps, |below, map, next| {
        let kind = if arenas::is_heap(map, next) { Kind::Arena } else { kind(map, below, stack) };
        sum.add(kind, map);
    })?;
    Ok(sum)
}

fn kind(map: &MemoryMap, below: Option<&MemoryMap>, stack: u64) -> Kind {
    match &map.pathname {
        MMapPath::Heap => Kind::Heap,
        MMapPath::Stack | MMapPath::TStack(_) => Kind::Stack,
        MMapPath::Vsys(_) => Kind::Shared,
        MMapPath::Path(_) if map.perms.contains(MMPermissions::SHARED) && is_memory(map) => Kind::Shared,
        MMapPath::Path(_) => Kind::File,
        MMapPath::Anonymous | MMapPath::Other(_) => anonymous(map, below, stack),
        _ => Kind::Other,
    }
}

fn anonymous(map: &MemoryMap, below: Option<&MemoryMap>, stack: u64) -> Kind {
    if map.perms.contains(MMPermissions::SHARED) {
        Kind::Shared
    } else if below.is_some_and(|below| footprint::is_hook(below) && below.address.1 == map.address.0) {
        Kind::Hook
    } else if below.is_some_and(|below| footprint::is_stack(map, below, stack)) {
        Kind::Stack
    } else {
        Kind::Anonymous
    }
}

/// Files that exist in memory only: memfd_create(2), and those of /dev/shm.
fn is_memory(map: &MemoryMap) -> bool {
    let MMapPath::Path(path) = &map.pathname else { return false };
    path.starts_with("/dev/shm") || path.to_string_lossy().starts_with("/memfd:")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;
    use procfs::process::Process;

    const STACK: u64 = 8 << 20;

    #[test]
    fn every_mapping_has_its_kind() {
        let maps = mappings(
            concat!(
                "00001000-00003000 rw-p 00000000 00:00 0 [heap]\nRss: 8 kB\nSwap: 2 kB\n",
                "10000000-10001000 ---p 00000000 00:00 0 \nRss: 0 kB\n",
                "10001000-10801000 rw-p 00000000 00:00 0 \nRss: 16 kB\n",
                "20000000-20005000 rw-p 00000000 00:00 0 [anon:pool]\nRss: 20 kB\nLazyFree: 4 kB\n",
                "30000000-30001000 rw-p 00000000 08:01 7 /usr/lib/imas/libimas.so\nRss: 4 kB\n",
                "30001000-30108000 rw-p 00000000 00:00 0 \nRss: 12 kB\n",
                "40000000-40001000 r-xp 00000000 08:01 7 /usr/bin/x\nRss: 3 kB\n",
                "50000000-50004000 rw-s 00000000 00:00 5 /memfd:pool (deleted)\nRss: 5 kB\n",
                "60000000-60001000 rw-p 00000000 00:00 0 [stack]\nRss: 1 kB\n",
                "70000000-70001000 r-xp 00000000 00:00 0 [vdso]\nRss: 2 kB\n",
                "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \nRss: 100 kB\nAnonHugePages: 64 kB\n",
                "7f0000021000-7f0004000000 ---p 00000000 00:00 0 \nRss: 0 kB\n",
            )
            .as_bytes(),
        );
        let found = sum(maps, STACK).unwrap();
        let expected = ResidentMemory {
            heap: 8 << 10,
            arenas: 100 << 10,
            arena_heaps: 1,
            anonymous: 20 << 10,
            stacks: 17 << 10,
            files: 7 << 10,
            shared: 5 << 10,
            hook: 12 << 10,
            other: 2 << 10,
            huge: 64 << 10,
            given_back: 4 << 10,
            swapped: 2 << 10,
        };
        assert_eq!(found, expected);
        assert_eq!(found.total(), 171 << 10);
    }

    #[test]
    fn the_kinds_of_a_real_process_add_up_to_what_the_kernel_counts() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let found = ResidentMemory::of(std::process::id()).unwrap();
        let kernel = Process::myself().unwrap().smaps_rollup().unwrap();
        let rss = kernel.memory_map_rollup.iter().next().unwrap().extension.map["Rss"];
        // Other tests run in this process meanwhile.
        assert!(found.total().abs_diff(rss) < 16 << 20, "{found:?} {rss}");
        assert!(found.heap_bytes() > 32 << 20, "{found:?}");
        drop(std::hint::black_box(block));
        assert_eq!(ResidentMemory::of(u32::MAX), None);
    }
}
