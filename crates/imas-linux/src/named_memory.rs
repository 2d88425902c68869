// SPDX-License-Identifier: Apache-2.0
//! Resident memory under the names that a program gives its mappings (`PR_SET_VMA_ANON_NAME`): runtimes name theirs.

use std::collections::BTreeMap;

use imas_core::printable;
use procfs::process::{MMapPath, MemoryMap};

use crate::foreign_process::{ForeignFile, mappings};

/// Most names that are counted one by one: a process may give each mapping a name of its own.
const MOST_NAMES: usize = 32;

/// Resident bytes by name, the largest first. Empty where nothing is named, or the process is not ours to look at.
#[must_use]
pub fn of(pid: u32) -> Vec<(String, u64)> {
    let maps = mappings(pid, ForeignFile::Smaps);
    maps.map(|maps| sums(maps.iter())).unwrap_or_default()
}

fn sums<'a>(maps: impl Iterator<Item = &'a MemoryMap>) -> Vec<(String, u64)> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for map in maps {
        let MMapPath::Other(name) = &map.pathname else { continue };
        let Some(name) = name.strip_prefix("anon:") else { continue };
        let resident = map.extension.map.get("Rss").copied().unwrap_or(0);
        let name = printable::name(name).into_owned();
        if resident > 0 && (sums.len() < MOST_NAMES || sums.contains_key(&name)) {
            *sums.entry(name).or_default() += resident;
        }
    }
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::FromRead as _;
    use procfs::process::MemoryMaps;

    #[test]
    fn mappings_of_one_name_are_added_up() {
        let text = "10000000-10001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n\
                    20000000-20001000 rw-p 00000000 00:00 0 \nRss: 8 kB\n\
                    30000000-30001000 rw-p 00000000 00:00 0 [anon:v8]\nRss: 12 kB\n\
                    40000000-40001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n";
        let maps = MemoryMaps::from_read(text.as_bytes()).unwrap().0;
        let names = sums(maps.iter());
        assert_eq!(names, [(" Go: heap".to_owned(), 16 << 10), ("v8".to_owned(), 12 << 10)]);
    }
}
