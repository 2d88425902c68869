// SPDX-License-Identifier: Apache-2.0
//! Predictions by replay as lines of JSON, as `imas-lab study replay` writes them: a header for each session, a line
//! for each program and candidate, and one for each program that has none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use imas_core::raw_runs::data::{Dropped, NotRun};
use imas_replay::reliability::RecordedRunFacts;

/// The `imas` key of a header.
pub const REPLAY: &str = "replay";

/// First line of what one session wrote.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplayHeader {
    /// [`REPLAY`].
    pub imas: String,
    /// Version of this format.
    pub schema: u32,
    /// Seconds since the epoch.
    pub began_unix_s: f64,
    /// The machine.
    pub host: serde_json::Value,
    /// Version by candidate.
    pub versions: BTreeMap<String, String>,
    /// Load of the machine before, one-minute average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Replays of each candidate.
    pub replays: u32,
    /// Note on further conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Prediction for a program under a candidate, from one recorded run. Ratios are to `system`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PredictionLine {
    /// Name in the suite.
    pub program: String,
    /// Name in the catalogue.
    pub candidate: String,
    /// Version of the allocator.
    pub version: String,
    /// Category of the program in the suite.
    pub category: String,
    /// Time at which the line was written, seconds since the epoch.
    pub at_s: f64,
    /// Load of the machine at that time, one-minute average.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load1: Option<f64>,
    /// Why there are no ratios.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Ratio of CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ratio: Option<f64>,
    /// Ratio of the peak of resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_ratio: Option<f64>,
    /// Ratio of the mean of resident memory over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_ratio: Option<f64>,
    /// Ratio of resident memory at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_ratio: Option<f64>,
    /// Calls of the replayed process.
    pub calls: u64,
    /// Threads of the replayed process.
    pub threads: u64,
    /// Recorded processes of the program.
    pub processes: u64,
    /// The replayed process's part of the CPU time of all, from 0 to 1.
    pub process_share: f64,
    /// CPU seconds of the replayed process as it was recorded.
    pub cpu_s: f64,
    /// Highest resident memory as recorded, bytes: of the replayed process, or of the whole tree where that
    /// was more.
    pub peak_bytes: f64,
    /// Mean resident memory as recorded, bytes: of the replayed process, or of the whole tree where that was
    /// more.
    pub mean_bytes: f64,
    /// Resident memory of the replayed process at the end as recorded, bytes.
    pub end_bytes: f64,
    /// Most bytes in live blocks at once.
    pub live_peak_bytes: u64,
    /// CPU time of the replay under `system` as a part of `cpu_s`: the allocator's own time, and the time of
    /// the first write to each block.
    pub allocator_share: f64,
    /// Page faults of the replay under the candidate.
    pub faults: u64,
    /// Calls that returned no block in the replay under the candidate.
    pub refused: u64,
    /// The largest part of the replay's resident memory in huge pages, from 0 to 1.
    pub huge_share: f64,
    /// CPU seconds of each replay.
    pub replay_cpu_s: Vec<f64>,
}

impl PredictionLine {
    /// Facts of the recorded run that tell how far the prediction may be off.
    #[must_use]
    pub fn facts(&self) -> RecordedRunFacts {
        RecordedRunFacts {
            allocator_share: self.allocator_share,
            peak_bytes: self.peak_bytes,
            threads: self.threads,
        }
    }
}

/// Predictions that were read from files.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Predictions {
    /// Headers in the order of the lines.
    pub headers: Vec<ReplayHeader>,
    /// Predictions in the order of the lines; of a program and candidate the last.
    pub lines: Vec<PredictionLine>,
    /// Programs without predictions.
    pub dropped: Dropped,
    /// Numbers of the lines that are not readable, from 1.
    pub unreadable: Vec<usize>,
    known: BTreeSet<(String, String)>,
}

impl Predictions {
    /// Reads the lines.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut predictions = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if !predictions.read(line) {
                predictions.unreadable.push(number + 1);
            }
        }
        predictions
    }

    /// Whether there is a line of that program and candidate.
    #[must_use]
    pub fn has(&self, program: &str, candidate: &str) -> bool {
        self.known.contains(&(program.to_owned(), candidate.to_owned()))
    }

    /// Reads a line. Returns whether it is one of the format.
    fn read(&mut self, line: &str) -> bool {
        let header = serde_json::from_str::<ReplayHeader>(line).ok().filter(|header| header.imas == REPLAY);
        if let Some(header) = header {
            self.headers.push(header);
        } else if let Ok(line) = serde_json::from_str::<NotRun>(line) {
            self.dropped.left_out(line);
        } else if let Some(line) = prediction(line) {
            self.dropped.ran(&line.program, line.at_s);
            if !self.known.insert((line.program.clone(), line.candidate.clone())) {
                self.lines
                    .retain(|known| (&known.program, &known.candidate) != (&line.program, &line.candidate));
            }
            self.lines.push(line);
        } else {
            return false;
        }
        true
    }
}

fn prediction(line: &str) -> Option<PredictionLine> {
    let line: PredictionLine = serde_json::from_str(line).ok()?;
    (!line.program.is_empty() && !line.candidate.is_empty()).then_some(line)
}
