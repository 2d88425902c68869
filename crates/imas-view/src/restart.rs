// SPDX-License-Identifier: Apache-2.0
//! The change that a restart under the pick would bring, by the judge that made the pick.

use crate::program_view::ProgramView;
use imas_core::TrialRecord;
use imas_core::compare::Answer;
use imas_core::sample::PageKind;
use imas_core::stats::{Interval, median};

/// The pick compared with the candidate that a process runs under.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Restart {
    /// Ratio of CPU time, pick to present candidate, with its 95 % interval; None without trials of both.
    pub cpu: Option<Interval>,
    /// Ratio of memory, with its 95 % interval.
    pub memory: Option<Interval>,
    /// Median of the resident bytes in the trials of the present candidate.
    pub memory_bytes: Option<f64>,
    /// Number of trials with figures, of the present candidate and of the pick.
    pub trials: [usize; 2],
    /// Whether the policy takes the pick for proven better than the present candidate.
    pub is_proven: bool,
}

impl Restart {
    /// The restart from candidate `on` to candidate `pick`. Under `paper` nothing is proven.
    #[must_use]
    pub fn of(state: &ProgramView, on: &str, pick: &str) -> Self {
        let index = |name: &str| state.profile.candidates.iter().position(|view| view.name == name);
        let change = state.profile.adaptive.as_ref().and_then(|known| {
            let (from, to) = index(on).zip(index(pick))?;
            Some(known.change(from, to, state.weight))
        });
        Self {
            cpu: change.and_then(|change| change.cpu),
            memory: change.and_then(|change| change.memory),
            memory_bytes: memory_bytes(state, on),
            trials: change.map_or([0, 0], |change| change.trials.map(|trials| trials as usize)),
            is_proven: change.is_some_and(|change| change.answer == Answer::Better),
        }
    }
}

/// Resident bytes in the trials of a candidate with the present build.
fn memory_bytes(state: &ProgramView, candidate: &str) -> Option<f64> {
    let resident = |record: &TrialRecord| {
        let sample = &record.sample;
        let counts = sample.candidate == candidate
            && sample.kind == PageKind::Trial
            && record.is_of_build(&state.known.build_id)
            && sample.memory.snapshots > 0
            && sample.memory.resident() > 0;
        counts.then(|| sample.memory.resident() as f64)
    };
    median(&state.known.records.iter().filter_map(resident).collect::<Vec<_>>())
}
