// SPDX-License-Identifier: Apache-2.0
//! What glibc's heaps hold in a process, in words.

use imas_engine::live::memory_point::{self, LEAST_BYTES};
use imas_linux::heap::figures::HeapFigures;
use imas_linux::serving::candidate::RealCandidates;

/// Bytes as people read them.
pub(crate) fn size(bytes: u64) -> String {
    let mib = bytes as f64 / f64::from(1 << 20);
    if mib < 1024.0 { format!("{mib:.0} MiB") } else { format!("{:.1} GiB", mib / 1024.0) }
}

/// What is live, what is free, what a trim would return, and how much of this is not known.
pub(crate) fn held(heaps: &HeapFigures) -> String {
    let bytes = &heaps.bytes;
    let arenas = imas_cli::format::counted(heaps.arenas, "arena");
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

/// Remedy that returns the free pages, if these are enough to matter. `present` is the candidate of the process.
pub(crate) fn remedy(
    heaps: &HeapFigures,
    present: Option<&str>,
    candidates: &RealCandidates,
) -> Option<String> {
    if heaps.bytes.returnable < LEAST_BYTES {
        return None;
    }
    let now = "'imas trim' returns the free pages now";
    let gives_back = |name: &str| candidates.all().iter().any(|one| one.name == name && one.give_back);
    let later = memory_point::advised_candidate(candidates).filter(|_| !present.is_some_and(gives_back));
    Some(
        later.map_or_else(
            || now.to_owned(),
            |name| format!("{now}; a restart under {name} keeps fewer of them"),
        ),
    )
}
