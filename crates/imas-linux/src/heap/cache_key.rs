// SPDX-License-Identifier: Apache-2.0
//! Blocks in the caches of threads (tcache). Each has a key in its second word. Since glibc 2.34 that is the process's
//! random one, which is among the C library's variables; which of those shows in the heaps: it is the one in most
//! blocks. From 2.29 to 2.33 it is the address of the record of the thread's cache, which is a block like others: it is
//! known by its size, and by what is in it. A block whose cache lies in a heap that is read later counts as live.

use std::collections::BTreeMap;
use std::ops::Range;

use super::layout::{CacheKey, CacheRecord, USER};
use super::libc::Library;
use super::stop::Stop;
use super::window::Window;

/// Words that may be the key.
#[derive(Debug)]
pub(super) struct CacheKeys {
    kind: CacheKey,
    /// Random words, in their order.
    words: Vec<u64>,
}

/// Greatest number of words that are counted as possible keys. In an honest heap few words beside the key are among the
/// C library's variables.
const MOST_KEYS: usize = 64;

/// Bytes of blocks, by the word that may be the key.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyedBytes(BTreeMap<u64, u64>);

impl KeyedBytes {
    /// Adds the bytes of a block. A new word beyond the most is left out.
    pub(super) fn add(&mut self, key: u64, bytes: u64) {
        if self.0.len() < MOST_KEYS || self.0.contains_key(&key) {
            let sum = self.0.entry(key).or_default();
            *sum = sum.saturating_add(bytes);
        }
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|(key, bytes)| self.add(*key, *bytes));
    }

    fn of(&self, key: u64) -> u64 {
        self.0.get(&key).copied().unwrap_or(0)
    }

    fn knows(&self, key: u64) -> bool {
        self.0.contains_key(&key)
    }

    /// The key: the word in most blocks.
    fn most(&self) -> Option<u64> {
        self.0.iter().max_by_key(|(_, bytes)| **bytes).map(|(key, _)| *key)
    }
}

impl CacheKeys {
    pub(super) fn of(library: &Library) -> Self {
        let words = library.data.iter().flat_map(|(_, words)| words);
        let mut keys: Vec<u64> = words.copied().filter(|word| is_random(*word)).collect();
        keys.sort_unstable();
        keys.dedup();
        Self { kind: library.layout.cache_key, words: keys }
    }

    /// Adds a used block, if it may be one in a cache. It may be the record of a cache itself, which is noted.
    pub(super) fn note(
        &self,
        chunk: Range<u64>,
        key: u64,
        window: &mut Window<'_>,
        keyed: &mut KeyedBytes,
    ) -> Result<(), Stop> {
        let bytes = chunk.end - chunk.start;
        match self.kind {
            CacheKey::Random if is_random(key) && self.words.binary_search(&key).is_ok() => {
                keyed.add(key, bytes)
            }
            CacheKey::Record(record) if bytes == record.chunk() => {
                let at = chunk.start + USER;
                if is_record(record, at, window)? {
                    keyed.add(at, 0);
                }
            }
            CacheKey::Record(_) if keyed.knows(key) => keyed.add(key, bytes),
            _ => {}
        }
        Ok(())
    }

    /// Bytes that caches hold, of a part of all blocks.
    pub(super) fn bytes(&self, part: &KeyedBytes, all: &KeyedBytes) -> u64 {
        match self.kind {
            CacheKey::Random => all.most().map_or(0, |key| part.of(key)),
            _ => part.0.values().fold(0, |sum, bytes| sum.saturating_add(*bytes)),
        }
    }
}

/// Whether this is the record of a cache that has blocks: where it has some of a size it has a first one.
fn is_record(record: CacheRecord, at: u64, window: &mut Window<'_>) -> Result<bool, Stop> {
    let mut has_blocks = false;
    for size in 0..CacheRecord::SIZES {
        let place = at + size * record.count;
        let bits = 8 * record.count;
        let word = window.word(place - place % 8)?;
        let count = (word >> (8 * (place % 8))) & ((1 << bits) - 1);
        let first = window.word(at + record.blocks() + 8 * size)?;
        if (count == 0) != (first == 0) || !first.is_multiple_of(USER) {
            return Ok(false);
        }
        has_blocks |= count != 0;
    }
    Ok(has_blocks)
}

/// Whether the word is neither a small number nor an address.
fn is_random(word: u64) -> bool {
    let high = word >> 48;
    high != 0 && high != 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enemy_with_a_million_words_gets_room_for_a_few() {
        let mut keyed = KeyedBytes::default();
        keyed.add(7 << 48, 32);
        (0..1_000_000).for_each(|word| keyed.add(word, 16));
        keyed.add(7 << 48, 32);
        let mut sum = KeyedBytes::default();
        sum.add_all(&keyed);
        assert_eq!((keyed.0.len(), sum.most(), sum.of(7 << 48)), (MOST_KEYS, Some(7 << 48), 64));
    }
}
