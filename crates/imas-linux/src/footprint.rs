// SPDX-License-Identifier: Apache-2.0
//! Memory of one counted process as its hook sees it, looked at from outside.

use std::io::Result;

use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use rustix::process::{Resource, getrlimit};

use crate::environment::HOOK;
use crate::library_name::file_name;
use crate::living_thread;
use crate::mapping_text::{of_task, with_neighbours};

/// Memory of one process, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Anonymous memory less what was given back lazily, and swap; the hook's tables left out. Pages shared
    /// by fork count in parts.
    pub resident: u64,
    /// rw-p anonymous and `[heap]` mappings, the stacks of threads and the hook's tables left out.
    pub heap: u64,
}

/// What libc gives to the stacks of threads where the limit is none, on most machines.
const UNLIMITED: u64 = 2 << 20;
/// Guards of thread stacks are no larger.
const LARGEST_GUARD: u64 = 1 << 20;

impl Footprint {
    /// Footprint of a process; None when it is gone or not ours to look at.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let total = crate::sampler::resident_bytes(pid)?;
        let stack = getrlimit(Resource::Stack).current.unwrap_or(UNLIMITED);
        let of_one = |task| sum(of_task(task, "smaps").ok()?, stack).ok()?;
        let found = living_thread::ask(pid, of_one)?;
        Some(Self { resident: total.saturating_sub(found.tables_resident), heap: found.heap })
    }
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Sum {
    heap: u64,
    tables_resident: u64,
}

/// None where nothing is mapped. `stack` is the size that libc gives to the stacks of threads, guard included.
fn sum(maps: impl Iterator<Item = Result<MemoryMap>>, stack: u64) -> Result<Option<Sum>> {
    let mut sum: Option<Sum> = None;
    with_neighbours(maps, |below, map, _| {
        let sum = sum.get_or_insert_default();
        if !is_heap(map) {
            return;
        }
        if below.is_some_and(|below| is_hook(below) && below.address.1 == map.address.0) {
            sum.tables_resident += map.extension.map.get("Pss").copied().unwrap_or(0);
        } else if !below.is_some_and(|below| is_stack(map, below, stack)) {
            sum.heap += size(map);
        }
    })?;
    Ok(sum)
}

fn size(map: &MemoryMap) -> u64 {
    map.address.1.saturating_sub(map.address.0)
}

fn is_heap(map: &MemoryMap) -> bool {
    let named = match &map.pathname {
        MMapPath::Anonymous | MMapPath::Heap => true,
        MMapPath::Other(name) => name.starts_with("anon:"),
        _ => false,
    };
    named && map.perms == MMPermissions::READ | MMPermissions::WRITE | MMPermissions::PRIVATE
}

pub(crate) fn is_hook(map: &MemoryMap) -> bool {
    matches!(&map.pathname, MMapPath::Path(path) if file_name(path) == HOOK)
}

/// A guard lies right below, and both together have the size of a stack.
pub(crate) fn is_stack(map: &MemoryMap, below: &MemoryMap, stack: u64) -> bool {
    below.perms == MMPermissions::PRIVATE
        && below.address.1 == map.address.0
        && size(below) <= LARGEST_GUARD
        && (size(map) == stack || size(map) + size(below) == stack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping_text::mappings;

    const STACK: u64 = 8 << 20;

    #[test]
    fn stacks_and_the_hook_are_no_heap() {
        let maps = concat!(
            "00001000-00003000 rw-p 00000000 00:00 0 [heap]\n",
            "10000000-10001000 ---p 00000000 00:00 0 \n",
            "10001000-10801000 rw-p 00000000 00:00 0 \n",
            "20000000-20005000 rw-p 00000000 00:00 0 [anon:pool]\n",
            "30000000-30001000 rw-p 00000000 08:01 7 /usr/lib/imas/libimas.so\n",
            "30001000-30108000 rw-p 00000000 00:00 0 \n",
            "Pss: 12 kB\n",
            "40000000-40001000 r--p 00000000 00:00 0 \n",
            "50000000-50004000 rw-s 00000000 00:00 0 \n",
            "60000000-60001000 rw-p 00000000 00:00 0 [stack]\n",
        );
        let expected = Sum { heap: 0x2000 + 0x5000, tables_resident: 12 << 10 };
        assert_eq!(sum(mappings(maps.as_bytes()), STACK).unwrap(), Some(expected));
        assert_eq!(sum(mappings(&b""[..]), STACK).unwrap(), None);
    }

    #[test]
    fn this_process_has_a_footprint() {
        let block = std::hint::black_box(vec![1u8; 32 << 20]); // in a release build it would not be there
        let found = Footprint::of(std::process::id()).unwrap();
        assert!(found.resident > 32 << 20 && found.heap > 32 << 20, "{found:?}");
        drop(std::hint::black_box(block));
        assert_eq!(Footprint::of(u32::MAX), None);
    }
}
