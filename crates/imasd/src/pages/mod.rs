// SPDX-License-Identifier: Apache-2.0
//! The page tracker: trial pages, from the first write to the end of their process.
//!
//! A page is a claim. It counts only if its process was seen while it lived, and the kernel showed that its
//! owner, id, start and executable belong to a program that this very trial was offered to. Every other
//! page is removed, and counted. The tracker owns the folders of pages and the watched processes, and writes
//! them alone. It asks the
//! [`crate::learner::Learner`] which programs and trials there are, changes nothing there, and returns what
//! happened as a [`PageEvent`].

mod identify;
mod outside;
mod queue;
mod running;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use imas_core::TrialRecord;
use imas_engine::daemon_status::DaemonCounters;
use imas_linux::host::now_unix_s;
use imas_linux::ingest::{ExpectedPage, ParsedPage, ReadError};
use imas_store::RowId;
use imas_store::daemon::Witness;
use imas_store::samples::StoredProgram;

use crate::config::Settings;
use crate::folders::{Folders, PageName, ServedUsers};
use crate::process_info::{self, Identity};
use crate::program_table::{ProgramTable, TrackedProgram};
use crate::trial_offer::RejectReason;
use crate::watched::{Image, Watch, Watched};
use identify::{Departed, PendingPage};
use outside::OutsideStart;
use queue::Backlog;
use running::ProcessExits;

/// One person's folders of pages, of 4,096 in all: of a container's uids only some run programs that are
/// worth a trial.
const MOST_FOLDERS: usize = 256;

/// Event of a page.
#[derive(Debug)]
pub(crate) enum PageEvent {
    /// The page does not count, and was removed.
    Rejected(RejectedPage),
    /// The process of the page was seen: it is to be watched.
    Identified(Box<IdentifiedPage>),
    /// The process of the page has ended: the record is to be stored, then the page removed.
    Ended(Box<EndedPage>),
}

/// A page that does not count.
#[derive(Debug)]
pub(crate) struct RejectedPage {
    pub(crate) page: PageName,
    /// The trial that came to an end with it.
    pub(crate) failed_trial: Option<String>,
    /// The process of the page ended before it was seen.
    pub(crate) was_unseen: bool,
}

/// A page whose process was seen.
#[derive(Debug)]
pub(crate) struct IdentifiedPage {
    pub(crate) page: PageName,
    pub(crate) program: StoredProgram,
    /// Witness of that program; the learner says which program of the process's own domain it is.
    pub(crate) witness: Witness,
    /// Name of the offer, where the page is of a trial.
    pub(crate) token: Option<String>,
}

/// A page whose process has ended.
#[derive(Debug)]
pub(crate) struct EndedPage {
    pub(crate) page: PageName,
    pub(crate) watch: Watch,
    pub(crate) record: TrialRecord,
}

/// The tracker.
#[derive(Debug)]
pub(crate) struct PageTracker {
    folders: Folders,
    backlog: Backlog,
    watched: Watched,
    exits: ProcessExits,
    departed: Departed,
    /// Pages whose process could not be seen yet.
    pending: Vec<PendingPage>,
    /// Pages whose process has ended, as long as the kernel has not reported how.
    awaiting_exit: Vec<PendingPage>,
    /// Pages of trials that are stored, and that the index may still offer.
    spent: Vec<PageName>,
    /// Processes whose account is asked for, by their ids.
    outside: HashMap<u32, OutsideStart>,
    /// Processes of these whose last record has come.
    over: Vec<u32>,
    /// Somebody has asked for an account.
    is_asked: bool,
    /// The kernel sends records of ended threads.
    has_records: bool,
    /// Requests may be left that are older than records of ended threads already taken, or than the first record.
    is_behind: bool,
    /// The last reading has left events of the folders.
    has_unread: bool,
    boot_id: String,
    limits: Settings,
    /// Facts that depend on the machine, and do not change.
    surroundings: Surroundings,
    counts: DaemonCounters,
}

/// Surroundings that the tracker works in.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) users: Rc<ServedUsers>,
    /// Whether the kernel reports how processes end.
    pub(crate) reports_exits: bool,
}

