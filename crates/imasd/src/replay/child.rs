// SPDX-License-Identifier: Apache-2.0
//! One child process that replays one recording: `imas learn`, at the lowest priorities for CPU and disk.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use imas_store::RowId;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::settings::ReplayPriority;

/// From the request to end until it is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where a child works.
#[derive(Debug)]
pub(crate) struct ChildPlaces<'a> {
    pub(crate) run_dir: &'a Path,
    pub(crate) lib_dir: &'a Path,
    /// For its temporary files.
    pub(crate) scratch: &'a Path,
    pub(crate) priority: ReplayPriority,
}

/// Why it was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The machine has other work.
    Pressure,
    /// Its time is over.
    TimeLimit,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ChildEnd {
    /// It has stored what it learned, or why there was nothing to learn.
    Done,
    /// It was asked to end.
    Stopped(StopReason),
    /// It did not say what happened.
    Failed(String),
}

/// The child.
#[derive(Debug)]
pub(crate) struct ReplayChild {
    child: Child,
    pub(crate) program: RowId,
    began: Instant,
    stopped: Option<(StopReason, Instant)>,
}

impl ReplayChild {
    /// Starts it for the recording of that program.
    pub(crate) fn start(program: RowId, places: &ChildPlaces<'_>) -> std::io::Result<Self> {
        let imas = imas_beside().ok_or_else(|| std::io::Error::other("the command imas is not installed"))?;
        let mut command = match places.priority {
            ReplayPriority::Normal => Command::new(imas),
            ReplayPriority::Idle => {
                let mut lowest = Command::new("chrt");
                lowest.args(["--idle", "0", "ionice", "-c", "3"]).arg(imas);
                lowest
            }
        };
        let child = command
            .arg("--lib-dir")
            .arg(places.lib_dir)
            .args(["learn", "--of-daemon"])
            .arg(places.run_dir)
            .arg(program.to_string())
            .env("TMPDIR", places.scratch)
            .env_remove("NOTIFY_SOCKET")
            .env_remove("IMAS_STORE")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child, program, began: Instant::now(), stopped: None })
    }

    /// How long it has run.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.duration_since(self.began)
    }

    /// Asks it to end.
    pub(crate) fn stop(&mut self, why: StopReason, now: Instant) {
        if self.stopped.is_none() {
            self.stopped = Some((why, now));
            self.signal(Signal::SIGTERM);
        }
    }

    /// How it has ended; None while it runs.
    pub(crate) fn ended(&mut self, now: Instant) -> Option<ChildEnd> {
        if self.stopped.is_some_and(|(_, at)| now.duration_since(at) > PATIENCE) {
            self.signal(Signal::SIGKILL);
        }
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(self.end(status)),
            Err(error) => Some(ChildEnd::Failed(error.to_string())),
        }
    }

    fn end(&self, status: ExitStatus) -> ChildEnd {
        self.signal(Signal::SIGKILL); // a replay that it has left behind
        match (self.stopped, status.code()) {
            (Some((why, _)), _) => ChildEnd::Stopped(why),
            (None, Some(0 | 1)) => ChildEnd::Done, // 1: nothing could be learned, and it has stored why
            (None, Some(code)) => ChildEnd::Failed(format!("imas learn ended with {code}")),
            (None, None) => {
                ChildEnd::Failed(format!("imas learn was ended by signal {}", status.signal().unwrap_or(0)))
            }
        }
    }

    /// To it and its replays.
    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), signal); // it may have ended in the meantime
        }
    }
}

impl Drop for ReplayChild {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}

/// The command: beside imasd as built, below the same prefix as installed.
fn imas_beside() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let folder = own.parent()?;
    [folder.join("imas"), folder.join("../bin/imas")].into_iter().find(|path| path.is_file())
}
