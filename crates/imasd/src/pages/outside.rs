// SPDX-License-Identifier: Apache-2.0
//! Accounts of processes in which nothing of ours is (docs/decisions/0044). A user's `imas run` asks for the
//! account of its own process, right before the exec, by an empty file in the user's folder. Here the records
//! of the process's threads are added up, and the sum is written in the place of the file. It is for that
//! user's own store: nothing is learned of it.
//!
//! A request is written before the first thread of its program ends. So records are read first, then the events of the
//! folders, and only then are the records taken up: each finds its request. Requests that were seen in no such turn are
//! refused, since records may be missing.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use imas_engine::outside;
use imas_linux::process::start_ticks;
use imas_linux::taskstats::Account;

use super::{PageTracker, identify};
use crate::folders::PageName;
use crate::kernel_events::EndedThreads;
use crate::process_info::{Identity, is_running};

/// Accounts that nobody has fetched are kept for this time.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// A process whose account is asked for.
#[derive(Debug)]
pub(super) struct OutsideStart {
    pub(super) request: PageName,
    identity: Identity,
    /// Sum over its threads that have ended.
    account: Account,
    /// No thread of the process was left at the last look.
    is_gone: bool,
}

/// Whether that may be a process of the user. One that has ended may be gone: its last record comes yet, and names the
/// user.
fn may_be(identity: Identity, uid: u32) -> bool {
    let is_another = start_ticks(identity.pid).is_ok_and(|found| found != identity.start_ticks);
    let owner = std::fs::metadata(format!("/proc/{}", identity.pid));
    !is_another && owner.map_or(true, |about| about.uid() == uid)
}

/// Whether the file is a request for an account, or an account.
pub(super) fn is_request(page: &PageName) -> bool {
    page.name.to_str().is_some_and(outside::is_request)
}

impl PageTracker {
    /// A request was written. Our answers have the same name and are reported too: they are not empty.
    pub(super) fn account_asked(&mut self, request: PageName) {
        if !self.folders.is_empty(&request) {
            return;
        }
        let named = request.name.to_str().and_then(outside::requested);
        let identity = named.map(|(pid, start_ticks)| Identity { pid, start_ticks });
        let may_ask = self.has_records && !self.is_behind;
        self.is_asked = true;
        let Some(identity) = identity.filter(|identity| may_ask && may_be(*identity, request.uid)) else {
            return self.folders.remove(&request);
        };
        match self.outside.get(&identity.pid) {
            Some(earlier) if earlier.request == request => return,
            // Whose process that was which is gone, nobody can say any more: the earlier request may be its own.
            Some(earlier) if earlier.request.uid != request.uid && !is_running(identity) => {
                return self.folders.remove(&request);
            }
            Some(_) => self.end_request(identity.pid),
            None => {}
        }
        let asked = self.outside.values().map(|start| &start.request);
        if !self.has_room_beside(asked, request.uid) {
            return self.folders.remove(&request);
        }
        let start = OutsideStart { request, identity, account: Account::default(), is_gone: false };
        self.outside.insert(identity.pid, start);
    }

    /// Whether the kernel is to send records: it sends none before the first request, which is refused.
    pub(crate) fn awaits_accounts(&self) -> bool {
        self.is_asked && !self.has_records
    }

    /// The kernel sends records from now on. Requests that are there already may miss some.
    pub(crate) fn accounts_begin(&mut self) {
        (self.has_records, self.is_behind) = (true, true);
        self.gather();
    }

    /// Whether that file is a request whose answer is to come.
    fn is_open(&self, file: &PageName) -> bool {
        let named = file.name.to_str().and_then(outside::requested);
        let start = named.and_then(|(pid, _)| self.outside.get(&pid));
        start.is_some_and(|start| start.request == *file)
    }

