// SPDX-License-Identifier: Apache-2.0
//! Pages that were written, in the order of work. The processes of all of them are looked at before any page
//! is worked on: that takes time, for the store writes through to the disk, and processes that crash at once
//! do not wait for it.

use std::collections::HashMap;

use super::outside::is_request;
use super::{PageEvent, PageTracker};
use crate::backlog::Waiting;
use crate::folders::PageName;
use crate::learner::Learner;
use crate::process_info::{Identity, ProcessInfo};
use crate::process_question;
use crate::reject_reason::RejectReason;

/// Pages worked on of one user in one turn of the loop.
const MOST_OF_USER: usize = 64;
/// Processes of users that were looked at and wait with their page.
const MOST_SNAPSHOTS: usize = 1024;
/// No page has a longer name.
const LONGEST_NAME: usize = 64;

impl PageTracker {
    /// Takes up what was written since the last call; a part of it if there is much.
    pub(crate) fn gather(&mut self) {
        let events = self.folders.read_events();
        for page in events.written {
            match is_request(&page) {
                true => self.account_asked(page),
                false => self.queue(page, false),
            }
        }
        self.is_behind &= events.more;
        self.has_unread = events.more;
        if events.lost {
            self.counts.events_lost += 1;
            self.queue_all();
        }
    }

    /// Queues every page that is there.
    pub(crate) fn queue_all(&mut self) {
        for page in self.folders.all().into_iter().filter(|page| !is_request(page)) {
            self.queue(page, false);
        }
    }

    /// Whether pages are waiting for work.
    pub(crate) fn has_queued(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// The page is to be worked on; it is removed at once where its user has too many that wait.
    pub(super) fn queue(&mut self, page: PageName, is_old: bool) {
        if self.backlog.has(&page) || self.is_considered(&page) {
            return;
        }
        if page.name.len() > LONGEST_NAME {
            return self.refuse(&page, RejectReason::Damaged);
        }
        if !self.may_wait(&page) {
            return self.refuse(&page, RejectReason::TooMany);
        }
        let snapshot = self.snapshot(&page);
        self.backlog.push(page.uid, Waiting { name: page.name, snapshot, is_old });
    }

    /// The process of the page was not looked at: nothing else is known of it.
    fn refuse(&mut self, page: &PageName, why: RejectReason) {
        why.count(&mut self.counts);
        self.folders.remove(page);
    }

    fn may_wait(&self, page: &PageName) -> bool {
        let users = &self.surroundings.users;
        let theirs = self.backlog.counts().filter(|(uid, _)| users.share_limits(page.uid, *uid));
        let is_system = users.is_system(page.uid);
        let most = if is_system { self.limits.most_pages } else { self.limits.most_pages_of_user };
        theirs.map(|(_, count)| count).sum::<usize>() < most
    }

    fn snapshot(&self, page: &PageName) -> Option<(Identity, ProcessInfo)> {
        let waiting = self.backlog.counts().find(|(uid, _)| *uid == page.uid).map_or(0, |(_, count)| count);
        let is_free = page.uid == self.surroundings.users.own_uid()
            || (self.backlog.snapshots() < MOST_SNAPSHOTS && waiting < MOST_OF_USER);
        if !is_free {
            return None;
        }
        let content = self.read(page).ok()?;
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        Some((identity, process_question::look(identity)?))
    }

    /// The next page to be worked on; the number for each user is limited, by the counts in `worked`.
    pub(crate) fn take_queued(&mut self, worked: &mut HashMap<u32, usize>) -> Option<(u32, Waiting)> {
        self.backlog.take(worked, MOST_OF_USER)
    }

    /// Works on a page that was written.
    pub(crate) fn work_on(
        &mut self,
        page: &PageName,
        waiting: Waiting,
        learner: &Learner,
    ) -> Option<PageEvent> {
        let snapshot = waiting.snapshot;
        self.page_written(page, snapshot, learner)
    }

    /// An old page that was worked on and is none: it never becomes one.
    pub(crate) fn reject_old(&mut self, page: &PageName) -> Option<PageEvent> {
        let is_none = !self.is_considered(page) && self.folders.has(page);
        is_none.then(|| self.reject(page, RejectReason::Damaged))
    }
}
