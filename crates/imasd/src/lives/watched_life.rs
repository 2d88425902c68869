// SPDX-License-Identifier: Apache-2.0
//! The windows of one process.
//!
//! The user's counters of work, read in a thread of their own: the loop never waits for a command.
//!
//! One command runs at a time. It has none of imasd's privileges: the thread gives up the capabilities that a new
//! program would be given. Where imasd is root, the command runs as the user of the process whose work it counts, or as
//! nobody.

use std::collections::VecDeque;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use imas_core::service_life::{LifeWindow, MemoryLook, Work};
use imas_linux::standstill::age_s;
use imas_linux::work_counter::{WorkCounter, WorkError};

use super::{ClosedWindow, Look, ObservedProcess, cpu_s};
use crate::folders::PageName;
use crate::process_info::Identity;

/// Looks at a process in one window.
const LOOKS: f64 = 12.0;

/// A process that is looked at.
#[derive(Debug)]
pub(super) struct WatchedLife {
    of: ObservedProcess,
    /// Age at which the open window ends, seconds.
    until_s: f64,
    looks: Vec<MemoryLook>,
    next_at: Instant,
    /// First reading of the process's counter.
    first: Option<CounterReading>,
    /// A window that is over but for the reading of the counter.
    waiting: Option<LifeWindow>,
}

/// Window that a look has ended, if any.
#[derive(Debug)]
pub(super) enum Closed {
    No,
    /// A window for which the counter is to be read by this command.
    Waits(String),
    Window(Box<ClosedWindow>),
}

impl WatchedLife {
    pub(super) fn new(of: ObservedProcess, first_s: f64, now: Instant) -> Self {
        let age_s = age_s(of.identity.start_ticks).unwrap_or(0.0);
        let until_s = end_of_window(first_s, age_s);
        let next_at = after(now, until_s / 2.0 - age_s);
        Self { of, until_s, looks: vec![], next_at, first: None, waiting: None }
    }

    pub(super) fn identity(&self) -> Identity {
        self.of.identity
    }

    pub(super) fn owner(&self) -> u64 {
        self.of.owner
    }

    pub(super) fn page(&self) -> Option<&PageName> {
        self.of.page.as_ref()
    }

    pub(super) fn work_name(&self) -> Option<&str> {
        self.of.work.as_ref().map(|work| work.name.as_str())
    }

    pub(super) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Whether nothing that decides how it is looked at has changed.
    pub(super) fn is_of(&self, other: &ObservedProcess) -> bool {
        self.of.process.name == other.process.name
            && self.of.process.program == other.process.program
            && self.of.work == other.work
    }

    /// Adds a look at the process. The first look after the end of a window closes that, and begins the next.
    pub(super) fn add(&mut self, look: Look, first_s: f64, now: Instant) -> Closed {
        let age_s = look.memory.age_s;
        self.looks.push(look.memory);
        let closed = if age_s >= self.until_s { self.close(&look) } else { Closed::No };
        if age_s >= self.until_s {
            self.until_s = end_of_window(first_s, age_s);
            self.looks = vec![look.memory];
        }
        self.next_at = after(now, (self.until_s / 2.0 / LOOKS).min(self.until_s - age_s));
        closed
    }

    /// Puts the next look off: the process could not be looked at in time.
    pub(super) fn look_later(&mut self, now: Instant) {
        self.next_at = after(now, self.until_s / 2.0 / LOOKS);
    }

    fn close(&mut self, look: &Look) -> Closed {
        let Some(window) = LifeWindow::of(self.until_s, &self.looks) else { return Closed::No };
        let window = LifeWindow { cpu_s: look.cpu_s, calls: look.calls, ..window };
        match &self.of.work {
            None => Closed::Window(Box::new(self.closed(window))),
            Some(work) => {
                self.waiting = Some(window);
                Closed::Waits(work.command.clone())
            }
        }
    }

    fn closed(&self, window: LifeWindow) -> ClosedWindow {
        ClosedWindow { process: self.of.process.clone(), window }
    }

