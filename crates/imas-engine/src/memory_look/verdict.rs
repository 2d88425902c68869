// SPDX-License-Identifier: Apache-2.0
//! The verdict on the memory of a process: fragmentation, data, a pool of its own, or a limit that it does not fit, in one
//! sentence that ends with what helps.

use imas_core::printable::counted;
use imas_linux::heap::figures::HeapFigures;
use imas_linux::jvm_heap::JvmHeap;
use imas_linux::other_heaps::OtherHeap;
use imas_linux::resident::ResidentMemory;
use imas_linux::serving::RealCandidates;
use serde::Serialize;

use super::ProcessLook;
use super::fit::MemoryFit;
use super::remedy::{COMPARE, LEAST_BYTES, remedy};

/// A heap with less free memory needs no advice, bytes.
const LITTLE: u64 = 32 << 20;
/// If a smaller share of the heap is live, the rest counts as fragmentation.
pub(super) const MOSTLY_LIVE: f64 = 0.7;

/// Kind of verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryVerdict {
    /// Its heap may grow beyond what the limit of its control group leaves.
    OverLimit,
    /// Much of the heap is free: another allocator, or another setting, may hold less.
    Fragmentation,
    /// Most of the heap is live: the program's data, or a leak.
    Live,
    /// Most of the memory is not malloc's.
    NotTheHeap,
    /// Most of the anonymous memory is in no arena of malloc: a pool of the program, the heap of its runtime.
    OwnPool,
    /// The heap is small.
    Small,
    /// The live part is unknown.
    Unknown,
}

impl MemoryVerdict {
    /// The verdict as a label.
    #[must_use]
    pub fn id(self) -> &'static str {
        match self {
            Self::OverLimit => "over-limit",
            Self::Fragmentation => "fragmentation",
            Self::Live => "live",
            Self::NotTheHeap => "not-the-heap",
            Self::OwnPool => "own-pool",
            Self::Small => "small",
            Self::Unknown => "unknown",
        }
    }
}

/// The verdict and its sentence.
pub(super) fn of(
    look: &ProcessLook,
    fit: Option<&MemoryFit>,
    candidates: &RealCandidates,
) -> (MemoryVerdict, String) {
    let verdict = of_heaps(look);
    let sentence = sentence(look, verdict, candidates);
    match fit.and_then(|fit| fit.warning.as_ref()) {
        // "There is nothing to gain" would contradict it.
        Some(warning) if verdict == MemoryVerdict::Small => (MemoryVerdict::OverLimit, warning.clone()),
        Some(warning) => (MemoryVerdict::OverLimit, format!("{warning}; {sentence}")),
        None => (verdict, sentence),
    }
}

/// Verdict by the share of the heap that a trim would return or that lies between live blocks, and by the hook's count where
/// the process is a trial; whatever the limit.
pub(super) fn of_heaps(look: &ProcessLook) -> MemoryVerdict {
    let (resident, heaps) = (&look.memory.resident, look.heaps.as_ref().ok());
    let heap = resident.heap_bytes();
    let is_mostly_free =
        |live: u64| heap.saturating_sub(live) > LITTLE && (live as f64) < heap as f64 * MOSTLY_LIVE;
    let is_mostly_returnable = |heaps: &HeapFigures| {
        let returnable = heaps.bytes.returnable;
        returnable >= LEAST_BYTES && (heap.saturating_sub(returnable) as f64) < heap as f64 * MOSTLY_LIVE
    };
    let free = |heaps: &HeapFigures| look.pinned_bytes().saturating_add(heaps.bytes.returnable);
    match (look.live_bytes(), heaps) {
        _ if heap < LITTLE => MemoryVerdict::Small,
        (_, Some(heaps)) if is_mostly_returnable(heaps) => MemoryVerdict::Fragmentation,
        _ if heap * 2 < resident.total() => MemoryVerdict::NotTheHeap,
        (None, Some(heaps)) if heaps.unread == 0 && is_elsewhere(resident) => MemoryVerdict::OwnPool,
        (Some(live), _) if is_mostly_free(live) => MemoryVerdict::Fragmentation,
        (None, None) => MemoryVerdict::Unknown,
        (None, Some(heaps)) if heaps.unread > heaps.held / 2 => MemoryVerdict::Unknown,
        (None, Some(heaps)) if is_mostly_free(heap.saturating_sub(free(heaps))) => {
            MemoryVerdict::Fragmentation
        }
        _ => MemoryVerdict::Live,
    }
}

