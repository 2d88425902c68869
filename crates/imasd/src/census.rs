// SPDX-License-Identifier: Apache-2.0
//! Which processes are worth a look: those that live or work long enough.
//!
//! A process is looked at one second after it became known, then at growing distances, a dozen times at most,
//! until its program is served or it has ended. New processes are reported by the kernel
//! ([`crate::connector`]) or found in /proc.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use imas_linux::living_thread;

use crate::process_info::{self, Life};

/// Most processes waited for; beyond that the newest are left for the next search.
const MOST_WAITING: usize = 65_536;
/// Processes looked at in one turn of the loop.
const MOST_LOOKS: usize = 4096;
/// Processes that are taken in during one turn of the loop. That costs more than a look.
const MOST_RIPE: usize = 128;
/// The first look comes after this time: most processes have ended by then and cost nothing.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Longest time between two looks.
const FARTHEST: Duration = Duration::from_secs(64);

/// Lives that are long enough for a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Worth {
    /// CPU used, seconds.
    pub(crate) cpu_s: f64,
    /// Age, seconds. Either of the two is enough.
    pub(crate) life_s: f64,
}

impl Worth {
    fn holds(&self, life: &Life) -> bool {
        life.cpu_s >= self.cpu_s || life.age_s >= self.life_s
    }
}

/// Hash of the path of a file.
type File = u64;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: Reverse<Instant>,
    pid: u32,
    step: Duration,
}

/// The processes that are waited for.
#[derive(Debug)]
pub(crate) struct Census {
    worth: Worth,
    waiting: BinaryHeap<Waiting>,
    /// The processes of the last search, and the file that each ran.
    present: HashMap<u32, Option<File>>,
    /// Processes that could not be waited for, since the start.
    pub(crate) overlooked: u64,
}

impl Census {
    pub(crate) fn new(worth: Worth) -> Self {
        Self { worth, waiting: BinaryHeap::new(), present: HashMap::new(), overlooked: 0 }
    }

    pub(crate) fn set_worth(&mut self, worth: Worth) {
        self.worth = worth;
    }

    /// A process that has just begun, or runs another image now.
    pub(crate) fn note(&mut self, pid: u32, now: Instant) {
        if self.waiting.len() >= MOST_WAITING {
            self.overlooked += 1;
            return;
        }
        let first = FIRST_LOOK.min(Duration::from_secs_f64(self.worth.life_s.min(1e6)));
        self.waiting.push(Waiting { due: Reverse(now + first), pid, step: FIRST_LOOK });
    }

    /// A process that was ripe but could not be seen: during its exec it is seen soon, and one that
    /// may not be seen at all is looked at ever more seldom.
    pub(crate) fn note_again(&mut self, life: &Life, now: Instant) {
        let wait = Duration::from_secs_f64(life.age_s.min(1e6)).clamp(FIRST_LOOK, FARTHEST);
        self.waiting.push(Waiting { due: Reverse(now + wait), pid: life.identity.pid, step: wait });
    }

    /// Finds the processes that are new in /proc since the last search, and those that run another file than
    /// then: a wrapper, or what a program is between its fork and its exec, is not what stays.
    pub(crate) fn search(&mut self, now: Instant) {
        let Ok(entries) = std::fs::read_dir("/proc") else { return };
        let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let present: HashMap<u32, Option<File>> = pids.map(|pid| (pid, file_of(pid))).collect();
        for (pid, file) in &present {
            if self.present.get(pid) != Some(file) {
                self.note(*pid, now);
            }
        }
        self.present = present;
    }

    /// Time of the next look.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.waiting.peek().map(|waiting| waiting.due.0)
    }

    /// The processes that have earned a place by now, or some of them. Each is named once.
    pub(crate) fn ripe(&mut self, now: Instant) -> Vec<Life> {
        let mut ripe = Vec::new();
        let mut looked = 0;
        while self.next().is_some_and(|due| due <= now) && ripe.len() < MOST_RIPE && looked < MOST_LOOKS {
            looked += 1;
            let Some(waiting) = self.waiting.pop() else { break };
            let Some(life) = process_info::life(waiting.pid) else { continue };
            if self.worth.holds(&life) {
                ripe.push(life);
                continue;
            }
            let step = (waiting.step * 2).min(FARTHEST);
            self.waiting.push(Waiting { due: Reverse(now + waiting.step), pid: waiting.pid, step });
        }
        ripe
    }
}

/// The file that the process runs; `None` for the kernel's own and for one that is gone.
fn file_of(pid: u32) -> Option<File> {
    // The kernel's path of it: no file system is asked, so nobody can make this slow.
    let path = std::fs::read_link(format!("/proc/{}/exe", living_thread::of(pid))).ok()?;
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_ripe(census: &mut Census, now: Instant) -> Vec<u32> {
        let turns =
            std::iter::from_fn(|| Some(census.ripe(now + FIRST_LOOK)).filter(|ripe| !ripe.is_empty()));
        turns.flatten().map(|life| life.identity.pid).collect()
    }

    #[test]
    fn a_process_is_ripe_when_it_has_worked_or_lived_long_enough() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 1e9, life_s: 1e9 });
        census.note(std::process::id(), now);
        assert!(census.ripe(now).is_empty(), "not before its first look");
        let later = now + Duration::from_secs(2);
        assert!(census.ripe(later).is_empty());
        assert!(census.next().unwrap() > later, "looked at again");
        census.set_worth(Worth { cpu_s: 1e9, life_s: 0.0 });
        let ripe = census.ripe(later + FARTHEST);
        assert_eq!(ripe.len(), 1);
        assert_eq!(ripe[0].identity.pid, std::process::id());
        assert_eq!(census.next(), None);
    }

    #[test]
    fn the_search_finds_each_process_once() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        census.search(now);
        assert!(all_ripe(&mut census, now).contains(&std::process::id()));
        census.search(now);
        assert!(!all_ripe(&mut census, now).contains(&std::process::id()));
    }

    #[test]
    fn the_search_finds_a_process_again_when_it_runs_another_file() {
        let mut wrapper = std::process::Command::new("/bin/sh");
        wrapper.args(["-c", "read x; exec sleep 1000"]).stdin(std::process::Stdio::piped());
        let mut child = wrapper.spawn().unwrap();
        imas_testing::wait_for_exec(&child);
        let pid = child.id();
        let before = file_of(pid);
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        let mut finds_it = || {
            census.search(now);
            all_ripe(&mut census, now).contains(&pid)
        };
        let found = [finds_it(), finds_it()];
        drop(child.stdin.take());
        while file_of(pid) == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        let found_again = finds_it();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((found, found_again), ([true, false], true));
    }

    #[test]
    fn an_unreadable_process_is_read_again() {
        let now = Instant::now();
        let mut census = Census::new(Worth { cpu_s: 0.0, life_s: 0.0 });
        let life = process_info::life(std::process::id()).unwrap();
        census.note_again(&Life { age_s: 10.0, ..life }, now);
        assert!(census.ripe(now + Duration::from_secs(9)).is_empty());
        assert_eq!(census.ripe(now + Duration::from_secs(10)).len(), 1);
        census.note_again(&Life { age_s: 0.1, ..life }, now);
        assert_eq!(census.next(), Some(now + FIRST_LOOK));
    }
}
