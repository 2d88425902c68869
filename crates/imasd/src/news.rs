// SPDX-License-Identifier: Apache-2.0
//! News from the folders of pages, and a look at the processes behind them before they are gone.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::backlog::Waiting;
use crate::daemon::Daemon;
use crate::drop::Drop;
use crate::folders::PageName;
use crate::owners::{Owner, Owners};
use crate::sight::{self, Identity, Sight};

/// Pages are worked on for so long in one turn of the loop; then everything else has its turn.
const AT_ONCE: Duration = Duration::from_millis(50);
/// And so many of one user.
const MOST_OF_USER: usize = 64;
/// Processes of users that are seen and wait with their page.
const MOST_GLIMPSES: usize = 1024;
/// No page has a longer name.
const LONGEST_NAME: usize = 64;
/// What waits at our start is worked on for so long before programs are served.
const AT_START: Duration = Duration::from_secs(2);

impl Daemon {
    /// What has been written in the folders. All processes behind it are looked at before any of it is worked on: that takes time, for the
    /// store writes through to the disk, and those that crash at once do not wait for it.
    pub(crate) fn read_news(&mut self) {
        let begin = Instant::now();
        let mut worked = HashMap::new();
        self.gather();
        while begin.elapsed() < AT_ONCE
            && let Some((uid, waiting)) = self.backlog.take(&mut worked, MOST_OF_USER)
        {
            self.work_on(uid, waiting);
            self.gather();
        }
    }

    /// Every page that stands: after our start.
    pub(crate) fn look_at_all_pages(&mut self) {
        let begin = Instant::now();
        self.queue_all();
        while !self.backlog.is_empty() && (self.options.once || begin.elapsed() < AT_START) {
            self.read_news();
        }
    }

    /// Takes up what was written since; a part of it if there is much.
    fn gather(&mut self) {
        let news = self.folders.news();
        for page in news.written {
            self.queue(page, false);
        }
        if news.lost {
            self.counters.events_lost += 1;
            self.queue_all();
        }
    }

    fn queue_all(&mut self) {
        for page in self.folders.all() {
            self.queue(page, false);
        }
    }

    /// The page is to be worked on; at once refused where its user has too many that wait.
    pub(crate) fn queue(&mut self, page: PageName, is_old: bool) {
        if self.backlog.has(&page) || self.is_considered(&page) {
            return;
        }
        if page.name.len() > LONGEST_NAME {
            return self.refuse(&page, Drop::Damaged);
        }
        if !self.may_wait(&page) {
            return self.refuse(&page, Drop::TooMany);
        }
        let glimpse = self.glimpse(&page);
        self.backlog.push(page.uid, Waiting { name: page.name, glimpse, is_old });
    }

    /// Nobody has seen the process behind the page: there is nothing else to be forgotten of it.
    fn refuse(&mut self, page: &PageName, why: Drop) {
        why.count(&mut self.counters);
        self.folders.remove(page);
    }

    /// A person's pages wait together, a system account's by themselves.
    fn may_wait(&mut self, page: &PageName) -> bool {
        if self.options.user || self.owners.of(page.uid) == Owner::System {
            let theirs = self.backlog.counts().find(|(uid, _)| *uid == page.uid);
            return theirs.is_none_or(|(_, count)| count < self.config.most_pages);
        }
        let owner = self.owners.of(page.uid);
        let is_theirs = |owners: &mut Owners, uid| owners.of(uid) == owner;
        let theirs = self.backlog.counts().filter(|(uid, _)| is_theirs(&mut self.owners, *uid));
        theirs.map(|(_, count)| count).sum::<usize>() < self.config.most_pages_of_user
    }

    fn work_on(&mut self, uid: u32, waiting: Waiting) {
        let page = PageName { uid, name: waiting.name };
        if waiting.glimpse.is_some() {
            self.glimpsed = self.glimpsed.saturating_sub(1);
        }
        self.glimpses.extend(waiting.glimpse);
        self.page_written(page.clone());
        self.glimpses.clear();
        if waiting.is_old && !self.is_considered(&page) && self.folders.has(&page) {
            self.drop_page(&page, Drop::Damaged);
        }
    }

    fn glimpse(&mut self, page: &PageName) -> Option<(Identity, Sight)> {
        let waiting = self.backlog.counts().find(|(uid, _)| *uid == page.uid).map_or(0, |(_, count)| count);
        let is_free = page.uid == self.own_uid() || (self.glimpsed < MOST_GLIMPSES && waiting < MOST_OF_USER);
        if !is_free {
            return None;
        }
        let content = self.read(page).ok()?;
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        let sight = sight::look(identity)?;
        self.glimpsed += 1;
        Some((identity, sight))
    }
}
