// SPDX-License-Identifier: Apache-2.0
//! Taking programs in.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Instant;

use anyhow::{Error, Result};
use imas_engine::inspect;
use imas_engine::runtime_command::unfit_reason;
use imas_linux::elf;
use imas_linux::index::Executable;
use imas_linux::program::is_privileged;
use imas_linux::program_file::executable_at;
use imas_store::samples::{Domain, StoredProgram};
use imas_store::{RowId, StoreError};

use super::Learner;
use crate::owners::Owner;
use crate::process_info::ProcessInfo;
use crate::program_table::{Moment, TrackedProgram};
use crate::trial_offer::{RejectReason, TrialOffer};

/// Whether a process of the program has a page: such a program is not forgotten.
pub(crate) type InUse<'a> = &'a dyn Fn(RowId) -> bool;

impl Learner {
    /// A process that has lived or worked long enough: its program is taken in, unless it is ineligible.
    pub(crate) fn take_in(&mut self, process: &ProcessInfo, in_use: InUse<'_>) {
        let domain = self.parts.users.domain_of(process.uid);
        if let Some(id) = self.programs.find(process, domain).map(|known| known.program.id) {
            return self.note_process(id, process);
        }
        if self.ineligible.contains(process, domain) {
            return;
        }
        match self.reason_against(process, domain) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                self.ineligible.add(process, domain, reason);
                self.counts.programs_left_alone += 1;
                return;
            }
            Err(error) => match error.downcast::<StoreError>() {
                Ok(error) => return self.store_refused(&error),
                Err(_) => return, // its file does not answer now: the next process of the program is looked at
            },
        }
        let path = process.path.to_string_lossy();
        let is_new = self.programs.named(domain, &path, &process.detail_text).is_none();
        if is_new && !self.make_room(domain, in_use) {
            return;
        }
        let store = self.parts.store.get();
        let program = store.program_in(domain, &path, &process.detail_text);
        if let Some(program) = self.stored(program) {
            self.know(program, process);
        }
    }

    fn know(&mut self, program: StoredProgram, process: &ProcessInfo) {
        let id = program.id;
        let before = self.programs.forget(id);
        let mut known = TrackedProgram::new(program);
        // The file that runs now counts, should the path already lead to a newer one.
        known.executable = Some(process.executable);
        known.detail = process.detail.clone();
        known.seen = Some(Instant::now());
        known.threads = Some(process.threads);
        known.noticed_uid = Some(process.uid);
        match before {
            Some(before) => {
                known.trial = TrialOffer::of_another_file(before.trial);
                known.replicas = before.replicas;
            }
            None => {
                let domain = known.program.domain.word();
                tracing::info!(PROGRAM = %known.program, DOMAIN = domain, "a program worth a trial");
            }
        }
        known.replicas.note(process.identity, &Moment::now());
        self.programs.put(known);
        self.judge(id);
    }

    /// Why the program of this process is ineligible; an error when the store does not say what is known of
    /// its file, or the file does not answer.
    fn reason_against(&self, process: &ProcessInfo, domain: Domain) -> Result<Option<String>> {
        if let Some(reason) = self.parts.exclusions.reason(&process.path) {
            return Ok(Some(reason.to_owned()));
        }
        let executable = process.executable;
        let reason =
            inspect::on_file(domain, &process.path, move |path| reason_against_file(path, executable))?;
        if reason.is_some() {
            return Ok(reason.map(str::to_owned));
        }
        match inspect::running(self.parts.store.get(), domain, &process.path, executable) {
            Ok(found) => Ok(unfit_reason(&found)),
            // Where the store fails, nothing is known of the program.
            Err(error) if error.is::<StoreError>() || is_late(&error) => Err(error),
            Err(error) => Ok(Some(error.to_string())),
        }
    }

    /// The program as one of the domain: what a user's process shows of a program that is everybody's is the
    /// user's own sample.
    pub(super) fn in_domain(
        &mut self,
        program: &StoredProgram,
        domain: Domain,
        in_use: InUse<'_>,
    ) -> Result<RowId, RejectReason> {
        if program.domain == domain {
            return Ok(program.id);
        }
        if let Some(known) = self.programs.named(domain, &program.path, &program.detail) {
            return Ok(known.program.id);
        }
        if !self.make_room(domain, in_use) {
            return Err(RejectReason::TooMany);
        }
        let own = self.parts.store.get().program_in(domain, &program.path, &program.detail);
        let own = self.stored(own).ok_or(RejectReason::TooMany)?;
        let id = own.id;
        if self.programs.get(id).is_none() {
            self.programs.put(TrackedProgram::new(own));
            self.judge(id);
        }
        Ok(id)
    }
}

/// Why the file at the path is no program for a trial, before it is opened.
fn reason_against_file(path: &Path, executable: Executable) -> Option<&'static str> {
    if executable_at(path) != Some(executable) {
        return Some("its file is not the one that stands at its path");
    }
    is_privileged(path).then(|| elf::Unfit::Privileged.why())
}

/// Whether a file did not answer in time.
fn is_late(error: &Error) -> bool {
    let kinds = [io::ErrorKind::TimedOut, io::ErrorKind::WouldBlock];
    error.downcast_ref::<io::Error>().is_some_and(|error| kinds.contains(&error.kind()))
}

// The limit on the number of programs: the programs of one user leave room for the programs of others.
//
// A person has a share of the programs, under all uids together ([`crate::owners`]); all persons together
// have half of them. A person with one program more loses the one that was idle the longest. Where the
// half is used up, the person with the most loses one.

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

    /// Forgets the owner's program that was idle the longest. A program with a quarantine is forgotten last, because
    /// it would crash once more. Returns whether there was one to forget.
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
