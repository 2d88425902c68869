// SPDX-License-Identifier: Apache-2.0
//! The processes of pages. First while they live: their beginning, what is seen of them, their next image.
//!
//! The sample of a trial whose process keeps running is taken after a span of its life, or after a number of
//! malloc calls: a service that is restarted once a month must not be learned about once a month. That is the
//! trial's one sample. Its end adds nothing but a crash, if it is one. More spans of the same process would
//! be no more trials: the allocator cannot change while it lives. How it lives on is looked at from outside
//! ([`crate::lives`]), and makes the same trial's figures better.
//!
//! Then the record of a process that has ended, from its page and from what was seen of it. Ends are seen by a descriptor of
//! each process.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use imas_core::hang::{ProcessActivity, may_have_hung};
use imas_core::sample::{Ended, is_crash_signal};
use imas_core::{Sample, TrialRecord};
use imas_engine::pending::{self, StartFacts, look_is_due};
use imas_linux::ingest::{ParsedPage, State};
use imas_linux::standstill::{age_s, look};
use imas_store::daemon::Witness;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::{EndedPage, IdentifiedPage, PageEvent, PageTracker, image_of, is_same, token_of};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::lives::{LivingTrial, PageCounts};
use crate::pages::identify::{EXIT_EVENT_TIMEOUT, PendingPage};
use crate::process_info::{self, Identity};
use crate::trial_offer::RejectReason;
use crate::watched::{Image, Watch};

/// Share of the least time of a hang after which the first look at a process comes, for whether it hangs.
const FIRST_LOOK: f64 = 0.3;
/// Limit for the number of looks in one turn. Each takes about 0.1 ms.
const MOST_LOOKS: usize = 64;

impl PageTracker {
    /// Watches the process of an identified page from now on. It may have ended, or run another image,
    /// meanwhile.
    pub(crate) fn watch(
        &mut self,
        identified: IdentifiedPage,
        witness: Witness,
        learner: &Learner,
    ) -> Option<PageEvent> {
        let image = image_of(learner.programs().get(witness.program));
        self.watch_image(identified.page, witness, identified.token, image, learner)
    }

    /// Watches the process of a page that an earlier process of the daemon has seen.
    pub(crate) fn watch_resumed(&mut self, witness: Witness, learner: &Learner) -> Option<PageEvent> {
        let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
        let token = token_of(&page).map(str::to_owned);
        let image = Self::resumed_image(&witness, learner.programs());
        self.watch_image(page, witness, token, image, learner)
    }

    fn watch_image(
        &mut self,
        page: PageName,
        witness: Witness,
        token: Option<String>,
        image: Image,
        learner: &Learner,
    ) -> Option<PageEvent> {
        let since = Instant::now();
        let signal = self.departed.signals.of(witness.pid, since);
        let exec_ns = self.departed.execs.of(witness.pid, since);
        let watch = Watch {
            witness,
            image,
            token,
            signal,
            exec_ns,
            since,
            sampled: false,
            activity: None,
            looked_s: 0.0,
            ended: false,
        };
        let identity = watch.identity();
        self.watched.add(page.clone(), watch);
        let held = process_info::hold(identity);
        let is_waited_for = held.is_some_and(|held| self.exits.add(page.clone(), held));
        if !is_waited_for && !process_info::is_running(identity) {
            return self.process_ended(&page, learner);
        }
        self.has_moved_on(&page).then(|| self.page_ended(&page, learner)).flatten()
    }

    /// The kernel reported how a process ended.
    pub(crate) fn note_exit(&mut self, pid: u32, signal: u32) {
        self.departed.signals.note(pid, signal, Instant::now());
        let page = self.watched.of_pid(pid).cloned();
        if let Some(watch) = page.and_then(|page| self.watched.watches.get_mut(&page)) {
            watch.signal = Some(signal);
        }
    }

    /// A process runs another image now, perhaps: then its page will not be written any more.
    pub(crate) fn note_exec(&mut self, pid: u32, at_ns: u64, learner: &Learner) -> Option<PageEvent> {
        self.departed.signals.forget(pid);
        self.departed.execs.note(pid, at_ns, Instant::now());
        let page = self.watched.of_pid(pid).cloned()?;
        if let Some(watch) = self.watched.watches.get_mut(&page) {
            watch.exec_ns = Some(at_ns);
        }
        self.has_moved_on(&page).then(|| self.page_ended(&page, learner)).flatten()
    }

    /// Every page whose process runs another image: for where the kernel does not report it.
    pub(crate) fn moved_on(&self) -> Vec<PageName> {
        self.watched.pages().into_iter().filter(|page| self.has_moved_on(page)).collect()
    }

    /// Whether the process of the page goes on as another image. One that has not come to the hook's
    /// constructor will write its page yet, whatever it is seen to run.
    fn has_moved_on(&self, page: &PageName) -> bool {
        let Some(watch) = self.watched.watches.get(page).filter(|watch| !watch.ended) else { return false };
        let runs = process_info::executable(watch.identity());
        let is_another = runs.is_some() && watch.image.executable.is_some() && runs != watch.image.executable;
        if !is_another && (runs.is_none() || watch.exec_ns.is_none()) {
            return false;
        }
        let entered = self.read(page).ok().filter(|content| content.state != State::Armed);
        entered.is_some_and(|content| is_another || watch.has_exec_after(&content))
    }

