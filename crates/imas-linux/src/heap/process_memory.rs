// SPDX-License-Identifier: Apache-2.0
//! The memory of a process by the kernel's files.

use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt as _;

use procfs::process::MemoryMap;

use super::memory::{Memory, PageState};
use crate::mapping_text::mappings;

/// Bits of an entry of pagemap: the page is in memory, and no other process has it (proc_pid_pagemap(5)).
const PRESENT: u64 = 1 << 63;
const EXCLUSIVE: u64 = 1 << 56;
/// Entries that are read at once.
const ENTRIES: usize = 8192;

/// Open files of one process: both stay with its memory, whatever becomes of its number.
#[derive(Debug)]
pub(crate) struct ProcessMemory {
    mem: File,
    pagemap: File,
    maps: File,
    page_bytes: u64,
}

impl ProcessMemory {
    pub(crate) fn open(pid: u32) -> Result<Self> {
        Ok(Self {
            mem: File::open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            maps: File::open(format!("/proc/{pid}/maps"))?,
            page_bytes: rustix::param::page_size() as u64,
        })
    }

    /// The mappings, one after the other.
    pub(crate) fn maps(&self) -> impl Iterator<Item = Result<MemoryMap>> {
        mappings(&self.maps)
    }
}

impl Memory for ProcessMemory {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
        self.mem.read_at(into, address)
    }

    fn pages(&self, first_page: u64, pages: &mut [PageState]) -> Result<()> {
        let mut bytes = vec![0; ENTRIES.min(pages.len()) * 8];
        for (block, first) in pages.chunks_mut(ENTRIES).zip((first_page..).step_by(ENTRIES)) {
            let bytes = &mut bytes[..block.len() * 8];
            self.pagemap.read_exact_at(bytes, first * 8)?;
            for (page, entry) in block.iter_mut().zip(bytes.as_chunks::<8>().0) {
                let entry = u64::from_ne_bytes(*entry);
                *page = match (entry & PRESENT, entry & EXCLUSIVE) {
                    (0, _) => PageState::Absent,
                    (_, 0) => PageState::Shared,
                    _ => PageState::Own,
                };
            }
        }
        Ok(())
    }
}