/// Whether most of what may be a heap is in none of malloc's arenas.
fn is_elsewhere(resident: &ResidentMemory) -> bool {
    resident.anonymous > resident.heap.saturating_add(resident.arenas)
}

fn sentence(look: &ProcessLook, verdict: MemoryVerdict, candidates: &RealCandidates) -> String {
    let (resident, heaps) = (&look.memory.resident, &look.heaps);
    let heap = size(resident.heap_bytes());
    // Of what an allocator counts as live not all was touched.
    let live = look.live_bytes().map(|live| live.min(resident.heap_bytes()));
    let live = live.map_or_else(String::new, |live| format!(", {} of it in live blocks", size(live)));
    let held = heaps.as_ref().map_or_else(|_| String::new(), |heaps| format!("; {}", held_words(heaps)));
    let remedy = remedy(look, candidates);
    match verdict {
        MemoryVerdict::Fragmentation => format!(
            "{heap} of heap are resident{live}{held}: fragmentation, not a leak; {}",
            fragmentation_remedy(look.pinned_bytes(), remedy)
        ),
        MemoryVerdict::Live | MemoryVerdict::OverLimit => format!(
            "{heap} of heap are resident{live}{held}: the program holds most of them, as data or as a leak{}; {}",
            leak_hint(look),
            remedy.unwrap_or_else(|| "an allocator changes little".to_owned())
        ),
        MemoryVerdict::NotTheHeap => {
            format!("only {heap} of {} are heap{held}: an allocator changes little", size(resident.total()))
        }
        MemoryVerdict::OwnPool => format!(
            "{} of {} are in none of malloc's arenas: {}{held}; {}",
            size(resident.anonymous),
            size(resident.total()),
            elsewhere_words(look),
            remedy.unwrap_or_else(|| "settings of malloc change little".to_owned())
        ),
        MemoryVerdict::Small => format!("the heap is small ({heap}): there is nothing to gain"),
        MemoryVerdict::Unknown => {
            format!(
                "{heap} of heap are resident; {}; a trial counts it: 'imas run -- ...'",
                unknown_words(look)
            )
        }
    }
}

/// Help against free blocks: for those between live ones, and for those in whole pages.
fn fragmentation_remedy(pinned: u64, remedy: Option<String>) -> String {
    if pinned < LITTLE {
        return remedy.unwrap_or_else(|| "another allocator may hold less".to_owned());
    }
    let between = format!(
        "{} are free between live blocks, in pages that no trim returns: another allocator or setting may hold less, {COMPARE}",
        size(pinned)
    );
    remedy.into_iter().chain([between]).collect::<Vec<_>>().join("; ")
}

/// The command that tells data from a leak, where it can and nobody has asked it yet.
fn leak_hint(look: &ProcessLook) -> String {
    match look.heaps.is_ok() && !look.about.is_searched {
        true => format!(" ('imas explain {} --leaks' says which)", look.about.pid),
        false => String::new(),
    }
}

/// Reason why it is not known how much of the heap is live.
fn unknown_words(look: &ProcessLook) -> String {
    let counted = |heap: &OtherHeap| {
        let live = heap.live.filter(|live| *live > 0)?;
        Some(format!("{} live and {} free in {}", size(live), size(heap.free.unwrap_or(0)), heap.words()))
    };
    let counted: Vec<String> = look.others.iter().filter_map(counted).collect();
    if look.heaps.is_err() && !counted.is_empty() {
        return format!(
            "{} are known, the rest is free pages and tables of malloc, or the program's own maps",
            counted.join(", ")
        );
    }
    let reason = look
        .heaps
        .as_ref()
        .err()
        .map_or("reading most of glibc's heaps took too long, or they changed too fast", |reason| {
            reason.0.as_str()
        });
    format!("what of it is live cannot be read: {reason}")
}

/// Holder of memory in none of malloc's arenas, as far as it is known.
fn elsewhere_words(look: &ProcessLook) -> String {
    if let Some(jvm) = &look.jvm {
        return jvm_words(jvm);
    }
    let used = look.others.iter().filter(|heap| heap.live != Some(0));
    let words = |heap: &OtherHeap| match heap.live {
        Some(live) => format!("{} live in {}", size(live), heap.words()),
        None => format!("heaps of {}", heap.words()),
    };
    let used: Vec<String> = used.map(words).collect();
    match used.is_empty() {
        true => "a pool of the program, the heap of its runtime, or single large blocks".to_owned(),
        false => used.join(", "),
    }
}

