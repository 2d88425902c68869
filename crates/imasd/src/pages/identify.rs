// SPDX-License-Identifier: Apache-2.0
//! The program of a page's process, by what the kernel shows of it.
//!
//! The kernel's last events of processes, kept for those whose page comes later.
//!
//! A page that waits: for its process to be seen, or for the kernel's event of how it ended.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use imas_core::sample::PageKind;
use imas_linux::ingest::{PageError, ParsedPage, ReadError};
use imas_store::daemon::Witness;
use imas_store::samples::{Domain, StoredProgram};

use super::{IdentifiedPage, PageEvent, PageTracker, token_of};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::process_info::{self, Identity, ProcessInfo};
use crate::trial_offer::RejectReason;

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
        if token.as_ref().is_some_and(|token| learner.programs().trial(token, Instant::now()).is_none()) {
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
        let Some(process) = process_info::look_by_helper(identity).or(snapshot) else {
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
        let trial = token.and_then(|token| learner.programs().trial(token, Instant::now()));
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
    let Some((known, offer)) = token.and_then(|token| programs.trial(token, Instant::now())) else {
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

/// A process that could not be seen is looked at again after this time, then at growing distances. During
/// its exec a process has no command line, and it may crash right after.
const SOON: Duration = Duration::from_millis(2);
/// Longest time between two looks.
const SELDOM: Duration = Duration::from_secs(1);

/// Time to wait for the kernel's event of how a process ended. The descriptor of the process becomes
/// readable first, and on a busy machine much may happen between the two.
pub(crate) const EXIT_EVENT_TIMEOUT: Duration = Duration::from_millis(500);

/// A page that waits to be looked at again.
#[derive(Debug)]
pub(crate) struct PendingPage {
    pub(crate) page: PageName,
    /// Time of the first look.
    pub(crate) since: Instant,
    /// Time when the page's process was first found to be gone.
    pub(crate) gone: Option<Instant>,
    /// Time of the next look.
    pub(crate) next: Instant,
}

impl PendingPage {
    pub(crate) fn new(page: PageName) -> Self {
        let now = Instant::now();
        Self { page, since: now, gone: None, next: now + SOON }
    }

    /// This page, to be looked at again after as long as it has waited already, within [`SOON`] and
    /// [`SELDOM`].
    pub(crate) fn again(self) -> Self {
        let now = Instant::now();
        let next = now + now.duration_since(self.since).clamp(SOON, SELDOM);
        Self { next, ..self }
    }

    /// Takes out the pages that are to be looked at by now.
    pub(crate) fn take_due(waiting: &mut Vec<Self>, now: Instant) -> Vec<Self> {
        let (due, later) = std::mem::take(waiting).into_iter().partition(|page| page.next <= now);
        *waiting = later;
        due
    }
}

/// The kernel's events of the last seconds: for processes that had ended before their page was seen.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// Signals that ended processes, 0 for none.
    pub(crate) signals: Recent<u32>,
    /// Last execs of processes, by `CLOCK_MONOTONIC`, ns.
    pub(crate) execs: Recent<u64>,
}

/// Events are kept for this time.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Limit for the number of processes kept.
const MOST_REMEMBERED: usize = 16_384;

/// The last event of one kind, by id of the process.
#[derive(Debug, Default)]
pub(crate) struct Recent<T> {
    reported: HashMap<u32, (T, Instant)>,
    /// Time when what is old was last forgotten: that takes a while where there is much.
    cleared: Option<Instant>,
}

impl<T: Copy> Recent<T> {
    pub(crate) fn note(&mut self, pid: u32, what: T, now: Instant) {
        let rested = self.cleared.is_none_or(|at| now.duration_since(at) >= REMEMBERED / 5);
        if self.reported.len() >= MOST_REMEMBERED && rested {
            self.reported.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
            self.cleared = Some(now);
        }
        if self.reported.len() < MOST_REMEMBERED {
            self.reported.insert(pid, (what, now));
        }
    }

    /// The event of the process, unless it is too old: the id may be another's by now.
    pub(crate) fn of(&self, pid: u32, now: Instant) -> Option<T> {
        let (what, at) = self.reported.get(&pid)?;
        (now.duration_since(*at) < REMEMBERED).then_some(*what)
    }

    /// The process still runs: its event means nothing any more.
    pub(crate) fn forget(&mut self, pid: u32) {
        self.reported.remove(&pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_kept_for_a_while() {
        let mut recent = Recent::default();
        let now = Instant::now();
        recent.note(7, 11_u32, now);
        assert_eq!((recent.of(7, now), recent.of(8, now)), (Some(11), None));
        assert_eq!(recent.of(7, now + REMEMBERED), None, "the id may be another's by then");
        (0..100_000).for_each(|pid| recent.note(pid, 0, now));
        assert!(recent.reported.len() <= MOST_REMEMBERED);
        recent.note(8, 6, now + REMEMBERED);
        assert_eq!(recent.of(8, now + REMEMBERED), Some(6), "there is room again");
    }
}
