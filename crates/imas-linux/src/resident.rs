// SPDX-License-Identifier: Apache-2.0
//! Composition of the resident memory of a process, as its mappings show it from outside
//! (proc_pid_smaps(5)).
//!
//! The kernel walks the process's page tables to answer. The process itself is neither stopped nor signalled.
//!
//! Arenas of glibc's malloc in a running process, as its mappings show them from outside.
//!
//! Every arena but the first lives in heaps of 64 MiB at most, each at an address that is a multiple of 64 MiB: a
//! writable part at the bottom, and the rest reserved without any rights. The first arena lives in `[heap]`.
//!
//! Memory of one counted process as its hook sees it, looked at from outside.
//!
//! Resident memory under the names that a program gives its mappings (`PR_SET_VMA_ANON_NAME`): runtimes name theirs.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};

use imas_core::printable;
use imas_core::server_run::ArenaHeaps;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};

use crate::environment::HOOK;
use crate::foreign_process::{self, Finding, resident_bytes};
use crate::mapping_text::{self, file_name, of_task, with_neighbours};

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
pub(crate) enum Kind {
    Heap,
    Arena,
    Anonymous,
    Stack,
    File,
    Shared,
    Hook,
    Other,
}

/// Bytes that libc gives to the stack of a thread where the limit is none, on most machines.
const UNLIMITED: u64 = 2 << 20;

impl ResidentMemory {
    /// Resident memory of a process; None when it is gone or not ours to look at: a process has some.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::looked_at(pid).ok()
    }

    /// Resident memory of a process.
    ///
    /// # Errors
    /// As [`foreign_process::read`]; `NotFound` where it has none.
    pub fn looked_at(pid: u32) -> Result<Self> {
        let memory: Self =
            serde_json::from_slice(&foreign_process::find_out(pid, Finding::Resident, text_of)?)?;
        if memory.total() > 0 { Ok(memory) } else { Err(std::io::ErrorKind::NotFound.into()) }
    }

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

    /// Adds a mapping of this kind.
    pub(crate) fn add(&mut self, kind: Kind, map: &MemoryMap) {
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

/// Resident memory of a process as a text for [`ResidentMemory::looked_at`]. All is read in this very process.
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let task = mapping_text::living_thread(pid);
    serde_json::to_vec(&sum(of_task(task, "smaps")?, stack_bytes())?).map_err(Error::other)
}

/// Size that libc gives to the stacks of threads, guard included.
pub(crate) fn stack_bytes() -> u64 {
    getrlimit(Resource::Stack).current.unwrap_or(UNLIMITED)
}

/// `stack` is the size that libc gives to the stacks of threads, guard included.
fn sum(maps: impl Iterator<Item = Result<MemoryMap>>, stack: u64) -> Result<ResidentMemory> {
    let mut sum = ResidentMemory::default();
    with_neighbours(maps, |below, map, next| {
        sum.add(kind_of(map, (below, next), stack), map);
    })?;
    Ok(sum)
}

/// Kind of a mapping, by the ones below and above it.
pub(crate) fn kind_of(
    map: &MemoryMap,
    (below, next): (Option<&MemoryMap>, Option<&MemoryMap>),
    stack: u64,
) -> Kind {
    if is_arena(map, next) { Kind::Arena } else { kind(map, below, stack) }
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
    } else if below.is_some_and(|below| is_hook(below) && below.address.1 == map.address.0) {
        Kind::Hook
    } else if below.is_some_and(|below| is_stack(map, below, stack)) {
        Kind::Stack
    } else {
        Kind::Anonymous
    }
}

/// Files that exist in memory only: memfd_create(2), and files of /dev/shm.
fn is_memory(map: &MemoryMap) -> bool {
    let MMapPath::Path(path) = &map.pathname else { return false };
    path.starts_with("/dev/shm") || path.to_string_lossy().starts_with("/memfd:")
}

/// `HEAP_MAX_SIZE` of glibc on 64-bit machines.
const HEAP_BYTES: u64 = 64 << 20;
/// Most heaps that are listed: 4 TiB.
const MOST_HEAPS: usize = 1 << 16;

/// Arenas of a process, heap by heap; None when it is gone or not ours to look at. All of its mappings
/// are read, which delays its page faults meanwhile.
#[must_use]
pub fn arena_heaps(pid: u32) -> Option<ArenaHeaps> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    let text = foreign_process::find_out(pid, Finding::Arenas, arena_text).ok()?;
    let (main_bytes, heap_bytes) = serde_json::from_slice(&text).ok()?;
    Some(ArenaHeaps {
        process: stat.comm,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        bytes: resident_bytes(pid)?,
        main_bytes,
        heap_bytes,
        held: None,
    })
}

