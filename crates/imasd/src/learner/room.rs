// SPDX-License-Identifier: Apache-2.0
//! The limit on the number of programs: the programs of one user leave room for those of others.
//!
//! A person has a share of the programs, under all uids together ([`crate::owners`]); all persons together
//! have half of them. A person with one program more loses the one that was idle the longest. Where the
//! half is used up, the person with the most loses one.

use std::collections::BTreeMap;

use imas_store::RowId;
use imas_store::domain::Domain;

use super::Learner;
use super::admission::InUse;
use crate::owners::Owner;
use crate::program_table::TrackedProgram;

/// One person's part of all programs.
const SHARE: usize = 20;

/// Number of programs that each owner has.
type Counts = BTreeMap<Owner, usize>;

/// The owner that loses a program, so that `owner` may have one more.
#[derive(Debug, PartialEq, Eq)]
enum Room {
    Free,
    By(Owner),
    None,
}

fn room(counts: &Counts, owner: Owner, most: usize) -> Room {
    let all: usize = counts.values().sum();
    let of_system = counts.get(&Owner::System).copied().unwrap_or(0);
    let of_persons = all - of_system;
    let mine = counts.get(&owner).copied().unwrap_or(0);
    let persons = counts.iter().filter(|(owner, count)| **owner != Owner::System && **count > 0);
    let largest = persons.max_by_key(|(_, count)| **count).map(|(owner, count)| (*owner, *count));
    match (owner, largest) {
        (Owner::System, _) if all < most => Room::Free,
        (Owner::System, Some((largest, _))) => Room::By(largest),
        (Owner::System, None) => Room::None,
        _ if mine >= (most / SHARE).max(1) => Room::By(owner),
        _ if of_persons < most / 2 && all < most => Room::Free,
        (_, Some((largest, count))) if count > mine => Room::By(largest),
        _ if mine > 0 => Room::By(owner),
        _ => Room::None,
    }
}

impl Learner {
    /// Makes room for one more program of the domain; whether there is some.
    pub(super) fn make_room(&mut self, domain: Domain, in_use: InUse<'_>) -> bool {
        let users = &self.parts.users;
        let mut counts = Counts::new();
        for (domain, count) in self.programs.counts() {
            *counts.entry(users.owner_of_domain(*domain)).or_default() += count;
        }
        let most = self.parts.config.own.most_programs;
        let has_room = match room(&counts, users.owner_of_domain(domain), most) {
            Room::Free => true,
            Room::By(owner) => self.evict_idle(owner, in_use),
            Room::None => false,
        };
        self.counts.programs_refused += u64::from(!has_room);
        has_room
    }

    /// Forgets the owner's program that was idle the longest, one with a quarantine last: it would crash once more.
    /// Whether there was one to forget.
    fn evict_idle(&mut self, owner: Owner, in_use: InUse<'_>) -> bool {
        let users = &self.parts.users;
        let theirs = self.programs.all().filter(|known| users.owner_of_domain(known.program.domain) == owner);
        let idle = theirs.filter(|known| !in_use(known.program.id));
        let mut idle: Vec<_> =
            idle.map(|known| (has_quarantine(known), known.seen, known.program.id)).collect();
        idle.sort_unstable();
        let store = self.parts.store.get_mut();
        let is_unpinned = |id: &RowId| store.pinned(*id).is_ok_and(|pin| pin.is_none());
        let Some(id) = idle.into_iter().map(|(_, _, id)| id).find(is_unpinned) else { return false };
        let forgotten = store.forget(id);
        if self.stored(forgotten).is_none() {
            return false;
        }
        self.programs.forget(id);
        self.counts.programs_evicted += 1;
        self.events.changed = true;
        true
    }
}

fn has_quarantine(known: &TrackedProgram) -> bool {
    let profile = known.profile.as_ref();
    profile.is_some_and(|profile| profile.candidates.iter().any(|view| view.quarantine.is_some()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 200;

    fn counts(of: &[(Owner, usize)]) -> Counts {
        of.iter().copied().collect()
    }

    #[test]
    fn a_person_has_a_share_and_loses_own_programs_beyond_it() {
        let mallory = Owner::Person(1000);
        assert_eq!(room(&counts(&[]), mallory, MOST), Room::Free);
        assert_eq!(room(&counts(&[(mallory, 9)]), mallory, MOST), Room::Free);
        assert_eq!(room(&counts(&[(mallory, 10)]), mallory, MOST), Room::By(mallory));
        assert_eq!(room(&counts(&[(mallory, 10)]), Owner::Person(1001), MOST), Room::Free);
        assert_eq!(room(&counts(&[(mallory, 1)]), mallory, 1), Room::By(mallory), "at least one");
    }

    #[test]
    fn persons_never_leave_the_system_without_a_place() {
        let many: Vec<_> = (0..10).map(|uid| (Owner::Person(uid), 10)).collect();
        let all_full = counts(&many);
        assert_eq!(room(&all_full, Owner::System, MOST), Room::Free);
        let last = Owner::Person(9);
        assert_eq!(room(&all_full, Owner::Person(99), MOST), Room::By(last), "one of those with the most");
        let with_system = counts(&[many, vec![(Owner::System, 100)]].concat());
        assert_eq!(room(&with_system, Owner::System, MOST), Room::By(last));
        assert_eq!(room(&counts(&[(Owner::System, 200)]), Owner::System, MOST), Room::None);
        assert_eq!(room(&counts(&[(Owner::System, 200)]), last, MOST), Room::None);
    }
}
