// SPDX-License-Identifier: Apache-2.0
//! Pages, from their being written to the end of the process behind them.
//!
//! A page is a claim. It counts only when we have seen, while the process lived, that its owner, id, start and executable are those of
//! a program that this very trial was offered to. Everything else is dropped, and counted.

use std::time::{Duration, Instant};

use imas_core::sample::PageKind;
use imas_ingest::{Expected, Page, PageError, ReadError, State};
use imas_linux::clock::now_unix_s;
use imas_store::RowId;
use imas_store::daemon::Witness;

use crate::daemon::Daemon;
use crate::doubt::{Doubt, WORD};
use crate::drop::Drop;
use crate::folders::PageName;
use crate::sight::{self, Identity};
use crate::watched::{Image, Watch};

/// What is not a page by then never becomes one: from the making of a page to its being armed it takes microseconds.
const UNFINISHED: Duration = Duration::from_secs(10);

impl Daemon {
    /// The page of the process that runs the trial of that name as one of that program.
    pub(crate) fn taker(&self, token: &str, program: RowId) -> Option<PageName> {
        let mut watches = self.watched.watches.iter();
        let is_it = |watch: &Watch| watch.token.as_deref() == Some(token) && watch.witness.program == program;
        watches.find(|(_, watch)| is_it(watch)).map(|(page, _)| page.clone())
    }

    /// Takes up what an earlier life of ours had seen.
    pub(crate) fn resume_witnesses(&mut self) {
        let witnesses = self.store.witnesses().unwrap_or_else(|error| {
            self.store_refused(&error);
            vec![]
        });
        for witness in witnesses {
            self.welcome(witness.uid);
            let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
            let standing = self.folders.has(&page) && witness.boot_id == self.boot_id;
            if !standing || self.book.get(witness.program).is_none() {
                let _ = self.store.forget_witness(witness.uid, &witness.page); // found again at the next start
                continue;
            }
            let token = token_of(&page).map(str::to_owned);
            // The offer is gone when the trial's sample was stored while its process lived.
            self.take_offer(token.as_deref(), witness.program, &page);
            let identity = Identity { pid: witness.pid, start_ticks: witness.start_ticks };
            let image = self.image_of(witness.program);
            // It may be of before an upgrade that came while we were away.
            let runs = sight::executable(identity);
            let is_it = runs.is_none() || runs == image.executable;
            self.watch(page, witness, token, if is_it { image } else { Image::default() });
        }
    }

    fn image_of(&self, program: RowId) -> Image {
        let known = self.book.get(program);
        known.map_or_else(Image::default, |known| Image {
            executable: known.executable,
            build_id: known.build_id.clone(),
        })
    }

    /// A file in somebody's folder was written and closed.
    pub(crate) fn page_written(&mut self, page: PageName) {
        if self.is_considered(&page) || !self.folders.has(&page) {
            return;
        }
        if !self.has_room_for(&page) {
            return self.drop_page(&page, Drop::TooMany);
        }
        match self.read(&page) {
            Ok(content) => self.identify(Doubt::new(page), &content),
            // Its maker is not done; it is told again when it is.
            Err(ReadError::Page(PageError::NotArmed)) => {}
            Err(_) => self.drop_page(&page, Drop::Damaged),
        }
    }

    /// Pages whose process is watched, or still to be seen.
    pub(crate) fn considered(&self) -> impl Iterator<Item = &PageName> {
        self.watched.watches.keys().chain(self.doubtful.iter().map(|doubt| &doubt.page))
    }

    pub(crate) fn is_considered(&self, page: &PageName) -> bool {
        let in_doubt = self.doubtful.iter().any(|doubt| doubt.page == *page);
        in_doubt || self.watched.watches.contains_key(page) || self.spent.contains(page)
    }

    /// Clears the folders of what nobody told us about and nobody finishes: pages never armed, files never closed, pipes, folders.
    /// And of watched pages that are gone: of a start that the kernel refused after all, or removed by their owner.
    pub(crate) fn sweep(&mut self) {
        self.folders.restore();
        let pages = self.watched.pages().into_iter();
        let gone: Vec<_> = pages.filter(|page| !self.folders.has(page)).collect();
        gone.iter().for_each(|page| self.page_ended(page));
        for page in self.folders.all() {
            let old = self.folders.age(&page).is_some_and(|age| age > UNFINISHED);
            if self.is_considered(&page) || !old {
                continue;
            }
            self.queue(page, true);
        }
    }

