// SPDX-License-Identifier: Apache-2.0
//! Copies of another process's memory, piece by piece: resident pages alone, 0 for all others.

use std::io::Result;
use std::ops::Range;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::heap::memory::{Memory, PageState, Stop};

/// Bytes that are copied at once.
pub(super) const PIECE: u64 = 512 << 10;
/// Pages that the kernel is asked for at first, and at most at once.
const ASKED: (u64, u64) = (128, 8192);
/// Bytes of a pointer.
const WORD: u64 = 8;

/// Bounds of a look.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// End of the time that the look may take.
    pub(super) until: Instant,
    /// CPU time of this thread at which the look ends, nanoseconds.
    pub(super) until_cpu_ns: u64,
    /// Most bytes that the look may hold.
    pub(super) most_bytes: u64,
}

impl Bounds {
    fn is_over(&self) -> bool {
        Instant::now() > self.until || cpu_ns() > self.until_cpu_ns
    }
}

/// CPU time of this thread, nanoseconds.
pub(super) fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(time.tv_nsec))
}

/// One piece of memory, copied.
pub(super) struct Copied<'m> {
    memory: &'m dyn Memory,
    pub(super) bounds: Bounds,
    begin: u64,
    bytes: Vec<u8>,
    states: Vec<PageState>,
    /// Bytes that were read until now.
    pub(super) read: u64,
}

impl<'m> Copied<'m> {
    pub(super) fn new(memory: &'m dyn Memory, bounds: Bounds) -> Self {
        Self { memory, bounds, begin: 0, bytes: vec![], states: vec![], read: 0 }
    }

    /// Forgets what was copied: the memory may have changed.
    pub(super) fn forget(&mut self) {
        self.bytes.clear();
    }

    /// The word at an address below `end`.
    pub(super) fn word(&mut self, address: u64, end: u64) -> std::result::Result<u64, Stop> {
        let bytes = self.part(address..address.checked_add(WORD).ok_or(Stop::Torn)?, end)?;
        bytes.try_into().map(u64::from_ne_bytes).map_err(|_| Stop::Torn)
    }

    /// The bytes of a range, which is no longer than a piece. What is copied in advance ends at `end`.
    pub(super) fn part(&mut self, range: Range<u64>, end: u64) -> std::result::Result<&[u8], Stop> {
        if self.offsets(&range).is_none() {
            self.copy(&range, end)?;
        }
        let offsets = self.offsets(&range).ok_or(Stop::Torn)?;
        self.bytes.get(offsets).ok_or(Stop::Torn)
    }

    /// The first address of a resident page from here on; `end` where there is none.
    pub(super) fn next_resident(&mut self, address: u64, end: u64) -> std::result::Result<u64, Stop> {
        let page_bytes = self.memory.page_bytes();
        let (mut at, mut asked) = (address, ASKED.0);
        while at < end {
            let pages = (end - at).div_ceil(page_bytes).min(asked);
            asked = (asked * 4).min(ASKED.1);
            if pages > 1 && self.bounds.is_over() {
                return Err(Stop::Late);
            }
            self.states.clear();
            self.states.resize(usize::try_from(pages).unwrap_or(0), PageState::Absent);
            self.memory.pages(at / page_bytes, &mut self.states).map_err(Stop::Unreadable)?;
            if let Some(found) = self.states.iter().position(|state| *state != PageState::Absent) {
                return Ok(if found == 0 { at } else { (at / page_bytes + found as u64) * page_bytes });
            }
            at = (at / page_bytes + pages) * page_bytes;
        }
        Ok(end)
    }

