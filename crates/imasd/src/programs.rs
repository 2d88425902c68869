// SPDX-License-Identifier: Apache-2.0
//! Taking programs in, judging them, offering their trials.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, anyhow};
use imas_core::Reason;
use imas_engine::candidates::Selection;
use imas_engine::state::ProgramState;
use imas_linux::clock::now_unix_s;
use imas_linux::elf;
use imas_linux::index::Executable;
use imas_linux::program_file::executable_at;
use imas_store::daemon::{Disabled, Offer};
use imas_store::decisions::Decided;
use imas_store::domain::Domain;
use imas_store::samples::Program;
use imas_store::{RowId, StoreError};

use crate::book::{Known, untouched};
use crate::daemon::Daemon;
use crate::harm::{PERSONS, VICTIMS, VICTIMS_WITHIN_S, Victims};
use crate::judge;
use crate::owners::{Owner, owner_of};
use crate::sight::{self, Identity, Sight};

/// The first pause after an offer that came to nothing, seconds; doubled each time.
const PAUSE_S: f64 = 2.0;
/// The longest.
const LONGEST_PAUSE_S: f64 = 3600.0;

impl Daemon {
    /// Reads all programs of the store, and which trials are on offer.
    pub(crate) fn load_book(&mut self) -> Result<()> {
        let programs = self.store.programs()?;
        let mut offers = self.store.offers()?;
        for id in self.book.ids() {
            if !programs.iter().any(|program| program.id == id) {
                self.book.forget(id);
            }
        }
        for program in programs.into_iter().filter(|program| !program.domain.is_own()) {
            let mut known = Known::new(program);
            known.executable = self.file_of(&known);
            if let Some(before) = self.book.get(known.program.id) {
                (known.void_offers, known.no_offer_before_s) = (before.void_offers, before.no_offer_before_s);
                known.withdrawn.clone_from(&before.withdrawn);
                known.seen = before.seen;
            }
            let at = offers.iter().position(|offer| offer.program == known.program.id);
            known.offer = at.map(|at| offers.swap_remove(at));
            known.taken_by = known.offer.as_ref().and_then(|offer| self.taker(&offer.token, offer.program));
            self.book.put(known);
        }
        self.dirty = true; // what was forgotten is judged no more
        self.judge_all();
        Ok(())
    }

    /// The executable that was seen running; before one is seen in this life, what stands at the path if it was read before. Whatever else
    /// stands there by now is looked at when it runs.
    fn file_of(&self, known: &Known) -> Option<Executable> {
        match self.book.get(known.program.id) {
            Some(before) => before.executable,
            None => known.executable.filter(|_| self.is_remembered(Path::new(&known.program.path))),
        }
    }

    /// Build-id of the program's file, and why nothing may be preloaded into it.
    fn facts_of(&self, known: &Known) -> (String, Option<String>) {
        let inspected = match known.executable {
            Some(executable) => self.inspect(Path::new(&known.program.path), executable),
            None => Err(anyhow!("its file is gone, or was not seen running since it changed")),
        };
        match inspected {
            Ok(found) => (found.build_id, found.unfit),
            Err(error) => (known.build_id.clone(), Some(error.to_string())),
        }
    }

    /// A process that has lived or worked long enough: its program is taken in, if nothing bars it. Whether the process could be seen: in
    /// the midst of an exec it cannot.
    pub(crate) fn take_in(&mut self, identity: Identity) -> bool {
        let Some(sight) = sight::look(identity) else { return false };
        self.take_in_seen(&sight);
        true
    }

    fn take_in_seen(&mut self, sight: &Sight) {
        let identity = sight.identity;
        if self.options.user && !sight::reads_index_below(identity, &self.options.run_dir) {
            return; // it is not of this tree
        }
        let domain = self.domain_of(sight.uid);
        if domain == Domain::Everybody && self.is_foreign(sight) {
            return; // what it measures would decide for everybody
        }
        self.welcome(sight.uid);
        if let Some(id) = self.book.find(sight, domain).map(|known| known.program.id) {
            return self.note_seen(id);
        }
        if self.ineligible.contains(sight, domain) {
            return;
        }
        match self.bar(sight) {
            Ok(None) => {}
            Ok(Some(reason)) => {
                self.ineligible.add(sight, domain, reason);
                self.counters.programs_left_alone += 1;
                return;
            }
            Err(error) => return self.store_refused(&error),
        }
        let path = sight.path.to_string_lossy();
        if self.book.named(domain, &path, &sight.detail_text).is_none() && !self.make_room(domain) {
            return;
        }
        match self.store.program_in(domain, &path, &sight.detail_text) {
            Ok(program) => self.know(program, sight),
            Err(error) => self.store_refused(&error),
        }
    }

