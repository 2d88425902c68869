// SPDX-License-Identifier: Apache-2.0
//! The record of one watched unit: figures before the change, figures after it, and the outcome.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use imas_cli::format::span;
use serde::{Deserialize, Serialize};

/// A folder of root, apart from imasd's: root's watcher acts on the files in it.
pub(super) const FOLDER: &str = "/var/lib/imas-watch";

/// One watched unit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct WatchRecord {
    pub(crate) unit: String,
    pub(crate) candidate: String,
    pub(crate) begun_unix_s: f64,
    pub(crate) watch_s: f64,
    /// The drop-in before the change; empty: none.
    pub(crate) drop_in_before: String,
    /// The drop-in under watch.
    pub(crate) drop_in_applied: String,
    pub(crate) work: Option<String>,
    pub(crate) before: Before,
    pub(crate) after: After,
    /// The change is being taken back.
    pub(crate) going_back: Option<GoingBack>,
    /// None while the unit is watched.
    pub(crate) outcome: Option<Outcome>,
}

/// The decision to take the change back. It is stored before anything is done, so that another process of the
/// watcher can go on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct GoingBack {
    pub(crate) outcome: Outcome,
    /// The life of the unit that was judged.
    pub(crate) life: String,
}

/// Figures of the unit before the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Before {
    /// Age of the unit, seconds.
    pub(crate) age_s: f64,
    /// Resident anonymous memory, bytes.
    pub(crate) memory_bytes: Option<u64>,
    /// The highest memory so far, as shown by the processes that still live.
    pub(crate) highest_bytes: Option<u64>,
    /// CPU seconds since the unit's start.
    pub(crate) cpu_s: Option<f64>,
    /// Number that the work command printed.
    pub(crate) work: Option<f64>,
    /// Failures and kills for lack of memory within `observed_s`.
    pub(crate) failures: u32,
    pub(crate) observed_s: f64,
    /// Time that the unit's start took, seconds.
    pub(crate) start_s: f64,
}

/// Figures of the unit after the change.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct After {
    /// Whether the unit was restarted under the candidate.
    pub(crate) is_restarted: bool,
    /// The life of the unit before that restart, and the time of the look that saw it. Failures are counted from
    /// that time on, but not the failures of this life.
    pub(crate) replaced_life: String,
    pub(crate) since_unix_s: f64,
    /// The present life of the unit.
    pub(crate) life: String,
    /// Kills for lack of memory in its control group at the last look.
    pub(crate) kills_of_group: u32,
    pub(crate) failures: u32,
    pub(crate) oom_kills: u32,
    /// One point for each window, in order.
    pub(crate) points: Vec<MemoryPoint>,
    /// CPU seconds of the present life, and the age of the unit.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) age_s: f64,
    /// Output of the work command, first and last, each with the CPU seconds at that time.
    pub(crate) work_first: Option<[f64; 2]>,
    pub(crate) work_last: Option<[f64; 2]>,
    /// The result of the unit if it is in the state `failed`.
    pub(crate) down: Option<String>,
    /// The process in which the candidate does not serve although it holds the most memory, and in how many windows in a
    /// row that was seen.
    pub(crate) unserved: Option<String>,
    pub(crate) unserved_windows: u32,
    /// Time for which the present life has been starting, seconds.
    pub(crate) starting_s: f64,
}

/// Memory within one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct MemoryPoint {
    /// Age of the unit at the end of the window.
    pub(crate) age_s: f64,
    /// Median of the window, bytes.
    pub(crate) bytes: u64,
    /// Lowest value within the window, bytes.
    pub(crate) least_bytes: u64,
}

/// The outcome of a watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The unit stays under the candidate.
    pub(crate) kept: bool,
    pub(crate) at_unix_s: f64,
    /// The reason as a sentence.
    pub(crate) why: String,
}

pub(super) fn file(unit: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{unit}.json"))
}

impl WatchRecord {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        serde_json::from_str(&text).with_context(|| file.display().to_string())
    }

    /// The record of a unit.
    pub(crate) fn of(unit: &str) -> Option<Self> {
        Self::read(&file(unit)).ok()
    }

    pub(super) fn write(&self) -> Result<()> {
        imas_engine::drop_in::write(&file(&self.unit), &serde_json::to_string(self)?)
    }

    /// One line for `imas status`.
    pub(crate) fn state(&self, now_unix_s: f64) -> String {
        let left = self.begun_unix_s + self.watch_s - now_unix_s;
        match &self.outcome {
            Some(outcome) => outcome.why.clone(),
            None if left > 0.0 => format!("watched for another {}", span(left)),
            None => "its watcher does not run: systemctl status 'imas-watch-*'".to_owned(),
        }
    }
}
