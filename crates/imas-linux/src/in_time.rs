// SPDX-License-Identifier: Apache-2.0
//! Work on files that belong to somebody else, for a program that must not wait for them.
//!
//! A user may have a file system of the user's own (FUSE), and a call on a path that leads there ends when the user
//! likes. So another thread makes the call. A thread that takes too long is given up: it ends with its call. Until
//! then no file of the same owner is touched, and all others are. Slow calls are bounded for their owner
//! (`owner_time`): a file may be large as well.
//!
//! The time that slow reads of each owner's processes or files have taken. An owner with slow reads gets a small share
//! of the reader's time: all others get the rest.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind, Result};
use std::process::Child;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time that a call may take. A disk of a busy machine may need some of it.
const LONGEST: Duration = Duration::from_secs(2);
/// Number of threads that were given up and have not ended. While this many live, no file of a user is touched.
const MOST_GIVEN_UP: usize = 32;
/// Number of such threads for files of root, such as files of a network whose server is away.
const MOST_OF_ROOT: usize = 8;

type Work = Box<dyn FnOnce() + Send>;

/// Owner of the files that no user can change. A slow disk may make reads of them slow, so those are not bounded.
pub const ROOT: u64 = 0;

static THREADS: Mutex<Threads> =
    Mutex::new(Threads { idle: None, given_up: vec![], owners: OwnerTimes::NONE });

struct Threads {
    /// A thread that waits for work.
    idle: Option<Sender<Work>>,
    /// Threads that were given up: the owner of the file, and a channel that is closed when the call ends.
    given_up: Vec<(u64, Receiver<()>)>,
    owners: OwnerTimes,
}

/// Does work on a file of the owner in another thread.
///
/// # Errors
/// `TimedOut` when the work takes longer than two seconds. `WouldBlock` while earlier work for the same owner has not
/// ended, and after slow work for the same owner, other than root: the work was not begun.
pub fn in_time<T: Send + 'static>(owner: u64, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    within(LONGEST, owner, work)
}

fn within<T: Send + 'static>(
    longest: Duration,
    owner: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    if !threads.serves(owner) {
        return Err(Error::new(ErrorKind::WouldBlock, "files of its owner take too long"));
    }
    let (answer, answered) = channel();
    let (end, ended) = channel::<()>();
    let thread = threads.hand_over(Box::new(move || {
        let _end = end; // dropped at the end of the work, also of work that panics
        let _ = answer.send(work()); // nobody waits for late answers
    }))?;
    let begin = Instant::now();
    let answered = answered.recv_timeout(longest);
    if owner != ROOT {
        threads.owners.add(|| Some(owner), begin.elapsed(), None, Instant::now());
    }
    match answered {
        Ok(answer) => {
            threads.idle = Some(thread);
            Ok(answer)
        }
        Err(RecvTimeoutError::Timeout) => {
            threads.given_up.push((owner, ended));
            Err(Error::new(ErrorKind::TimedOut, "its file system does not answer"))
        }
        Err(RecvTimeoutError::Disconnected) => Err(Error::other("the work has failed")),
    }
}

impl Threads {
    /// Whether files of the owner may be touched.
    fn serves(&mut self, owner: u64) -> bool {
        let hangs = |ended: &Receiver<()>| ended.try_recv() == Err(TryRecvError::Empty);
        self.given_up.retain(|(_, ended)| hangs(ended));
        let of_owner = self.given_up.iter().filter(|(one, _)| *one == owner).count();
        if owner == ROOT {
            return of_owner < MOST_OF_ROOT;
        }
        let is_allowed = self.owners.allows(|| Some(owner), Instant::now());
        is_allowed && of_owner == 0 && self.given_up.len() < MOST_GIVEN_UP
    }

    /// The thread that has the work now.
    fn hand_over(&mut self, work: Work) -> Result<Sender<Work>> {
        let unsent = match self.idle.take() {
            Some(idle) => match idle.send(work) {
                Ok(()) => return Ok(idle),
                Err(unsent) => unsent.0, // its last work has panicked
            },
            None => work,
        };
        let (thread, works) = channel::<Work>();
        std::thread::Builder::new()
            .name("files".to_owned())
            .spawn(move || works.iter().for_each(|work| work()))?;
        thread.send(unsent).map_err(|_| Error::other("the thread for files has ended"))?;
        Ok(thread)
    }
}

/// A read that is no slower counts for nothing.
const QUICK: Duration = Duration::from_millis(20);
/// When slow reads of one owner have taken this time together, the owner's processes are not read until all of it is
/// given back.
const MOST: Duration = Duration::from_secs(1);
/// Number of seconds in which an owner is given back one second.
const SHARE: u32 = 20;
/// Number of owners with slow reads. Those beyond it share one account.
const MOST_OWNERS: usize = 4096;
/// The account of processes that have ended, and of owners beyond [`MOST_OWNERS`].
const OTHERS: u64 = u64::MAX;
/// Number of killed helpers that have not ended, of all owners together. While this many live nothing is read.
const MOST_DYING: usize = 16;