/// Bytes of `[heap]` and of each other heap of a process, as a text for [`arena_heaps`]. All is read in this very process.
pub(super) fn arena_text(pid: u32) -> Result<Vec<u8>> {
    let task = mapping_text::living_thread(pid);
    let sums = arena_sums(of_task(task, "smaps")?)?;
    if sums.1.len() > MOST_HEAPS {
        return Err(ErrorKind::FileTooLarge.into());
    }
    serde_json::to_vec(&sums).map_err(Error::other)
}

fn arena_sums(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<(u64, Vec<u64>)> {
    let (mut main, mut heaps) = (0, vec![]);
    with_neighbours(maps, |_, map, next| {
        if map.pathname == MMapPath::Heap {
            main += own_bytes(map);
        } else if is_arena(map, next) && heaps.len() <= MOST_HEAPS {
            heaps.push(own_bytes(map));
        }
    })?;
    Ok((main, heaps))
}

fn is_arena(map: &MemoryMap, next: Option<&MemoryMap>) -> bool {
    let (begin, end) = map.address;
    let writable = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
    let is_candidate = map.pathname == MMapPath::Anonymous
        && map.perms == writable
        && begin % HEAP_BYTES == 0
        && end - begin <= HEAP_BYTES;
    let reserve_ends =
        |next: &MemoryMap| next.perms == MMPermissions::PRIVATE && next.address == (end, begin + HEAP_BYTES);
    is_candidate && (end - begin == HEAP_BYTES || next.is_some_and(reserve_ends))
}

/// Bytes of an anonymous mapping, counted as in [`crate::sampler`]: what was shared by fork in parts, and nothing
/// that was given back lazily.
fn own_bytes(map: &MemoryMap) -> u64 {
    let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    (field("Pss") + field("SwapPss")).saturating_sub(field("LazyFree"))
}

/// Memory of one process, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Anonymous memory less what was given back lazily, and swap; the hook's tables left out. Pages shared
    /// by fork count in parts.
    pub resident: u64,
    /// rw-p anonymous and `[heap]` mappings, the stacks of threads and the hook's tables left out.
    pub heap: u64,
}
/// Guards of thread stacks are no larger.
const LARGEST_GUARD: u64 = 1 << 20;

impl Footprint {
    /// Footprint of a process; None when it is gone or not ours to look at.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let total = crate::sampler::resident_bytes(pid)?;
        let of_one = |task| heap_sum(of_task(task, "smaps").ok()?, stack_bytes()).ok()?;
        let found = mapping_text::ask_living(pid, of_one)?;
        Some(Self { resident: total.saturating_sub(found.tables_resident), heap: found.heap })
    }
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Sum {
    heap: u64,
    tables_resident: u64,
}

/// None where nothing is mapped. `stack` is the size that libc gives to the stacks of threads, guard included.
fn heap_sum(maps: impl Iterator<Item = Result<MemoryMap>>, stack: u64) -> Result<Option<Sum>> {
    let mut sum: Option<Sum> = None;
    with_neighbours(maps, |below, map, _| {
        let sum = sum.get_or_insert_default();
        if !is_malloced(map) {
            return;
        }
        if below.is_some_and(|below| is_hook(below) && below.address.1 == map.address.0) {
            sum.tables_resident += map.extension.map.get("Pss").copied().unwrap_or(0);
        } else if !below.is_some_and(|below| is_stack(map, below, stack)) {
            sum.heap += size(map);
        }
    })?;
    Ok(sum)
}

fn size(map: &MemoryMap) -> u64 {
    map.address.1.saturating_sub(map.address.0)
}

fn is_malloced(map: &MemoryMap) -> bool {
    let named = match &map.pathname {
        MMapPath::Anonymous | MMapPath::Heap => true,
        MMapPath::Other(name) => name.starts_with("anon:"),
        _ => false,
    };
    named && map.perms == MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE
}

fn is_hook(map: &MemoryMap) -> bool {
    matches!(&map.pathname, MMapPath::Path(path) if file_name(path) == HOOK)
}

/// A guard lies right below, and both together have the size of a stack.
fn is_stack(map: &MemoryMap, below: &MemoryMap, stack: u64) -> bool {
    below.perms == MMPermissions::PRIVATE
        && below.address.1 == map.address.0
        && size(below) <= LARGEST_GUARD
        && (size(map) == stack || size(map) + size(below) == stack)
}

/// Most names that are counted one by one: a process may give each mapping a name of its own.
const MOST_NAMES: usize = 32;

/// Resident bytes under the names that a program gave its mappings.
#[derive(Debug, Default)]
pub(crate) struct NamedSums(BTreeMap<String, u64>);

impl NamedSums {
    pub(crate) fn add(&mut self, map: &MemoryMap) {
        let MMapPath::Other(name) = &map.pathname else { return };
        let Some(name) = name.strip_prefix("anon:") else { return };
        let resident = map.extension.map.get("Rss").copied().unwrap_or(0);
        let name = printable::name(name).into_owned();
        if resident > 0 && (self.0.len() < MOST_NAMES || self.0.contains_key(&name)) {
            *self.0.entry(name).or_default() += resident;
        }
    }

