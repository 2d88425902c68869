// SPDX-License-Identifier: Apache-2.0
//! Output of log lines: the journal with their fields when systemd runs us, else standard error. The journal
//! keeps each field apart and shows what is not printable as a number of bytes; on standard error one event
//! is one line of printable characters.
//!
//! When to log that something fails, and that it works again. What is tried again every few seconds may fail and work
//! by turns, and two lines are enough for that.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use imas_core::printable;
use tracing_subscriber::Registry;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;

/// Sets it up, once, before anything is logged.
pub(crate) fn start() {
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
