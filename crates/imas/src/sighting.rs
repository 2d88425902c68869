// SPDX-License-Identifier: Apache-2.0
//! What `imas` calls see of processes that have a page, while they live: a process that is killed leaves nothing of that behind, and a hang
//! shows in nothing else ([`imas_core::hang`]).
//!
//! It stands beside the page, in a file of its own, until the page is harvested. Nobody looks but who calls `imas` anyway.

use std::path::{Path, PathBuf};

use imas_core::SYSTEM;
use imas_core::hang::{LEAST_S, Sighting};
use imas_ingest::Page;
use imas_linux::standstill::{age_s, look};

/// Processes younger than this share of the least time of a hang are not looked at.
const YOUNG: f64 = 0.5;
/// The next look at a process comes when it has lived so many times as long as at the last one.
const LATER: f64 = 1.2;
/// Looks of one call at most: each takes some 0.1 ms.
const MOST: usize = 8;

/// The looks of one call.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    made: usize,
}

impl Looks {
    /// Looks at the running process that the page belongs to, unless that was done shortly before.
    pub(crate) fn at(&mut self, path: &Path, page: &Page) {
        let age_s = age_s(page.process_start_ticks).unwrap_or(0.0);
        if page.candidate == SYSTEM || age_s < YOUNG * LEAST_S || self.made >= MOST {
            return;
        }
        let earlier = of(path);
        if earlier.is_some_and(|seen| age_s < LATER * seen.lived_s) {
            return;
        }
        self.made += 1;
        let seen = look(page.pid, page.process_start_ticks).map(|now| Sighting::then(earlier, now));
        let text = seen.and_then(|seen| serde_json::to_string(&seen).ok());
        if let Some(text) = text {
            let _ = std::fs::write(beside(path), text); // unseen, it counts as never looked at
        }
    }
}

/// What was seen of the page's process; None when nobody looked.
pub(crate) fn of(path: &Path) -> Option<Sighting> {
    serde_json::from_str(&std::fs::read_to_string(beside(path)).ok()?).ok()
}

/// The page is stored, with what was seen.
pub(crate) fn forget(path: &Path) {
    let _ = std::fs::remove_file(beside(path)); // mostly there is none
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("seen")
}
