// SPDX-License-Identifier: Apache-2.0
//! From a page to a decision: page events of the tracker go to the learner, learner events to the publisher.
//!
//! The machine's load and memory, and when they have changed enough to decide anew.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};
use imas_engine::config::Exclusions;
use imas_engine::daemon_status::DaemonCounters;

use crate::config::Config;
use crate::folders::PageName;
use crate::harm::Emergency;
use crate::kernel_events::ProcessEvent;
use crate::learner::Learner;
use crate::lives::LifeTracker;
use crate::near_limits::NearLimits;
use crate::pages::{EndedPage, IdentifiedPage, PageEvent, PageTracker, RejectedPage, token_of};
use crate::process_info::ProcessInfo;
use crate::publish::Publisher;
use crate::trims::Trims;

/// Time for pages in one turn of the loop; then everything else has its turn.
const PAGES_AT_ONCE: Duration = Duration::from_millis(50);
/// Time for the pages that exist at our start, before programs are served.
const AT_START: Duration = Duration::from_secs(2);

/// The parts that events pass through.
#[derive(Debug)]
pub(crate) struct Pipeline {
    pub(crate) state: PathBuf,
    pub(crate) pages: PageTracker,
    pub(crate) learner: Learner,
    pub(crate) lives: LifeTracker,
    pub(crate) publisher: Publisher,
    pub(crate) emergency: Emergency,
    pub(crate) trims: Trims,
    pub(crate) near_limits: NearLimits,
}

impl Pipeline {
    /// Goes on where an earlier daemon stopped: with its programs, its pages, and the pages written since.
    pub(crate) fn resume(&mut self, however_long: bool) -> Result<()> {
        self.learner.load_programs()?;
        self.resume_watches();
        self.learner.judge_all();
        self.look_at_all_pages(however_long);
        Ok(())
    }

    pub(crate) fn process_event(&mut self, event: ProcessEvent) {
        match event {
            ProcessEvent::Exec { pid, at_ns } => {
                let event = self.pages.note_exec(pid, at_ns, &self.learner);
                self.page_happened(event);
            }
            ProcessEvent::Exit { pid, signal } => self.pages.note_exit(pid, signal),
        }
    }

    /// Works on pages that were written, on pending ones, and on those whose processes ended (`exits`).
    pub(crate) fn work_on_pages(&mut self, exits: Vec<PageName>, now: Instant) {
        self.read_pages();
        self.look_at_pages_again(now);
        self.each_page(exits, PageTracker::process_ended);
    }

    /// Ends the pages of processes that have replaced their image since.
    pub(crate) fn end_moved_on(&mut self) {
        self.each_page(self.pages.moved_on(), PageTracker::page_ended);
    }

    /// Tries again to store what the store refused.
    pub(crate) fn retry_if_due(&mut self, now: Instant) {
        if self.learner.take_retry(now) {
            self.each_page(self.pages.left_over(), PageTracker::page_ended);
            self.learner.finish_retry();
        }
    }

    /// Looks at what changes without an event: pages that were removed, spans and waits that end, hangs, the
    /// machine's conditions.
    pub(crate) fn look_around(&mut self) {
        self.pass_on_events();
        let gone = self.pages.sweep();
        self.each_page(gone, PageTracker::page_ended);
        self.close_spans();
        self.pages.look_for_hangs();
        self.learner.judge_due();
        self.near_limits.look(Instant::now());
        let Ok(now) = conditions(Some(self.learner.conditions())) else { return };
        self.trims.look(&now, Instant::now());
        if differ(self.learner.conditions(), &now) {
            self.learner.set_conditions(now);
        }
    }

    /// Looks at processes of services that live on, where that is due.
    pub(crate) fn look_at_lives(&mut self, now: Instant) {
        if self.lives.is_sync_due(now) {
            let pages = &self.pages;
            let has_page = |identity| pages.has_page(identity);
            let observed = self.learner.observed(pages.living_trials(), pages.boot_id(), &has_page);
            self.lives.sync(observed, now);
        }
        for (identity, page) in self.lives.due(now) {
            let counted = page.map(|page| self.pages.counted(&page)).unwrap_or_default();
            self.lives.ask(identity, counted);
        }
        self.lives.take_looks(now);
        self.lives.read_counters();
        for closed in self.lives.take_closed() {
            self.learner.store_window(&closed);
        }
        self.pass_on_events();
    }

