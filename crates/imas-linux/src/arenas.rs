// SPDX-License-Identifier: Apache-2.0
//! Arenas of glibc's malloc in a running process, as its mappings show them from outside.
//!
//! Every arena but the first lives in heaps of 64 MiB at most, each at an address that is a multiple of 64
//! MiB: a writable part at the bottom, and the rest reserved without any rights. The first arena lives in
//! `[heap]`.

use std::io::{Error, ErrorKind, Result};

use procfs::process::{MMPermissions, MMapPath, MemoryMap};

use crate::mapping_text::{of_task, with_neighbours};

/// `HEAP_MAX_SIZE` of glibc on 64-bit machines.
const HEAP_BYTES: u64 = 64 << 20;
/// Most heaps that are listed: 4 TiB.
const MOST_HEAPS: usize = 1 << 16;

/// Bytes of `[heap]` and of each other heap of a task, as a text ([`crate::process_mappings`]). All is read in this very process.
pub(crate) fn text_of(task: u32) -> Result<Vec<u8>> {
    let sums = sums(of_task(task, "smaps")?)?;
    if sums.1.len() > MOST_HEAPS {
        return Err(ErrorKind::FileTooLarge.into());
    }
    serde_json::to_vec(&sums).map_err(Error::other)
}

fn sums(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<(u64, Vec<u64>)> {
    let (mut main, mut heaps) = (0, vec![]);
    with_neighbours(maps, |_, map, next| {
        if map.pathname == MMapPath::Heap {
            main += anonymous(map);
        } else if is_heap(map, next) && heaps.len() <= MOST_HEAPS {
            heaps.push(anonymous(map));
        }
    })?;
    Ok((main, heaps))
}

pub(crate) fn is_heap(map: &MemoryMap, next: Option<&MemoryMap>) -> bool {
    let (begin, end) = map.address;
    let writable = MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE;
    let is_candidate = map.pathname == MMapPath::Anonymous
        && map.perms == writable
        && begin % HEAP_BYTES == 0
        && end - begin <= HEAP_BYTES;
    let reserve_ends =
        |next: &MemoryMap| next.perms == MMPermissions::PRIVATE && next.address == (end, begin + HEAP_BYTES);
    is_candidate && (end - begin == HEAP_BYTES || next.is_some_and(reserve_ends))
}

/// Bytes of an anonymous mapping, counted as in [`crate::sampler`]: what was shared by fork in parts, and nothing
/// that was given back lazily.
fn anonymous(map: &MemoryMap) -> u64 {
    let field = |name: &str| map.extension.map.get(name).copied().unwrap_or(0);
    (field("Pss") + field("SwapPss")).saturating_sub(field("LazyFree"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    #[test]
    fn a_heap_is_aligned_and_has_its_reserve_above() {
        let maps = mappings(
            concat!(
                "00001000-00003000 rw-p 00000000 00:00 0 [heap]\n",
                "Pss: 8 kB\n",
                "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n",
                "Pss: 100 kB\nLazyFree: 40 kB\n",
                "7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n",
                "7f0008000000-7f000c000000 rw-p 00000000 00:00 0 \n",
                "Pss: 20 kB\n",
                // Aligned by chance, without the reserve; and one that is not aligned.
                "7f0010000000-7f0010021000 rw-p 00000000 00:00 0 \n",
                "7f0020001000-7f0020021000 rw-p 00000000 00:00 0 \n",
                "7f0020021000-7f0024001000 ---p 00000000 00:00 0 \n",
            )
            .as_bytes(),
        );
        assert_eq!(sums(maps).unwrap(), (8 << 10, vec![60 << 10, 20 << 10]));
    }
}
