// SPDX-License-Identifier: Apache-2.0
//! Blocks in the caches of threads (tcache). Each has the process's random key in its second word, and that key is
//! among the C library's variables. Which of those is the key shows in the heaps: it is the one in most blocks.

use std::collections::BTreeMap;

use super::libc::Library;

/// Words that may be the key.
#[derive(Debug, Default)]
pub(super) struct CacheKeys(Vec<u64>);

/// Bytes of blocks, by the word that may be the key.
pub(super) type KeyedBytes = BTreeMap<u64, u64>;

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

/// The key: the word in most blocks.
pub(super) fn most(keyed: &KeyedBytes) -> Option<u64> {
    keyed.iter().max_by_key(|(_, bytes)| **bytes).map(|(key, _)| *key)
}
