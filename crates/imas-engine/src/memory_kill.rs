// SPDX-License-Identifier: Apache-2.0
//! Whether the kernel killed a process for want of memory: its page shows that it was killed, and not by whom.
//!
//! A start in a control group with a limit notes how many kills the group has counted, in a file beside its page. If
//! the process was killed, and the group has counted more by the time of the harvest, it counts as killed at the limit.
//! So does one that a user killed, or that became another program by exec, where the kernel has killed a process of the
//! group in that time.

use std::path::{Path, PathBuf};

use imas_core::sample::Ended;
use imas_linux::control_group::MemoryKills;
use imas_linux::ingest::ParsedPage;
use imas_linux::{plain_file, process};

/// Bytes of a note: a path and a number.
const MOST_BYTES: usize = 8192;

/// Notes the kills until now beside the page of a start.
pub fn note(page: &Path) {
    if let Some(text) = MemoryKills::now().and_then(|kills| serde_json::to_string(&kills).ok()) {
        let _ = std::fs::write(beside(page), text); // without the note, such an end is unknown
    }
}

/// The page of an ended process, which says so if the kernel killed that for want of memory.
#[must_use]
pub fn with_kill(path: &Path, mut page: ParsedPage) -> ParsedPage {
    let has_ended = !process::is_running(page.pid, page.process_start_ticks);
    if page.ended == Ended::Unknown && has_ended && shows(path) {
        page.ended = Ended::OutOfMemory;
    }
    page
}

/// Removes the note of a page that is no longer there.
pub fn forget(page: &Path) {
    let _ = std::fs::remove_file(beside(page)); // mostly there is none
}

fn shows(page: &Path) -> bool {
    let bytes = plain_file::read(&beside(page), MOST_BYTES).unwrap_or_default();
    serde_json::from_slice(&bytes).is_ok_and(|kills: MemoryKills| kills.have_grown())
}

fn beside(page: &Path) -> PathBuf {
    page.with_extension("kills")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_kills_than_at_the_start_show() {
        let folder = tempfile::tempdir().unwrap();
        let (page, events) = (folder.path().join("a.page"), folder.path().join("memory.events"));
        std::fs::write(&events, "oom_kill 7\n").unwrap();
        let noted = |count: u32| {
            let note = serde_json::json!({ "file": events, "count": count });
            std::fs::write(beside(&page), note.to_string()).unwrap();
            shows(&page)
        };
        assert!(!shows(&page), "nothing was noted");
        assert!(noted(6) && !noted(7) && !noted(8));
        std::fs::write(beside(&page), "{ no note").unwrap();
        assert!(!shows(&page));
        forget(&page);
        assert!(!beside(&page).exists());
    }
}