    pub(crate) fn read(&self, page: &PageName) -> Result<Page, ReadError> {
        let gone = || ReadError::Io(std::io::ErrorKind::NotFound.into());
        let folder = self.folders.of(page.uid).ok_or_else(gone)?;
        let expected = Expected { uid: page.uid, now_unix_s: now_unix_s() };
        imas_ingest::read_page_at(folder, &page.name, &expected)
    }

    /// Pages whose process could not be seen, and those that wait for the kernel's word on its end.
    pub(crate) fn look_again(&mut self, now: Instant) {
        for doubt in Doubt::take_due(&mut self.doubtful, now) {
            if let Ok(content) = self.read(&doubt.page) {
                self.identify(doubt, &content);
            }
        }
        for doubt in Doubt::take_due(&mut self.untold, now) {
            if self.is_told(&doubt.page) || now.duration_since(doubt.since) >= WORD {
                self.page_ended(&doubt.page);
            } else {
                self.untold.push(doubt.again());
            }
        }
    }

    /// Whether it may be seen later who is behind the page: by its process, as long as that lives; else, of a page that is believed without
    /// a witness, by the kernel's word on its end and by what it wrote at last.
    fn may_be_seen_yet(&self, doubt: &mut Doubt, content: &Page) -> bool {
        if is_alive(content) {
            return doubt.since.elapsed() < UNFINISHED;
        }
        let gone = *doubt.gone.get_or_insert_with(Instant::now);
        doubt.page.uid == self.own_uid() && gone.elapsed() < WORD
    }

    fn identify(&mut self, mut doubt: Doubt, content: &Page) {
        let page = doubt.page.clone();
        if content.boot_id != self.boot_id {
            return self.drop_page(&page, Drop::Stale);
        }
        let token = (content.kind == PageKind::Trial).then(|| token_of(&page).unwrap_or_default().to_owned());
        if let Some(token) = &token
            && self.book.trial(token).is_none()
        {
            return self.drop_page(&page, Drop::Unknown);
        }
        let program = match self.program_behind(&page, content, token.as_deref()) {
            Ok(program) => program,
            Err(Drop::Unwitnessed) if self.may_be_seen_yet(&mut doubt, content) => {
                return self.doubtful.push(doubt.again());
            }
            Err(why) => {
                self.drop_page(&page, why);
                if matches!(why, Drop::Unwitnessed) {
                    self.void(token.as_deref(), &page);
                    self.shield(token.as_deref(), page.uid);
                }
                return;
            }
        };
        let witness = Witness {
            uid: page.uid,
            page: page.name.to_string_lossy().into_owned(),
            boot_id: content.boot_id.clone(),
            pid: content.pid,
            start_ticks: content.process_start_ticks,
            program,
            candidate: content.candidate.clone(),
        };
        if let Err(error) = self.store.add_witness(&witness) {
            self.store_refused(&error); // as long as we live, we know it ourselves
        }
        if self.book.get(program).is_none() {
            return self.drop_page(&page, Drop::Unknown); // a new store has been begun
        }
        self.take_offer(token.as_deref(), program, &page);
        let image = self.image_of(program);
        self.watch(page, witness, token, image);
    }

    /// The process behind the page runs the trial that the program is offered: no other process of its domain is to. A user's process
    /// that runs everybody's trial takes it from nobody: stopped, it would keep everybody's decision waiting.
    fn take_offer(&mut self, token: Option<&str>, program: RowId, page: &PageName) {
        let Some(known) = self.book.get_mut(program) else { return };
        if token.is_some_and(|token| known.is_offering(token)) && known.taken_by.is_none() {
            known.taken_by = Some(page.clone());
            self.dirty = true;
        }
    }

