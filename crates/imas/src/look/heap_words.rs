// SPDX-License-Identifier: Apache-2.0
//! What glibc's heaps hold in a process, in words.

use imas_linux::heap::figures::HeapFigures;
use imas_linux::serving::candidate::RealCandidates;
use imas_view::keeps_away::{self, LEAST_BYTES};

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

/// Remedy that returns the free pages, if these are enough to matter. `present` is the candidate of the
/// process: under one that gives back it can be asked.
pub(crate) fn remedy(
    heaps: &HeapFigures,
    present: Option<&str>,
    candidates: &RealCandidates,
) -> Option<String> {
    if heaps.bytes.returnable < LEAST_BYTES {
        return None;
    }
    let gives_back = |name: &str| candidates.all().iter().any(|one| one.name == name && one.give_back);
    if present.is_some_and(gives_back) {
        return Some("'imas trim' returns the free pages now".to_owned());
    }
    let later = keeps_away::candidate(candidates);
    let later =
        later.map_or_else(String::new, |name| format!("; a restart under {name} keeps fewer of them"));
    Some(format!("malloc_trim(0) in the program returns the free pages{later}"))
}
