// SPDX-License-Identifier: Apache-2.0
//! What glibc's heaps held at the last call of `imas advise`, stored in a file beside the store. Growing memory
//! is more important than memory that is merely large.

use std::path::{Path, PathBuf};

use imas_linux::clock::now_unix_s;
use serde::{Deserialize, Serialize};

/// Memory of one process. Pid and start time identify it, because the kernel reuses pids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct SeenProcess {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) at_unix_s: f64,
    /// Bytes that its heaps hold.
    pub(crate) bytes: u64,
}

/// Change of a process's memory since the last look.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Growth {
    pub(crate) bytes: i64,
    pub(crate) seconds: f64,
}

/// The last look.
#[derive(Debug, Default)]
pub(crate) struct LastLook {
    file: PathBuf,
    seen: Vec<SeenProcess>,
    now: Vec<SeenProcess>,
}

impl LastLook {
    /// Reads the file beside this store. Without a file, the last look is empty.
    pub(crate) fn beside(store: &Path) -> Self {
        let file = store.with_extension("advise.json");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Self { seen: serde_json::from_str(&text).unwrap_or_default(), file, now: Vec::new() }
    }

    /// Records the present memory of the process. Returns the change since the last look.
    pub(crate) fn growth(&mut self, pid: u32, bytes: u64) -> Option<Growth> {
        let start_ticks = imas_linux::process::start_ticks(pid).ok()?;
        let now = SeenProcess { pid, start_ticks, at_unix_s: now_unix_s(), bytes };
        let before = self.seen.iter().find(|seen| seen.pid == pid && seen.start_ticks == start_ticks);
        let growth = before.map(|before| Growth {
            bytes: bytes.cast_signed() - before.bytes.cast_signed(),
            seconds: (now.at_unix_s - before.at_unix_s).max(0.0),
        });
        self.now.push(now);
        growth
    }

    /// Writes the file for the next look. If that fails, the next look shows no growth.
    pub(crate) fn keep(&self) {
        if let Ok(text) = serde_json::to_string(&self.now) {
            let _ = imas_engine::drop_in::write(&self.file, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_that_of_the_same_process_since_the_look_before() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("imas.db");
        let own = std::process::id();
        let mut first = LastLook::beside(&store);
        assert_eq!(first.growth(own, 100), None);
        first.keep();
        let mut second = LastLook::beside(&store);
        assert_eq!(second.growth(own, 70).unwrap().bytes, -30);
        assert_eq!(second.growth(u32::MAX, 70), None);
        second.seen[0].start_ticks += 1;
        assert_eq!(second.growth(own, 70), None, "another process with the same pid");
    }
}
