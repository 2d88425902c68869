// SPDX-License-Identifier: Apache-2.0
//! A file of any length, zero beyond its bytes as a sparse one is, that counts what is read of it. Shared
//! with `fuzz/`.

use std::io::{Read, Result, Seek, SeekFrom};
use std::path::Path;

use imas_linux::elf::{ElfImage, MOST_BYTES};

/// Bytes that the reader may ask for beyond its bound, at its last read.
const SLACK_BYTES: u64 = 64 << 10;

struct File<'a> {
    bytes: &'a [u8],
    length: u64,
    at: u64,
    read: u64,
    largest: usize,
}

impl Read for File<'_> {
    fn read(&mut self, to: &mut [u8]) -> Result<usize> {
        let room = usize::try_from(self.length.saturating_sub(self.at)).unwrap_or(usize::MAX).min(to.len());
        let from = self.bytes.get(usize::try_from(self.at).unwrap_or(usize::MAX)..).unwrap_or_default();
        let there = from.len().min(room);
        to[..there].copy_from_slice(&from[..there]);
        to[there..room].fill(0);
        self.largest = self.largest.max(to.len());
        (self.at, self.read) = (self.at + room as u64, self.read + room as u64);
        Ok(room)
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::End(back) => self.length.saturating_add_signed(back),
            SeekFrom::Current(on) => self.at.saturating_add_signed(on),
        };
        Ok(self.at)
    }
}

/// Reads it as an executable: whatever it is, no more than the bound is read and no large memory is taken for
/// it. What was found.
pub(crate) fn check(bytes: &[u8], length: u64) -> Option<ElfImage> {
    let mut file = File { bytes, length, at: 0, read: 0, largest: 0 };
    let found = ElfImage::of(&mut file, Path::new("/nonexistent/program")).ok();
    assert!(file.read <= MOST_BYTES + SLACK_BYTES, "{} bytes were read", file.read);
    assert!(file.largest <= 2 << 20, "{} bytes at once", file.largest);
    found
}
