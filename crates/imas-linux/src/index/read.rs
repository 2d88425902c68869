// SPDX-License-Identifier: Apache-2.0
//! Reading the index, for tools.

use std::collections::HashSet;
use std::path::Path;

use imas_abi::{
    ANY_UID, INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_PROBES, IndexEntry, IndexHeader, index_flag,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{Detail, Entry, Facts, IndexError, key};
use crate::c_bytes::{fnv32, fnv64, text};
use crate::files::{self, Executable};

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
        let bytes = files::read_plain(path, MOST_BYTES)
            .map_err(|error| IndexError::Io { path: path.to_owned(), error })?;
        Self::decode(&bytes)
    }

    /// Checks the bytes of an index.
    ///
    /// # Errors
    /// The fault of the bytes.
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

/// An index beyond this many slots is refused: 512 MiB of tmpfs for four million programs.
const MOST_SLOTS: u64 = 1 << 22;
/// Number of sizes that are tried, each twice the one before. Keys that do not fit then were chosen to have one home.
const MOST_SIZES: usize = 3;

/// The bytes of an index. Where users have chosen what their programs are found by so that not all entries fit, some of
/// these users' are left out.
///
/// # Errors
/// When two entries have the same key, one has no candidate, or there are too many.
pub fn encode(entries: &[Entry], facts: &Facts) -> Result<Vec<u8>, IndexError> {
    let mut records = records(entries)?;
    let least = (records.len() as u64 * 2).next_power_of_two().max(1);
    let sizes = std::iter::successors(Some(least), |slots| slots.checked_mul(2));
    let sizes: Vec<u64> = sizes.take(MOST_SIZES).take_while(|slots| *slots <= MOST_SLOTS).collect();
    let largest = *sizes.last().ok_or(IndexError::TooMany(entries.len()))?;
    let placed = sizes.into_iter().find_map(|slots| Some((slots, place(&records, slots).ok()?)));
    let (slots, table) = placed.unwrap_or_else(|| (largest, place_most(&mut records, largest)));
    let header = header(facts, slots, records.len(), table.len())?;
    Ok([header.as_bytes(), &table].concat())
}

fn records(entries: &[Entry]) -> Result<Vec<IndexEntry>, IndexError> {
    let mut keys = HashSet::new();
    let mut records = Vec::with_capacity(entries.len());
    for entry in entries {
        let record = entry.record();
        if record.candidate == 0 {
            return Err(IndexError::NoCandidate(Box::new(entry.clone())));
        }
        if !keys.insert(key(&record).to_vec()) {
            return Err(IndexError::Twice(Box::new(entry.clone())));
        }
        records.push(record);
    }
    Ok(records)
}

/// Places each record in the first free slot from its home on, in the order of homes: no other order keeps
/// the farthest nearer. The error is a crowd that does not fit: a record that would be too far away and those
/// right before it, by their numbers.
fn place(records: &[IndexEntry], slots: u64) -> Result<Vec<u8>, Vec<usize>> {
    let number = |of: u64| usize::try_from(of).unwrap_or(0); // at most MOST_SLOTS
    let home = |record: &IndexEntry| number(fnv64(key(record)) & (slots - 1));
    let mut homes: Vec<_> =
        records.iter().enumerate().map(|(at, record)| (home(record), record, at)).collect();
    homes.sort_by(|a, b| (a.0, key(a.1)).cmp(&(b.0, key(b.1))));
    let mut table = vec![0; (number(slots) + INDEX_PROBES - 1) * INDEX_ENTRY_BYTES];
    let mut next = 0;
    for (nth, (home, record, _)) in homes.iter().enumerate() {
        let slot = (*home).max(next);
        if slot - home >= INDEX_PROBES {
            let crowd = homes.iter().take(nth + 1).rev().take(INDEX_PROBES + 1);
            return Err(crowd.map(|(_, _, at)| *at).collect());
        }
        let at = slot * INDEX_ENTRY_BYTES;
        if let Some(place) = table.get_mut(at..at + INDEX_ENTRY_BYTES) {
            place.copy_from_slice(record.as_bytes());
        }
        next = slot + 1;
    }
    Ok(table)
}

/// Leaves records out until all others have a place.
fn place_most(records: &mut Vec<IndexEntry>, slots: u64) -> Vec<u8> {
    loop {
        match place(records, slots) {
            Ok(table) => return table,
            Err(crowd) => {
                let out = giving_way(records, &crowd);
                let mut numbers = 0..records.len();
                records.retain(|_| numbers.next().is_some_and(|at| !out.contains(&at)));
            }
        }
    }
}

/// Numbers of those records of a crowd that give way: of the users who have the most in it, else of one that is
/// everybody's.
fn giving_way(records: &[IndexEntry], crowd: &[usize]) -> Vec<usize> {
    let user = |at: usize| records.get(at).map(|record| record.uid).filter(|uid| *uid != ANY_UID);
    let count = |uid: u32| crowd.iter().filter(|at| user(**at) == Some(uid)).count();
    match crowd.iter().filter_map(|at| user(*at)).map(count).max() {
        Some(most) => {
            let is_out = |at: &usize| user(*at).is_some_and(|uid| count(uid) == most);
            crowd.iter().copied().filter(is_out).collect()
        }
        None => crowd.iter().copied().take(1).collect(),
    }
}

fn header(facts: &Facts, slots: u64, entries: usize, table: usize) -> Result<IndexHeader, IndexError> {
    let mut header = IndexHeader::new_zeroed();
    header.magic = imas_abi::INDEX_MAGIC;
    header.version = imas_abi::INDEX_VERSION;
    header.file_bytes = (INDEX_HEADER_BYTES + table) as u64;
    header.generation = facts.generation;
    header.catalogue_id = facts.catalogue_id;
    header.made_boot_ns = facts.made_boot_ns;
    header.slots = slots;
    header.entries = entries as u64;
    header.flags = if facts.disabled { index_flag::DISABLED } else { 0 };
    let room = header.boot_id.len() - 1;
    let text = facts.boot_id.as_bytes();
    let field = header.boot_id.get_mut(..text.len()).filter(|_| !text.is_empty() && text.len() <= room);
    field.ok_or_else(|| IndexError::BootId(facts.boot_id.clone()))?.copy_from_slice(text);
    header.check = fnv32(header.as_bytes());
    Ok(header)
}
