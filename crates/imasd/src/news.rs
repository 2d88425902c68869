// SPDX-License-Identifier: Apache-2.0
//! News from the folders of pages, and a look at the processes behind them before they are gone.

use std::collections::VecDeque;

use crate::daemon::Daemon;
use crate::folders::PageName;
use crate::sight::{self, Identity};

/// Pages that may come while others are worked on, in one turn of the loop.
const MOST_AT_ONCE: usize = 256;

impl Daemon {
    /// What has been written in the folders. All processes behind it are looked at before any of it is worked on: that takes time, for the
    /// store writes through to the disk, and those that crash at once do not wait for it.
    pub(crate) fn read_news(&mut self) {
        let mut pages = VecDeque::new();
        for _ in 0..MOST_AT_ONCE {
            let news = self.folders.news();
            if news.lost {
                self.counters.events_lost += 1;
                pages.extend(self.folders.all());
            }
            news.written.iter().for_each(|page| self.glimpse(page));
            pages.extend(news.written);
            let Some(page) = pages.pop_front() else { break };
            self.page_written(page);
        }
        pages.into_iter().for_each(|page| self.page_written(page));
        self.glimpses.clear();
    }

    fn glimpse(&mut self, page: &PageName) {
        if self.glimpses.len() >= MOST_AT_ONCE {
            return;
        }
        let Ok(content) = self.read(page) else { return };
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        if let Some(sight) = sight::look(identity) {
            self.glimpses.insert(identity, sight);
        }
    }
}
