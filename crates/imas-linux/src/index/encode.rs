// SPDX-License-Identifier: Apache-2.0
//! Writing the index.

use std::collections::HashSet;

use imas_abi::{INDEX_ENTRY_BYTES, INDEX_HEADER_BYTES, INDEX_PROBES, IndexEntry, IndexHeader, index_flag};
use zerocopy::{FromZeros, IntoBytes};

use super::entry::{Entry, key};
use super::error::IndexError;
use super::facts::Facts;
use crate::fnv::{fnv32, fnv64};

/// An index beyond this many slots is refused: 512 MiB of tmpfs for four million programs.
const MOST_SLOTS: u64 = 1 << 22;
/// The bytes of an index.
///
/// # Errors
/// When two entries have the same key, one has no candidate, or there are too many.
pub fn encode(entries: &[Entry], facts: &Facts) -> Result<Vec<u8>, IndexError> {
    let records = records(entries)?;
    let least = (records.len() as u64 * 2).next_power_of_two().max(1);
    let sizes = std::iter::successors(Some(least), |slots| slots.checked_mul(2));
    let placed = sizes.take_while(|slots| *slots <= MOST_SLOTS).find_map(|slots| place(&records, slots));
    let (slots, table) = placed.ok_or(IndexError::TooMany(entries.len()))?;
    let header = header(facts, slots, entries.len(), table.len())?;
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
/// the farthest nearer. `None` when a record would be too far away.
fn place(records: &[IndexEntry], slots: u64) -> Option<(u64, Vec<u8>)> {
    let mut homes: Vec<_> = records.iter().map(|record| (fnv64(key(record)) & (slots - 1), record)).collect();
    homes.sort_by(|a, b| (a.0, key(a.1)).cmp(&(b.0, key(b.1))));
    let places = usize::try_from(slots).ok()? + INDEX_PROBES - 1;
    let mut table = vec![0; places * INDEX_ENTRY_BYTES];
    let mut next = 0;
    for (home, record) in homes {
        let home = usize::try_from(home).ok()?;
        let slot = home.max(next);
        if slot - home >= INDEX_PROBES {
            return None;
        }
        let at = slot * INDEX_ENTRY_BYTES;
        table.get_mut(at..at + INDEX_ENTRY_BYTES)?.copy_from_slice(record.as_bytes());
        next = slot + 1;
    }
    Some((slots, table))
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
