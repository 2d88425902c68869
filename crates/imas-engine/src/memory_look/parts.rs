// SPDX-License-Identifier: Apache-2.0
//! The memory of a process by its owners, the largest first, each with what can be done about it.

use imas_core::printable::counted;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::memory_parts::{OwnedBytes, Owner};
use imas_linux::other_heaps::OtherHeap;
use imas_linux::runtime::Runtime;
use serde::Serialize;

use super::ProcessLook;
use super::remedy::{TrimOutlook, runtime_remedy};
use super::verdict::size;

const LIVE: &str = "data, or a leak: no allocator helps";

/// Kind of a part: the label of its figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartKind {
    /// Live blocks of glibc's malloc.
    Live,
    /// Live blocks of glibc's malloc with mappings of their own.
    LiveMapped,
    /// Free blocks in whole pages, which a trim returns.
    Returnable,
    /// Caches of threads.
    ThreadCaches,
    /// Free ends of arenas.
    ArenaEnds,
    /// Free blocks between live ones.
    Between,
    /// Heaps of glibc that were not looked into.
    Unread,
    /// Objects of a runtime.
    Objects,
    /// Free places between such objects.
    ObjectsFree,
    /// Heap of a JVM.
    JvmHeap,
    /// Live blocks of allocators beside glibc's.
    OtherLive,
    /// Free blocks of allocators beside glibc's.
    OtherFree,
    /// Heaps of allocators beside glibc's, as far as they are not counted.
    OtherAllocators,
    /// Private memory in which nothing was recognised.
    OtherPrivate,
    /// Code that was made at run time.
    MadeCode,
    /// Memory that the program has named.
    Named,
    /// Stacks.
    Stacks,
    /// Variables of the program and its libraries.
    Variables,
    /// Files.
    Files,
    /// Shared memory and memory files.
    Shared,
    /// Tables of the hook.
    Hook,
    /// Pages of the kernel.
    Kernel,
}

impl PartKind {
    /// The kind as a label.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::LiveMapped => "live-mapped",
            Self::Returnable => "returnable",
            Self::ThreadCaches => "thread-caches",
            Self::ArenaEnds => "arena-ends",
            Self::Between => "between",
            Self::Unread => "unread",
            Self::Objects => "objects",
            Self::ObjectsFree => "objects-free",
            Self::JvmHeap => "jvm-heap",
            Self::OtherLive => "other-live",
            Self::OtherFree => "other-free",
            Self::OtherAllocators => "other-allocators",
            Self::OtherPrivate => "other-private",
            Self::MadeCode => "made-code",
            Self::Named => "named",
            Self::Stacks => "stacks",
            Self::Variables => "variables",
            Self::Files => "files",
            Self::Shared => "shared",
            Self::Hook => "hook",
            Self::Kernel => "kernel",
        }
    }
}

/// One part of the memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryPart {
    /// Kind of the part.
    pub kind: PartKind,
    /// Kind of the memory, for people.
    pub what: String,
    /// Owner of the mappings.
    pub owner: Owner,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Bytes that are swapped out.
    pub swapped_bytes: u64,
    /// Remedy for it, with the command.
    pub remedy: String,
    /// Whether it is known who holds it, and not only that somebody mapped it.
    pub is_named: bool,
}

impl MemoryPart {
    /// The part as a clause: `50 MiB: live blocks of glibc's malloc`.
    #[must_use]
    pub fn words(&self) -> String {
        let unknown = if self.is_named { "" } else { "not known: " };
        format!("{}: {unknown}{}", size(self.resident_bytes + self.swapped_bytes), self.what)
    }
}

/// Owner of a part in words.
#[must_use]
pub fn owner_words(owner: Owner) -> &'static str {
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
pub(super) fn parts(look: &ProcessLook) -> Vec<MemoryPart> {
    // What one of them counts may lie in `[heap]` and in mappings of its own.
    let mut others = look.others.clone();
    let owned = look.memory.parts.iter();
    let mut parts: Vec<MemoryPart> =
        owned.flat_map(|(owner, bytes)| of_owner((look, &mut others), *owner, bytes)).collect();
    parts.retain(|part| part.resident_bytes + part.swapped_bytes > 0);
    parts.sort_by_key(|part| std::cmp::Reverse(part.resident_bytes + part.swapped_bytes));
    parts
}