    fn offsets(&self, range: &Range<u64>) -> Option<Range<usize>> {
        let begin = usize::try_from(range.start.checked_sub(self.begin)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.begin)?).ok()?;
        (begin <= end && end <= self.bytes.len()).then_some(begin..end)
    }

    fn copy(&mut self, range: &Range<u64>, end: u64) -> std::result::Result<(), Stop> {
        if self.bounds.is_over() {
            return Err(Stop::Late);
        }
        let page_bytes = self.memory.page_bytes();
        let begin = range.start / page_bytes * page_bytes;
        let wanted = end.clamp(range.end, begin.saturating_add(PIECE).max(range.end));
        let bytes = (wanted - begin).next_multiple_of(page_bytes);
        if bytes > 2 * PIECE {
            return Err(Stop::Torn);
        }
        self.begin = begin;
        self.bytes.clear();
        self.bytes.resize(usize::try_from(bytes).unwrap_or(0), 0);
        self.fill().map_err(Stop::Unreadable)
    }

    /// Reads each row of resident pages. One that cannot be read (a device's) is 0.
    fn fill(&mut self) -> Result<()> {
        let page_bytes = usize::try_from(self.memory.page_bytes()).unwrap_or(usize::MAX);
        self.states.clear();
        self.states.resize(self.bytes.len() / page_bytes, PageState::Absent);
        self.memory.pages(self.begin / self.memory.page_bytes(), &mut self.states)?;
        let mut at = 0;
        for row in
            self.states.chunk_by(|one, next| (*one == PageState::Absent) == (*next == PageState::Absent))
        {
            let bytes = row.len() * page_bytes;
            if row.first() != Some(&PageState::Absent)
                && let Some(into) = self.bytes.get_mut(at..at + bytes)
            {
                let _ = self.memory.read(self.begin + at as u64, into);
                self.read += bytes as u64;
            }
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod made {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;

    /// Memory that a test has made: bytes from an address on, all of them resident but for some pages.
    pub(crate) struct Made {
        pub(crate) begin: u64,
        pub(crate) bytes: Vec<u8>,
        pub(crate) absent: Vec<u64>,
        pub(crate) reads: Cell<u64>,
    }

    impl Made {
        pub(crate) fn new(begin: u64, words: &[u64]) -> Self {
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            Self { begin, bytes, absent: vec![], reads: Cell::new(0) }
        }
    }

    impl Memory for Made {
        fn page_bytes(&self) -> u64 {
            4096
        }

        fn read(&self, address: u64, into: &mut [u8]) -> Result<usize> {
            self.reads.set(self.reads.get() + 1);
            let at = usize::try_from(address - self.begin).unwrap();
            let from = self.bytes.get(at..).unwrap_or(&[]);
            let got = from.len().min(into.len());
            into[..got].copy_from_slice(&from[..got]);
            Ok(got)
        }

        fn pages(&self, first: u64, pages: &mut [PageState]) -> Result<()> {
            for (page, number) in pages.iter_mut().zip(first..) {
                let is_in = (self.begin..self.begin + self.bytes.len() as u64).contains(&(number * 4096));
                let is_there = is_in && !self.absent.contains(&number);
                *page = if is_there { PageState::Own } else { PageState::Absent };
            }
            Ok(())
        }
    }

    pub(crate) fn bounds() -> Bounds {
        let until = Instant::now() + Duration::from_secs(600);
        Bounds { until, until_cpu_ns: u64::MAX, most_bytes: 1 << 30 }
    }

    #[test]
    fn pages_that_are_not_there_are_0_and_are_not_read() {
        let mut memory = Made::new(0x10000, &vec![7; 4 * 512]);
        memory.absent.push(0x11);
        let mut copied = Copied::new(&memory, bounds());
        let words = [0x10000, 0x10ff8, 0x11000, 0x11ff8, 0x12000, 0x13ff8]
            .map(|address| copied.word(address, 0x14000).unwrap());
        assert_eq!((words, copied.read, memory.reads.get()), ([7, 7, 0, 0, 7, 7], 3 * 4096, 2));
    }

    #[test]
    fn a_look_ends_when_its_time_is_over() {
        let memory = Made::new(0x10000, &[7; 512]);
        for (until, until_cpu_ns) in [(Instant::now(), u64::MAX), (bounds().until, 0)] {
            let mut copied = Copied::new(&memory, Bounds { until, until_cpu_ns, most_bytes: 0 });
            assert!(matches!(copied.word(0x10000, 0x11000), Err(Stop::Late)));
        }
    }
}
