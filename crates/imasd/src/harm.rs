// SPDX-License-Identifier: Apache-2.0
//! When crashes of some programs count for all programs.
//!
//! - An allocator that has harmed [`VICTIMS`] programs of the system within a day, or programs of [`PERSONS`]
//!   persons, is offered to no program, until its library changes or the operator unblocks it.
//! - [`FAILURES`] failing placed starts of the system within a minute, or such starts of [`PERSONS`] persons,
//!   stop everything: something is wrong with more than one allocator.
//!
//! A person can make own programs crash at will, under every uid that the person has for containers, and must
//! not be able to switch anything off for others with it: all that happens to one person's programs counts as
//! one, and never beside the system's own.
//!
//! The emergency: after five failing starts within a minute every program starts untouched, until root ends it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use imas_linux::files;
use imas_store::RowId;

use crate::owners::Owner;

/// Programs of the system that an allocator must harm.
pub(crate) const VICTIMS: usize = 3;
/// Time within which the victims count together, seconds.
pub(crate) const VICTIMS_WITHIN_S: f64 = 24.0 * 3600.0;
/// Starts of the system that must fail.
const FAILURES: usize = 5;
/// Time within which the failures count together.
const FAILURES_WITHIN: Duration = Duration::from_secs(60);
/// A crash in the first seconds is a failed start.
pub(crate) const START_S: f64 = 10.0;
/// Persons who must be harmed. An attacker needs as many accounts, and root makes each of them; a
/// household has fewer users, and on a machine with many a library that really crashes soon meets as many of
/// them. Until then it is taken only from those it has harmed.
pub(crate) const PERSONS: usize = 5;

/// Programs that an allocator has harmed.
#[derive(Debug, Default)]
struct Harmed {
    of_system: BTreeSet<RowId>,
    /// All uids without an account are one of them.
    persons: BTreeSet<Owner>,
    names: BTreeSet<String>,
}

/// Allocators that harmed enough programs, from all that were harmed lately.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    by_allocator: BTreeMap<String, Harmed>,
}

impl Victims {
    /// Adds a program that this allocator harmed.
    pub(crate) fn add(&mut self, allocator: &str, program: RowId, owner: Owner, name: &str) {
        let harmed = self.by_allocator.entry(allocator.to_owned()).or_default();
        match owner {
            Owner::System => harmed.of_system.insert(program),
            Owner::Person(_) | Owner::Unknown => harmed.persons.insert(owner),
        };
        harmed.names.insert(name.to_owned());
    }

    /// The allocators to disable, each with the names of those it harmed.
    pub(crate) fn culprits(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let is_enough =
            |harmed: &Harmed| harmed.of_system.len() >= VICTIMS || harmed.persons.len() >= PERSONS;
        let enough = self.by_allocator.iter().filter(move |(_, harmed)| is_enough(harmed));
        enough.map(|(allocator, harmed)| {
            (allocator.as_str(), harmed.names.iter().map(String::as_str).collect())
        })
    }
}

/// Failed starts of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    recent: VecDeque<(Instant, Owner)>,
}

impl Failures {
    /// Adds a failed start. Returns whether that is one too many.
    pub(crate) fn add(&mut self, owner: Owner, now: Instant) -> bool {
        self.recent.retain(|(at, _)| now.duration_since(*at) < FAILURES_WITHIN);
        if owner == Owner::System || !self.recent.iter().any(|(_, theirs)| *theirs == owner) {
            self.recent.push_back((now, owner));
        }
        let of_system = self.recent.iter().filter(|(_, owner)| *owner == Owner::System).count();
        of_system >= FAILURES || self.recent.len() - of_system >= PERSONS
    }
}

/// The file that asks root's helper to take the entry out of /etc/ld.so.preload. Root ends the emergency by
/// removing it.
const FILE_NAME: &str = "emergency";
/// Most bytes of the file that are read.
const MOST_BYTES: usize = 64 << 10;

/// The emergency, if there is one.
#[derive(Debug)]
pub(super) struct Emergency {
    file: PathBuf,
    reason: Option<String>,
    /// The file was written, so that its absence means that root has ended the emergency.
    is_written: bool,
    failures: Failures,
}