    fn watch(&mut self, page: PageName, witness: Witness, token: Option<String>, image: Image) {
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
            sighting: None,
            ended: false,
        };
        let identity = watch.identity();
        self.watched.add(page.clone(), watch);
        let held = sight::hold(identity);
        let waits = held.is_some_and(|held| self.wakeup.add_process(page.clone(), held).is_ok());
        if !waits && !sight::is_running(identity) {
            self.process_ended(&page);
        } else if self.has_moved_on(&page) {
            self.page_ended(&page);
        }
    }

    /// The kernel told how a process ended.
    pub(crate) fn note_signal(&mut self, pid: u32, signal: u32) {
        self.departed.signals.note(pid, signal, Instant::now());
        let page = self.watched.of_pid(pid).cloned();
        if let Some(watch) = page.and_then(|page| self.watched.watches.get_mut(&page)) {
            watch.signal = Some(signal);
        }
    }

    /// A process that has a page runs another image now, perhaps: then its page will not be written any more.
    pub(crate) fn note_exec(&mut self, pid: u32, at_ns: u64) {
        self.departed.signals.forget(pid);
        self.departed.execs.note(pid, at_ns, Instant::now());
        let Some(page) = self.watched.of_pid(pid).cloned() else { return };
        if let Some(watch) = self.watched.watches.get_mut(&page) {
            watch.exec_ns = Some(at_ns);
        }
        if self.has_moved_on(&page) {
            self.page_ended(&page);
        }
    }

    /// Every page whose process runs another image: for where the kernel does not tell.
    pub(crate) fn look_for_execs(&mut self) {
        let pages = self.watched.pages().into_iter();
        let moved: Vec<_> = pages.filter(|page| self.has_moved_on(page)).collect();
        moved.iter().for_each(|page| self.page_ended(page));
    }

    /// Whether the process behind the page goes on as another image. One that has not come to our constructor has its page before it,
    /// whatever it is seen to run.
    fn has_moved_on(&self, page: &PageName) -> bool {
        let Some(watch) = self.watched.watches.get(page).filter(|watch| !watch.ended) else { return false };
        let runs = sight::executable(watch.identity());
        let is_another = runs.is_some() && watch.image.executable.is_some() && runs != watch.image.executable;
        if !is_another && (runs.is_none() || watch.exec_ns.is_none()) {
            return false;
        }
        let entered = self.read(page).ok().filter(|content| content.state != State::Armed);
        entered.is_some_and(|content| is_another || watch.has_exec_after(&content))
    }

    pub(crate) fn drop_page(&mut self, page: &PageName, why: Drop) {
        why.count(&mut self.counters);
        self.wakeup.remove_process(page);
        self.watched.remove(page);
        self.folders.remove(page);
        let _ = self.store.forget_witness(page.uid, &page.name.to_string_lossy()); // found again at the next start
        if page.uid == self.own_uid() {
            tracing::info!(PAGE = %imas_core::printable::name(&page.name.to_string_lossy()), "a page was dropped: {why:?}");
        }
    }

    /// Every watched page: a new store gives the numbers of their programs to others.
    pub(crate) fn drop_all_pages(&mut self) {
        for page in self.watched.pages() {
            self.drop_page(&page, Drop::Unknown);
        }
    }

    /// A user's process took everybody's trial and was gone before we could look, crashed perhaps. The user gets an entry of its own,
    /// untouched for a while, so that the next start does not end in the same way; others are still offered the trial.
    fn shield(&mut self, token: Option<&str>, uid: u32) {
        let domain = self.domain_of(uid);
        let Some(known) = token.and_then(|token| self.book.offering(token)) else { return };
        let program = known.program.clone();
        if program.domain != domain
            && let Ok(own) = self.in_domain(&program, domain)
        {
            self.void_offer(own);
        }
    }

    /// A page of the offered trial came to nothing. The offer is taken back if it was this page's process that had taken it. Where nobody
    /// had, only pages of the program's own domain count: what a user leaves in a folder takes back nobody else's offer.
    pub(crate) fn void(&mut self, token: Option<&str>, page: &PageName) {
        let domain = self.domain_of(page.uid);
        let Some(known) = token.and_then(|token| self.book.offering(token)) else { return };
        let is_theirs = match &known.taken_by {
            Some(taker) => taker == page,
            None => known.program.domain == domain,
        };
        if is_theirs {
            self.void_offer(known.program.id);
        }
    }
}

fn is_alive(content: &Page) -> bool {
    sight::is_running(Identity { pid: content.pid, start_ticks: content.process_start_ticks })
}

/// The offer that a page is named after: sixteen hexadecimal digits.
pub(crate) fn token_of(page: &PageName) -> Option<&str> {
    let stem = page.name.to_str()?.strip_suffix(".page")?;
    let plain = stem.len() == 16 && stem.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then_some(stem)
}

pub(crate) fn is_same(content: &Page, witness: &Witness) -> bool {
    content.pid == witness.pid
        && content.process_start_ticks == witness.start_ticks
        && content.candidate == witness.candidate
        && content.boot_id == witness.boot_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sixteen_digits_name_an_offer() {
        let page = |name: &str| PageName { uid: 1, name: name.into() };
        assert_eq!(token_of(&page("0123456789abcdef.page")), Some("0123456789abcdef"));
        for other in ["123-456.page", "0123456789abcdef", "0123456789abcdeg.page", "x.page"] {
            assert_eq!(token_of(&page(other)), None, "{other}");
        }
    }
}
