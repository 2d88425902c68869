// SPDX-License-Identifier: Apache-2.0
//! Which pages of a heap are resident, asked block by block.

use std::ops::Range;
use std::time::Instant;

use super::memory::Memory;
use super::window::Stop;

/// Pages of a block: one read of 32 KiB.
const BLOCK: u64 = 4096;

/// Residency of pages. Questions that go upwards are asked of the kernel once.
pub(super) struct Residency<'m> {
    memory: &'m dyn Memory,
    first: u64,
    pages: Vec<bool>,
    until: Instant,
}

impl<'m> Residency<'m> {
    pub(super) fn new(memory: &'m dyn Memory, until: Instant) -> Self {
        Self { memory, first: 0, pages: vec![], until }
    }

    /// Whether the page is resident.
    pub(super) fn has(&mut self, page: u64) -> Result<bool, Stop> {
        if !(self.first..self.first + self.pages.len() as u64).contains(&page) {
            if Instant::now() > self.until {
                return Err(Stop::Late);
            }
            let first = page - page % BLOCK;
            self.pages.resize(usize::try_from(BLOCK).unwrap_or(0), false);
            if let Err(error) = self.memory.resident(first, &mut self.pages) {
                self.pages.clear();
                return Err(Stop::Unreadable(error));
            }
            self.first = first;
        }
        let at = usize::try_from(page - self.first).ok();
        Ok(at.and_then(|at| self.pages.get(at)).is_some_and(|resident| *resident))
    }

    /// Bytes of the resident pages that lie wholly between the addresses.
    pub(super) fn bytes_between(&mut self, addresses: Range<u64>) -> Result<u64, Stop> {
        let page_bytes = self.memory.page_bytes();
        let pages = addresses.start.div_ceil(page_bytes)..addresses.end / page_bytes;
        let mut resident = 0;
        for page in pages {
            resident += u64::from(self.has(page)?);
        }
        Ok(resident * page_bytes)
    }
}
