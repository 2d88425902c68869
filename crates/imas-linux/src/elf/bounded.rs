// SPDX-License-Identifier: Apache-2.0
//! Reads a limited part of a file. The offsets and sizes in the file are not trusted.

use std::cell::Cell;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use object::read::{ReadCache, ReadRef};

/// What a string of unknown length counts: the cache reads as much of it at once.
const STRING_BYTES: u64 = 256;

/// The file, what was read of it, and how much more may be. What is read twice counts twice.
#[derive(Debug)]
pub(super) struct Bounded<R: Read + Seek> {
    cache: ReadCache<R>,
    left: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl<R: Read + Seek> Bounded<R> {
    pub(super) fn new(source: R, bytes: u64) -> Self {
        Self { cache: ReadCache::new(source), left: Cell::new(bytes), is_exceeded: Cell::new(false) }
    }

    /// Whether more was asked for than may be read.
    pub(super) fn is_exceeded(&self) -> bool {
        self.is_exceeded.get()
    }

    /// The file, and what of the bound is left.
    pub(super) fn into_inner(self) -> (R, u64) {
        (self.cache.into_inner(), self.left.get())
    }

    fn take(&self, bytes: u64) -> Result<(), ()> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.is_exceeded.set(true);
                Err(())
            }
        }
    }
}

impl<'data, R: Read + Seek> ReadRef<'data> for &'data Bounded<R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.take(STRING_BYTES)?;
        let found = self.cache.read_bytes_at_until(range, delimiter)?;
        self.take((found.len() as u64).saturating_sub(STRING_BYTES))?;
        Ok(found)
    }
}

/// Limit for the bytes of a file that are read, counted over all reads.
#[derive(Debug)]
pub(super) struct Limited<R> {
    source: R,
    left: u64,
}

impl<R> Limited<R> {
    pub(super) fn new(source: R, bytes: u64) -> Self {
        Self { source, left: bytes }
    }

    /// Bytes that may still be read.
    pub(super) fn left(&self) -> u64 {
        self.left
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(to.len());
        if most == 0 && !to.is_empty() {
            return Err(io::Error::other("more would have to be read than an ordinary program has"));
        }
        let got = self.source.read(&mut to[..most])?;
        self.left -= got as u64;
        Ok(got)
    }
}

impl<R: Seek> Seek for Limited<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.source.seek(to)
    }
}