    /// Looks at processes in production or on trial: one that is killed leaves nothing of what was seen then,
    /// and a hang shows in nothing else ([`imas_core::hang`]). Where many are due, those come first that wait for
    /// longest: no user's processes keep the processes of others from being looked at.
    pub(crate) fn look_for_hangs(&mut self) {
        let watches = self.watched.watches.values_mut();
        let mut due: Vec<_> = watches.filter_map(|watch| Some((age_if_due(watch)?, watch))).collect();
        due.sort_by(|a, b| (b.0 - b.1.looked_s).total_cmp(&(a.0 - a.1.looked_s)));
        for (age_s, watch) in due.into_iter().take(MOST_LOOKS) {
            watch.looked_s = age_s;
            if let Some(now) = look(watch.witness.pid, watch.witness.start_ticks) {
                watch.activity = Some(ProcessActivity::following(watch.activity, now));
                self.counts.looks += 1;
            }
        }
    }

    /// Trials whose sample is due though their process lives.
    pub(crate) fn due_spans(&self, now: Instant) -> Vec<PageName> {
        let span = Duration::from_secs_f64(self.limits.sample_after_s);
        let watches = self.watched.watches.iter();
        let open = watches.filter(|(_, watch)| watch.token.is_some() && !watch.sampled && !watch.ended);
        let due = open.filter(|(page, watch)| {
            now.duration_since(watch.since) >= span || self.has_made_enough_calls(page)
        });
        due.map(|(page, _)| page.clone()).collect()
    }

    fn has_made_enough_calls(&self, page: &PageName) -> bool {
        let Some(enough) = self.limits.sample_after_operations else { return false };
        self.read(page).is_ok_and(|content| calls(&content.to_sample()) >= enough)
    }

    /// Record of such a process until now, by its page and /proc; `None` when that is nothing yet: it comes
    /// again.
    pub(crate) fn span(&self, page: &PageName, learner: &Learner) -> Option<(Watch, TrialRecord)> {
        let watch = self.watched.watches.get(page)?;
        let witness = &watch.witness;
        let content = self.read(page).ok().filter(|content| is_same(content, witness))?;
        let identity = Identity { pid: witness.pid, start_ticks: witness.start_ticks };
        learner.programs().get(witness.program)?;
        let now = process_info::executable(identity)?;
        if watch.image.executable.is_some_and(|executable| executable != now)
            || watch.has_exec_after(&content)
        {
            return None; // it runs another image by now
        }
        let mut record = self.record(&content, watch, None, learner);
        let sample = &mut record.sample;
        if sample.ended.is_crash() || calls(sample) == 0 || sample.memory.snapshots == 0 {
            return None;
        }
        sample.activity = None; // it has not ended
        sample.usage = Some(process_info::usage(identity)?);
        Some((watch.clone(), record))
    }

    /// Processes on trial that live, with their pages; a trial has the name of its sample.
    pub(crate) fn living_trials(&self) -> Vec<LivingTrial> {
        let watches = self.watched.watches.iter().filter(|(_, watch)| !watch.ended);
        let of = |(page, watch): (&PageName, &Watch)| {
            let token = watch.token.as_deref()?;
            Some(LivingTrial {
                identity: watch.identity(),
                page: page.clone(),
                program: watch.witness.program,
                trial_id: format!("{token}-{}", watch.witness.uid),
                build_id: watch.image.build_id.clone(),
            })
        };
        watches.filter_map(of).collect()
    }

    /// Whether a process has a page: it runs a trial, or was placed.
    pub(crate) fn has_page(&self, identity: Identity) -> bool {
        let page = self.watched.of_pid(identity.pid);
        page.and_then(|page| self.watched.watches.get(page)).is_some_and(|watch| watch.identity() == identity)
    }

    /// Counts in the page of a process until now; zeros where it cannot be read.
    pub(crate) fn counted(&self, page: &PageName) -> PageCounts {
        let Some(watch) = self.watched.watches.get(page) else { return PageCounts::default() };
        let content = self.read(page).ok().filter(|content| is_same(content, &watch.witness));
        content.map_or_else(PageCounts::default, |content| PageCounts {
            live_bytes: content.live_bytes_now(),
            calls: calls(&content.to_sample()),
        })
    }

    /// The sample of the trial is stored, though its process lives.
    pub(crate) fn sampled(&mut self, page: &PageName) {
        if let Some(watch) = self.watched.watches.get_mut(page) {
            watch.sampled = true;
        }
    }
}

/// Age of a process that is to be looked at, seconds; `None` for any other.
fn age_if_due(watch: &Watch) -> Option<f64> {
    let age_s = age_s(watch.witness.start_ticks).filter(|_| !watch.ended)?;
    look_is_due(&watch.witness.candidate, age_s, FIRST_LOOK, watch.activity).then_some(age_s)
}

/// malloc calls of all classes.
fn calls(sample: &Sample) -> u64 {
    sample.classes().iter().fold(0, |sum, class| sum.saturating_add(class.calls))
}

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

    use crate::process_info::hold;

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
