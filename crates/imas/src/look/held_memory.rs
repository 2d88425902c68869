// SPDX-License-Identifier: Apache-2.0
//! The memory of a process by its owners, the largest first, each with what can be done about it.

use std::path::Path;

use imas_cli::format::counted;
use imas_linux::control_group::GroupLimit;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::mapping_text;
use imas_linux::memory_parts::{MemoryParts, OwnedBytes, Owner};
use imas_linux::object_heaps::ObjectHeap;
use imas_linux::runtime::Runtime;
use serde::Serialize;

use crate::look::heap_advice::size;

/// Libraries that have an allocator inside, by a part of their names, and which.
const BUNDLED: [(&str, &str); 3] =
    [("libarrow.so", "Arrow's pools"), ("duckdb", "DuckDB's jemalloc"), ("polars", "Polars' allocator")];
const LIVE: &str = "data, or a leak: no allocator helps";

/// One part of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    /// Kind of the memory, for people.
    pub(crate) what: String,
    pub(crate) owner: Owner,
    pub(crate) resident_bytes: u64,
    pub(crate) swapped_bytes: u64,
    /// Remedy for it, with the command.
    pub(crate) remedy: String,
    /// Whether it is known who holds it, and not only that somebody mapped it.
    pub(crate) is_named: bool,
}

/// Figures that the parts are made of.
pub(crate) struct Held<'a> {
    pub(crate) pid: u32,
    pub(crate) owned: &'a MemoryParts,
    pub(crate) threads: u64,
    pub(crate) heaps: Option<&'a HeapFigures>,
    pub(crate) objects: &'a [ObjectHeap],
    pub(crate) runtime: Option<Runtime>,
    pub(crate) jvm: Option<&'a JvmHeap>,
    /// Other allocators of the process.
    pub(crate) allocators: &'a [String],
}

/// Allocators of the files that a process has mapped, beside glibc's: preloaded, linked, or inside of a library.
pub(crate) fn allocators<'a>(files: impl Iterator<Item = &'a Path>) -> Vec<String> {
    let mut found = vec![];
    for file in files {
        let name = mapping_text::file_name(file);
        let bundled =
            BUNDLED.iter().find(|(part, _)| name.contains(part)).map(|(_, what)| format!("{what} in {name}"));
        if let Some(one) =
            mapping_text::allocator(file).map(str::to_owned).or(bundled).filter(|one| !found.contains(one))
        {
            found.push(one);
        }
    }
    found
}

/// Owner of a part in words.
pub(crate) fn owner_words(owner: Owner) -> &'static str {
    match owner {
        Owner::Malloc => "glibc's heaps",
        Owner::Anonymous => "other private memory",
        Owner::MadeCode => "code that was made at run time (JIT)",
        Owner::Named => "memory that the program has named",
        Owner::Stacks => "stacks",
        Owner::Variables => "variables of the program and its libraries",
        Owner::Files => "files: code and data",
        Owner::Shared => "shared memory and memory files",
        Owner::Hook => "tables of IMAS's hook",
        Owner::Kernel => "pages of the kernel",
    }
}

/// All parts, the largest first.
pub(crate) fn parts(held: &Held<'_>) -> Vec<Part> {
    let mut parts: Vec<Part> =
        held.owned.iter().flat_map(|(owner, bytes)| of_owner(held, *owner, bytes)).collect();
    parts.retain(|part| part.resident_bytes + part.swapped_bytes > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.resident_bytes + part.swapped_bytes));
    parts
}

/// Share of resident and swapped bytes whose holder is known.
pub(crate) fn named_share(parts: &[Part]) -> f64 {
    let bytes = |part: &Part| part.resident_bytes + part.swapped_bytes;
    let all: u64 = parts.iter().map(bytes).sum();
    let named: u64 = parts.iter().filter(|part| part.is_named).map(bytes).sum();
    if all == 0 { 1.0 } else { named as f64 / all as f64 }
}

fn of_owner(held: &Held<'_>, owner: Owner, bytes: &OwnedBytes) -> Vec<Part> {
    let part = |what: String, remedy: &str| Part {
        what: what + &names(bytes),
        owner,
        resident_bytes: bytes.resident,
        swapped_bytes: bytes.swapped,
        remedy: remedy.to_owned(),
        is_named: true,
    };
    let words = || owner_words(owner).to_owned();
    vec![match owner {
        Owner::Malloc => return of_malloc(held, bytes),
        Owner::Anonymous => return of_anonymous(held, bytes),
        Owner::MadeCode => part(words(), ""),
        Owner::Named => part(words(), &runtime_remedy(held.runtime)),
        Owner::Stacks => {
            part(format!("stacks of {}", counted(held.threads, "thread")), "fewer threads hold fewer")
        }
        Owner::Variables => part(words(), ""),
        Owner::Files => part(words(), "the kernel takes these pages when it needs memory"),
        Owner::Shared => part(words(), "the program's own: no allocator helps"),
        Owner::Hook => part(words(), "they go with the trial"),
        Owner::Kernel => part(words(), ""),
    }]
}

