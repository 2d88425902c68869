// SPDX-License-Identifier: Apache-2.0
//! What the mappings of another process show, read beside this one: its resident memory by kind and by name, its arenas
//! and its files. The helper adds them up ([`crate::mapping_text`]), and the answer is a few numbers or names.

use std::io::{ErrorKind, Result};

use imas_core::server_run::ArenaHeaps;
use procfs::ProcResult;
use procfs::process::Process;

use crate::foreign_process::{ForeignFile, read, resident_bytes};
use crate::mapped_files::MappedFiles;
use crate::resident::ResidentMemory;

impl ResidentMemory {
    /// Resident memory of a process; None when it is gone or not ours to look at: a process has some.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        Self::looked_at(pid).ok()
    }

    /// Resident memory of a process.
    ///
    /// # Errors
    /// As [`read`]; `NotFound` where it has none.
    pub fn looked_at(pid: u32) -> Result<Self> {
        let memory: Self = serde_json::from_slice(&read(pid, ForeignFile::Resident)?)?;
        if memory.total() > 0 { Ok(memory) } else { Err(ErrorKind::NotFound.into()) }
    }
}

impl MappedFiles {
    /// Returns the files that a process has mapped.
    ///
    /// # Errors
    /// When there is no such process, it is not ours to look at, or it has more than 16,384 files, or a mebibyte of their
    /// names.
    pub fn of(pid: u32) -> ProcResult<Self> {
        Ok(Self::in_text(&read(pid, ForeignFile::MappedFiles)?))
    }
}

/// Arenas of a process, heap by heap; None when it is gone or not ours to look at. All of its mappings are read, which
/// delays its page faults meanwhile.
#[must_use]
pub fn arena_heaps(pid: u32) -> Option<ArenaHeaps> {
    let process = Process::new(i32::try_from(pid).ok()?).ok()?;
    let stat = process.stat().ok()?;
    let (main_bytes, heap_bytes) = serde_json::from_slice(&read(pid, ForeignFile::Arenas).ok()?).ok()?;
    Some(ArenaHeaps {
        process: stat.comm,
        threads: u64::try_from(stat.num_threads).unwrap_or(0),
        bytes: resident_bytes(pid)?,
        main_bytes,
        heap_bytes,
        held: None,
    })
}

/// Resident bytes under the names that a program gives its mappings, the largest first. Empty where nothing is named, or
/// the process is not ours to look at.
#[must_use]
pub fn named_memory(pid: u32) -> Vec<(String, u64)> {
    let text = read(pid, ForeignFile::NamedMemory).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
