// SPDX-License-Identifier: Apache-2.0
//! What a page said when its process had ended, into the store; and what a crash means for others.

use std::time::Instant;

use imas_core::TrialRecord;
use imas_core::hang::may_have_hung;
use imas_core::sample::{Ended, PageKind};
use imas_ingest::Page;
use imas_linux::clock::now_unix_s;
use imas_store::RowId;
use imas_store::daemon::Witness;
use imas_store::domain::Domain;

use crate::daemon::Daemon;
use crate::doubt::Doubt;
use crate::drop::Drop;
use crate::ended::ended;
use crate::folders::PageName;
use crate::harm::START_S;
use crate::owners::owner_of;
use crate::pages::{is_same, token_of};
use crate::watched::Watch;

impl Daemon {
    /// The process behind the page has ended. How, the kernel tells a moment later, where it tells.
    pub(crate) fn process_ended(&mut self, page: &PageName) {
        if !self.hears_the_kernel() || self.is_told(page) {
            return self.page_ended(page);
        }
        self.wakeup.remove_process(page);
        self.untold.push(Doubt::new(page.clone()));
    }

    /// Whether the kernel has told how the process behind the page ended, or nobody waits for that any more.
    pub(crate) fn is_told(&self, page: &PageName) -> bool {
        self.watched.watches.get(page).is_none_or(|watch| watch.signal.is_some())
    }

    /// The process behind the page has ended: what the page says goes into the store, then the page goes.
    pub(crate) fn page_ended(&mut self, page: &PageName) {
        self.wakeup.remove_process(page);
        let Some(watch) = self.watched.watches.get_mut(page) else { return };
        watch.ended = true;
        let watch = watch.clone();
        let (witness, token) = (&watch.witness, &watch.token);
        if self.book.get(witness.program).is_none() {
            return self.drop_page(page, Drop::Unknown); // the operator, or a new store, has forgotten its program
        }
        let content = match self.read(page) {
            Ok(content) if is_same(&content, witness) => content,
            other => {
                let why = if other.is_ok() { Drop::Forged } else { Drop::Damaged };
                self.drop_page(page, why);
                return self.void(token.as_deref(), page);
            }
        };
        // What ended was another image, that has no page or one of its own.
        let signal = watch.signal.filter(|_| !watch.has_exec_after(&content));
        let record = self.with_sighting(self.record(&content, &watch, signal), &watch);
        let program = self.book.get(witness.program);
        let ends = token.as_deref().filter(|token| program.is_some_and(|known| known.is_offering(token)));
        let new = match self.store.settle(witness, &record, ends) {
            Ok(new) => new,
            Err(error) => return self.store_refused(&error),
        };
        self.watched.remove(page);
        if token.is_some() {
            self.spent.push(page.clone());
            self.dirty = true;
        } else {
            self.folders.remove(page);
        }
        if new {
            self.count(&record);
        }
        self.end_offer(token.as_deref().unwrap_or_default(), witness.program);
        if new && record.sample.ended.is_crash() && record.sample.pass_reason.is_none() {
            self.note_crash(&record, &watch);
        }
        if new && may_have_hung(&record.sample) {
            self.take_culprits_out_of_use();
            self.publish_soon();
        }
    }

    /// An index was just published; pages of trials that it does not offer any more go. Until then their names were taken: whoever could
    /// have made such a page again would have run the same trial once more, and crashed as the first one did, perhaps.
    pub(crate) fn remove_spent(&mut self) {
        let (kept, over) = std::mem::take(&mut self.spent)
            .into_iter()
            .partition(|page| token_of(page).is_some_and(|token| self.book.offering(token).is_some()));
        self.spent = kept;
        over.iter().for_each(|page: &PageName| self.folders.remove(page));
    }

