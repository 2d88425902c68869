// SPDX-License-Identifier: Apache-2.0
//! A command that is run for what it prints, with a limit of time and bytes.

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Between two questions whether it has ended, once it has closed its output.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It could not be started, or its output not be read.
    Io(std::io::Error),
    /// It took too long, and was ended.
    Late,
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// Runs the command, whose output or errors are pipes, and returns what it wrote there and how it ended.
/// Blocks, for `limit` at most; then all of its process group is killed. After `most_bytes` the pipe is closed:
/// a command that writes more ends.
///
/// # Errors
/// When it cannot be run, or takes too long.
pub(crate) fn run(
    command: &mut Command,
    limit: Duration,
    most_bytes: usize,
) -> Result<(String, ExitStatus), Stopped> {
    let until = Instant::now() + limit;
    let mut child = command.process_group(0).spawn()?;
    let answer = answer(&mut child, until, most_bytes);
    let status = end(&mut child);
    Ok((answer?, status?))
}

/// Output of the command, once it has ended.
fn answer(child: &mut Child, until: Instant, most_bytes: usize) -> Result<String, Stopped> {
    let text = match (child.stdout.take(), child.stderr.take()) {
        (Some(output), None) => text(output, until, most_bytes),
        // A command that fills the second pipe meanwhile waits, and is late.
        (Some(output), Some(errors)) => {
            text(output, until, most_bytes).and_then(|first| Ok(first + &text(errors, until, most_bytes)?))
        }
        (None, Some(errors)) => text(errors, until, most_bytes),
        (None, None) => Ok(String::new()),
    }?;
    while !has_ended(child)? {
        if Instant::now() >= until {
            return Err(Stopped::Late);
        }
        std::thread::sleep(BETWEEN_QUESTIONS);
    }
    Ok(text)
}

/// Leaves it a zombie: until it is waited for, nobody else gets its number, which is that of its group.
fn has_ended(child: &Child) -> std::io::Result<bool> {
    let looks = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let pid = Pid::from_child(child);
    Ok(waitid(WaitId::Pid(pid), looks)?.is_some())
}

/// Output until it is closed, or too long.
fn text(mut output: impl Read + AsFd, until: Instant, most_bytes: usize) -> Result<String, Stopped> {
    let mut bytes = vec![];
    while bytes.len() < most_bytes {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Stopped::Late)?;
        let mut waits = [PollFd::new(&output, PollFlags::IN)];
        match poll(&mut waits, Some(&timeout)) {
            Ok(0) => return Err(Stopped::Late),
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled.map_err(std::io::Error::from)?,
        };
        let mut buffer = [0; 1024];
        match output.read(&mut buffer)? {
            0 => break,
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Nothing of the command is left running; how it ended.
fn end(child: &mut Child) -> std::io::Result<ExitStatus> {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL); // it has ended, as a rule
    child.wait()
}