impl Emergency {
    /// The emergency that an earlier process has left in the state folder, if any.
    pub(super) fn read(state: &Path) -> Self {
        let file = state.join(FILE_NAME);
        let read = files::read_plain(&file, MOST_BYTES).ok();
        let reason = read.map(|text| String::from_utf8_lossy(&text).into_owned());
        if let Some(why) = &reason {
            tracing::error!(
                "every program starts untouched since an emergency: {why}; undo: imas system enable"
            );
        }
        Self { file, is_written: reason.is_some(), reason, failures: Failures::default() }
    }

    /// Reason why every program starts untouched, if so.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// A start under another allocator failed; whether an emergency begins with it. The caller publishes that
    /// first, then calls [`Self::write`].
    pub(super) fn add_failure(&mut self, owner: Owner) -> bool {
        if !self.failures.add(owner, Instant::now()) || self.reason.is_some() {
            return false;
        }
        let why = "five starts under other allocators failed within a minute";
        tracing::error!(
            "emergency: {why}; every program starts untouched from now on; undo: imas system enable"
        );
        self.reason = Some(why.to_owned());
        true
    }

    /// Writes the file for root's helper; what fails is tried again at the next [`Self::look`].
    pub(super) fn write(&mut self) {
        let Some(why) = &self.reason else { return };
        let written = std::fs::write(&self.file, format!("{why}\n"));
        if let Err(error) = &written {
            tracing::error!("the emergency could not be written down, which is tried again: {error}");
        }
        self.is_written = written.is_ok();
    }

    /// Whether root has ended the emergency since the last look.
    pub(super) fn look(&mut self) -> bool {
        if self.reason.is_none() {
            return false;
        }
        if !self.is_written {
            self.write();
            return false;
        }
        let has_ended = !self.file.exists();
        if has_ended {
            tracing::info!("the emergency is over: its file was removed");
            (self.reason, self.failures) = (None, Failures::default());
        }
        has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(uid: u32) -> Owner {
        Owner::Person(uid)
    }

    #[test]
    fn three_programs_of_the_system_are_enough_and_one_persons_are_not() {
        let mut victims = Victims::default();
        for program in 1..=9 {
            victims.add("hoard", program, person(1000), "/home/x");
        }
        victims.add("hoard", 10, Owner::System, "/bin/a");
        victims.add("hoard", 10, Owner::System, "/bin/a");
        victims.add("hoard", 11, Owner::System, "/bin/b");
        assert_eq!(victims.culprits().count(), 0, "a person does not tip the scale");
        victims.add("hoard", 12, Owner::System, "/bin/c");
        let culprits: Vec<_> = victims.culprits().collect();
        assert_eq!(culprits, [("hoard", vec!["/bin/a", "/bin/b", "/bin/c", "/home/x"])]);
    }

    #[test]
    fn five_persons_are_enough_and_uids_without_an_account_are_one() {
        let mut victims = Victims::default();
        (1..=4).for_each(|uid| victims.add("hoard", uid.into(), person(uid), "x"));
        assert_eq!(victims.culprits().count(), 0);
        (5..=9).for_each(|program| victims.add("hoard", program, Owner::Unknown, "y"));
        assert_eq!(victims.culprits().count(), 1);
        let mut unknown = Victims::default();
        (1..=99).for_each(|program| unknown.add("hoard", program, Owner::Unknown, "y"));
        assert_eq!(unknown.culprits().count(), 0);
    }

    #[test]
    fn five_failures_within_a_minute_are_too_many() {
        let mut failures = Failures::default();
        let begin = Instant::now();
        for second in 0..4 {
            assert!(!failures.add(Owner::System, begin + Duration::from_secs(second * 20)));
        }
        assert!(!failures.add(Owner::System, begin + Duration::from_secs(100)), "the first are forgotten");
        let mut failures = Failures::default();
        assert!((0..100).all(|_| !failures.add(person(1000), begin)), "one person counts once");
        assert!((0..4).all(|_| !failures.add(Owner::System, begin)), "and not beside the system");
        assert!(failures.add(Owner::System, begin));
    }

    #[test]
    fn failures_of_five_persons_are_too_many() {
        let mut failures = Failures::default();
        let now = Instant::now();
        assert!((1..=4).all(|uid| !failures.add(person(uid), now)));
        assert!(failures.add(Owner::Unknown, now));
    }
}
