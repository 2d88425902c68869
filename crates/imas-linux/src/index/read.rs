// SPDX-License-Identifier: Apache-2.0
//! Reading the index, for tools.

use std::path::Path;

use imas_abi::{INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_PROBES, IndexEntry, IndexHeader, index_flag};
use zerocopy::{FromBytes, IntoBytes};

use super::detail::Detail;
use super::entry::{Entry, key};
use super::error::IndexError;
use super::facts::Facts;
use crate::executable::Executable;
use crate::field::text;
use crate::fnv::{fnv32, fnv64};
use crate::plain_file;

/// Bytes of an index: entries of a million programs.
const MOST_BYTES: usize = 256 << 20;

/// An index read for tools: every byte of it is checked.
#[derive(Debug, Clone)]
pub struct Index {
    header: IndexHeader,
    table: Vec<IndexEntry>,
}

impl Index {
    /// Reads and checks the index at `path`.
    ///
    /// # Errors
    /// When it cannot be read, or a single bit of it is wrong.
    pub fn read(path: &Path) -> Result<Self, IndexError> {
        let bytes = plain_file::read(path, MOST_BYTES)
            .map_err(|error| IndexError::Io { path: path.to_owned(), error })?;
        Self::decode(&bytes)
    }

    /// Checks the bytes of an index.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn decode(bytes: &[u8]) -> Result<Self, IndexError> {
        let (header, rest) =
            IndexHeader::read_from_prefix(bytes).map_err(|_| IndexError::Unsound("it is too short"))?;
        check_header(&header, bytes.len())?;
        let mut table = Vec::with_capacity(rest.len() / INDEX_ENTRY_BYTES);
        for record in rest.chunks_exact(INDEX_ENTRY_BYTES) {
            table.push(IndexEntry::read_from_bytes(record).map_err(|_| IndexError::Unsound("an entry"))?);
        }
        let index = Self { header, table };
        index.check_table()?;
        Ok(index)
    }

    /// The facts in the header.
    #[must_use]
    pub fn facts(&self) -> Facts {
        Facts {
            generation: self.header.generation,
            catalogue_id: self.header.catalogue_id,
            made_boot_ns: self.header.made_boot_ns,
            boot_id: text(&self.header.boot_id),
            disabled: self.header.flags & index_flag::DISABLED != 0,
        }
    }

    /// All decisions.
    pub fn entries(&self) -> impl Iterator<Item = &IndexEntry> {
        self.table.iter().filter(|record| record.candidate != 0)
    }

    /// The decision of exactly that key.
    #[must_use]
    pub fn find(&self, dev: u64, ino: u64, detail: &Detail, uid: Option<u32>) -> Option<&IndexEntry> {
        let executable = Executable { dev, ino, mtime_ns: 0, bytes: 0 };
        let asked = Entry {
            executable,
            detail: detail.clone(),
            uid,
            candidate: 0,
            trials: vec![],
            flags: 0,
            program_id: 0,
        };
        let asked = asked.record();
        let home = usize::try_from(fnv64(key(&asked)) & (self.header.slots - 1)).ok()?;
        let probes = self.table.get(home..home + INDEX_PROBES)?;
        probes.iter().find(|record| record.candidate != 0 && key(record) == key(&asked))
    }

    fn check_table(&self) -> Result<(), IndexError> {
        let mut taken = 0;
        for (slot, record) in self.table.iter().enumerate() {
            if record.as_bytes().iter().all(|byte| *byte == 0) {
                continue;
            }
            taken += 1;
            check_entry(record)?;
            let home = usize::try_from(fnv64(key(record)) & (self.header.slots - 1)).unwrap_or(usize::MAX);
            if slot < home || slot - home >= INDEX_PROBES {
                return Err(IndexError::Unsound("an entry is in a slot where a search does not find it"));
            }
        }
        if taken == self.header.entries { Ok(()) } else { Err(IndexError::Unsound("its number of entries")) }
    }
}

fn check_header(header: &IndexHeader, bytes: usize) -> Result<(), IndexError> {
    let unsound = |what| Err(IndexError::Unsound(what));
    let zeroed = IndexHeader { check: 0, ..header.clone() };
    if header.magic != imas_abi::INDEX_MAGIC || header.version != imas_abi::INDEX_VERSION {
        return unsound("magic or version");
    }
    if fnv32(zeroed.as_bytes()) != header.check {
        return unsound("check sum of the header");
    }
    let places = header.slots.saturating_add(INDEX_PROBES as u64 - 1);
    let expected = places.saturating_mul(INDEX_ENTRY_BYTES as u64).saturating_add(INDEX_HEADER_BYTES as u64);
    if !header.slots.is_power_of_two() || expected != header.file_bytes || expected != bytes as u64 {
        return unsound("its size");
    }
    Ok(())
}

fn check_entry(record: &IndexEntry) -> Result<(), IndexError> {
    let zeroed = IndexEntry { check: 0, ..record.clone() };
    if fnv32(zeroed.as_bytes()) != record.check {
        return Err(IndexError::Unsound("check sum of an entry"));
    }
    if record.candidate == 0 { Err(IndexError::Unsound("an entry without candidate")) } else { Ok(()) }
}
