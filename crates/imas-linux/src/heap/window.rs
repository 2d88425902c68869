// SPDX-License-Identifier: Apache-2.0
//! Words of a process's memory, read many at a time.

use std::time::Instant;

use super::memory::Memory;
use super::residency::Residency;
use super::stop::Stop;

/// Pages that are read at first, and at most where the reads follow each other.
const PAGES: (u64, u64) = (4, 64);

/// The pages that were read last.
pub(super) struct Window<'m> {
    memory: &'m dyn Memory,
    pub(super) residency: Residency<'m>,
    begin: u64,
    bytes: Vec<u8>,
    pages: u64,
    until: Instant,
}

impl<'m> Window<'m> {
    pub(super) fn new(memory: &'m dyn Memory, until: Instant) -> Self {
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
    pub(super) fn word(&mut self, address: u64) -> Result<u64, Stop> {
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