    /// The sums, the largest first.
    pub(crate) fn sorted(self) -> Vec<(String, u64)> {
        let mut sums: Vec<_> = self.0.into_iter().collect();
        sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        sums
    }
}

#[cfg(test)]
mod tests {
    use procfs::process::Process;

    use super::*;
    use crate::mapping_text::mappings;

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

    #[test]
    fn a_heap_is_aligned_and_has_its_reserve_above() {
        let maps = mappings(
            concat!(
                "00001000-00003000 rw-p 00000000 00:00 0 [heap]\n",
                "Pss: 8 kB\n",
                "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n",
                "Pss: 100 kB\nLazyFree: 40 kB\n",
                "7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n",
                "7f0008000000-7f000c000000 rw-p 00000000 00:00 0 \n",
                "Pss: 20 kB\n",
                // Aligned by chance, without the reserve; and one that is not aligned.
                "7f0010000000-7f0010021000 rw-p 00000000 00:00 0 \n",
                "7f0020001000-7f0020021000 rw-p 00000000 00:00 0 \n",
                "7f0020021000-7f0024001000 ---p 00000000 00:00 0 \n",
            )
            .as_bytes(),
        );
        assert_eq!(arena_sums(maps).unwrap(), (8 << 10, vec![60 << 10, 20 << 10]));
    }

    /// Python is on glibc's malloc, and its threads get arenas of their own.
    #[test]
    fn the_arenas_of_a_real_process_are_counted() {
        let code = "import threading, ctypes, sys\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\nstay = threading.Barrier(5)\n\
                    def work():\n for _ in range(2000): ctypes.memset(libc.malloc(1000), 1, 1000)\n stay.wait(); stay.wait()\n\
                    [threading.Thread(target=work).start() for _ in range(4)]\nstay.wait(); print('x', flush=True); sys.stdin.read(); stay.wait()";
        let mut child = std::process::Command::new("python3")
            .args(["-c", code])
            .env_remove("LD_PRELOAD")
            .env_remove("MALLOC_ARENA_MAX")
            .env_remove("GLIBC_TUNABLES")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let found = arena_heaps(child.id()).unwrap();
        drop(child.stdin.take());
        child.wait().unwrap();
        let in_heaps: u64 = found.heap_bytes.iter().sum();
        assert!(!found.heap_bytes.is_empty() && in_heaps > 2_000_000 && found.threads == 5, "{found:?}");
        assert!(found.bytes >= in_heaps + found.main_bytes && found.process == "python3");
    }

    #[test]
    fn stacks_and_the_hook_are_no_heap() {
        let maps = concat!(
            "00001000-00003000 rw-p 00000000 00:00 0 [heap]\n",
            "10000000-10001000 ---p 00000000 00:00 0 \n",
            "10001000-10801000 rw-p 00000000 00:00 0 \n",
            "20000000-20005000 rw-p 00000000 00:00 0 [anon:pool]\n",
            "30000000-30001000 rw-p 00000000 08:01 7 /usr/lib/imas/libimas.so\n",
            "30001000-30108000 rw-p 00000000 00:00 0 \n",
            "Pss: 12 kB\n",
            "40000000-40001000 r--p 00000000 00:00 0 \n",
            "50000000-50004000 rw-s 00000000 00:00 0 \n",
            "60000000-60001000 rw-p 00000000 00:00 0 [stack]\n",
        );
        let expected = Sum { heap: 0x2000 + 0x5000, tables_resident: 12 << 10 };
        assert_eq!(heap_sum(mappings(maps.as_bytes()), STACK).unwrap(), Some(expected));
        assert_eq!(heap_sum(mappings(&b""[..]), STACK).unwrap(), None);
    }

    #[test]
    fn this_process_has_a_footprint() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]); // in a release build it would not be there
        let found = Footprint::of(std::process::id()).unwrap();
        assert!(found.resident > 32 << 20 && found.heap > 32 << 20, "{found:?}");
        drop(std::hint::black_box(block));
        assert_eq!(Footprint::of(u32::MAX), None);
    }

    #[test]
    fn mappings_of_one_name_are_added_up() {
        let text = "10000000-10001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n\
                    20000000-20001000 rw-p 00000000 00:00 0 \nRss: 8 kB\n\
                    30000000-30001000 rw-p 00000000 00:00 0 [anon:v8]\nRss: 12 kB\n\
                    40000000-40001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n";
        let mut sums = NamedSums::default();
        mappings(text.as_bytes()).for_each(|map| sums.add(&map.unwrap()));
        assert_eq!(sums.sorted(), [(" Go: heap".to_owned(), 16 << 10), ("v8".to_owned(), 12 << 10)]);
    }
}
