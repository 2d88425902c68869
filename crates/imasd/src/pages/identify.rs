// SPDX-License-Identifier: Apache-2.0
//! The program of a page's process, by what the kernel shows of it.

use std::time::{Duration, Instant};

use imas_core::sample::PageKind;
use imas_linux::ingest::{PageError, ParsedPage, ReadError};
use imas_store::daemon::Witness;
use imas_store::domain::Domain;
use imas_store::samples::StoredProgram;

use super::{IdentifiedPage, PageEvent, PageTracker, token_of};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::pending_page::{EXIT_EVENT_TIMEOUT, PendingPage};
use crate::process_info::{self, Identity, ProcessInfo};
use crate::process_question;
use crate::reject_reason::RejectReason;

/// Age from which what is not a page never becomes one: from the making of a page to its being armed it takes
/// microseconds.
pub(super) const UNFINISHED: Duration = Duration::from_secs(10);

/// A process that was looked at when its page came.
type Snapshot = Option<(Identity, ProcessInfo)>;

impl PageTracker {
    /// A file in a user's folder was written and closed.
    pub(super) fn page_written(
        &mut self,
        page: &PageName,
        snapshot: Snapshot,
        learner: &Learner,
    ) -> Option<PageEvent> {
        if self.is_considered(page) || !self.folders.has(page) {
            return None;
        }
        if !self.has_room_for(page) {
            return Some(self.reject(page, RejectReason::TooMany));
        }
        match self.read(page) {
            Ok(content) => self.identify(PendingPage::new(page.clone()), &content, snapshot, learner),
            // Its maker is not done; it is reported again when it is.
            Err(ReadError::Page(PageError::NotArmed)) => None,
            Err(_) => Some(self.reject(page, RejectReason::Damaged)),
        }
    }

    /// Pages whose process could not be seen, and is to be looked at by now.
    pub(crate) fn take_pending(&mut self, now: Instant) -> Vec<PendingPage> {
        PendingPage::take_due(&mut self.pending, now)
    }

    /// Looks at the process of such a page again.
    pub(crate) fn identify_again(&mut self, pending: PendingPage, learner: &Learner) -> Option<PageEvent> {
        let content = self.read(&pending.page).ok()?;
        self.identify(pending, &content, None, learner)
    }

    fn identify(
        &mut self,
        mut pending: PendingPage,
        content: &ParsedPage,
        snapshot: Snapshot,
        learner: &Learner,
    ) -> Option<PageEvent> {
        let page = pending.page.clone();
        if content.boot_id != self.boot_id {
            return Some(self.reject(&page, RejectReason::Stale));
        }
        let is_trial = content.kind == PageKind::Trial;
        let token = is_trial.then(|| token_of(&page).unwrap_or_default().to_owned());
        if token.as_ref().is_some_and(|token| learner.programs().trial(token).is_none()) {
            return Some(self.reject(&page, RejectReason::Unknown));
        }
        match self.program_of(&page, content, token.as_deref(), snapshot, learner) {
            Ok(program) => Some(identified(page, content, program, token)),
            Err(RejectReason::Unwitnessed) if self.may_still_be_identified(&mut pending, content) => {
                self.pending.push(pending.again());
                None
            }
            Err(why @ RejectReason::Unwitnessed) => Some(self.reject_trial(&page, why, token)),
            Err(why) => Some(self.reject(&page, why)),
        }
    }

    /// Whether the process of the page may be seen later: as long as it lives; else, of a page that counts
    /// without a process that was seen, by the kernel's event of its exit and by what it wrote at last.
    fn may_still_be_identified(&self, pending: &mut PendingPage, content: &ParsedPage) -> bool {
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        if process_info::is_running(identity) {
            return pending.since.elapsed() < UNFINISHED;
        }
        let gone = *pending.gone.get_or_insert_with(Instant::now);
        pending.page.uid == self.surroundings.users.own_uid() && gone.elapsed() < EXIT_EVENT_TIMEOUT
    }

    /// The program that the page's process really is.
    fn program_of(
        &self,
        page: &PageName,
        content: &ParsedPage,
        token: Option<&str>,
        snapshot: Snapshot,
        learner: &Learner,
    ) -> Result<StoredProgram, RejectReason> {
        let users = &self.surroundings.users;
        let domain = users.domain_of(page.uid);
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        let snapshot = snapshot.filter(|(theirs, _)| *theirs == identity).map(|(_, seen)| seen);
        let Some(process) = process_question::look(identity).or(snapshot) else {
            if process_info::life(content.pid).is_some_and(|life| life.identity != identity) {
                return Err(RejectReason::Forged); // the id is another's
            }
            return self.program_of_exited(page, content, token, learner);
        };
        if process.uid != page.uid || users.is_foreign(&process) || !learner.offers(&content.candidate) {
            return Err(RejectReason::Forged);
        }
        claimed_program(&process, content, token, domain, learner).ok_or(RejectReason::Forged)
    }

    /// The program of a page whose process had ended before it was looked at. Only the owner of the store is
    /// believed then: root where the machine is served. Root could write the store as well, and a service
    /// that dies at once must not be tried for ever. It is believed only if the kernel reported the process's
    /// exit. Where the kernel reports none, a crash is believed all the same: it does no more than take a
    /// candidate away.
    fn program_of_exited(
        &self,
        page: &PageName,
        content: &ParsedPage,
        token: Option<&str>,
        learner: &Learner,
    ) -> Result<StoredProgram, RejectReason> {
        let users = &self.surroundings.users;
        let is_reported = self.departed.signals.of(content.pid, Instant::now()).is_some();
        let is_credible =
            is_reported || (!self.surroundings.reports_exits && content.to_sample().ended.is_crash());
        if page.uid != users.own_uid() || !is_credible || !learner.offers(&content.candidate) {
            return Err(RejectReason::Unwitnessed);
        }
        let trial = token.and_then(|token| learner.programs().trial(token));
        if trial.is_some_and(|(_, offer)| offer.candidate != content.candidate) {
            return Err(RejectReason::Forged);
        }
        let known = match token {
            Some(_) => trial.map(|(known, _)| known),
            None => learner.programs().numbered(&content.trial_id, users.domain_of(page.uid)),
        };
        known.map(|known| known.program.clone()).ok_or(RejectReason::Unwitnessed)
    }
}

/// The program that the page claims, if the process that was seen may be that under that candidate.
fn claimed_program(
    process: &ProcessInfo,
    content: &ParsedPage,
    token: Option<&str>,
    domain: Domain,
    learner: &Learner,
) -> Option<StoredProgram> {
    let programs = learner.programs();
    let Some((known, offer)) = token.and_then(|token| programs.trial(token)) else {
        return programs.placed(process, &content.trial_id, domain).map(|known| known.program.clone());
    };
    let is_same = known.executable == Some(process.executable) && process.leads_to(&known.detail);
    (is_same && offer.candidate == content.candidate).then(|| known.program.clone())
}

fn identified(
    page: PageName,
    content: &ParsedPage,
    program: StoredProgram,
    token: Option<String>,
) -> PageEvent {
    let witness = Witness {
        uid: page.uid,
        page: page.name.to_string_lossy().into_owned(),
        boot_id: content.boot_id.clone(),
        pid: content.pid,
        start_ticks: content.process_start_ticks,
        program: program.id,
        candidate: content.candidate.clone(),
    };
    PageEvent::Identified(Box::new(IdentifiedPage { page, program, witness, token }))
}