    /// The trial of that name is stored, as one of `program`, which is judged anew. A user's trial of a program that is everybody's
    /// leaves everybody's trial on offer.
    pub(crate) fn end_offer(&mut self, token: &str, program: RowId) {
        if let Some(known) = self.book.get_mut(program).filter(|known| known.is_offering(token)) {
            (known.offer, known.taken_by, known.void_offers) = (None, None, 0);
        }
        self.judge(program);
    }

    pub(crate) fn record(&self, content: &Page, watch: &Watch, signal: Option<u32>) -> TrialRecord {
        let (witness, token) = (&watch.witness, watch.token.as_deref());
        let mut sample = content.to_sample();
        // Names of our own making: a page must not be able to pass for another.
        let ended = ended(sample.ended, signal, self.hears_the_kernel());
        sample.trial_id = match token {
            // Of a trial whose sample was stored while its process lived, a crash is still news.
            Some(token) if ended.is_crash() => format!("{token}-{}-crash", witness.uid),
            Some(token) => format!("{token}-{}", witness.uid),
            None => {
                let Witness { uid, pid, start_ticks, boot_id, .. } = witness;
                let boot = boot_id.get(..8).unwrap_or_default();
                format!("{boot}-{uid}-{pid}-{start_ticks}-{:.0}", content.made_unix_s * 1e3)
            }
        };
        sample.candidate.clone_from(&witness.candidate);
        sample.machine = imas_linux::host::machine_state();
        sample.ended = ended;
        let offer = token.and_then(|token| self.book.trial(token)).map(|(_, offer)| offer);
        let version = self.installation.as_ref();
        TrialRecord {
            allocator_version: version
                .map_or_else(String::new, |it| it.version_served(&sample.candidate, &sample.served)),
            build_id: watch.image.build_id.clone(),
            retest_s: offer.map(|offer| offer.retest_s),
            sample,
        }
    }

    /// What was seen of a process that did not end by itself. Of a trial whose sample was stored while it lived, a hang is still news, as
    /// a crash is.
    fn with_sighting(&self, mut record: TrialRecord, watch: &Watch) -> TrialRecord {
        let sample = &mut record.sample;
        sample.sighting = watch.sighting.filter(|_| !matches!(sample.ended, Ended::Clean { .. }));
        if watch.sampled && may_have_hung(sample) && !sample.ended.is_crash() {
            sample.trial_id.push_str("-crash");
        }
        record
    }

    fn note_crash(&mut self, record: &TrialRecord, watch: &Watch) {
        self.counters.crashes += 1;
        let (sample, witness) = (&record.sample, &watch.witness);
        let Some(known) = self.book.get(witness.program) else { return };
        tracing::warn!(
            PROGRAM = %known.program,
            CANDIDATE = sample.candidate,
            UID = witness.uid,
            "the program crashed under it: {:?}",
            sample.ended
        );
        let domain = known.program.domain;
        let owner = owner_of(&mut self.owners, domain);
        // A program that crashes as often untouched fails by its own doing.
        let view = known.profile.as_ref().and_then(|profile| profile.candidate(&sample.candidate));
        let never_entered = sample.ended == Ended::NeverEntered;
        let blamed = never_entered || view.is_none_or(|view| view.quarantine.is_some());
        self.take_culprits_out_of_use();
        if matches!(domain, Domain::Everybody) {
            self.publish_soon(); // the next start must not crash in the same way
        }
        let placed = sample.candidate != imas_core::SYSTEM;
        // The clock may have been set since.
        let is_young =
            now_unix_s() - sample.made_unix_s < START_S && watch.since.elapsed().as_secs_f64() < START_S;
        if placed && blamed && (never_entered || is_young) && self.failures.add(owner, Instant::now()) {
            self.stop_everything("five starts under other allocators failed within a minute");
        }
    }

    fn count(&mut self, record: &TrialRecord) {
        match record.sample.kind {
            PageKind::Trial => self.counters.trials_stored += 1,
            PageKind::Flight => self.counters.flights_stored += 1,
        }
    }
}