    /// The counter was read, or could not be.
    pub(super) fn counted(&mut self, reading: Option<CounterReading>) -> Option<ClosedWindow> {
        let work = self.first.zip(reading).and_then(|(first, now)| work(first, now));
        // A counter that begins anew counts from there.
        if work.is_none() {
            self.first = reading.or(self.first);
        }
        let window = self.waiting.take()?;
        Some(self.closed(LifeWindow { work, ..window }))
    }
}

fn work(first: CounterReading, now: CounterReading) -> Option<Work> {
    let work = Work { units: now.units - first.units, cpu_s: now.cpu_s - first.cpu_s };
    (work.units > 0.0 && work.cpu_s > 0.0).then_some(work)
}

/// The window in which a process of that age is, or the first one: the age at which it ends.
fn end_of_window(first_s: f64, age_s: f64) -> f64 {
    let mut until_s = first_s;
    while until_s <= age_s {
        until_s *= 2.0;
    }
    until_s
}

fn after(now: Instant, seconds: f64) -> Instant {
    // Past the end of time nothing is due; a look too many does no harm.
    now + Duration::try_from_secs_f64(seconds.clamp(0.0, 1e9)).unwrap_or_default()
}

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
    use super::super::WorkSetting;
    use super::*;

    fn life(work: Option<WorkSetting>) -> WatchedLife {
        let identity = Identity { pid: 1, start_ticks: u64::MAX / 2 }; // it begins now
        let observed = ObservedProcess { work, ..ObservedProcess::of_test(0, identity) };
        WatchedLife::new(observed, 600.0, Instant::now())
    }

    fn look(age_s: f64) -> Look {
        let bytes = if age_s < 400.0 { 100 } else { 200 };
        Look { memory: MemoryLook { age_s, bytes, live_bytes: 50 }, cpu_s: age_s / 10.0, calls: 7 }
    }

    fn looks(life: &mut WatchedLife, ages: impl Iterator<Item = f64>) -> Vec<Closed> {
        let closed = ages.map(|age_s| life.add(look(age_s), 600.0, Instant::now()));
        closed.filter(|closed| !matches!(closed, Closed::No)).collect()
    }

    fn counting() -> Option<WorkSetting> {
        Some(WorkSetting { name: "unit x.service".into(), command: "cat n".into() })
    }

    #[test]
    fn windows_follow_each_other_and_double() {
        let mut life = life(None);
        let closed = looks(&mut life, (15..=120).map(|at| f64::from(at) * 20.0));
        let windows: Vec<_> = closed
            .iter()
            .map(|closed| match closed {
                Closed::Window(closed) => (closed.window.until_s, closed.window.cpu_s, closed.window.calls),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(windows, [(600.0, 60.0, 7), (1200.0, 120.0, 7), (2400.0, 240.0, 7)]);
    }

    #[test]
    fn a_window_that_was_hardly_seen_is_left_out() {
        let mut life = life(None);
        let closed = looks(&mut life, (50..=120).map(|at| f64::from(at) * 20.0));
        assert_eq!(closed.len(), 1, "from 1000 s on it was looked at: only that to 2400 s");
    }

    #[test]
    fn a_window_waits_for_the_counter() {
        let mut life = life(counting());
        let reading = |units, cpu_s| Some(CounterReading { units, cpu_s });
        assert!(life.counted(reading(1000.0, 1.0)).is_none(), "the first reading");
        let mut close = |ages: std::ops::RangeInclusive<i32>, reading| {
            let closed = looks(&mut life, ages.map(|at| f64::from(at) * 20.0));
            assert!(matches!(closed.as_slice(), [Closed::Waits(_)]), "{closed:?}");
            life.counted(reading).unwrap().window.work
        };
        assert_eq!(close(15..=30, reading(1400.0, 5.0)), Some(Work { units: 400.0, cpu_s: 4.0 }));
        assert_eq!(close(31..=60, None), None, "it failed: the window counts without");
        assert_eq!(close(61..=120, reading(10.0, 20.0)), None, "it began anew");
        assert_eq!(close(121..=240, reading(30.0, 25.0)), Some(Work { units: 20.0, cpu_s: 5.0 }));
    }

    fn read(command: &str) -> Result<CounterReading, String> {
        let mut reader = CounterReader::new();
        let identity = crate::process_info::life(std::process::id()).unwrap().identity;
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