impl PageTracker {
    /// Opens the folders of pages below `state`.
    pub(crate) fn new(
        state: &Path,
        boot_id: String,
        limits: Settings,
        surroundings: Surroundings,
    ) -> Result<Self> {
        let folders = Folders::open(state, surroundings.users.is_machine());
        Ok(Self {
            folders: folders.with_context(|| state.join("u").display().to_string())?,
            backlog: Backlog::default(),
            watched: Watched::default(),
            exits: ProcessExits::new().context("epoll")?,
            departed: Departed::default(),
            pending: Vec::new(),
            awaiting_exit: Vec::new(),
            spent: Vec::new(),
            outside: HashMap::new(),
            over: Vec::new(),
            is_asked: false,
            has_records: false,
            is_behind: false,
            has_unread: false,
            boot_id,
            limits,
            surroundings,
            counts: DaemonCounters::default(),
        })
    }

    /// Becomes readable when a page was written.
    pub(crate) fn written(&self) -> impl AsFd {
        self.folders.events()
    }

    /// Becomes readable when the process of a page has ended.
    pub(crate) fn exits(&self) -> impl AsFd {
        &self.exits
    }

    /// Counters since the start.
    pub(crate) fn counts(&self) -> DaemonCounters {
        self.counts
    }

    /// Processes that run a trial, and those in production.
    pub(crate) fn watched_counts(&self) -> (usize, usize) {
        let trials = self.watched.trials();
        (trials, self.watched.watches.len() - trials)
    }

    /// Whether a process of the program has a page.
    pub(crate) fn has_program(&self, program: RowId) -> bool {
        self.watched.has_program(program)
    }

    /// Goes by these settings from now on.
    pub(crate) fn set_limits(&mut self, limits: Settings) {
        self.limits = limits;
    }

    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Pages of another boot do not count.
    pub(crate) fn set_boot_id(&mut self, boot_id: &str) {
        boot_id.clone_into(&mut self.boot_id);
    }

    /// Makes sure that the user has a folder for pages, unless the owner of this uid has too many already.
    pub(crate) fn welcome(&mut self, uid: u32) {
        if self.folders.of(uid).is_some() {
            return;
        }
        let users = &self.surroundings.users;
        let owner = users.owner_of(uid);
        let theirs = self.folders.uids().filter(|uid| users.owner_of(*uid) == owner).count();
        if users.is_system(uid) || theirs < MOST_FOLDERS {
            self.folders.welcome(uid);
        }
    }

    /// Whether the page and the program of a process that an earlier process of the daemon has seen are still
    /// there.
    pub(crate) fn can_resume(&mut self, witness: &Witness, programs: &ProgramTable) -> bool {
        self.welcome(witness.uid);
        let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
        let is_there = self.folders.has(&page) && witness.boot_id == self.boot_id;
        is_there && programs.get(witness.program).is_some()
    }

    /// The image of a process that was seen in an earlier process of the daemon: it may be of before an
    /// upgrade since then.
    pub(crate) fn resumed_image(witness: &Witness, programs: &ProgramTable) -> Image {
        let image = image_of(programs.get(witness.program));
        let runs = process_info::executable(Identity { pid: witness.pid, start_ticks: witness.start_ticks });
        let is_it = runs.is_none() || runs == image.executable;
        if is_it { image } else { Image::default() }
    }

    /// Every page whose process is watched or that waits for one.
    fn considered(&self) -> impl Iterator<Item = &PageName> {
        let pending = self.pending.iter().map(|pending| &pending.page);
        self.watched.watches.keys().chain(pending)
    }

    fn is_considered(&self, page: &PageName) -> bool {
        let is_pending = self.pending.iter().any(|pending| pending.page == *page);
        is_pending || self.watched.watches.contains_key(page) || self.spent.contains(page)
    }