    /// Adds the program of a process to those that are served.
    pub(crate) fn take_in(&mut self, process: &ProcessInfo) {
        self.pages.welcome(process.uid);
        let pages = &self.pages;
        self.learner.take_in(process, &|program| pages.has_program(program));
        self.pass_on_events();
    }

    pub(crate) fn set_boot_id(&mut self, boot_id: &str) {
        self.publisher.of_boot(boot_id);
        self.pages.set_boot_id(boot_id);
    }

    pub(crate) fn set_config(&mut self, config: Config, exclusions: Exclusions) {
        self.pages.set_limits(config.own.clone());
        self.lives.set_first(config.own.sample_after_s);
        self.trims.set(config.own.trim.clone(), config.own.short_at);
        self.near_limits.set(config.own.note_near_limits, &self.state);
        self.learner.set_config(config, exclusions);
    }

    /// Time when there is work if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let looks = [self.lives.next(), self.trims.next()];
        let parts = [self.pages.next(), self.publisher.next(), self.learner.next_retry()];
        parts.into_iter().chain(looks).flatten().min()
    }

    pub(crate) fn counters(&self) -> DaemonCounters {
        let own = DaemonCounters { published: self.publisher.published, ..DaemonCounters::default() };
        own + self.pages.counts() + self.learner.counts() + self.trims.counts()
    }

    /// Watches again the processes that an earlier process of the daemon has identified.
    fn resume_watches(&mut self) {
        for witness in self.learner.witnesses() {
            let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
            if !self.pages.can_resume(&witness, self.learner.programs()) {
                self.learner.forget_witness(&page);
                continue;
            }
            // The offer is gone when the trial's sample was stored while its process lived.
            self.learner.take_offer(token_of(&page), &witness);
            let event = self.pages.watch_resumed(witness, &self.learner);
            self.page_happened(event);
        }
    }

    /// Every page that is there at our start.
    fn look_at_all_pages(&mut self, however_long: bool) {
        let begin = Instant::now();
        self.pages.queue_all();
        while self.pages.has_queued() && (however_long || begin.elapsed() < AT_START) {
            self.read_pages();
        }
    }

    /// Works on pages that were written, for a while.
    fn read_pages(&mut self) {
        let begin = Instant::now();
        let mut worked = HashMap::new();
        self.pages.gather();
        while begin.elapsed() < PAGES_AT_ONCE
            && let Some((uid, waiting)) = self.pages.take_queued(&mut worked)
        {
            let page = PageName { uid, name: waiting.name.clone() };
            let is_old = waiting.is_old;
            let event = self.pages.work_on(&page, waiting, &self.learner);
            self.page_happened(event);
            if is_old {
                let event = self.pages.reject_old(&page);
                self.page_happened(event);
            }
            self.pages.gather();
        }
    }

    fn look_at_pages_again(&mut self, now: Instant) {
        for pending in self.pages.take_pending(now) {
            let event = self.pages.identify_again(pending, &self.learner);
            self.page_happened(event);
        }
        for pending in self.pages.take_awaiting_exit(now) {
            let event = self.pages.end_awaited(pending, now, &self.learner);
            self.page_happened(event);
        }
    }

    fn each_page(
        &mut self,
        pages: Vec<PageName>,
        act: fn(&mut PageTracker, &PageName, &Learner) -> Option<PageEvent>,
    ) {
        for page in pages {
            let event = act(&mut self.pages, &page, &self.learner);
            self.page_happened(event);
        }
    }

    /// From the page tracker to the learner, and back where the learner's answer ends the page.
    fn page_happened(&mut self, event: Option<PageEvent>) {
        let mut next = event;
        while let Some(event) = next {
            next = match event {
                PageEvent::Rejected(rejected) => {
                    self.rejected(&rejected);
                    None
                }
                PageEvent::Identified(identified) => self.identified(*identified),
                PageEvent::Ended(ended) => {
                    self.ended(&ended);
                    None
                }
            };
        }
        self.pass_on_events();
    }

    fn rejected(&mut self, rejected: &RejectedPage) {
        self.learner.forget_witness(&rejected.page);
        let token = rejected.failed_trial.as_deref();
        self.learner.fail_trial(token, &rejected.page);
        if rejected.was_unseen {
            let pages = &self.pages;
            self.learner.shield(token, rejected.page.uid, &|program| pages.has_program(program));
        }
    }

    fn identified(&mut self, identified: IdentifiedPage) -> Option<PageEvent> {
        let pages = &self.pages;
        let in_use = |program| pages.has_program(program);
        let IdentifiedPage { program, witness, token, .. } = &identified;
        match self.learner.add_witness(program, witness.clone(), token.as_deref(), &in_use) {
            Ok(witness) => self.pages.watch(identified, witness, &self.learner),
            Err(why) => Some(self.pages.reject(&identified.page, why)),
        }
    }

    /// The record is stored before its page is removed. A daemon that is killed in between stores the record
    /// again, under the same name, which the store rejects.
    fn ended(&mut self, ended: &EndedPage) {
        let Some(is_new) = self.learner.settle(&ended.watch, &ended.record) else { return };
        if self.pages.settled(ended) {
            self.publisher.changed();
        }
        self.learner.learn(&ended.watch, &ended.record, is_new);
    }

    /// Takes the samples of trials whose process keeps running, where they are due.
    fn close_spans(&mut self) {
        for page in self.pages.due_spans(Instant::now()) {
            let Some((watch, record)) = self.pages.span(&page, &self.learner) else { continue };
            if self.learner.settle_span(&watch, &record) {
                self.pages.sampled(&page);
            }
            self.pass_on_events();
        }
    }

    /// From the learner to the publisher and to the emergency.
    pub(crate) fn pass_on_events(&mut self) {
        let events = self.learner.take_events();
        if events.changed {
            self.publisher.changed();
        }
        if events.urgent {
            self.publisher.hurry();
        }
        for owner in events.failed_starts {
            if self.emergency.add_failure(owner) {
                self.publish();
                self.emergency.write();
            }
        }
        if events.store_begun_anew {
            for event in self.pages.reject_all() {
                self.page_happened(Some(event));
            }
        }
    }

    pub(crate) fn publish_if_due(&mut self, now: Instant) {
        if self.publisher.is_due(now) {
            self.publish();
        }
    }

    pub(crate) fn publish(&mut self) {
        let Some(installation) = self.learner.installation() else { return };
        let is_disabled = self.emergency.reason().is_some();
        let programs = self.learner.programs();
        match self.publisher.publish(&self.state, programs, &installation.table, is_disabled) {
            Ok(()) => self.pages.remove_spent(programs),
            // It stays to be done; the last good index stays too.
            Err(error) => self.learner.report_trouble(&format!("{error:#}")),
        }
    }
}

