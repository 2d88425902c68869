// SPDX-License-Identifier: Apache-2.0
//! The user's counters of work, read in a thread of their own: the loop never waits for a command.
//!
//! One command runs at a time. It has none of imasd's privileges: the thread gives up the capabilities that a
//! new program would be given. Where imasd is root, the command runs as the user of the process whose work it
//! counts, or as nobody.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use imas_linux::work_counter::{WorkCounter, WorkError};

use super::look::cpu_s;
use crate::process_info::Identity;

/// User and group of nobody.
const NOBODY: (u32, u32) = (65_534, 65_534);
/// Time between two looks whether a command has answered.
const BETWEEN: Duration = Duration::from_millis(250);
/// Number of commands that may wait.
const MOST: usize = 512;

/// Reading of a counter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CounterReading {
    /// The number that the command printed.
    pub(super) units: f64,
    /// CPU time of the process just before, seconds.
    pub(super) cpu_s: f64,
}

/// The answer of a command.
#[derive(Debug)]
pub(super) struct CounterAnswer {
    pub(super) identity: Identity,
    /// Reading of the counter, or why there is none, in words.
    pub(super) reading: Result<CounterReading, String>,
}

/// Runs the commands.
#[derive(Debug)]
pub(super) struct CounterReader {
    waiting: VecDeque<(Identity, String)>,
    runs: bool,
    answers: (Sender<CounterAnswer>, Receiver<CounterAnswer>),
}

impl CounterReader {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), runs: false, answers: channel() }
    }

    /// The counter of the process is to be read by this command.
    pub(super) fn ask(&mut self, identity: Identity, command: &str) {
        if self.waiting.len() < MOST {
            self.waiting.push_back((identity, command.to_owned()));
        }
    }

    /// Answers that have come; starts the next command.
    pub(super) fn turn(&mut self) -> Vec<CounterAnswer> {
        let mut answers: Vec<_> = self.answers.1.try_iter().collect();
        self.runs &= answers.is_empty();
        if !self.runs
            && let Some((identity, command)) = self.waiting.pop_front()
        {
            let failed = self.start(identity, command).err();
            self.runs = failed.is_none();
            let answer = |error: std::io::Error| CounterAnswer { identity, reading: Err(error.to_string()) };
            answers.extend(failed.map(answer));
        }
        answers
    }

    fn start(&self, identity: Identity, command: String) -> std::io::Result<()> {
        let sender = self.answers.0.clone();
        let counter = WorkCounter { command, pid: Some(identity.pid), user: user_for(identity.pid) };
        let thread = std::thread::Builder::new().name("work".to_owned());
        let read = move || {
            let reading = without_capabilities().and_then(|()| reading(identity, &counter));
            let _ = sender.send(CounterAnswer { identity, reading }); // unless imasd is ending
        };
        thread.spawn(read).map(drop)
    }

    /// Time to take a turn if nothing happens.
    pub(super) fn next(&self) -> Option<Instant> {
        (self.runs || !self.waiting.is_empty()).then(|| Instant::now() + BETWEEN)
    }
}

fn reading(identity: Identity, counter: &WorkCounter) -> Result<CounterReading, String> {
    let cpu_s = cpu_s(identity.pid).ok_or("the process has ended")?;
    let units = counter.read().map_err(|why| match why {
        // Everybody may read the status, and what the command printed may be a file that a service has put in place of
        // its own.
        WorkError::NoNumber(_) => "the command printed no number".to_owned(),
        why => why.to_string(),
    })?;
    Ok(CounterReading { units, cpu_s })
}

/// Takes imasd's capabilities from what this thread executes from now on.
fn without_capabilities() -> Result<(), String> {
    let given_up = rustix::thread::clear_ambient_capability_set();
    given_up.map_err(|error| format!("its privileges cannot be given up: {error}"))
}

/// User and group that a command runs as. `None`: our own, because only root can choose.
fn user_for(pid: u32) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let about = std::fs::metadata(format!("/proc/{pid}")).ok();
    Some(
        about
            .map(|about| (about.uid(), about.gid()))
            .filter(|(uid, gid)| *uid != 0 && *gid != 0)
            .unwrap_or(NOBODY),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::life;

    fn read(command: &str) -> Result<CounterReading, String> {
        let mut reader = CounterReader::new();
        let identity = life(std::process::id()).unwrap().identity;
        reader.ask(identity, command);
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut answers = reader.turn();
            if let Some(answer) = answers.pop() {
                assert!(answer.identity == identity && reader.next().is_none());
                return answer.reading;
            }
            assert!(Instant::now() < deadline, "no answer");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_counter_is_read_beside_the_loop() {
        assert_eq!(read("echo 42").unwrap().units, 42.0);
        assert_eq!(read("echo $IMAS_PID").unwrap().units, f64::from(std::process::id()));
        assert!(read("false").unwrap_err().contains("failed"));
        assert_eq!(read("echo secret").unwrap_err(), "the command printed no number");
    }

    /// `CapEff` of the command, and its user.
    #[test]
    fn a_command_has_no_privileges() {
        let capabilities = "sed -n 's/^CapEff:[[:space:]]*/0x/p' /proc/self/status | xargs printf '%d'";
        assert_eq!(read(capabilities).unwrap().units, 0.0);
        assert!(read("id -u").unwrap().units > 0.0, "never root");
    }
}
