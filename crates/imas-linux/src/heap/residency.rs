// SPDX-License-Identifier: Apache-2.0
//! Which pages of a heap are resident, asked block by block.

use std::ops::Range;
use std::time::Instant;

use super::memory::{Memory, PageState};
use super::stop::Stop;

/// Pages of a block: one read of 32 KiB.
const BLOCK: u64 = 4096;

/// Residency of pages. Questions that go upwards are asked of the kernel once.
pub(super) struct Residency<'m> {
    memory: &'m dyn Memory,
    first: u64,
    pages: Vec<PageState>,
    until: Instant,
}

impl<'m> Residency<'m> {
    pub(super) fn new(memory: &'m dyn Memory, until: Instant) -> Self {
        Self { memory, first: 0, pages: vec![], until }
    }

    /// Whether the page is resident.
    pub(super) fn has(&mut self, page: u64) -> Result<bool, Stop> {
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
    pub(super) fn bytes_between(&mut self, addresses: Range<u64>) -> Result<[u64; 2], Stop> {
        let page_bytes = self.memory.page_bytes();
        let mut pages = [0, 0];
        let between = addresses.start.div_ceil(page_bytes)..addresses.end / page_bytes;
        // Of known pages too: the same ones may be asked for again and again.
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
