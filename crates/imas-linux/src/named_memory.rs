// SPDX-License-Identifier: Apache-2.0
//! Resident memory under the names that a program gives its mappings (`PR_SET_VMA_ANON_NAME`): runtimes name theirs.

use std::collections::BTreeMap;
use std::io::{Error, Result};

use imas_core::printable;
use procfs::process::{MMapPath, MemoryMap};

use crate::mapping_text::of_task;

/// Most names that are counted one by one: a process may give each mapping a name of its own.
const MOST_NAMES: usize = 32;

/// The sums of a task as a text ([`crate::process_mappings`]). All is read in this very process.
pub(crate) fn text_of(task: u32) -> Result<Vec<u8>> {
    serde_json::to_vec(&sums(of_task(task, "smaps")?)?).map_err(Error::other)
}

fn sums(maps: impl Iterator<Item = Result<MemoryMap>>) -> Result<Vec<(String, u64)>> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for map in maps {
        let map = map?;
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
    Ok(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_one_name_are_added_up() {
        let text = "10000000-10001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n\
                    20000000-20001000 rw-p 00000000 00:00 0 \nRss: 8 kB\n\
                    30000000-30001000 rw-p 00000000 00:00 0 [anon:v8]\nRss: 12 kB\n\
                    40000000-40001000 rw-p 00000000 00:00 0 [anon: Go: heap]\nRss: 8 kB\n";
        let names = sums(crate::mapping_text::mappings(text.as_bytes())).unwrap();
        assert_eq!(names, [(" Go: heap".to_owned(), 16 << 10), ("v8".to_owned(), 12 << 10)]);
    }
}
