// SPDX-License-Identifier: Apache-2.0
//! When one program's misfortune becomes everybody's business.
//!
//! - An allocator that has hurt [`VICTIMS`] programs within a day is given to nobody, until its library changes or the operator lifts it.
//! - [`FAILURES`] failing placed starts within a minute stop everything: something is wrong with more than one allocator.
//!
//! A user can make own programs crash at will, and must not be able to switch anything off for others with it: all that happens to
//! one user's programs counts as one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use imas_store::RowId;
use imas_store::domain::Domain;

/// Programs that an allocator must hurt.
pub(crate) const VICTIMS: usize = 3;
/// Within this time, seconds.
pub(crate) const VICTIMS_WITHIN_S: f64 = 24.0 * 3600.0;
/// Starts that must fail.
pub(crate) const FAILURES: usize = 5;
/// Within this time.
pub(crate) const FAILURES_WITHIN: Duration = Duration::from_secs(60);
/// A crash in the first seconds is a failed start.
pub(crate) const START_S: f64 = 10.0;

/// Who was hurt: a program of the system, or a user with all programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Program(RowId),
    User(u32),
}

fn victim(program: RowId, domain: Domain) -> Victim {
    if let Domain::User(uid) = domain { Victim::User(uid) } else { Victim::Program(program) }
}

/// Allocators that hurt enough programs, from all that were hurt lately.
#[derive(Debug, Default)]
pub(crate) struct Victims {
    by_allocator: BTreeMap<String, BTreeSet<Victim>>,
    names: BTreeMap<String, BTreeSet<String>>,
}

impl Victims {
    /// A program that this allocator hurt.
    pub(crate) fn add(&mut self, allocator: &str, program: RowId, domain: Domain, name: &str) {
        self.by_allocator.entry(allocator.to_owned()).or_default().insert(victim(program, domain));
        self.names.entry(allocator.to_owned()).or_default().insert(name.to_owned());
    }

    /// The allocators to take out of use, each with the names of those it hurt.
    pub(crate) fn culprits(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let enough = self.by_allocator.iter().filter(|(_, victims)| victims.len() >= VICTIMS);
        enough.map(|(allocator, _)| {
            let names = self.names.get(allocator).into_iter().flatten().map(String::as_str);
            (allocator.as_str(), names.collect())
        })
    }
}

/// Failed starts of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    recent: VecDeque<(Instant, Domain)>,
}

impl Failures {
    /// One more; whether that is one too many.
    pub(crate) fn add(&mut self, domain: Domain, now: Instant) -> bool {
        self.recent.retain(|(at, _)| now.duration_since(*at) < FAILURES_WITHIN);
        let of_user = matches!(domain, Domain::User(_));
        if !(of_user && self.recent.iter().any(|(_, theirs)| *theirs == domain)) {
            self.recent.push_back((now, domain));
        }
        self.recent.len() >= FAILURES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_programs_of_the_system_are_enough_and_one_users_are_not() {
        let mut victims = Victims::default();
        for program in 1..=9 {
            victims.add("hoard", program, Domain::User(1000), "/home/x");
        }
        victims.add("hoard", 10, Domain::Everybody, "/bin/a");
        victims.add("hoard", 10, Domain::Everybody, "/bin/a");
        assert_eq!(victims.culprits().count(), 0);
        victims.add("hoard", 11, Domain::Everybody, "/bin/b");
        let culprits: Vec<_> = victims.culprits().collect();
        assert_eq!(culprits, [("hoard", vec!["/bin/a", "/bin/b", "/home/x"])]);
    }

    #[test]
    fn five_failures_within_a_minute_are_too_many() {
        let mut failures = Failures::default();
        let begin = Instant::now();
        for second in 0..4 {
            assert!(!failures.add(Domain::Everybody, begin + Duration::from_secs(second * 20)));
        }
        assert!(
            !failures.add(Domain::Everybody, begin + Duration::from_secs(100)),
            "the first are forgotten"
        );
        let mut failures = Failures::default();
        assert!((0..100).all(|_| !failures.add(Domain::User(1000), begin)), "one user counts once");
        assert!((0..3).all(|_| !failures.add(Domain::Everybody, begin)));
        assert!(failures.add(Domain::Everybody, begin));
    }
}