    fn read(&self, page: &PageName) -> Result<ParsedPage, ReadError> {
        let gone = || ReadError::Io(std::io::ErrorKind::NotFound.into());
        let folder = self.folders.of(page.uid).ok_or_else(gone)?;
        let expected = ExpectedPage { uid: page.uid, now_unix_s: now_unix_s() };
        imas_linux::ingest::read_page_at(folder, &page.name, &expected)
    }

    /// Whether one more page of this user may be watched.
    fn has_room_for(&self, page: &PageName) -> bool {
        self.has_room_beside(self.considered(), page.uid)
    }

    /// Whether a file of this user fits in beside these: a quarter of all is left to the system. Pages and requests for
    /// accounts are counted apart, so that many of one kind take no room of the other.
    fn has_room_beside<'a>(&self, others: impl Iterator<Item = &'a PageName>, uid: u32) -> bool {
        let users = &self.surroundings.users;
        let mut by_uid = BTreeMap::<u32, usize>::new();
        for theirs in others {
            *by_uid.entry(theirs.uid).or_default() += 1;
        }
        let all: usize = by_uid.values().sum();
        let theirs = by_uid.iter().filter(|(other, _)| users.share_limits(uid, **other));
        let theirs: usize = theirs.map(|(_, count)| count).sum();
        let most = self.limits.most_pages;
        let most = if users.is_system(uid) { most } else { most / 4 * 3 };
        theirs < self.limits.most_pages_of_user && all < most
    }

    /// The page does not count: it is removed.
    pub(crate) fn reject(&mut self, page: &PageName, why: RejectReason) -> PageEvent {
        why.count(&mut self.counts);
        self.exits.remove(page);
        self.watched.remove(page);
        self.folders.remove(page);
        if page.uid == self.surroundings.users.own_uid() {
            tracing::info!(PAGE = %imas_core::printable::name(&page.name.to_string_lossy()), "a page was dropped: {why:?}");
        }
        PageEvent::Rejected(RejectedPage { page: page.clone(), failed_trial: None, was_unseen: false })
    }

    /// Rejects a page as [`Self::reject`], with its trial, which comes to an end with it.
    fn reject_trial(&mut self, page: &PageName, why: RejectReason, token: Option<String>) -> PageEvent {
        let was_unseen = matches!(why, RejectReason::Unwitnessed);
        self.reject(page, why);
        PageEvent::Rejected(RejectedPage { page: page.clone(), failed_trial: token, was_unseen })
    }

    /// Every watched page: a new store gives the numbers of their programs to others.
    pub(crate) fn reject_all(&mut self) -> Vec<PageEvent> {
        let pages = self.watched.pages().into_iter();
        pages.map(|page| self.reject(&page, RejectReason::Unknown)).collect()
    }

    /// The record of an ended process is stored, so its page is removed. The page of a trial stays as long as
    /// the index may offer the trial. Otherwise a start could make the page again and repeat the trial, which
    /// perhaps crashed the program. Returns whether the page stays.
    pub(crate) fn settled(&mut self, ended: &EndedPage) -> bool {
        self.watched.remove(&ended.page);
        let is_trial = ended.watch.token.is_some();
        if is_trial {
            self.spent.push(ended.page.clone());
        } else {
            self.folders.remove(&ended.page);
        }
        is_trial
    }

    /// An index was just published: pages of trials that it does not offer any more go.
    pub(crate) fn remove_spent(&mut self, programs: &ProgramTable) {
        let is_offered =
            |page: &PageName| token_of(page).is_some_and(|token| programs.offering(token).is_some());
        let (kept, over) = std::mem::take(&mut self.spent).into_iter().partition(is_offered);
        self.spent = kept;
        over.iter().for_each(|page: &PageName| self.folders.remove(page));
    }

    /// Folders that were removed are made again. Watched pages that are gone come back: of a start that the
    /// kernel refused after all, or removed by their owner. So do those whose process ended unnoticed. Old pages
    /// that were never reported are queued: never armed, never closed, or no pages at all.
    pub(crate) fn sweep(&mut self) -> Vec<PageName> {
        self.folders.restore();
        let is_over = |page: &PageName| !self.folders.has(page) || self.has_ended_unnoticed(page);
        let gone = self.watched.pages().into_iter().filter(is_over).collect();
        let (requests, pages): (Vec<_>, Vec<_>) =
            self.folders.all().into_iter().partition(outside::is_request);
        self.sweep_accounts(requests);
        for page in pages {
            let is_old = self.folders.age(&page).is_some_and(|age| age > identify::UNFINISHED);
            if is_old && !self.is_considered(&page) {
                self.queue(page, true);
            }
        }
        gone
    }

    /// Whether the process of the page has ended and nothing will report it: no descriptor of it could be had.
    fn has_ended_unnoticed(&self, page: &PageName) -> bool {
        let awaits_exit = || self.awaiting_exit.iter().any(|pending| pending.page == *page);
        let watch = self.watched.watches.get(page).filter(|watch| !watch.ended);
        let watch = watch.filter(|_| !self.exits.has(page) && !awaits_exit());
        watch.is_some_and(|watch| !process_info::is_running(watch.identity()))
    }

    /// Time to look at pages again if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let looks = self.pending.iter().chain(&self.awaiting_exit).map(|pending| pending.next).min();
        let has_work = !self.backlog.is_empty() || self.has_answers();
        let work = has_work.then(|| Instant::now() + queue::BETWEEN_TURNS);
        [looks, work].into_iter().flatten().min()
    }
}

