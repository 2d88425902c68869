// SPDX-License-Identifier: Apache-2.0
//! `imas apply --watch`: compares a service's figures before the change with those under the candidate. The
//! change is taken back if the service crashes more often than before, or takes more memory than ever before.
//!
//! - `record`: the record of one watched unit, a file that `imas status` reads
//! - `figures`: figures of a unit from systemd, its control group and /proc
//! - `journal`: its failures
//! - `judge`: decides from the record alone whether to take the change back
//! - `watcher`: the loop, in a unit of its own, so that neither imasd nor a terminal is needed
//! - `way_back`: takes the change back
//! - `watch_unit`: that unit's file
//!
//! The unit in which a watcher runs. Its file is written for one watch and removed with it, so a watch survives a
//! reboot.

mod figures;
mod judge;
mod watcher;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use imas_cli::format::span;
use imas_cli::message::{self, Hinted};
use imas_linux::host::now_unix_s;

use crate::apply::unit::systemctl;

pub(crate) use figures::{WatchRecord, work_command};

/// Default length of a watch, seconds.
pub(crate) const USUAL_S: f64 = 24.0 * 3600.0;

/// A change that is to be applied and watched.
pub(crate) struct Change<'a> {
    pub(crate) unit: &'a str,
    pub(crate) candidate: &'a str,
    pub(crate) watch_s: f64,
    /// The earlier drop-in, which is restored if the change is taken back; empty: none.
    pub(crate) drop_in_before: &'a str,
    /// The drop-in that is about to be written.
    pub(crate) drop_in: &'a str,
    /// Command that prints a counter of the unit's work.
    pub(crate) work: Option<String>,
}

/// A watch that is about to begin.
#[derive(Debug)]
pub(crate) struct NewWatch {
    record: WatchRecord,
    /// The watch that it replaces and that had no outcome yet.
    earlier: Option<WatchRecord>,
}

/// Measures the unit before the change and writes the record of the watch, before anything else is changed: a
/// change without a record would never be taken back. The unit must run, because otherwise there is nothing
/// to compare with. A watch that still runs ends here. What was there before it counts on: the change is
/// taken back to that.
pub(crate) fn prepare(change: &Change<'_>) -> Result<NewWatch> {
    let before = figures::before(change.unit, change.watch_s, change.work.as_deref())?;
    if before.age_s < judge::window_s(change.watch_s) {
        message::warning(&format!(
            "{} has run for {} only: its memory now says little about later; it is compared at the same age",
            change.unit,
            span(before.age_s)
        ));
    }
    let mut record = WatchRecord {
        unit: change.unit.to_owned(),
        candidate: change.candidate.to_owned(),
        begun_unix_s: now_unix_s(),
        watch_s: change.watch_s,
        drop_in_before: change.drop_in_before.to_owned(),
        drop_in_applied: change.drop_in.to_owned(),
        work: change.work.clone(),
        before,
        ..WatchRecord::default()
    };
    let is_watched = || WatchRecord::of(change.unit).filter(|earlier| earlier.outcome.is_none());
    if is_watched().is_some() {
        stop_unit(change.unit);
    }
    // It may have come to its end meanwhile.
    let earlier = is_watched();
    if let Some(earlier) = earlier.clone() {
        take_over(&mut record, earlier);
    }
    let watch = NewWatch { record, earlier };
    match watch.record.write() {
        Ok(()) => Ok(watch),
        Err(error) => {
            watch.undo();
            let hint = match message::is_denied(&error) {
                true => "root may watch services: the same with sudo".to_owned(),
                false => format!("make room in {}, then try again; or leave --watch out", figures::FOLDER),
            };
            Err(Hinted::error(
                format!("{}: its watch cannot be recorded, so nothing was changed: {error:#}", change.unit),
                hint,
            ))
        }
    }
}

/// Takes over what was there before a watch that has no outcome.
fn take_over(record: &mut WatchRecord, earlier: WatchRecord) {
    record.drop_in_before = earlier.drop_in_before;
    record.before = earlier.before;
}

