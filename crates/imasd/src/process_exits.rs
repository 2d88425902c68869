// SPDX-License-Identifier: Apache-2.0
//! The ends of processes that have a page, each by a descriptor of its own.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::folders::PageName;

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