    fn know(&mut self, program: Program, sight: &Sight) {
        let id = program.id;
        let before = self.book.forget(id);
        let mut known = Known::new(program);
        // What runs now, should the path already lead to a newer file.
        known.executable = Some(sight.executable);
        known.detail = sight.detail.clone();
        known.seen = Some(Instant::now());
        if let Some(before) = before {
            (known.offer, known.taken_by, known.withdrawn) =
                (before.offer, before.taken_by, before.withdrawn);
        } else {
            tracing::info!(PROGRAM = %known.program, DOMAIN = known.program.domain.word(), "a program worth a trial");
        }
        self.book.put(known);
        self.judge(id);
    }

    /// Why the program of this process is left alone; an error when the store cannot say what is known of its file.
    fn bar(&self, sight: &Sight) -> Result<Option<String>, StoreError> {
        if let Some(reason) = self.exclusions.reason(&sight.path) {
            return Ok(Some(reason.to_owned()));
        }
        if executable_at(&sight.path) != Some(sight.executable) {
            return Ok(Some("its file is not the one that stands at its path".to_owned()));
        }
        if imas_linux::program::is_privileged(&sight.path) {
            return Ok(Some(elf::Unfit::Privileged.why().to_owned()));
        }
        match self.inspect(&sight.path, sight.executable) {
            Ok(found) => Ok(found.unfit),
            // It is the store that is at fault: nothing is known of the program.
            Err(error) => error.downcast::<StoreError>().map_or_else(|why| Ok(Some(why.to_string())), Err),
        }
    }

    /// Judges every program anew.
    pub(crate) fn judge_all(&mut self) {
        for id in self.book.ids() {
            self.judge(id);
        }
        self.take_culprits_out_of_use();
    }

    /// Works out from the store what the program's next starts are to be.
    pub(crate) fn judge(&mut self, id: RowId) {
        if let Err(error) = self.try_judge(id) {
            match error.downcast_ref::<imas_store::StoreError>() {
                Some(store) => self.store_refused(store),
                None => tracing::warn!(PROGRAM_ID = id, "a program cannot be judged: {error:#}"),
            }
        }
    }

    fn try_judge(&mut self, id: RowId) -> Result<()> {
        let (Some(known), Some(installation)) = (self.book.get(id), &self.installation) else {
            return Ok(());
        };
        let (build_id, unfit) = self.facts_of(known);
        let configured = self.config.candidates.as_deref();
        let program = known.program.clone();
        let state = ProgramState::read(&self.store, program, &build_id, |pinned, tried| {
            installation.candidates(&Selection { configured, pinned, tried }, &self.disabled)
        })?;
        let now_s = now_unix_s();
        let policy = self.config.policy(&known.program.path, &known.program.detail);
        let profile = state.profile(&policy, self.config.limits(self.options.retest), now_s);
        self.tell_of_quarantines(known, &profile);
        let Some(known) = self.book.get_mut(id) else { return Ok(()) };
        known.look_again_s = Some(judge::look_again_s(&profile, now_s));
        (known.build_id, known.unfit) = (build_id, unfit);
        known.profile = Some(profile);
        self.decide(id)
    }

    /// The verdict under the present conditions, from the profile as it was last worked out.
    pub(crate) fn decide(&mut self, id: RowId) -> Result<()> {
        let Some(known) = self.book.get_mut(id) else { return Ok(()) };
        let Some(profile) = &known.profile else { return Ok(()) };
        known.verdict = match &known.unfit {
            Some(why) => judge::Verdict::untouched(untouched(Reason::NoCandidate, why)),
            None => judge::verdict(profile, &self.conditions),
        };
        let verdict = &known.verdict;
        if !verdict.decision.trial {
            let decided = decided(&verdict.decision, None);
            self.store.record(id, &decided)?;
        }
        self.dirty = true;
        self.offer(id)
    }

    /// Brings the offered trial into line with the verdict.
    fn offer(&mut self, id: RowId) -> Result<()> {
        let Some(known) = self.book.get(id) else { return Ok(()) };
        if known.taken_by.is_some() {
            return Ok(()); // it runs; what it brings will be judged
        }
        let wanted = known.verdict.trial.as_deref();
        let offered = known.offer.as_ref().map(|offer| offer.candidate.as_str());
        if wanted == offered {
            return Ok(());
        }
        let (wanted, pause) = (wanted.map(str::to_owned), known.no_offer_before_s > now_unix_s());
        if let Some(offer) = known.offer.clone() {
            self.store.withdraw(&offer.token)?;
            self.set_offer(id, None);
            if let Some(known) = self.book.get_mut(id) {
                known.withdrawn = Some((offer, Instant::now()));
            }
        }
        if let Some(candidate) = wanted.filter(|_| !pause) {
            self.make_offer(id, candidate)?;
        }
        Ok(())
    }

