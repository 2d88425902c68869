// SPDX-License-Identifier: Apache-2.0
//! Output of a program, line by line, with a time limit: a program that hangs under an allocator must not
//! stop the study.

use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

const LINE_TIMEOUT: Duration = Duration::from_secs(60);

/// The lines of a program's standard output.
pub(super) struct Spoken {
    program: &'static str,
    lines: Receiver<String>,
}

impl Spoken {
    /// Reads on a thread of its own, until the program ends or the receiver is dropped.
    pub(super) fn of(program: &'static str, output: ChildStdout) -> Self {
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        Self { program, lines }
    }

    /// Waits for a line that `wanted` understands.
    pub(super) fn until<T>(&self, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(LINE_TIMEOUT.saturating_sub(start.elapsed())) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => anyhow::bail!("{}: it ended too early", self.program),
                Err(RecvTimeoutError::Timeout) => {
                    anyhow::bail!("{}: no output for {} s", self.program, LINE_TIMEOUT.as_secs())
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_line_is_waited_for_and_an_end_is_noticed() {
        let mut child =
            Command::new("sh").args(["-c", "echo a; echo t=7"]).stdout(Stdio::piped()).spawn().unwrap();
        let spoken = Spoken::of("sh", child.stdout.take().unwrap());
        assert_eq!(spoken.until(|line| line.strip_prefix("t=")?.parse::<u32>().ok()).unwrap(), 7);
        assert!(spoken.until(|_| Some(())).unwrap_err().to_string().contains("ended too early"));
        child.wait().unwrap();
    }
}