    /// Takes up the records of threads that have ended. They were read before the events of the folders.
    pub(crate) fn account(&mut self, ended: &EndedThreads) {
        self.is_behind |= self.has_unread;
        if ended.lost {
            self.counts.events_lost += 1;
            let asked: Vec<u32> = self.outside.keys().copied().collect();
            asked.into_iter().for_each(|pid| self.end_request(pid));
        }
        for record in &ended.records {
            let Some(start) = self.outside.get_mut(&record.process) else { continue };
            let uid = start.request.uid;
            // The kernel names another user as the process's.
            if record.uid != uid && uid != 0 {
                self.end_request(record.process);
                continue;
            }
            start.account.add(record);
            if record.is_last {
                self.over.push(record.process);
            }
        }
        self.answer_ended();
    }

    /// Writes the answers about processes whose last record has come. That is of the thread which knew that it was the
    /// last: another one may send its record a moment later. No record can come once no thread is left, so what was read
    /// after that is all.
    fn answer_ended(&mut self) {
        for pid in std::mem::take(&mut self.over) {
            let Some(start) = self.outside.get_mut(&pid) else { continue };
            if start.is_gone {
                self.answer(pid);
            } else {
                start.is_gone = !is_running(start.identity);
                self.over.push(pid);
            }
        }
    }

    /// Whether an answer can be written as soon as the records were read once more. Where threads are left, their ends wake
    /// us.
    pub(super) fn has_answers(&self) -> bool {
        self.over.iter().any(|pid| self.outside.get(pid).is_some_and(|start| start.is_gone))
    }

    /// Writes the account of a process that has ended.
    fn answer(&mut self, pid: u32) {
        let Some(start) = self.outside.remove(&pid) else { return };
        // A kernel without accounts of delays sends no CPU time.
        let text = serde_json::to_vec(&start.account).ok().filter(|_| start.account.cpu_ns > 0);
        let is_written = text.is_some_and(|text| self.folders.replace(&start.request, &text).is_ok());
        if !is_written {
            self.folders.remove(&start.request);
        }
    }

    /// There is no account of that process: its request goes, which says so.
    fn end_request(&mut self, pid: u32) {
        if let Some(start) = self.outside.remove(&pid) {
            self.folders.remove(&start.request);
        }
    }

