// SPDX-License-Identifier: Apache-2.0
//! The record of a process that has ended, from its page and from what was seen of it.
//!
//! The ends of processes that have a page, each by a descriptor of its own.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use imas_core::TrialRecord;
use imas_core::hang::may_have_hung;
use imas_core::sample::{Ended, is_crash_signal};
use imas_engine::pending::{self, StartFacts};
use imas_linux::ingest::ParsedPage;
use imas_store::daemon::Witness;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::{EndedPage, PageEvent, PageTracker, is_same};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::pages::identify::{EXIT_EVENT_TIMEOUT, PendingPage};
use crate::trial_offer::RejectReason;
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
        // Another image ended, which has no page or one of its own.
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
            // Where a trial's sample was stored while its process lived, a crash is stored too.
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
        let offer =
            token.and_then(|token| learner.programs().trial(token, Instant::now())).map(|(_, offer)| offer);
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

/// Signals by which a process ends itself: ILL, TRAP, ABRT, BUS, FPE, SEGV,
/// STKFLT, SYS. All others are sent by people, timers, limits, systemd: not the allocator's doing.
const FAULTS: [u32; 8] = [4, 5, 6, 7, 8, 11, 16, 31];

/// The exit status of a process: its page's, corrected by the kernel's exit event. `reports` is whether
/// the kernel sends such events.
pub(crate) fn ended(noted: Ended, signal: Option<u32>, reports: bool) -> Ended {
    match (noted, signal) {
        (Ended::Signal { .. } | Ended::Killed { .. }, _) => noted,
        // After a clean end too: a child of vfork notes its own on its parent's page.
        (_, Some(signal)) if is_crash_signal(signal) => Ended::Signal { signal },
        // Killed in its first moments.
        (Ended::NeverEntered, Some(signal)) if signal != 0 && !FAULTS.contains(&signal) => Ended::Unknown,
        // The event was lost, or came while the daemon did not run: that may have been so too.
        (Ended::NeverEntered, None) if reports => Ended::Unknown,
        _ => noted,
    }
}

/// Ends taken at once; the others stay for the next turn.
const AT_ONCE: usize = 64;

/// The processes that are waited for.
#[derive(Debug)]
pub(crate) struct ProcessExits {
    epoll: Epoll,
    processes: HashMap<u64, (PageName, OwnedFd)>,
    by_page: HashMap<PageName, u64>,
    next: u64,
}

impl ProcessExits {
    pub(crate) fn new() -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, processes: HashMap::new(), by_page: HashMap::new(), next: 0 })
    }

    /// Waits for the end of the process of the page; whether it can be waited for.
    pub(crate) fn add(&mut self, page: PageName, process: OwnedFd) -> bool {
        if self.epoll.add(&process, EpollEvent::new(EpollFlags::EPOLLIN, self.next)).is_err() {
            return false;
        }
        self.by_page.insert(page.clone(), self.next);
        self.processes.insert(self.next, (page, process));
        self.next += 1;
        true
    }

    /// Whether the process of the page is waited for.
    pub(crate) fn has(&self, page: &PageName) -> bool {
        self.by_page.contains_key(page)
    }

    /// Waits no longer for the process of the page.
    pub(crate) fn remove(&mut self, page: &PageName) {
        let number = self.by_page.remove(page);
        if let Some((_, process)) = number.and_then(|number| self.processes.remove(&number)) {
            let _ = self.epoll.delete(&process); // closing it would do
        }
    }

    /// The pages whose process has ended, or some of them; each comes again until it is removed.
    pub(crate) fn take(&self) -> Vec<PageName> {
        let mut events = [EpollEvent::empty(); AT_ONCE];
        let count = self.epoll.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
        let numbers = events.iter().take(count).map(EpollEvent::data);
        numbers.filter_map(|number| Some(self.processes.get(&number)?.0.clone())).collect()
    }
}

impl AsFd for ProcessExits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::{Identity, hold};

    #[test]
    fn the_kernel_corrects_what_the_page_could_not_note() {
        let killed = Ended::Signal { signal: 11 };
        let corrected = |noted, signal| ended(noted, signal, true);
        assert_eq!(corrected(Ended::Unknown, Some(11)), killed);
        assert_eq!(corrected(Ended::NeverEntered, Some(11)), killed);
        for asked in [1, 2, 3, 9, 10, 13, 14, 15, 24] {
            assert_eq!(corrected(Ended::NeverEntered, Some(asked)), Ended::Unknown, "{asked}");
        }
        for own in [0, 5, 8] {
            assert_eq!(corrected(Ended::NeverEntered, Some(own)), Ended::NeverEntered, "{own}");
        }
        assert_eq!(corrected(Ended::NeverEntered, None), Ended::Unknown, "its event was lost");
        assert_eq!(
            ended(Ended::NeverEntered, None, false),
            Ended::NeverEntered,
            "the kernel reports no exits"
        );
        let clean = Ended::Clean { status: Some(0) };
        assert_eq!(corrected(clean, Some(0)), clean);
        assert_eq!(corrected(clean, Some(11)), killed, "what was clean was a child's end");
        assert_eq!(corrected(Ended::Signal { signal: 6 }, Some(11)), Ended::Signal { signal: 6 });
        let by_watchdog = Ended::Killed { signal: 6 };
        assert_eq!(corrected(by_watchdog, Some(6)), by_watchdog, "another process sent it");
    }

    #[test]
    fn the_exit_of_a_process_is_kept_until_its_page_is_removed() {
        let mut exits = ProcessExits::new().unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let start_ticks = imas_linux::process::start_ticks(child.id()).unwrap();
        let held = hold(Identity { pid: child.id(), start_ticks }).unwrap();
        let page = PageName { uid: 0, name: "a.page".into() };
        assert!(exits.add(page.clone(), held) && exits.take().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((exits.take(), exits.take()), (vec![page.clone()], vec![page.clone()]));
        exits.remove(&page);
        assert!(exits.take().is_empty());
    }
}