/// Words for the heap of a JVM.
#[must_use]
pub fn jvm_words(heap: &JvmHeap) -> String {
    format!(
        "the JVM ({}) has committed {} to its heap, touched or not, and {} were left after the last of {}",
        heap.collector,
        size(heap.committed),
        size(heap.after_collection),
        counted(heap.collections, "collection")
    )
}

/// Bytes as people read them.
#[must_use]
pub fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// Words for live and free memory, what a trim would return, and how much of this is not known.
#[must_use]
pub fn held_words(heaps: &HeapFigures) -> String {
    let bytes = &heaps.bytes;
    let arenas = counted(heaps.arenas, "arena");
    let read = match heaps.is_estimate() {
        true => format!(" (an estimate: {} of {} were read)", size(heaps.read), size(heaps.held)),
        false => String::new(),
    };
    let unread = match heaps.unread {
        0 => String::new(),
        bytes => format!("; what is in the other {} is not known", size(bytes)),
    };
    format!(
        "glibc holds {} in {arenas}: {} live, {} free, of which {} in whole resident pages{read}{unread}",
        size(heaps.held),
        size(bytes.live.saturating_add(bytes.cached)),
        size(bytes.all_free()),
        size(bytes.returnable)
    )
}

#[cfg(test)]
mod tests {
    use imas_linux::heap::figures::{HeapBytes, NotReadable};
    use imas_linux::memory_parts::OwnedMemory;

    use super::super::AboutProcess;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn heaps(returnable: u64) -> HeapFigures {
        let bytes = HeapBytes { live: 88 * MIB, free: 65 * MIB, returnable, ..HeapBytes::default() };
        HeapFigures { held: 153 * MIB, read: 153 * MIB, arenas: 9, bytes, ..HeapFigures::default() }
    }

    fn look(resident: ResidentMemory, heaps: Option<HeapFigures>) -> ProcessLook {
        ProcessLook {
            about: AboutProcess { pid: 7, ..AboutProcess::default() },
            memory: OwnedMemory { resident, ..OwnedMemory::default() },
            heaps: heaps.ok_or_else(|| NotReadable("its C library is musl".into())),
            ..ProcessLook::default()
        }
    }

    fn said(resident: ResidentMemory, heaps: Option<HeapFigures>) -> (MemoryVerdict, String) {
        of(&look(resident, heaps), None, &RealCandidates::default())
    }

    #[test]
    fn free_pages_are_fragmentation_and_live_memory_is_not() {
        let resident =
            ResidentMemory { arenas: 143 * MIB, heap: 10 * MIB, arena_heaps: 8, ..ResidentMemory::default() };
        assert_eq!(
            said(resident, Some(heaps(57 * MIB))),
            (
                MemoryVerdict::Fragmentation,
                "153 MiB of heap are resident; glibc holds 153 MiB in 9 arenas: 88 MiB live, 65 MiB free, of which 57 MiB \
                 in whole resident pages: fragmentation, not a leak; 'imas trim 7' returns the free pages now"
                    .into()
            )
        );
        assert_eq!(said(resident, Some(heaps(MIB))).0, MemoryVerdict::Fragmentation, "between live blocks");
        let mut full = heaps(MIB);
        (full.bytes.live, full.bytes.free) = (130 * MIB, 23 * MIB);
        assert_eq!(said(resident, Some(full)).0, MemoryVerdict::Live);
        let counted = |live: u64| {
            let mut look = look(resident, None);
            look.about.live_bytes = Some(live * MIB);
            of_heaps(&look)
        };
        assert_eq!(counted(30), MemoryVerdict::Fragmentation, "by the hook's count");
        assert_eq!(counted(130), MemoryVerdict::Live);
    }

    #[test]
    fn a_few_free_pages_in_a_large_heap_are_named_and_no_verdict() {
        let resident = ResidentMemory { heap: 10 << 30, ..ResidentMemory::default() };
        let (verdict, says) = said(resident, Some(heaps(9 * MIB)));
        assert_eq!(verdict, MemoryVerdict::Live);
        assert!(
            says.contains("of which 9 MiB in whole resident pages")
                && says.ends_with(
                    "as data or as a leak ('imas explain 7 --leaks' says which); 'imas trim 7' returns the free pages now"
                ),
            "{says}"
        );
    }