/// Image that a program runs, as far as it is known.
fn image_of(known: Option<&TrackedProgram>) -> Image {
    known.map_or_else(Image::default, |known| Image {
        executable: known.executable,
        build_id: known.build_id.clone(),
    })
}

/// The offer that a page is named after: sixteen hexadecimal digits.
pub(crate) fn token_of(page: &PageName) -> Option<&str> {
    let stem = page.name.to_str()?.strip_suffix(".page")?;
    let plain = stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then_some(stem)
}

fn is_same(content: &ParsedPage, witness: &Witness) -> bool {
    content.pid == witness.pid
        && content.process_start_ticks == witness.start_ticks
        && content.candidate == witness.candidate
        && content.boot_id == witness.boot_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_a_process_that_could_not_be_waited_for_comes_back() {
        let state = tempfile::tempdir().unwrap();
        let uid = nix::unistd::geteuid().as_raw();
        let users = Rc::new(ServedUsers::own_tree(state.path()));
        let surroundings = Surroundings { users, reports_exits: true };
        let mut pages =
            PageTracker::new(state.path(), "boot".to_owned(), Settings::default(), surroundings).unwrap();
        pages.welcome(uid);
        let page = PageName { uid, name: "a.page".into() };
        std::fs::write(state.path().join("u").join(uid.to_string()).join("a.page"), "x").unwrap();
        let sleep = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let running = imas_testing::Running(sleep);
        let pid = running.0.id();
        let witness = Witness {
            uid,
            page: "a.page".to_owned(),
            boot_id: "boot".to_owned(),
            pid,
            start_ticks: imas_linux::process::start_ticks(pid).unwrap(),
            program: 1,
            candidate: "jemalloc".to_owned(),
        };
        let watch = Watch {
            witness,
            image: Image::default(),
            token: None,
            signal: None,
            exec_ns: None,
            since: Instant::now(),
            sampled: false,
            activity: None,
            looked_s: 0.0,
            ended: false,
        };
        pages.watched.add(page.clone(), watch);
        let while_it_runs = pages.sweep();
        drop(running);
        pages.awaiting_exit.push(PendingPage::new(page.clone()));
        let while_it_waits = pages.sweep();
        pages.awaiting_exit.clear();
        assert_eq!((while_it_runs, while_it_waits, pages.sweep()), (vec![], vec![], vec![page]));
    }

    #[test]
    fn only_sixteen_digits_name_an_offer() {
        let page = |name: &str| PageName { uid: 1, name: name.into() };
        assert_eq!(token_of(&page("0123456789abcdef.page")), Some("0123456789abcdef"));
        for other in ["123-456.page", "0123456789abcdef", "0123456789abcdeg.page", "x.page"] {
            assert_eq!(token_of(&page(other)), None, "{other}");
        }
    }
}
