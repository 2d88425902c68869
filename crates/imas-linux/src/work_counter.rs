// SPDX-License-Identifier: Apache-2.0
//! The counter of a service's work: the number that a command of the user prints.
//!
//! CPU time says something about an allocator only for the same work. What that is, a service alone knows:
//! requests, jobs, queries. The user names a command that prints how many there were, from a file, a socket
//! or a client.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::start_program::{self, Stopped};

/// The command may take so long.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of its output that are read: a number and its spaces.
const MOST_BYTES: usize = 4096;

/// Variable with the id of the process whose work is asked for.
const PID_VARIABLE: &str = "IMAS_PID";

/// A command that prints a counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkCounter {
    /// Command for `/bin/sh -c`.
    pub command: String,
    /// The process whose work is asked for, for the command's variable `IMAS_PID`.
    pub pid: Option<u32>,
    /// User and group that it runs as, if not the caller's. Only root can name others.
    pub user: Option<(u32, u32)>,
}

/// Why a counter could not be read.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the texts of the errors say it")]
pub enum WorkError {
    #[error("the command cannot be run: {0}")]
    Run(#[from] std::io::Error),
    #[error("the command printed no number within {} s", LIMIT.as_secs())]
    Late,
    #[error("the command failed ({0})")]
    Failed(String),
    #[error("the command printed no number: {0:?}")]
    NoNumber(String),
}

impl From<Stopped> for WorkError {
    fn from(stopped: Stopped) -> Self {
        match stopped {
            Stopped::Io(error) => Self::Run(error),
            Stopped::Late => Self::Late,
        }
    }
}

impl WorkCounter {
    /// Runs the command and returns the number that it printed first. Blocks, for ten seconds at most; then
    /// all of its process group is killed.
    ///
    /// # Errors
    /// When it cannot be run, fails, takes too long, or prints no number.
    pub fn read(&self) -> Result<f64, WorkError> {
        self.read_within(LIMIT)
    }

    fn read_within(&self, limit: Duration) -> Result<f64, WorkError> {
        let (text, status) = start_program::run_timed(&mut self.command(), limit, MOST_BYTES)?;
        if !status.success() {
            return Err(WorkError::Failed(words(status)));
        }
        number(&text).ok_or_else(|| WorkError::NoNumber(text.chars().take(40).collect()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let Some(pid) = self.pid {
            command.env(PID_VARIABLE, pid.to_string());
        }
        if let Some((uid, gid)) = self.user {
            command.gid(gid).uid(uid); // and no other groups
        }
        command
    }
}

fn number(text: &str) -> Option<f64> {
    text.split_whitespace().next()?.parse().ok().filter(|number: &f64| number.is_finite())
}

fn words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => crate::process::signal_name(signal),
        (None, None) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn counter(command: &str) -> WorkCounter {
        WorkCounter { command: command.to_owned(), pid: Some(4711), user: None }
    }

    #[test]
    fn the_first_word_is_the_number() {
        assert_eq!(counter("echo ' 12.5 requests'").read().unwrap(), 12.5);
        assert_eq!(counter("echo $IMAS_PID").read().unwrap(), 4711.0);
        assert_eq!(counter("echo 1e3; exec >&-; sleep 0.05").read().unwrap(), 1000.0, "it ends later");
    }

    #[test]
    fn what_is_no_counter_is_said() {
        let why = |command: &str| counter(command).read().unwrap_err().to_string();
        assert_eq!(why("echo many"), "the command printed no number: \"many\\n\"");
        assert_eq!(why("echo inf"), "the command printed no number: \"inf\\n\"");
        assert_eq!(why("true"), "the command printed no number: \"\"");
        assert_eq!(why("echo 1; exit 3"), "the command failed (exit status 3)");
        assert!(why("kill -KILL $$").contains("KILL"));
    }

    #[test]
    fn a_command_that_hangs_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let command = format!("sleep 1000 & echo $! > {}; wait", file.display());
        // Until the shell had time to write the number: on a busy machine it may get no CPU for seconds.
        let pid: Option<u32> = [1, 10, 100].into_iter().find_map(|seconds| {
            let late = counter(&command).read_within(Duration::from_secs(seconds));
            assert!(matches!(late, Err(WorkError::Late)), "{late:?}");
            std::fs::read_to_string(&file).ok()?.trim().parse().ok()
        });
        let pid = pid.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let is_alive = || crate::process::arguments(pid).is_ok_and(|words| !words.is_empty());
        while is_alive() {
            assert!(Instant::now() < deadline, "its child goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn endless_output_is_cut_off() {
        let cut = counter("yes 5").read();
        assert!(matches!(cut, Err(WorkError::Failed(_))), "it is ended by its closed pipe: {cut:?}");
    }
}
