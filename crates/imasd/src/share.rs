// SPDX-License-Identifier: Apache-2.0
//! Nobody's programs, pages and folders leave no room for those of others.
//!
//! A person has a share of the programs, under all uids together ([`crate::owners`]); all persons together have half of them. Who needs
//! one more program than that loses the one that was idle the longest. Where the half is used up, the person with the most loses one.

use std::collections::BTreeMap;

use imas_store::RowId;

use crate::daemon::Daemon;
use crate::folders::PageName;
use crate::long_name::{LONGEST, kept, key_of_kept};
use crate::owners::{Owner, owner_of};
use crate::sight::detail_of_text;
use imas_store::domain::Domain;

/// One person's part of all programs.
const SHARE: usize = 20;
/// One person's folders of pages, of 4,096 in all: of a container's uids only some run programs that are worth a trial.
const MOST_FOLDERS: usize = 256;

/// How many programs each owner has.
type Counts = BTreeMap<Owner, usize>;

/// Who is to lose a program so that `owner` may have one more.
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

impl Daemon {
    /// Makes room for one more program of the domain; whether there is some.
    pub(crate) fn make_room(&mut self, domain: Domain) -> bool {
        let mut counts = Counts::new();
        for (domain, count) in self.book.counts() {
            *counts.entry(owner_of(&mut self.owners, *domain)).or_default() += count;
        }
        let has_room = match room(&counts, owner_of(&mut self.owners, domain), self.config.most_programs) {
            Room::Free => true,
            Room::By(owner) => self.evict_idle(owner),
            Room::None => false,
        };
        self.counters.programs_refused += u64::from(!has_room);
        has_room
    }

    /// Forgets the owner's program that was idle the longest; whether there was one to forget.
    fn evict_idle(&mut self, owner: Owner) -> bool {
        let mut idle = Vec::new();
        for known in self.book.all() {
            if owner_of(&mut self.owners, known.program.domain) == owner
                && !self.watched.has_program(known.program.id)
            {
                idle.push((known.seen, known.program.id));
            }
        }
        idle.sort_unstable();
        let is_free = |id: &RowId| self.store.pinned(*id).is_ok_and(|pin| pin.is_none());
        let Some(id) = idle.into_iter().map(|(_, id)| id).find(is_free) else { return false };
        if let Err(error) = self.store.forget(id) {
            self.store_refused(&error);
            return false;
        }
        self.book.forget(id);
        self.counters.programs_evicted += 1;
        self.dirty = true;
        true
    }

    /// A process of the program was noticed.
    pub(crate) fn note_seen(&mut self, id: RowId) {
        if let Some(known) = self.book.get_mut(id) {
            known.seen = Some(std::time::Instant::now());
        }
    }

    /// Makes sure that the user has a folder for pages, unless whoever answers for this uid has too many already.
    pub(crate) fn welcome(&mut self, uid: u32) {
        if self.folders.of(uid).is_some() {
            return;
        }
        let owner = self.owners.of(uid);
        let theirs = self.folders.uids().filter(|uid| self.owners.of(*uid) == owner).count();
        if self.options.user || owner == Owner::System || theirs < MOST_FOLDERS {
            self.folders.welcome(uid);
        }
    }

    /// Whether one more page of this user may be watched: a person's pages count together, a system account's by themselves; and
    /// a quarter of all is left to the system.
    pub(crate) fn has_room_for(&mut self, page: &PageName) -> bool {
        let mut by_uid = BTreeMap::<u32, usize>::new();
        for theirs in self.considered() {
            *by_uid.entry(theirs.uid).or_default() += 1;
        }
        let all: usize = by_uid.values().sum();
        let owner = self.owners.of(page.uid);
        let is_system = self.options.user || owner == Owner::System;
        let is_theirs = |owners: &mut crate::owners::Owners, uid: u32| {
            if is_system { uid == page.uid } else { owners.of(uid) == owner }
        };
        let theirs = by_uid.iter().filter(|(uid, _)| is_theirs(&mut self.owners, **uid));
        let theirs: usize = theirs.map(|(_, count)| count).sum();
        let most = if is_system { self.config.most_pages } else { self.config.most_pages / 4 * 3 };
        theirs < self.config.most_pages_of_user && all < most
    }

    /// Names that an earlier version has stored at full length are shortened as they would be now.
    pub(crate) fn shorten_names(&mut self) {
        let ids = self.store.programs_longer_than(LONGEST).unwrap_or_else(|error| {
            self.store_refused(&error);
            vec![]
        });
        for id in ids {
            let Ok(Some(program)) = self.store.program_numbered(id) else { continue };
            if program.domain.is_own() || key_of_kept(&program.detail).is_some() {
                continue;
            }
            let (_, text) = kept(detail_of_text(&program.detail), program.detail);
            if let Err(error) = self.store.rename_detail(id, &text) {
                self.store_refused(&error);
            }
        }
    }
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
