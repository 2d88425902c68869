// SPDX-License-Identifier: Apache-2.0
//! Watched processes while they live: their beginning, what is seen of them, their next image.
//!
//! The sample of a trial whose process keeps running is taken after a span of its life, or after a number of
//! malloc calls: a service that is restarted once a month must not be learned about once a month. That is the
//! trial's one sample. Its end adds nothing but a crash, if it is one. More spans of the same process would
//! be no more trials: the allocator cannot change while it lives. How it lives on is looked at from outside
//! ([`crate::lives`]), and makes the same trial's figures better.

use std::time::{Duration, Instant};

use imas_core::hang::ProcessActivity;
use imas_core::{Sample, TrialRecord};
use imas_engine::pending::look_is_due;
use imas_linux::ingest::State;
use imas_linux::standstill::{age_s, look};
use imas_store::daemon::Witness;

use super::{IdentifiedPage, PageEvent, PageTracker, image_of, is_same, token_of};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::lives::{LivingTrial, PageCounts};
use crate::process_info::{self, Identity};
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
