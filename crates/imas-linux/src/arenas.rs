// SPDX-License-Identifier: Apache-2.0
//! Arenas of glibc's malloc in a running process, as its mappings show them from outside.
//!
//! Every arena but the first lives in heaps of 64 MiB at most, each at an address that is a multiple of 64
//! MiB: a writable part at the bottom, and the rest reserved without any rights. The first arena lives in
//! `[heap]`.

use std::io::{Error, ErrorKind, Result};

use imas_core::server_run::ArenaHeaps;
use procfs::process::{MMPermissions, MMapPath, MemoryMap, Process};

use crate::foreign_process::{self, Finding, resident_bytes};
use crate::living_thread;
use crate::mapping_text::{of_task, with_neighbours};

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
    let text = foreign_process::find_out(pid, Finding::Arenas, text_of).ok()?;
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
pub(crate) fn text_of(pid: u32) -> Result<Vec<u8>> {
    let task = living_thread::of(pid);
    let sums = sums(of_task(task, "smaps")?)?;
    if sums.1.len() > MOST_HEAPS {
        return Err(ErrorKind::FileTooLarge.into());
    }
    serde_json::to_vec(&sums).map_err(Error::other)
}

fn sums(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<(u64, Vec<u64>)> {
    let (mut main, mut heaps) = (0, vec![]);
    with_neighbours(maps, |_, map, next| {
        if map.pathname == MMapPath::Heap {
            main += anonymous(map);
        } else if is_heap(map, next) && heaps.len() <= MOST_HEAPS {
            heaps.push(anonymous(map));
        }
    })?;
    Ok((main, heaps))
}

pub(crate) fn is_heap(map: &MemoryMap, next: Option<&MemoryMap>) -> bool {
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
fn anonymous(map: &MemoryMap) -> u64 {
    let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    (field("Pss") + field("SwapPss")).saturating_sub(field("LazyFree"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

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
        assert_eq!(sums(maps).unwrap(), (8 << 10, vec![60 << 10, 20 << 10]));
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
}