    /// A program after a trim: free blocks between live ones are what is left.
    #[test]
    fn free_blocks_that_no_whole_page_has_are_fragmentation() {
        let resident = ResidentMemory { heap: 64 * MIB, files: 5 * MIB, ..ResidentMemory::default() };
        let bytes = HeapBytes { live: 5 * MIB, free: 59 * MIB, ..HeapBytes::default() };
        let heaps = |bytes| HeapFigures {
            held: 64 * MIB,
            read: 64 * MIB,
            arenas: 1,
            bytes,
            ..HeapFigures::default()
        };
        let (verdict, says) = said(resident, Some(heaps(bytes)));
        assert_eq!(verdict, MemoryVerdict::Fragmentation, "{says}");
        let between = "; 59 MiB are free between live blocks, in pages that no trim returns: another allocator or setting \
                       may hold less, 'imas bench -- COMMAND' compares them";
        assert!(says.ends_with(&format!("fragmentation, not a leak{between}")), "{says}");
        let more = HeapBytes { returnable: 10 * MIB, ..bytes };
        let says = said(resident, Some(heaps(more))).1;
        assert!(
            says.contains("leak; 'imas trim 7' returns the free pages now; 49 MiB are free between"),
            "{says}"
        );
        // The kernel has taken the free pages: the rest is live.
        let given = ResidentMemory { heap: 40 * MIB, ..resident };
        let live = HeapBytes { live: 35 * MIB, free: 59 * MIB, ..bytes };
        let (verdict, says) = said(given, Some(heaps(live)));
        assert_eq!(verdict, MemoryVerdict::Live, "{says}");
        let mut searched = look(given, Some(heaps(live)));
        searched.about.is_searched = true;
        assert!(!of(&searched, None, &RealCandidates::default()).1.contains("--leaks"), "it was asked");
    }

    #[test]
    fn a_heap_of_which_most_was_not_read_is_unknown() {
        let resident = ResidentMemory { heap: 10 << 30, ..ResidentMemory::default() };
        let heaps = HeapFigures { held: 10 << 30, unread: 9 << 30, ..heaps(9 * MIB) };
        assert!(held_words(&heaps).ends_with("; what is in the other 9.0 GiB is not known"));
        assert_eq!(said(resident, Some(heaps)).0, MemoryVerdict::Unknown);
    }

    /// The buffer pool of a database, the heap of Go.
    #[test]
    fn memory_in_no_arena_is_not_blamed_on_malloc() {
        let one = ResidentMemory { heap: MIB, anonymous: 300 * MIB, ..ResidentMemory::default() };
        let little = HeapFigures { held: MIB, read: MIB, arenas: 1, ..HeapFigures::default() };
        let (verdict, says) = said(one, Some(little.clone()));
        assert_eq!(verdict, MemoryVerdict::OwnPool);
        assert!(says.starts_with("300 MiB of 301 MiB are in none of malloc's arenas: a pool"), "{says}");
        assert!(!says.contains("leak"), "{says}");
        let jvm = JvmHeap { collector: "G1".into(), committed: 250 * MIB, ..JvmHeap::default() };
        let of_jvm = ProcessLook { jvm: Some(jvm), ..look(one, Some(little)) };
        let says = of(&of_jvm, None, &RealCandidates::default()).1;
        assert!(
            says.contains(
                "arenas: the JVM (G1) has committed 250 MiB to its heap, touched or not, and 0 MiB"
            ),
            "{says}"
        );
        let arrow = OtherHeap {
            name: "mimalloc".into(),
            file: "libarrow.so".into(),
            live: Some(200 * MIB),
            ..OtherHeap::default()
        };
        let of_arrow = ProcessLook { others: vec![arrow], ..of_jvm };
        let says = of(&ProcessLook { jvm: None, ..of_arrow }, None, &RealCandidates::default()).1;
        assert!(
            says.contains("malloc's arenas: 200 MiB live in mimalloc in libarrow.so; glibc holds"),
            "{says}"
        );
    }

    #[test]
    fn without_a_trial_and_without_a_look_a_heap_is_unknown() {
        let one = ResidentMemory { heap: 200 * MIB, ..ResidentMemory::default() };
        let files = ResidentMemory { heap: 40 * MIB, files: 100 * MIB, ..ResidentMemory::default() };
        assert_eq!(said(files, None).0, MemoryVerdict::NotTheHeap);
        assert_eq!(said(ResidentMemory::default(), None).0, MemoryVerdict::Small);
        let (verdict, says) = said(one, None);
        assert_eq!(verdict, MemoryVerdict::Unknown);
        assert!(says.contains("cannot be read: its C library is musl;"), "{says}");
        for verdict in [MemoryVerdict::OverLimit, MemoryVerdict::NotTheHeap, MemoryVerdict::Small] {
            assert_eq!(serde_json::to_value(verdict).unwrap(), verdict.id());
        }
    }
}
