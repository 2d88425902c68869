// SPDX-License-Identifier: Apache-2.0
//! What the heaps of another process hold ([`crate::heap`]), read beside this one.

use crate::foreign_process::{self, ForeignFile, ForeignReader};
use crate::heap::figures::{HeapAnswer, HeapFigures, NotReadable};

/// Figures of the heaps of a process.
///
/// # Errors
/// When they cannot be read, with the reason.
pub fn of(pid: u32) -> Result<HeapFigures, NotReadable> {
    let text = foreign_process::read(pid, ForeignFile::Heaps).map_err(|error| NotReadable::of(&error))?;
    HeapAnswer::from_text(&text).0
}

/// Figures of the heaps of a process, by this reader; `owner` is who answers for it.
///
/// # Errors
/// As [`of`].
pub fn by(
    reader: &mut ForeignReader,
    pid: u32,
    owner: impl Fn() -> Option<u64>,
) -> Result<HeapFigures, NotReadable> {
    let text = reader.read(pid, ForeignFile::Heaps, owner).map_err(|error| NotReadable::of(&error))?;
    HeapAnswer::from_text(&text).0
}
