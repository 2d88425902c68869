// SPDX-License-Identifier: Apache-2.0
//! The files in which `imas status` reads what the daemon does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use imas_engine::daemon_status::{DaemonCounters, DaemonStatus, FleetState, LeftAloneProcess, WorkTrouble};

use crate::ineligible::Ineligible;

/// Shortest time between two writes.
const BETWEEN: Duration = Duration::from_secs(1);

/// Figures that are written as soon as they change.
pub(crate) type Reported = (DaemonCounters, Option<FleetState>, Vec<WorkTrouble>, Vec<LeftAloneProcess>);

/// The files, and what was written last.
#[derive(Debug)]
pub(crate) struct StatusFile {
    state: PathBuf,
    reported: Option<Reported>,
    written: Instant,
}

impl StatusFile {
    pub(crate) fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), reported: None, written: Instant::now() }
    }

    /// Whether anything was counted since they were written, or the fleet's state is another.
    pub(crate) fn is_new(&self, now: &Reported) -> bool {
        self.reported.as_ref() != Some(now)
    }

    pub(crate) fn is_due(&self, reported: &Reported, now: Instant) -> bool {
        self.is_new(reported) && now.duration_since(self.written) >= BETWEEN
    }

    /// Time when the files are to be written.
    pub(crate) fn next(&self, now: &Reported) -> Option<Instant> {
        self.is_new(now).then(|| self.written + BETWEEN)
    }

    /// Writes both files; what cannot be written is written the next time.
    pub(crate) fn write(&mut self, status: &DaemonStatus, ineligible: &Ineligible) {
        self.written = Instant::now();
        if status.write(&self.state).is_ok() {
            let DaemonStatus { counters, fleet, work_troubles, trims_left_alone, .. } = status;
            self.reported = Some((*counters, fleet.clone(), work_troubles.clone(), trims_left_alone.clone()));
        }
        if let Err(error) = ineligible.write(&self.state) {
            tracing::debug!("ineligible programs could not be written down: {error}"); // their number was
        }
    }
}
