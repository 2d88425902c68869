// SPDX-License-Identifier: Apache-2.0
//! The memory of a process, as its heaps are read from it.

use std::fs::File;
use std::io::{self, Seek as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use procfs::process::MemoryMap;

use crate::mapping_text::mappings;

/// The state of a page: in memory, shared since a fork, or neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory.
    #[default]
    Absent,
    /// In memory, of this process alone.
    Own,
    /// In memory, of other processes too since a fork.
    Shared,
}

/// Memory that can be read at addresses.
pub trait Memory {
    /// Bytes of a page.
    fn page_bytes(&self) -> u64;

    /// Reads what is at the address. The number of bytes that were read, fewer where the memory ends.
    ///
    /// # Errors
    /// When nothing can be read there.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Says where each page from this one on is.
    ///
    /// # Errors
    /// When the kernel does not say.
    fn pages(&self, first: u64, pages: &mut [PageState]) -> io::Result<()>;
}

/// Pages that are read at first, and at most where the reads follow each other.
const PAGES: (u64, u64) = (4, 64);

/// The pages that were read last.
pub(crate) struct Window<'m> {
    memory: &'m dyn Memory,
    pub(crate) residency: Residency<'m>,
    begin: u64,
    bytes: Vec<u8>,
    pages: u64,
    until: Instant,
}

impl<'m> Window<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, until: Instant) -> Self {
        Self {
            memory,
            residency: Residency::new(memory, until),
            begin: 0,
            bytes: vec![],
            pages: PAGES.0,
            until,
        }
    }

    /// The word at an address, which must be a multiple of eight.
    pub(crate) fn word(&mut self, address: u64) -> Result<u64, Stop> {
        if !address.is_multiple_of(8) {
            return Err(Stop::Torn);
        }
        if let Some(word) = self.known(address) {
            return Ok(word);
        }
        self.fill(address)?;
        self.known(address).ok_or(Stop::Torn)
    }

    fn known(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.begin)?).ok()?;
        let word = self.bytes.get(at..at.checked_add(8)?)?;
        word.try_into().ok().map(u64::from_ne_bytes)
    }

    fn fill(&mut self, address: u64) -> Result<(), Stop> {
        if Instant::now() > self.until {
            return Err(Stop::Late);
        }
        let page_bytes = self.memory.page_bytes();
        let first = address / page_bytes;
        let follows = first * page_bytes == self.begin.saturating_add(self.bytes.len() as u64);
        self.pages = if follows { PAGES.1.min(self.pages * 2) } else { PAGES.0 };
        let mut count = 0;
        while count < self.pages && self.residency.has(first + count)? {
            count += 1;
        }
        if count == 0 {
            return Err(Stop::Absent);
        }
        self.begin = first * page_bytes;
        self.bytes.resize(usize::try_from(count * page_bytes).unwrap_or(0), 0);
        let got = self.memory.read(self.begin, &mut self.bytes).map_err(Stop::Unreadable)?;
        self.bytes.truncate(got);
        Ok(())
    }
}

/// Pages of a block: one read of 32 KiB.
const BLOCK: u64 = 4096;

/// Residency of pages. Questions that go upwards are asked of the kernel once.
pub(crate) struct Residency<'m> {
    memory: &'m dyn Memory,
    first: u64,
    pages: Vec<PageState>,
    until: Instant,
}

impl<'m> Residency<'m> {
    pub(crate) fn new(memory: &'m dyn Memory, until: Instant) -> Self {
        Self { memory, first: 0, pages: vec![], until }
    }

    /// Whether the page is resident.
    pub(crate) fn has(&mut self, page: u64) -> Result<bool, Stop> {
        Ok(self.page(page)? != PageState::Absent)
    }

    fn page(&mut self, page: u64) -> Result<PageState, Stop> {
        if !(self.first..self.first + self.pages.len() as u64).contains(&page) {
            if Instant::now() > self.until {
                return Err(Stop::Late);
            }
            let first = page - page % BLOCK;
            self.pages.resize(usize::try_from(BLOCK).unwrap_or(0), PageState::Absent);
            if let Err(error) = self.memory.pages(first, &mut self.pages) {
                self.pages.clear();
                return Err(Stop::Unreadable(error));
            }
            self.first = first;
        }
        let at = usize::try_from(page - self.first).ok();
        Ok(at.and_then(|at| self.pages.get(at)).copied().unwrap_or_default())
    }

    /// Bytes of the resident pages that lie wholly between the addresses: of this process alone, and shared.
    pub(crate) fn bytes_between(&mut self, addresses: Range<u64>) -> Result<[u64; 2], Stop> {
        let page_bytes = self.memory.page_bytes();
        let mut pages = [0, 0];
        let between = addresses.start.div_ceil(page_bytes)..addresses.end / page_bytes;
        // The time counts for known pages too: the same ones may be asked for again and again.
        if !between.is_empty() && Instant::now() > self.until {
            return Err(Stop::Late);
        }
        for page in between {
            match self.page(page)? {
                PageState::Absent => {}
                PageState::Own => pages[0] += 1,
                PageState::Shared => pages[1] += 1,
            }
        }
        Ok(pages.map(|pages| pages * page_bytes))
    }
}

/// Reason why a walk did not come to its end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The bytes read cannot be a heap's: it was changed meanwhile, or is none.
    Torn,
    /// The page is not in memory.
    Absent,
    /// The time is over.
    Late,
    /// The kernel's answer.
    Unreadable(std::io::Error),
}

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
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            mem: File::open(format!("/proc/{pid}/mem"))?,
            pagemap: File::open(format!("/proc/{pid}/pagemap"))?,
            maps: File::open(format!("/proc/{pid}/maps"))?,
            page_bytes: rustix::param::page_size() as u64,
        })
    }

    /// The mappings as they are now, one after the other.
    pub(crate) fn maps(&self) -> impl Iterator<Item = io::Result<MemoryMap>> {
        let _ = (&self.maps).rewind(); // a file of /proc can be
        mappings(&self.maps)
    }
}

impl Memory for ProcessMemory {
    fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<usize> {
        self.mem.read_at(into, address)
    }

    fn pages(&self, first_page: u64, pages: &mut [PageState]) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    struct Resident;

    impl Memory for Resident {
        fn page_bytes(&self) -> u64 {
            4096
        }

        fn read(&self, _: u64, into: &mut [u8]) -> std::io::Result<usize> {
            Ok(into.len())
        }

        fn pages(&self, _: u64, pages: &mut [PageState]) -> std::io::Result<()> {
            pages.fill(PageState::Own);
            Ok(())
        }
    }

    #[test]
    fn the_time_is_over_for_known_pages_too() {
        let mut residency = Residency::new(&Resident, Instant::now() + Duration::from_secs(600));
        assert_eq!(residency.bytes_between(1..3 * 4096).unwrap(), [2 * 4096, 0]);
        residency.until = Instant::now();
        assert!(matches!(residency.bytes_between(1..3 * 4096), Err(Stop::Late)));
    }
}
