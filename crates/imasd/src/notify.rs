// SPDX-License-Identifier: Apache-2.0
//! What the daemon says: messages to systemd, and the files in which `imas status` reads what it does. Then log lines: to
//! the journal with their fields when systemd runs us, else to standard error. The journal keeps each field apart and shows
//! what is not printable as a number of bytes; on standard error one event is one line of printable characters.
//!
//! And when to log that something fails, and that it works again. What is tried again every few seconds may fail and work by
//! turns, and two lines are enough for that.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use imas_core::printable;
use imas_engine::daemon_status::{DaemonCounters, DaemonStatus, FleetState, LeftAloneProcess, WorkTrouble};
use sd_notify::NotifyState;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

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

/// Sets it up, once, before anything is logged.
pub(crate) fn start_log() {
    let level = LevelFilter::INFO;
    let journal = std::env::var_os("JOURNAL_STREAM").and_then(|_| tracing_journald::layer().ok());
    let set = match journal {
        Some(journal) => {
            let journal = journal.with_field_prefix(Some("IMAS".to_owned()));
            tracing::subscriber::set_global_default(Registry::default().with(level).with(journal))
        }
        None => {
            let lines = tracing_subscriber::fmt::layer()
                .with_writer(|| Printable(io::stderr()))
                .with_ansi(false)
                .with_target(false)
                .without_time();
            tracing::subscriber::set_global_default(Registry::default().with(level).with(lines))
        }
    };
    // Only a second call can fail, and then the log is set up already.
    let _ = set;
}

/// Passes on each event, which comes as one write, as one printable line. Users choose the names of programs,
/// so control characters are escaped.
struct Printable<W: Write>(W);

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        self.0.write_all(format!("{}\n", printable::name(line)).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Time for which a thing must work until it works again.
const QUIET: Duration = Duration::from_secs(60);

/// State of the log about something that may fail.
#[derive(Debug, Default)]
pub(super) struct TroubleLog {
    is_logged: bool,
    works_since: Option<Instant>,
}

impl TroubleLog {
    /// Notes that the work has failed. Returns whether that is to be logged.
    pub(super) fn began(&mut self) -> bool {
        self.works_since = None;
        !std::mem::replace(&mut self.is_logged, true)
    }

    /// Notes that the work has succeeded.
    pub(super) fn ended(&mut self, now: Instant) {
        self.works_since.get_or_insert(now);
    }

    /// Whether the success is to be logged now that it works again.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = self.is_logged && self.works_since.is_some_and(|since| now - since >= QUIET);
        self.is_logged &= !is_over;
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_printable_line() {
        let mut lines = Vec::new();
        writeln!(Printable(&mut lines), "WARN x\u{1b}]0;t\u{7}\nERROR forged").unwrap();
        assert_eq!(lines, b"WARN x\\u{1b}]0;t\\u{7}\\nERROR forged\n");
    }

    #[test]
    fn trouble_that_comes_and_goes_makes_two_lines() {
        let (mut log, begin) = (TroubleLog::default(), Instant::now());
        let mut lines = 0;
        for turn in 0..20 {
            let now = begin + Duration::from_secs(10 * turn);
            lines += usize::from(log.began());
            log.ended(now);
            lines += usize::from(log.is_over(now + Duration::from_secs(5)));
        }
        assert_eq!(lines, 1);
        assert!(!log.is_over(begin + Duration::from_secs(200)));
        assert!(
            log.is_over(begin + Duration::from_secs(260)) && !log.is_over(begin + Duration::from_secs(999))
        );
        assert!(log.began());
    }
}