/// Share of resident and swapped bytes whose holder is known.
pub(super) fn named_share(parts: &[MemoryPart]) -> f64 {
    let bytes = |part: &MemoryPart| part.resident_bytes + part.swapped_bytes;
    let all: u64 = parts.iter().map(bytes).sum();
    let named: u64 = parts.iter().filter(|part| part.is_named).map(bytes).sum();
    if all == 0 { 1.0 } else { named as f64 / all as f64 }
}

fn of_owner(
    (look, others): (&ProcessLook, &mut [OtherHeap]),
    owner: Owner,
    bytes: &OwnedBytes,
) -> Vec<MemoryPart> {
    let (kind, what, remedy) = match owner {
        Owner::Malloc => return of_malloc(look, others, bytes),
        Owner::Anonymous => return of_anonymous(look, others, bytes),
        Owner::MadeCode => (PartKind::MadeCode, None, String::new()),
        Owner::Named => (PartKind::Named, None, runtime_remedy(look.about.runtime())),
        Owner::Stacks => {
            let what = format!("stacks of {}", counted(look.about.threads, "thread"));
            (PartKind::Stacks, Some(what), "fewer threads hold fewer".to_owned())
        }
        Owner::Variables => (PartKind::Variables, None, String::new()),
        Owner::Files => {
            (PartKind::Files, None, "the kernel takes these pages when it needs memory".to_owned())
        }
        Owner::Shared => (PartKind::Shared, None, "the program's own: no allocator helps".to_owned()),
        Owner::Hook => (PartKind::Hook, None, "they go with the trial".to_owned()),
        Owner::Kernel => (PartKind::Kernel, None, String::new()),
    };
    vec![MemoryPart {
        kind,
        what: what.unwrap_or_else(|| owner_words(owner).to_owned()) + &names(bytes),
        owner,
        resident_bytes: bytes.resident,
        swapped_bytes: bytes.swapped,
        remedy,
        is_named: true,
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

/// Parts of one owner, which take their bytes one after the other.
struct Divided {
    owner: Owner,
    left: u64,
    parts: Vec<MemoryPart>,
}

impl Divided {
    fn of(owner: Owner, bytes: &OwnedBytes) -> Self {
        Self { owner, left: bytes.resident, parts: vec![] }
    }

    /// Adds what other allocators count, as far as there is room.
    fn add_others(&mut self, others: &mut [OtherHeap]) {
        for heap in others {
            let words = heap.words();
            let caches = if heap.has_caches { ", and free ones in its caches" } else { "" };
            if let Some(live) = heap.live.as_mut() {
                let room = (*live).min(self.left);
                self.add(PartKind::OtherLive, format!("live blocks of {words}{caches}"), room, LIVE);
                *live -= room;
            }
            if let Some(free) = heap.free.as_mut() {
                let room = (*free).min(self.left);
                let remedy = "it uses them again; settings of it may return them sooner";
                self.add(PartKind::OtherFree, format!("free blocks of {words}"), room, remedy);
                *free -= room;
            }
        }
    }

    fn add(&mut self, kind: PartKind, what: impl Into<String>, bytes: u64, remedy: impl Into<String>) {
        let resident_bytes = take(&mut self.left, bytes);
        self.parts.push(MemoryPart {
            kind,
            what: what.into(),
            owner: self.owner,
            resident_bytes,
            swapped_bytes: 0,
            remedy: remedy.into(),
            is_named: true,
        });
    }
}

fn of_malloc(look: &ProcessLook, others: &mut [OtherHeap], bytes: &OwnedBytes) -> Vec<MemoryPart> {
    let mut divided = Divided::of(Owner::Malloc, bytes);
    match &look.heaps {
        Ok(heaps) => divide_heaps(&mut divided, heaps, look),
        Err(_) => {
            divided.add_others(others);
            divided.add(PartKind::Unread, "glibc's heaps, live and free blocks", u64::MAX, "");
        }
    }
    // What of them is swapped out is not known: live blocks are most, as a rule.
    divided.parts[0].swapped_bytes = bytes.swapped;
    divided.parts
}

fn divide_heaps(divided: &mut Divided, heaps: &HeapFigures, look: &ProcessLook) {
    let found = &heaps.bytes;
    let trim = TrimOutlook::of(look).words(&look.about.name(), "them");
    divided.add(PartKind::Live, "live blocks of glibc's malloc", found.live, LIVE);
    divided.add(
        PartKind::Returnable,
        "free blocks of glibc's malloc in whole pages",
        found.returnable.saturating_add(found.shared),
        trim.unwrap_or_else(|| "less than a trim takes a process for".to_owned()),
    );
    divided.add(
        PartKind::ThreadCaches,
        "freed blocks that threads keep for themselves (tcache)",
        found.cached,
        "they go when the threads end",
    );
    divided.add(
        PartKind::ArenaEnds,
        "free at the ends of arenas",
        found.top_resident,
        "malloc_trim does not return them; fewer arenas have fewer: glibc:arena1",
    );
    divided.add(PartKind::Unread, "glibc's heaps that were not read in time", heaps.unread, "");
    divided.add(
        PartKind::Between,
        "free blocks of glibc's malloc between live ones in the same pages",
        u64::MAX,
        "another allocator may hold less: 'imas bench -- COMMAND'",
    );
}

/// Private memory of no file, by its contents.
fn of_anonymous(look: &ProcessLook, others: &mut [OtherHeap], bytes: &OwnedBytes) -> Vec<MemoryPart> {
    let mut divided = Divided::of(Owner::Anonymous, bytes);
    if let Ok(heaps) = &look.heaps {
        let what = "large live blocks of glibc's malloc, each in a mapping of its own";
        divided.add(PartKind::LiveMapped, what, heaps.mapped, LIVE);
    }
    for heap in &look.objects {
        let name = &heap.runtime;
        let data = "the program's data: no allocator helps";
        divided.add(PartKind::Objects, format!("objects of {name}"), heap.live, data);
        divided.add(
            PartKind::ObjectsFree,
            format!("free places and heads between objects of {name}"),
            heap.resident.saturating_sub(heap.live),
            format!("{name} uses them again; no allocator helps"),
        );
    }
    if let Some(jvm) = &look.jvm {
        let what = format!("heap of the JVM ({} after the last collection)", size(jvm.after_collection));
        divided.add(PartKind::JvmHeap, what, jvm.committed, runtime_remedy(Some(Runtime::Jvm)));
    }
    divided.add_others(others);
    let (kind, what, is_named) = rest_words(look);
    let has_remedy = kind == PartKind::OtherPrivate && is_named;
    let remedy = if has_remedy { runtime_remedy(look.about.runtime()) } else { String::new() };
    divided.add(kind, what, u64::MAX, remedy);
    let mut parts = divided.parts;
    if let Some(rest) = parts.last_mut() {
        (rest.swapped_bytes, rest.is_named) = (bytes.swapped, is_named);
    }
    parts
}

/// Who holds the private memory in which nothing was recognised, and whether that is known.
fn rest_words(look: &ProcessLook) -> (PartKind, String, bool) {
    // One that is there and that nobody uses holds nothing.
    let used = look.others.iter().filter(|heap| heap.live != Some(0));
    let names: Vec<String> = used.clone().map(OtherHeap::words).collect();
    let is_counted = used.clone().all(|heap| heap.live.is_some());
    let begin = if is_counted { "free pages and tables" } else { "heaps" };
    let runtime = look.about.runtime().map(Runtime::name);
    // Beside glibc's malloc an allocator has what a library asked it for, and the rest may be anybody's.
    if look.heaps.is_ok() && !names.is_empty() {
        let what = format!("other private memory: mapped by the program, or {begin} of {}", names.join(", "));
        return (PartKind::OtherPrivate, what, false);
    }
    match (names.is_empty(), runtime) {
        (true, None) => (
            PartKind::OtherPrivate,
            "other private memory that the program or a library has mapped itself".to_owned(),
            false,
        ),
        (true, Some(runtime)) => {
            (PartKind::OtherPrivate, format!("other private memory of {runtime}: its heap and tables"), true)
        }
        (false, None) => (PartKind::OtherAllocators, format!("{begin} of {}", names.join(", ")), true),
        (false, Some(runtime)) => {
            (PartKind::OtherAllocators, format!("{begin} of {}, heap of {runtime}", names.join(", ")), true)
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use imas_linux::heap::figures::HeapBytes;
    use imas_linux::memory_parts::{MemoryParts, OwnedMemory};
    use imas_linux::object_heaps::ObjectHeap;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A look that found these owners, MiB.
    pub(crate) fn look(owned: &[(Owner, u64)]) -> ProcessLook {
        let one = |(owner, mib): &(Owner, u64)| {
            (*owner, OwnedBytes { resident: *mib * MIB, ..OwnedBytes::default() })
        };
        let parts: MemoryParts = owned.iter().map(one).collect();
        ProcessLook { memory: OwnedMemory { parts, ..OwnedMemory::default() }, ..ProcessLook::default() }
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

    #[test]
    fn each_byte_is_in_one_part_and_the_largest_comes_first() {
        let mut look = look(&[(Owner::Malloc, 90), (Owner::Anonymous, 60), (Owner::Files, 1)]);
        look.about.pid = 7;
        look.heaps = Ok(heaps());
        look.objects = vec![ObjectHeap {
            runtime: "CPython".into(),
            resident: 30 * MIB,
            live: 25 * MIB,
            ..ObjectHeap::default()
        }];
        let parts = parts(&look);
        let mib: Vec<_> = parts.iter().map(|part| part.resident_bytes / MIB).collect();
        assert_eq!(mib, [50, 30, 25, 20, 10, 9, 5, 1, 1], "{parts:#?}");
        assert!(parts[0].remedy == LIVE && parts[1].remedy.contains("'imas trim 7'"));
        let unknown: Vec<_> = parts.iter().filter(|part| !part.is_named).collect();
        assert_eq!((unknown.len(), unknown[0].resident_bytes), (1, 10 * MIB));
        assert!((named_share(&parts) - 141.0 / 151.0).abs() < 1e-9);
        let kinds: BTreeMap<_, _> = parts.iter().map(|part| (part.kind, part.kind.id())).collect();
        for (kind, id) in kinds {
            assert_eq!(serde_json::to_value(kind).unwrap(), id);
        }
        assert_eq!(parts[0].words(), "50 MiB: live blocks of glibc's malloc");
    }

    /// gperftools in `[heap]`, and a library with two allocators, one of them without figures.
    #[test]
    fn other_allocators_have_their_live_and_free_bytes_and_their_names() {
        let heap = |name: &str, live: Option<u64>, free: Option<u64>| OtherHeap {
            name: name.into(),
            file: "liba.so".into(),
            live: live.map(|mib| mib * MIB),
            free: free.map(|mib| mib * MIB),
            ..OtherHeap::default()
        };
        let mut look = look(&[(Owner::Malloc, 30), (Owner::Anonymous, 60)]);
        look.others = vec![
            heap("jemalloc", Some(50), Some(5)),
            heap("mimalloc", Some(0), Some(0)),
            heap("x", None, None),
        ];
        let said: Vec<_> = parts(&look).iter().map(MemoryPart::words).collect();
        let rest = "35 MiB: heaps of jemalloc in liba.so, x in liba.so";
        for part in
            ["30 MiB: live blocks of jemalloc in liba.so", "20 MiB: live blocks of jemalloc in liba.so", rest]
        {
            assert!(said.iter().any(|one| one == part), "{part}: {said:?}");
        }
        assert!(!said.iter().any(|one| one.contains("mimalloc")), "{said:?}");
        look.others.truncate(1);
        let said: Vec<_> = parts(&look).iter().map(MemoryPart::words).collect();
        assert!(
            said.contains(&"35 MiB: free pages and tables of jemalloc in liba.so".to_owned()),
            "{said:?}"
        );
        assert_eq!(look.live_bytes(), Some(50 * MIB));
    }
}
