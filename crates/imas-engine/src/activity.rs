// SPDX-License-Identifier: Apache-2.0
//! Observes the running processes that have a page, at each call of `imas`. Only these observations show a hang
//! ([`imas_core::hang`]): the page of a killed process has no trace of it.
//!
//! The last observation is kept in a file beside the page until the page is harvested.

use std::path::{Path, PathBuf};

use crate::harvest::look_is_due;
use imas_core::hang::ProcessActivity;
use imas_linux::ingest::ParsedPage;
use imas_linux::plain_file;
use imas_linux::standstill::{age_s, look};

/// A process is first observed at this share of the least time of a hang.
const FIRST: f64 = 0.5;
/// Most observations of one call: each takes some 0.1 ms.
const MOST: usize = 8;
/// Bytes of an observation.
const MOST_BYTES: usize = 4096;

/// The observations of one call.
#[derive(Debug, Default)]
pub struct ActivityLooks {
    made: usize,
}

impl ActivityLooks {
    /// Observes the running process of the page, unless that was done shortly before.
    pub fn at(&mut self, path: &Path, page: &ParsedPage) {
        if self.made >= MOST || !is_due(path, page) {
            return;
        }
        self.made += 1;
        let earlier = of(path);
        let seen =
            look(page.pid, page.process_start_ticks).map(|now| ProcessActivity::following(earlier, now));
        let text = seen.and_then(|seen| serde_json::to_string(&seen).ok());
        if let Some(text) = text {
            let _ = std::fs::write(beside(path), text); // without the file, it counts as never observed
        }
    }
}

/// Whether the running process of the page is to be observed now.
pub(crate) fn is_due(path: &Path, page: &ParsedPage) -> bool {
    let age_s = age_s(page.process_start_ticks).unwrap_or(0.0);
    // The file beside the page is read only for a process that is old enough.
    look_is_due(&page.candidate, age_s, FIRST, None) && look_is_due(&page.candidate, age_s, FIRST, of(path))
}

/// The last observation of the page's process, if any.
pub fn of(path: &Path) -> Option<ProcessActivity> {
    serde_json::from_slice(&plain_file::read(&beside(path), MOST_BYTES).ok()?).ok()
}

/// Removes the observation of a page that was stored.
pub fn forget(path: &Path) {
    let _ = std::fs::remove_file(beside(path)); // mostly there is none
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("seen")
}