/// A processor load that differs by less, in hundredths, decides nothing anew.
const LOAD_STEP: f64 = 10.0;
/// A weight of CPU against memory that differs by less decides nothing anew.
const WEIGHT_STEP: f64 = 0.05;
/// Available memory that differs by less, as a fraction, decides nothing anew.
const MEMORY_STEP: f64 = 0.1;

/// The machine's state, with the weight that was in force.
pub(super) fn conditions(before: Option<&Conditions>) -> Result<Conditions> {
    let weight_before = before.map(|before| weight(before, Objective::Auto).w);
    Ok(Conditions { weight_before, ..imas_linux::host::conditions()? })
}

/// Whether conditions differ enough to decide anew.
fn differ(before: &Conditions, now: &Conditions) -> bool {
    let load = |conditions: &Conditions| conditions.load5 * 100.0 / f64::from(conditions.cpus.max(1));
    let memory = |conditions: &Conditions| conditions.mem_available_bytes as f64;
    let moved = (memory(now) - memory(before)).abs() / memory(before).max(1.0);
    let leaned = (weight(now, Objective::Auto).w - weight(before, Objective::Auto).w).abs();
    leaned >= WEIGHT_STEP
        || (load(now) - load(before)).abs() >= LOAD_STEP
        || moved >= MEMORY_STEP
        || now.cpus != before.cpus
}
