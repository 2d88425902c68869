// SPDX-License-Identifier: Apache-2.0
//! Messages to systemd, and the files in which `imas status` reads what the daemon does.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use imas_engine::daemon_status::{DaemonCounters, DaemonStatus, FleetState, LeftAloneProcess, WorkTrouble};
use sd_notify::NotifyState;

use crate::program_table::Ineligible;

fn send(states: &[NotifyState<'_>]) {
    // Outside of systemd there is no receiver. Under systemd, a lost message shows as a missed deadline.
    let _ = sd_notify::notify(states);
}

/// The first index is published.
pub(crate) fn ready() {
    send(&[NotifyState::Ready]);
}

/// Says that SIGHUP came; [`ready`] ends it.
pub(crate) fn reloading() {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    send(&states);
}

/// Says that SIGTERM came.
pub(crate) fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// The main loop turns.
pub(crate) fn alive() {
    send(&[NotifyState::Watchdog]);
}

/// Time between two messages of [`alive`]: half of what the unit asks for; `None` when it does not.
pub(crate) fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

/// Shortest time between two writes.
const BETWEEN: Duration = Duration::from_secs(1);

/// Figures that are written as soon as they change.
pub(super) type Reported = (DaemonCounters, Option<FleetState>, Vec<WorkTrouble>, Vec<LeftAloneProcess>);

/// The files, and what was written last.
#[derive(Debug)]
pub(super) struct StatusFile {
    state: PathBuf,
    reported: Option<Reported>,
    written: Instant,
}

impl StatusFile {
    pub(super) fn new(state: &Path) -> Self {
        Self { state: state.to_owned(), reported: None, written: Instant::now() }
    }

    /// Whether anything was counted since they were written, or the fleet's state is another.
    pub(super) fn is_new(&self, now: &Reported) -> bool {
        self.reported.as_ref() != Some(now)
    }

    pub(super) fn is_due(&self, reported: &Reported, now: Instant) -> bool {
        self.is_new(reported) && now.duration_since(self.written) >= BETWEEN
    }

    /// Time when the files are to be written.
    pub(super) fn next(&self, now: &Reported) -> Option<Instant> {
        self.is_new(now).then(|| self.written + BETWEEN)
    }

    /// Writes both files; what cannot be written is written the next time.
    pub(super) fn write(&mut self, status: &DaemonStatus, ineligible: &Ineligible) {
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