    /// Ends requests of processes that are gone without a last record, and removes the files that nobody waits for: old
    /// ones, requests that an earlier process of the daemon had taken, and requests of a user who has too many.
    pub(super) fn sweep_accounts(&mut self, files: Vec<PageName>) {
        let mut gone = vec![];
        for (pid, start) in &mut self.outside {
            let was_gone = start.is_gone;
            start.is_gone = !is_running(start.identity);
            // The first time, its last record may be on its way.
            if was_gone && start.is_gone && !self.over.contains(pid) {
                gone.push(*pid);
            }
        }
        gone.into_iter().for_each(|pid| self.end_request(pid));
        let mut kept = HashMap::<u32, usize>::new();
        for file in files.into_iter().filter(|file| !self.is_open(file)) {
            let theirs = kept.entry(file.uid).or_default();
            *theirs += 1;
            let most = if self.folders.is_empty(&file) { identify::UNFINISHED } else { KEPT };
            let is_old = self.folders.age(&file).is_none_or(|age| age > most);
            if is_old || *theirs > self.limits.most_pages_of_user {
                self.folders.remove(&file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::rc::Rc;

    use imas_linux::taskstats::ExitRecord;

    use super::*;
    use crate::config::Settings;
    use crate::folders::ServedUsers;
    use crate::pages::Surroundings;
    use crate::pages::identify::PendingPage;

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn tracker(state: &Path) -> PageTracker {
        let users = Rc::new(ServedUsers::own_tree(state));
        let surroundings = Surroundings { users, reports_exits: true };
        let mut pages =
            PageTracker::new(state, "boot".to_owned(), Settings::default(), surroundings).unwrap();
        pages.welcome(me());
        pages.accounts_begin();
        pages
    }

    fn name_of(pid: u32) -> String {
        format!("{pid}-{}.account", start_ticks(pid).unwrap())
    }

    fn ended(process: u32, thread: u32, is_last: bool) -> ExitRecord {
        let account = Account { cpu_ns: 5, wait_status: 3 << 8, ..Account::default() };
        ExitRecord { process, thread, uid: me(), is_last, account }
    }

    fn batch(records: &[ExitRecord]) -> EndedThreads {
        EndedThreads { records: records.to_vec(), lost: false }
    }

    #[test]
    fn the_records_of_all_threads_become_one_answer() {
        let state = tempfile::tempdir().unwrap();
        let mut pages = tracker(state.path());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = child.id();
        let request = state.path().join("u").join(me().to_string()).join(name_of(pid));
        std::fs::write(&request, "").unwrap();
        pages.gather();
        pages.account(&batch(&[ended(pid, 1, false), ended(u32::MAX, 2, true)]));
        pages.sweep();
        pages.account(&batch(&[ended(pid, pid, true)]));
        pages.account(&EndedThreads::default());
        assert!(!pages.has_answers(), "a thread is left, which the last one has overtaken");
        child.kill().unwrap();
        child.wait().unwrap();
        pages.account(&EndedThreads::default());
        assert_eq!(std::fs::read(&request).unwrap(), b"", "its record was not read yet");
        assert!(pages.has_answers());
        pages.sweep();
        pages.account(&batch(&[ended(pid, 2, false)]));
        let account: Account = serde_json::from_slice(&std::fs::read(&request).unwrap()).unwrap();
        assert_eq!((account.cpu_ns, account.wait_status), (15, 3 << 8));
        pages.gather();
        pages.sweep();
        assert!(request.exists() && pages.outside.is_empty(), "it waits to be fetched");
    }

    #[test]
    fn requests_take_no_room_of_pages_nor_pages_of_requests() {
        let state = tempfile::tempdir().unwrap();
        let mut pages = tracker(state.path());
        pages.limits.most_pages_of_user = 2;
        let page = |name: &str| PageName { uid: me(), name: name.into() };
        pages.pending = ["1.page", "2.page"].map(|name| PendingPage::new(page(name))).into();
        assert!(!pages.has_room_for(&page("3.page")));
        let folder = state.path().join("u").join(me().to_string());
        let start = || std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let running = [start(), start(), start()].map(imas_testing::Running);
        for process in &running {
            std::fs::write(folder.join(name_of(process.0.id())), "").unwrap();
            pages.gather();
        }
        let is_there = running.each_ref().map(|process| folder.join(name_of(process.0.id())).exists());
        drop(running);
        assert_eq!(
            (pages.outside.len(), is_there),
            (2, [true, true, false]),
            "two of a user, beside two pages"
        );
        pages.pending.clear();
        assert!(pages.has_room_for(&page("3.page")), "beside two requests");
    }

    #[test]
    fn a_request_that_may_miss_records_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let mut pages = tracker(state.path());
        let folder = state.path().join("u").join(me().to_string());
        let pid = std::process::id();
        let request = folder.join(name_of(pid));
        for name in ["x.account", "1-999999999999.account", "01-1.account"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        pages.gather();
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "they name no process");

        pages.has_records = false;
        std::fs::write(&request, "").unwrap();
        pages.gather();
        assert!(!request.exists() && pages.awaits_accounts(), "the kernel sends no records yet");
        std::fs::write(&request, "").unwrap();
        pages.accounts_begin();
        assert!(!request.exists() && !pages.awaits_accounts(), "threads of it may have ended before");

        std::fs::write(&request, "").unwrap();
        pages.gather();
        pages.account(&EndedThreads { records: vec![], lost: true });
        assert!(!request.exists() && pages.outside.is_empty(), "records were lost");

        pages.has_unread = true;
        pages.account(&batch(&[ended(pid, 1, false)]));
        std::fs::write(&request, "").unwrap();
        pages.gather();
        assert!(!request.exists(), "a record may have come before it");
        std::fs::write(&request, "").unwrap();
        pages.gather();
        assert!(request.exists() && pages.outside.len() == 1, "nothing is left unread");

        if me() != 0 {
            pages.account(&batch(&[ExitRecord { uid: me() + 1, ..ended(pid, 1, true) }]));
            assert!(!request.exists(), "it ran as another user");
        }
    }
}