/// All owners with slow reads.
#[derive(Debug, Default)]
pub(super) struct OwnerTimes(BTreeMap<u64, OwnerTime>);

impl OwnerTimes {
    /// Nobody has had slow reads.
    pub(super) const NONE: Self = Self(BTreeMap::new());
}

#[derive(Debug)]
struct OwnerTime {
    /// Time that slow reads have taken, less what was given back.
    spent: Duration,
    at: Instant,
    /// The time spent was [`MOST`], and not all of it was given back.
    rests: bool,
    /// Killed helpers: in the middle of a walk through page tables each goes on to its end.
    dying: Vec<Child>,
}

impl OwnerTimes {
    /// Whether a process of the owner may be read. `owner` is called only if somebody had slow reads.
    pub(super) fn allows(&mut self, owner: impl FnOnce() -> Option<u64>, now: Instant) -> bool {
        self.0.retain(|_, time| time.renew(now));
        if self.0.is_empty() {
            return true;
        }
        let dying = self.0.values().map(|time| time.dying.len()).sum::<usize>();
        let time = self.0.get(&owner().unwrap_or(OTHERS));
        dying < MOST_DYING && time.is_none_or(|time| time.dying.is_empty() && !time.rests)
    }

    /// A read took so long. `killed` is its helper, if that was killed and has not ended.
    pub(super) fn add(
        &mut self,
        owner: impl FnOnce() -> Option<u64>,
        took: Duration,
        killed: Option<Child>,
        now: Instant,
    ) {
        if took <= QUICK && killed.is_none() {
            return;
        }
        let has_room = |owner: &u64| self.0.len() < MOST_OWNERS || self.0.contains_key(owner);
        let owner = owner().filter(has_room).unwrap_or(OTHERS);
        let time = self.0.entry(owner).or_insert(OwnerTime {
            spent: Duration::ZERO,
            at: now,
            rests: false,
            dying: vec![],
        });
        time.spent += took;
        time.rests |= time.spent >= MOST;
        time.dying.extend(killed);
    }
}

impl OwnerTime {
    /// Gives time back and takes up that a helper has ended. Whether there is anything to remember.
    fn renew(&mut self, now: Instant) -> bool {
        self.spent = self.spent.saturating_sub(now.saturating_duration_since(self.at) / SHARE);
        self.at = now;
        self.dying.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        !self.spent.is_zero() || !self.dying.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More than a thread waits for a CPU.
    const LONG: Duration = Duration::from_secs(120);

    #[test]
    fn work_that_does_not_end_holds_its_owner_alone() {
        // Each of the others does one piece of work: one that a busy machine made slow counts against its owner.
        let [mallory, alice, bob, carol] = [2001, 2002, 2003, 2004];
        let (release, held) = channel::<()>();
        let late = within(Duration::from_millis(50), mallory, move || held.recv().is_ok());
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(within(LONG, alice, || 1).unwrap(), 1);
        assert_eq!(in_time(mallory, || 1).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(within(LONG, ROOT, || 1).unwrap(), 1);
        release.send(()).unwrap();
        let begin = std::time::Instant::now();
        while within(LONG, mallory, || 2).is_err() {
            assert!(begin.elapsed() < 3 * LONG, "the owner is never served again");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(within(LONG, bob, || panic!("work that fails")).is_err());
        assert_eq!(within(LONG, carol, || 3).unwrap(), 3, "another thread serves after it");
    }

    #[test]
    fn slow_reads_of_one_owner_leave_others_their_time() {
        let (mut times, now) = (OwnerTimes::default(), Instant::now());
        let [mallory, alice] = [2001, 2002];
        times.add(|| panic!("nobody asks"), QUICK, None, now);
        assert!(times.allows(|| panic!("nobody asks"), now));
        times.add(|| Some(mallory), MOST, None, now);
        assert!(!times.allows(|| Some(mallory), now) && times.allows(|| Some(alice), now));
        assert!(!times.allows(|| Some(mallory), now + 19 * MOST));
        assert!(times.allows(|| Some(mallory), now + 20 * MOST) && times.0.is_empty());
        times.add(|| Some(mallory), MOST / 2, None, now);
        assert!(times.allows(|| Some(mallory), now));
    }

    #[test]
    fn an_owner_has_one_helper_that_goes_on_after_its_end() {
        let mut times = OwnerTimes::default();
        let sleep = || std::process::Command::new("sleep").arg("100").spawn().ok();
        times.add(|| Some(1), Duration::ZERO, sleep(), Instant::now());
        assert!(!times.allows(|| Some(1), Instant::now()) && times.allows(|| Some(2), Instant::now()));
        for owner in 2..=MOST_DYING as u64 {
            times.add(|| Some(owner), Duration::ZERO, sleep(), Instant::now());
        }
        assert!(!times.allows(|| Some(99), Instant::now()), "the machine has no more CPUs for them");
        for child in times.0.values_mut().flat_map(|time| &mut time.dying) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(times.allows(|| Some(1), Instant::now()) && times.0.is_empty());
    }
}
