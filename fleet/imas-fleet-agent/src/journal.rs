// SPDX-License-Identifier: Apache-2.0
//! The agent's counters, shared by its tasks and written to `agent.json`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use imas_cli::message;
use imas_core::printable;
use imas_exchange::AgentRecord;
use tokio::sync::Notify;

/// How often changed counters are written at most.
const WRITE: Duration = Duration::from_secs(1);
/// How often they are written in any case: imasd sees by the file's age whether the agent runs.
const WRITE_AGAIN: Duration = Duration::from_secs(60);

/// The counters.
#[derive(Clone, Debug)]
pub struct AgentJournal {
    record: Arc<Mutex<AgentRecord>>,
    changed: Arc<Notify>,
    file: PathBuf,
}

impl AgentJournal {
    /// Begins at zero; `file` is `agent.json`.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        let record = AgentRecord { started_unix_s: now_unix_s(), ..AgentRecord::default() };
        Self { record: Arc::new(Mutex::new(record)), changed: Arc::default(), file }
    }

    /// Changes the counters.
    pub fn note(&self, change: impl FnOnce(&mut AgentRecord)) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let before = record.clone();
        change(&mut record);
        if *record != before {
            self.changed.notify_one();
        }
    }

    /// An error: kept, and logged once as long as it stays the same. It may contain words of the server, which
    /// must not begin a line of the log: it is one line.
    pub fn error(&self, what: &str) {
        let what = &*printable::name(what);
        let mut is_new = false;
        self.note(|record| {
            is_new = record.last_error.as_deref() != Some(what);
            record.last_error = Some(what.to_owned());
            record.last_error_unix_s = Some(now_unix_s());
        });
        if is_new {
            message::warning(what);
        }
    }

    /// The counters now.
    #[must_use]
    pub fn now(&self) -> AgentRecord {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the counters each second in which they changed, and each minute.
    pub async fn keep_written(&self) {
        loop {
            self.write();
            tokio::time::sleep(WRITE).await;
            let _ = tokio::time::timeout(WRITE_AGAIN, self.changed.notified()).await;
        }
    }

    /// Writes the counters now. A folder that cannot be written shows in `imas fleet doctor`.
    pub fn write(&self) {
        let unfinished = self.file.with_extension("new");
        if let Ok(bytes) = serde_json::to_vec_pretty(&self.now()) {
            let _ =
                std::fs::write(&unfinished, bytes).and_then(|()| std::fs::rename(&unfinished, &self.file));
        }
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now_unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn counters_are_written_when_they_have_changed() {
        let folder = tempfile::tempdir().unwrap();
        let journal = AgentJournal::new(folder.path().join("agent.json"));
        let has_changed = || journal.changed.notified().now_or_never().is_some();
        journal.note(|record| record.backlog = 0);
        assert!(!has_changed());
        journal.note(|record| record.backlog = 1);
        assert!(has_changed() && !has_changed());
    }

    #[test]
    fn words_of_a_server_begin_no_line_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let journal = AgentJournal::new(folder.path().join("agent.json"));
        journal.error("server: no\n<4>imasd: everything is well\u{1b}[2J");
        let kept = journal.now().last_error.unwrap();
        assert_eq!(kept, "server: no\\n<4>imasd: everything is well\\u{1b}[2J");
    }
}