/// The names of a part; where there are several, the large ones with their bytes.
fn names(bytes: &OwnedBytes) -> String {
    let large =
        |(name, bytes): &(String, u64)| (*bytes >= 1 << 20).then(|| format!("{name} {}", size(*bytes)));
    match bytes.largest.as_slice() {
        [(name, _)] => format!(": {name}"),
        several => {
            let list: Vec<_> = several.iter().filter_map(large).collect();
            if list.is_empty() { String::new() } else { format!(": {}", list.join(", ")) }
        }
    }
}

/// Takes as much as there is.
fn take(from: &mut u64, bytes: u64) -> u64 {
    let taken = bytes.min(*from);
    *from -= taken;
    taken
}

fn of_malloc(held: &Held<'_>, bytes: &OwnedBytes) -> Vec<Part> {
    let part = |what: &str, resident_bytes: u64, swapped_bytes: u64, remedy: String| Part {
        what: what.to_owned(),
        owner: Owner::Malloc,
        resident_bytes,
        swapped_bytes,
        remedy,
        is_named: true,
    };
    let Some(heaps) = held.heaps else {
        return vec![part(
            "glibc's heaps, live and free blocks",
            bytes.resident,
            bytes.swapped,
            String::new(),
        )];
    };
    let mut left = bytes.resident;
    let found = &heaps.bytes;
    let live = take(&mut left, found.live);
    let returnable = take(&mut left, found.returnable.saturating_add(found.shared));
    let cached = take(&mut left, found.cached);
    let tops = take(&mut left, found.top_resident);
    let unread = take(&mut left, heaps.unread);
    let pid = held.pid;
    vec![
        part("live blocks of glibc's malloc", live, bytes.swapped, LIVE.into()),
        part(
            "free blocks of glibc's malloc in whole pages",
            returnable,
            0,
            format!("'imas trim {pid}' returns them now"),
        ),
        part(
            "freed blocks that threads keep for themselves (tcache)",
            cached,
            0,
            "they go when the threads end".into(),
        ),
        part(
            "free at the ends of arenas",
            tops,
            0,
            "malloc_trim does not return them; fewer arenas have fewer: glibc:arena1".into(),
        ),
        part("glibc's heaps that were not read in time", unread, 0, String::new()),
        part(
            "free blocks of glibc's malloc between live ones in the same pages",
            left,
            0,
            "another allocator may hold less: 'imas bench -- COMMAND'".into(),
        ),
    ]
}

/// Private memory of no file, by its contents.
fn of_anonymous(held: &Held<'_>, bytes: &OwnedBytes) -> Vec<Part> {
    let mut left = bytes.resident;
    let mut parts = vec![];
    let mut add = |what: String, resident_bytes: u64, remedy: String| {
        parts.push(Part {
            what,
            owner: Owner::Anonymous,
            resident_bytes,
            swapped_bytes: 0,
            remedy,
            is_named: true,
        });
    };
    if let Some(heaps) = held.heaps {
        let mapped = take(&mut left, heaps.mapped);
        add("large live blocks of glibc's malloc, each in a mapping of its own".into(), mapped, LIVE.into());
    }
    for heap in held.objects {
        let live = take(&mut left, heap.live);
        let rest = take(&mut left, heap.resident.saturating_sub(heap.live));
        let name = &heap.runtime;
        add(format!("objects of {name}"), live, "the program's data: no allocator helps".into());
        add(
            format!("free places and heads between objects of {name}"),
            rest,
            format!("{name} uses them again; no allocator helps"),
        );
    }
    if let Some(jvm) = held.jvm {
        let heap = take(&mut left, jvm.committed);
        let what = format!("heap of the JVM ({} after the last collection)", size(jvm.after_collection));
        add(what, heap, "settings of the JVM: 'imas advise'".into());
    }
    let (what, is_named) = rest_words(held);
    let remedy =
        if is_named && held.allocators.is_empty() { runtime_remedy(held.runtime) } else { String::new() };
    let (resident_bytes, swapped_bytes) = (left, bytes.swapped);
    parts.push(Part { what, owner: Owner::Anonymous, resident_bytes, swapped_bytes, remedy, is_named });
    parts
}

