// SPDX-License-Identifier: Apache-2.0
//! The record of a process that has ended, from its page and from what was seen of it.

use std::time::Instant;

use imas_core::TrialRecord;
use imas_core::hang::may_have_hung;
use imas_engine::pending::{self, StartFacts};
use imas_linux::ingest::ParsedPage;
use imas_store::daemon::Witness;

use super::{EndedPage, PageEvent, PageTracker, is_same};
use crate::ended::ended;
use crate::folders::PageName;
use crate::learner::Learner;
use crate::pending_page::{EXIT_EVENT_TIMEOUT, PendingPage};
use crate::reject_reason::RejectReason;
use crate::watched::Watch;

impl PageTracker {
    /// Pages whose process has ended, as the kernel shows by their descriptors.
    pub(crate) fn take_exits(&self) -> Vec<PageName> {
        self.exits.take()
    }

    /// The process of the page has ended. Where the kernel reports how, its event comes a moment later.
    pub(crate) fn process_ended(&mut self, page: &PageName, learner: &Learner) -> Option<PageEvent> {
        if !self.surroundings.reports_exits || self.is_exit_known(page) {
            return self.page_ended(page, learner);
        }
        self.exits.remove(page);
        self.awaiting_exit.push(PendingPage::new(page.clone()));
        None
    }

    /// Pages that wait for such an event and are to be looked at by now.
    pub(crate) fn take_awaiting_exit(&mut self, now: Instant) -> Vec<PendingPage> {
        PendingPage::take_due(&mut self.awaiting_exit, now)
    }

    /// Looks at such a page again.
    pub(crate) fn end_awaited(
        &mut self,
        pending: PendingPage,
        now: Instant,
        learner: &Learner,
    ) -> Option<PageEvent> {
        if self.is_exit_known(&pending.page) || now.duration_since(pending.since) >= EXIT_EVENT_TIMEOUT {
            return self.page_ended(&pending.page, learner);
        }
        self.awaiting_exit.push(pending.again());
        None
    }

    /// Whether the kernel has reported the exit status of the page's process, or the wait for it is over.
    fn is_exit_known(&self, page: &PageName) -> bool {
        self.watched.watches.get(page).is_none_or(|watch| watch.signal.is_some())
    }

    /// Pages whose process has ended, but whose record the store did not take.
    pub(crate) fn left_over(&self) -> Vec<PageName> {
        self.watched.left_over()
    }

    /// The process of the page has ended, or it will not be written any more.
    pub(crate) fn page_ended(&mut self, page: &PageName, learner: &Learner) -> Option<PageEvent> {
        self.exits.remove(page);
        let watch = self.watched.watches.get_mut(page)?;
        watch.ended = true;
        let watch = watch.clone();
        let witness = &watch.witness;
        if learner.programs().get(witness.program).is_none() {
            // The operator, or a new store, has forgotten its program.
            return Some(self.reject(page, RejectReason::Unknown));
        }
        let content = match self.read(page) {
            Ok(content) if is_same(&content, witness) => content,
            Ok(_) => return Some(self.reject_failed(page, RejectReason::Forged, &watch)),
            Err(_) => return Some(self.reject_failed(page, RejectReason::Damaged, &watch)),
        };
        // What ended was another image, that has no page or one of its own.
        let signal = watch.signal.filter(|_| !watch.has_exec_after(&content));
        let content = content.of_ended(signal);
        let record = with_hang(self.record(&content, &watch, signal, learner), &watch);
        Some(PageEvent::Ended(Box::new(EndedPage { page: page.clone(), watch, record })))
    }

    fn reject_failed(&mut self, page: &PageName, why: RejectReason, watch: &Watch) -> PageEvent {
        self.reject_trial(page, why, watch.token.clone())
    }

    /// The record of a watched process.
    pub(super) fn record(
        &self,
        content: &ParsedPage,
        watch: &Watch,
        signal: Option<u32>,
        learner: &Learner,
    ) -> TrialRecord {
        let (witness, token) = (&watch.witness, watch.token.as_deref());
        let mut sample = content.to_sample();
        let ended = ended(sample.ended, signal, self.surroundings.reports_exits);
        // Names that we make: a page must not be able to pass for another.
        sample.trial_id = match token {
            // Of a trial whose sample was stored while its process lived, a crash is stored too.
            Some(token) if ended.is_crash() => format!("{token}-{}-crash", witness.uid),
            Some(token) => format!("{token}-{}", witness.uid),
            None => {
                let Witness { uid, pid, start_ticks, boot_id, .. } = witness;
                let boot = boot_id.get(..8).unwrap_or_default();
                format!("{boot}-{uid}-{pid}-{start_ticks}-{:.0}", content.made_unix_s * 1e3)
            }
        };
        sample.candidate.clone_from(&witness.candidate);
        sample.ended = ended;
        let offer = token.and_then(|token| learner.programs().trial(token)).map(|(_, offer)| offer);
        let facts = StartFacts {
            build_id: watch.image.build_id.clone(),
            retest_s: offer.map(|offer| offer.retest_s),
            activity: watch.activity,
        };
        pending::record_of(sample, learner.installation().map(|it| &it.catalogue), facts)
    }
}

/// Record of an ended process. The sample of its trial may have been stored while it lived, and then it may
/// have hung. Its record then gets the name of a crash, so that the hang is stored too.
fn with_hang(mut record: TrialRecord, watch: &Watch) -> TrialRecord {
    let sample = &mut record.sample;
    if watch.sampled && may_have_hung(sample) && !sample.ended.is_crash() {
        sample.trial_id.push_str("-crash");
    }
    record
}