    fn make_offer(&mut self, id: RowId, candidate: String) -> Result<()> {
        let token = format!("{:016x}", rand::random::<u64>().max(1));
        let retest_s = self.config.limits(self.options.retest).retest_s;
        let offer = Offer { token, program: id, candidate, retest_s, at_s: now_unix_s() };
        self.store.add_offer(&offer)?;
        if let Some(known) = self.book.get(id) {
            let begun = Some((offer.token.clone(), retest_s));
            self.store.record(id, &decided(&known.verdict.decision, begun))?;
        }
        self.set_offer(id, Some(offer));
        Ok(())
    }

    fn set_offer(&mut self, id: RowId, offer: Option<Offer>) {
        if let Some(known) = self.book.get_mut(id) {
            (known.offer, known.taken_by) = (offer, None);
        }
        self.dirty = true;
    }

    /// The trial that was taken came to nothing: another is offered after a pause, longer each time.
    pub(crate) fn void_offer(&mut self, id: RowId) {
        let Some(known) = self.book.get_mut(id) else { return };
        known.void_offers += 1;
        let pause_s = PAUSE_S * f64::from(2_u32.saturating_pow(known.void_offers.min(16) - 1));
        known.no_offer_before_s = now_unix_s() + pause_s.min(LONGEST_PAUSE_S);
        known.look_again_s = Some(known.no_offer_before_s);
        self.dirty = true;
        let Some(offer) = known.offer.clone() else { return };
        if let Err(error) = self.store.withdraw(&offer.token) {
            self.store_refused(&error);
        }
        self.set_offer(id, None);
    }

    /// One line in the log for each quarantine that was not there before.
    fn tell_of_quarantines(&self, known: &Known, profile: &imas_core::ProfileView) {
        let Some(before) = &known.profile else { return };
        for view in &profile.candidates {
            let stood = before.candidate(&view.name).is_some_and(|view| view.quarantine.is_some());
            match &view.quarantine {
                Some(quarantine) if !stood => tracing::warn!(
                    PROGRAM = %known.program,
                    CANDIDATE = view.name,
                    "quarantined: the program {} under it ({:?}, {} of {} starts); it is tried again when one of the \
                     two changes, or after: imas pin --system --lift {} {}",
                    if quarantine.hung.is_some() { "hung" } else { "crashed" },
                    quarantine.ended,
                    quarantine.under_candidate.crashed,
                    quarantine.under_candidate.starts,
                    known.program.id,
                    view.name,
                ),
                None if stood => {
                    tracing::info!(PROGRAM = %known.program, CANDIDATE = view.name, "no longer quarantined");
                }
                _ => {}
            }
        }
    }

    /// Allocators that hurt several programs within a day are given to nobody.
    pub(crate) fn take_culprits_out_of_use(&mut self) {
        let Some(installation) = &self.installation else { return };
        let mut victims = Victims::default();
        let day_ago_s = now_unix_s() - VICTIMS_WITHIN_S;
        for known in self.book.all() {
            let Some(profile) = &known.profile else { continue };
            for quarantine in judge::quarantines_since(profile, day_ago_s) {
                let Some(candidate) = installation.find(&quarantine.candidate) else { continue };
                let forgiven_s = self.forgiven.get(&candidate.allocator).copied().unwrap_or(0.0);
                let program = &known.program;
                if quarantine.since_unix_s > forgiven_s {
                    let owner = owner_of(&mut self.owners, program.domain);
                    victims.add(&candidate.allocator, program.id, owner, &program.to_string());
                }
            }
        }
        let mut taken = Vec::new();
        for (allocator, programs) in victims.culprits() {
            let version = installation.version_of(allocator);
            if self.disabled.iter().any(|d| d.allocator == allocator && d.version == version) {
                continue;
            }
            let why = format!(
                "within a day it hurt {VICTIMS} programs of the system or those of {PERSONS} users, or more: {}",
                programs.join(", ")
            );
            taken.push(Disabled { allocator: allocator.to_owned(), version, at_s: now_unix_s(), why });
        }
        if taken.is_empty() {
            return;
        }
        for disabled in taken {
            tracing::error!(
                ALLOCATOR = disabled.allocator,
                "taken out of use everywhere: {}; undo: imas lift --system {}",
                disabled.why,
                disabled.allocator
            );
            if let Err(error) = self.store.disable(&disabled) {
                self.store_refused(&error);
            }
            self.disabled.push(disabled);
        }
        for id in self.book.ids() {
            self.judge(id);
        }
    }

    /// Whose samples a process of this uid makes. In a user's own tree everything is that user's.
    pub(crate) fn domain_of(&mut self, uid: u32) -> Domain {
        if self.options.user || self.owners.of(uid) == Owner::System {
            Domain::Everybody
        } else {
            Domain::User(uid)
        }
    }
}

fn decided(decision: &imas_core::Decision, begun: Option<(String, f64)>) -> Decided {
    Decided {
        at_s: now_unix_s(),
        candidate: decision.candidate.clone(),
        trial: begun.is_some(),
        reason: decision.reason.id().to_owned(),
        because: decision.text(),
        begun,
    }
}