/// Who holds the private memory in which nothing was recognised, and whether that is known.
fn rest_words(held: &Held<'_>) -> (String, bool) {
    match (held.allocators, held.runtime) {
        ([], None) => ("other private memory that the program or a library has mapped itself".into(), false),
        ([], Some(runtime)) => {
            (format!("other private memory of {}: its heap and tables", runtime.name()), true)
        }
        (several, None) => (format!("heaps of {}", several.join(", ")), true),
        (several, Some(runtime)) => {
            (format!("heaps of {} and of {}", several.join(", "), runtime.name()), true)
        }
    }
}

fn runtime_remedy(runtime: Option<Runtime>) -> String {
    runtime
        .map_or_else(String::new, |_| "settings of the runtime: 'imas explain PROGRAM' lists them".to_owned())
}

/// A warning where the heap of the runtime may grow beyond what the container's limit leaves.
pub(crate) fn limit_words(limit: &GroupLimit, resident: u64, jvm: Option<&JvmHeap>) -> String {
    let share = limit.used as f64 / limit.limit as f64 * 100.0;
    let words = format!("limit of its control group: {}, {share:.0} % used", size(limit.limit));
    let Some((jvm, most)) = jvm.and_then(|jvm| Some((jvm, jvm.limit?))) else { return words };
    let beside = resident.saturating_sub(jvm.committed.min(resident));
    let heap = format!(
        "; the heap may take {} ({:.0} % of the limit), beside {} of native memory, stacks and files",
        size(most),
        most as f64 / limit.limit as f64 * 100.0,
        size(beside)
    );
    let is_over = most.saturating_add(beside) > limit.limit;
    words + &heap + if is_over { ": it will be killed if the heap fills (less: -Xmx)" } else { "" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use imas_linux::heap::figures::HeapBytes;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn owned(owner: Owner, resident: u64) -> (Owner, OwnedBytes) {
        (owner, OwnedBytes { resident, ..OwnedBytes::default() })
    }

    fn heaps() -> HeapFigures {
        let bytes = HeapBytes {
            live: 50 * MIB,
            cached: MIB,
            free: 45 * MIB,
            returnable: 30 * MIB,
            ..HeapBytes::default()
        };
        HeapFigures { held: 100 * MIB, read: 100 * MIB, mapped: 20 * MIB, bytes, ..HeapFigures::default() }
    }

    fn held<'a>(owned: &'a MemoryParts, heaps: &'a HeapFigures, objects: &'a [ObjectHeap]) -> Held<'a> {
        Held {
            pid: 7,
            owned,
            threads: 2,
            heaps: Some(heaps),
            objects,
            runtime: None,
            jvm: None,
            allocators: &[],
        }
    }

    #[test]
    fn each_byte_is_in_one_part_and_the_largest_comes_first() {
        let owned: MemoryParts = BTreeMap::from([
            owned(Owner::Malloc, 90 * MIB),
            owned(Owner::Anonymous, 60 * MIB),
            owned(Owner::Files, MIB),
        ]);
        let objects = [ObjectHeap {
            runtime: "CPython".into(),
            resident: 30 * MIB,
            live: 25 * MIB,
            ..ObjectHeap::default()
        }];
        let heaps = heaps();
        let parts = parts(&held(&owned, &heaps, &objects));
        let mib: Vec<_> = parts.iter().map(|part| part.resident_bytes / MIB).collect();
        assert_eq!(mib, [50, 30, 25, 20, 10, 9, 5, 1, 1], "{parts:#?}");
        assert!(parts[0].remedy == LIVE && parts[1].remedy.contains("'imas trim 7'"));
        let unknown: Vec<_> = parts.iter().filter(|part| !part.is_named).collect();
        assert_eq!((unknown.len(), unknown[0].resident_bytes), (1, 10 * MIB));
        assert!((named_share(&parts) - 141.0 / 151.0).abs() < 1e-9);
    }

    #[test]
    fn a_heap_that_fills_its_container_is_warned_about() {
        let limit = GroupLimit { limit: 1000 * MIB, used: 700 * MIB };
        let jvm = JvmHeap {
            collector: "x".into(),
            collections: 1,
            committed: 500 * MIB,
            after_collection: MIB,
            classes: 0,
            limit: Some(800 * MIB),
        };
        let says = limit_words(&limit, 750 * MIB, Some(&jvm));
        assert!(says.contains("80 % of the limit") && says.contains("it will be killed"), "{says}");
        assert!(!limit_words(&limit, 600 * MIB, Some(&jvm)).contains("killed"));
        assert!(limit_words(&limit, 600 * MIB, None).ends_with("70 % used"));
    }
}
