// SPDX-License-Identifier: Apache-2.0
//! Blocks in the caches of threads (tcache). Each has the process's random key in its second word, and that key is
//! among the C library's variables. Which of those is the key shows in the heaps: it is the one in most blocks.

use std::collections::BTreeMap;

use super::libc::Library;

/// Words that may be the key.
#[derive(Debug, Default)]
pub(super) struct CacheKeys(Vec<u64>);

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

    pub(super) fn of(&self, key: u64) -> u64 {
        self.0.get(&key).copied().unwrap_or(0)
    }

    /// The key: the word in most blocks.
    pub(super) fn most(&self) -> Option<u64> {
        self.0.iter().max_by_key(|(_, bytes)| **bytes).map(|(key, _)| *key)
    }
}

impl CacheKeys {
    pub(super) fn of(library: &Library) -> Self {
        let words = library.data.iter().flat_map(|(_, words)| words);
        let mut keys: Vec<u64> = words.copied().filter(|word| is_random(*word)).collect();
        keys.sort_unstable();
        keys.dedup();
        Self(keys)
    }

    pub(super) fn has(&self, word: u64) -> bool {
        is_random(word) && self.0.binary_search(&word).is_ok()
    }
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
