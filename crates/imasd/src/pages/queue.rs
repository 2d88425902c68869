// SPDX-License-Identifier: Apache-2.0
//! Pages that were written, in the order of work. The processes of all of them are looked at before any page
//! is worked on: that takes time, for the store writes through to the disk, and processes that crash at once
//! do not wait for it.
//!
//! Pages that were written and are not processed yet. Each folder has its own queue, and the queues take turns. So a
//! user that writes a hundred thousand pages delays no other user.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::ops::Bound;
use std::time::Duration;

use super::outside::is_request;
use super::{PageEvent, PageTracker};
use crate::folders::PageName;
use crate::learner::Learner;
use crate::process_info::{self, Identity, ProcessInfo};
use crate::trial_offer::RejectReason;

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
        Some((identity, process_info::look_by_helper(identity)?))
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

/// Time after which the next turn comes where pages wait, so that a flood is not worked on without a pause.
pub(crate) const BETWEEN_TURNS: Duration = Duration::from_millis(5);

/// A page that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) name: OsString,
    /// Process of the page as it was when the page came, if it could be seen.
    pub(crate) snapshot: Option<(Identity, ProcessInfo)>,
    /// The page is old: what is no page by now never becomes one.
    pub(crate) is_old: bool,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    names: HashSet<OsString>,
}

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    queues: BTreeMap<u32, Queue>,
    /// User whose page was taken last.
    last: Option<u32>,
    /// Number of pages that wait with their process.
    snapshots: usize,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn has(&self, page: &PageName) -> bool {
        self.queues.get(&page.uid).is_some_and(|queue| queue.names.contains(&page.name))
    }

    /// Number of pages of each user that wait.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u32, usize)> {
        self.queues.iter().map(|(uid, queue)| (*uid, queue.waiting.len()))
    }

    /// Number of pages that wait with their process.
    pub(crate) fn snapshots(&self) -> usize {
        self.snapshots
    }

    /// Adds a page that waits, after the others of its folder.
    pub(crate) fn push(&mut self, uid: u32, waiting: Waiting) {
        let queue = self.queues.entry(uid).or_default();
        if queue.names.insert(waiting.name.clone()) {
            self.snapshots += usize::from(waiting.snapshot.is_some());
            queue.waiting.push_back(waiting);
        }
    }

    /// The next page, of another user than the one before if there is one; of each user at most `most` by the
    /// counts in `worked`.
    pub(crate) fn take(&mut self, worked: &mut HashMap<u32, usize>, most: usize) -> Option<(u32, Waiting)> {
        let may = |uid: &&u32| worked.get(uid).is_none_or(|count| *count < most);
        let after = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.queues.range((after, Bound::Unbounded)).map(|(uid, _)| uid);
        let uid = *later.chain(self.queues.keys()).find(may)?;
        let queue = self.queues.get_mut(&uid)?;
        let waiting = queue.waiting.pop_front();
        if let Some(waiting) = &waiting {
            self.snapshots -= usize::from(waiting.snapshot.is_some());
            queue.names.remove(&waiting.name);
        }
        if queue.waiting.is_empty() {
            self.queues.remove(&uid);
        }
        self.last = Some(uid);
        *worked.entry(uid).or_default() += 1;
        Some((uid, waiting?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Backlog {
        let mut backlog = Backlog::default();
        for number in 0..1000 {
            push(&mut backlog, 1000, &number.to_string());
        }
        for uid in [0, 2000] {
            push(&mut backlog, uid, "a");
            push(&mut backlog, uid, "b");
        }
        backlog
    }

    fn push(backlog: &mut Backlog, uid: u32, name: &str) {
        backlog.push(uid, Waiting { name: name.into(), snapshot: None, is_old: false });
    }

    #[test]
    fn a_thousand_pages_of_one_user_do_not_delay_others() {
        let (mut backlog, mut worked) = (filled(), HashMap::new());
        let uids: Vec<_> = (0..8).map(|_| backlog.take(&mut worked, 100).unwrap().0).collect();
        assert_eq!(uids, [0, 1000, 2000, 0, 1000, 2000, 1000, 1000]);
    }

    #[test]
    fn the_pages_of_one_user_are_limited_and_the_rest_come_later() {
        let (mut backlog, mut worked) = (filled(), HashMap::new());
        let taken = std::iter::from_fn(|| backlog.take(&mut worked, 10)).count();
        assert_eq!(taken, 2 + 10 + 2);
        assert_eq!(backlog.counts().collect::<Vec<_>>(), [(1000, 990)]);
        worked.clear();
        assert_eq!(std::iter::from_fn(|| backlog.take(&mut worked, 10_000)).count(), 990);
        assert!(backlog.is_empty());
    }

    #[test]
    fn a_name_waits_once() {
        let mut backlog = filled();
        let page = PageName { uid: 0, name: "a".into() };
        push(&mut backlog, 0, "a");
        assert!(backlog.has(&page) && backlog.counts().any(|count| count == (0, 2)));
        backlog.take(&mut HashMap::new(), 1).unwrap();
        assert!(!backlog.has(&page));
        push(&mut backlog, 0, "a");
        assert!(backlog.has(&page));
    }
}