impl NewWatch {
    /// Starts the watcher, which restarts the unit. The drop-in must be written already.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let record = &mut self.record;
        record.after.since_unix_s = now_unix_s();
        record.after.replaced_life = figures::UnitState::now(&record.unit)?.life().to_owned();
        record.write()?;
        start_unit(&record.unit).with_context(|| format!("{}: its watcher cannot be started", record.unit))
    }

    /// Takes the record away, and lets the earlier watch go on. For a change that could not be made.
    pub(crate) fn undo(&self) {
        let unit = &self.record.unit;
        forget_unit(unit);
        let Some(earlier) = &self.earlier else {
            let _ = std::fs::remove_file(figures::file(unit)); // it may never have been written
            return;
        };
        // On a full disk the earlier record is still there.
        let is_there = WatchRecord::of(unit).as_ref() == Some(earlier);
        let written = if is_there { Ok(()) } else { earlier.write() };
        if let Err(error) = written.and_then(|()| start_unit(unit)) {
            message::warning(&format!("{unit}: its earlier watch cannot go on: {error:#}"));
        }
    }
}

/// Ends the watch of a unit and deletes its record.
pub(crate) fn end(unit: &str) {
    if figures::file(unit).exists() {
        stop_unit(unit);
        let _ = std::fs::remove_file(figures::file(unit));
    }
}

/// `imas watch-unit`: runs the watcher.
pub(crate) fn run(unit: &str) -> Result<ExitCode> {
    watcher::watch(unit)
}

/// The records of all units, ordered by name.
pub(crate) fn records() -> Vec<WatchRecord> {
    let entries = std::fs::read_dir(Path::new(figures::FOLDER)).into_iter().flatten().flatten();
    let mut records: Vec<_> = entries.filter_map(|entry| WatchRecord::read(&entry.path()).ok()).collect();
    records.sort_by(|a, b| a.unit.cmp(&b.unit));
    records
}

const FOLDER: &str = "/etc/systemd/system";

/// Replaces `@`, which would make the unit an instance of a template.
fn name(unit: &str) -> String {
    format!("imas-watch-{}", unit.replace('@', "\\x40"))
}

fn file(unit: &str) -> PathBuf {
    PathBuf::from(FOLDER).join(name(unit))
}

fn text(unit: &str, imas: &str) -> String {
    // systemd reads '%' as a specifier and a backslash as an escape. In a unit's name only the backslash
    // occurs.
    let quoted = |word: &str| word.replace('\\', "\\\\").replace('%', "%%");
    format!(
        "# Made by imas apply --watch; removed when the watch ends\n\
         [Unit]\nDescription=IMAS: watch {0} under another allocator\nStartLimitIntervalSec=0\n\
         [Service]\nExecStart=\"{1}\" watch-unit \"{0}\"\nEnvironment=IMAS_DISABLE=1\n\
         Restart=on-failure\nRestartSec=5\n\
         [Install]\nWantedBy=multi-user.target\n",
        quoted(unit),
        quoted(imas)
    )
}

/// Writes the unit's file and enables it, so that it starts now and at each boot.
fn start_unit(unit: &str) -> Result<()> {
    let imas = std::env::current_exe().context("the path of imas")?;
    imas_engine::drop_in::write(&file(unit), &text(unit, &imas.to_string_lossy()))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", "--quiet", "--", &name(unit)])?;
    systemctl(&["restart", "--", &name(unit)])?;
    Ok(())
}

/// Removes the unit's file, so that it is not started again.
fn forget_unit(unit: &str) {
    // Each step may have been done already.
    let _ = systemctl(&["disable", "--quiet", "--", &name(unit)]);
    let _ = std::fs::remove_file(file(unit));
    let _ = systemctl(&["daemon-reload"]);
}

/// Ends the watcher and removes its unit.
fn stop_unit(unit: &str) {
    let _ = systemctl(&["stop", "--", &name(unit)]); // it may have ended already
    forget_unit(unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_watch_goes_back_to_what_was_before_the_first() {
        let watch = |before: &str, failures| WatchRecord {
            drop_in_before: before.into(),
            before: figures::Before { failures, ..figures::Before::default() },
            ..WatchRecord::default()
        };
        let mut second = watch("first candidate", 5);
        take_over(&mut second, watch("", 1));
        assert_eq!(second, watch("", 1));
    }

    #[test]
    fn an_instance_is_watched_by_a_plain_unit() {
        assert_eq!(name("worker@1.service"), "imas-watch-worker\\x401.service");
        let text = text("worker@1.service", "/opt/100%/imas");
        assert!(text.contains("ExecStart=\"/opt/100%%/imas\" watch-unit \"worker@1.service\"\n"), "{text}");
    }
}
