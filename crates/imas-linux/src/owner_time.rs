// SPDX-License-Identifier: Apache-2.0
//! The time that slow reads of each owner's processes or files have taken. An owner with slow reads gets a small share
//! of the reader's time: all others get the rest.

use std::collections::BTreeMap;
use std::process::Child;
use std::time::{Duration, Instant};

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
pub(crate) struct OwnerTimes(BTreeMap<u64, OwnerTime>);

impl OwnerTimes {
    /// Nobody has had slow reads.
    pub(crate) const NONE: Self = Self(BTreeMap::new());
}

#[derive(Debug)]
struct OwnerTime {
    /// What slow reads have taken, less what was given back.
    spent: Duration,
    at: Instant,
    /// The time spent was [`MOST`], and not all of it was given back.
    rests: bool,
    /// Killed helpers: in the middle of a walk through page tables each goes on to its end.
    dying: Vec<Child>,
}

impl OwnerTimes {
    /// Whether a process of the owner may be read. `owner` is called only if somebody had slow reads.
    pub(crate) fn allows(&mut self, owner: impl FnOnce() -> Option<u64>, now: Instant) -> bool {
        self.0.retain(|_, time| time.renew(now));
        if self.0.is_empty() {
            return true;
        }
        let dying = self.0.values().map(|time| time.dying.len()).sum::<usize>();
        let time = self.0.get(&owner().unwrap_or(OTHERS));
        dying < MOST_DYING && time.is_none_or(|time| time.dying.is_empty() && !time.rests)
    }

    /// A read took so long. `killed` is its helper, if that was killed and has not ended.
    pub(crate) fn add(
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
