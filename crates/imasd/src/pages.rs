// SPDX-License-Identifier: Apache-2.0
//! Pages: who is behind one, and what it said when its process had ended.
//!
//! A page is a claim. It counts only when we have seen, while the process lived, that its owner, id, start and executable are those of
//! a program that this very trial was offered to. Everything else is dropped, and counted.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use imas_core::TrialRecord;
use imas_core::sample::{Ended, PageKind, is_crash_signal};
use imas_ingest::{Expected, Page, PageError, ReadError, State};
use imas_linux::clock::now_unix_s;
use imas_linux::index::Executable;
use imas_store::RowId;
use imas_store::daemon::Witness;
use imas_store::domain::Domain;

use crate::counters::Counters;
use crate::daemon::Daemon;
use crate::folders::PageName;
use crate::harm::START_S;
use crate::moment::Moment;
use crate::sight::{self, Identity};

/// Signals by which a process comes to its end through its own doing: ILL, TRAP, ABRT, BUS, FPE, SEGV, STKFLT, SYS. All others are sent by
/// people, timers, limits, systemd: not the allocator's doing.
const FAULTS: [u32; 8] = [4, 5, 6, 7, 8, 11, 16, 31];

/// What is not a page by then never becomes one: from the making of a page to its being armed it takes microseconds.
const UNFINISHED: Duration = Duration::from_secs(10);

/// A process that could not be seen is looked at again after this time, then at growing distances: in the midst of its exec it is seen
/// as nothing, and it may crash in the next moment.
const SOON: Duration = Duration::from_millis(2);
/// Looks are at most so far apart.
const SELDOM: Duration = Duration::from_secs(1);
/// The kernel's word on how a process ended is waited for so long. Who waits for the process hears of its end first, and on a busy machine
/// much may happen between the two.
const WORD: Duration = Duration::from_millis(500);

/// A page that waits to be looked at again.
#[derive(Debug)]
pub(crate) struct Doubt {
    page: PageName,
    /// When we looked first.
    since: Instant,
    /// When its process was first found to be gone.
    gone: Option<Instant>,
    /// When we look next.
    pub(crate) next: Instant,
}

impl Doubt {
    fn new(page: PageName) -> Self {
        let now = Instant::now();
        Self { page, since: now, gone: None, next: now + SOON }
    }

    /// The same after as long again as it has waited already.
    fn again(self) -> Self {
        let now = Instant::now();
        let next = now + now.duration_since(self.since).clamp(SOON, SELDOM);
        Self { next, ..self }
    }

    /// Those that are to be looked at by now are taken out.
    fn take_due(doubts: &mut Vec<Self>, now: Instant) -> Vec<Self> {
        let (due, later) = std::mem::take(doubts).into_iter().partition(|doubt| doubt.next <= now);
        *doubts = later;
        due
    }
}

/// What a process behind a page ran when the page was made; the file at the program's path may be another one by now.
#[derive(Debug, Clone, Default)]
pub(crate) struct Image {
    /// The file; `None` when it is not known.
    pub(crate) executable: Option<Executable>,
    /// Hexadecimal; empty when there is none, or it is not known.
    pub(crate) build_id: String,
}

/// A process behind a page.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) witness: Witness,
    pub(crate) image: Image,
    /// Of a trial: the name of the offer.
    pub(crate) token: Option<String>,
    /// The signal that ended it, where the kernel told us.
    pub(crate) signal: Option<u32>,
    /// Its last exec by `CLOCK_MONOTONIC`, where the kernel told us.
    pub(crate) exec_ns: Option<u64>,
    /// When we saw it first, in this life of ours.
    pub(crate) since: Instant,
    /// Of a trial: its sample is stored, though it lives.
    pub(crate) sampled: bool,
    /// It has ended, and its page waits for the store.
    pub(crate) ended: bool,
}

impl Watch {
    fn identity(&self) -> Identity {
        Identity { pid: self.witness.pid, start_ticks: self.witness.start_ticks }
    }

    /// Whether the process has run another image, or the same once more, since it began its page.
    pub(crate) fn has_exec_after(&self, content: &Page) -> bool {
        let moment = self.exec_ns.and_then(|exec_ns| Some((exec_ns, Moment::now()?)));
        moment.is_some_and(|(exec_ns, now)| now.is_later(exec_ns, content.begun_raw_ns()))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    pub(crate) watches: HashMap<PageName, Watch>,
    by_pid: HashMap<u32, PageName>,
}

impl Watched {
    fn add(&mut self, page: PageName, watch: Watch) {
        self.by_pid.insert(watch.witness.pid, page.clone());
        self.watches.insert(page, watch);
    }

    fn remove(&mut self, page: &PageName) -> Option<Watch> {
        let watch = self.watches.remove(page)?;
        if self.by_pid.get(&watch.witness.pid) == Some(page) {
            self.by_pid.remove(&watch.witness.pid);
        }
        Some(watch)
    }

    /// Page of the process of that id.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<&PageName> {
        self.by_pid.get(&pid)
    }

    /// Pages whose process has ended but that could not be stored yet.
    pub(crate) fn left_over(&self) -> Vec<PageName> {
        let ended = self.watches.iter().filter(|(_, watch)| watch.ended);
        ended.map(|(page, _)| page.clone()).collect()
    }

    /// Every page.
    pub(crate) fn pages(&self) -> Vec<PageName> {
        self.watches.keys().cloned().collect()
    }

    pub(crate) fn trials(&self) -> usize {
        self.watches.values().filter(|watch| watch.token.is_some()).count()
    }
}

/// What the kernel told of processes in the last seconds: for those that were gone before their page was seen.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    /// The signal that ended it, 0 for none.
    signals: Recent<u32>,
    /// Its last exec, by `CLOCK_MONOTONIC`, ns.
    execs: Recent<u64>,
}

/// What the kernel told is remembered so long.
const REMEMBERED: Duration = Duration::from_secs(5);
/// Processes remembered at most.
const MOST_REMEMBERED: usize = 16_384;

/// Something told of processes, by their id.
#[derive(Debug, Default)]
struct Recent<T> {
    told: HashMap<u32, (T, Instant)>,
    /// When what is old was last forgotten: that takes a while where there is much.
    cleared: Option<Instant>,
}

impl<T: Copy> Recent<T> {
    fn note(&mut self, pid: u32, what: T, now: Instant) {
        let rested = self.cleared.is_none_or(|at| now.duration_since(at) >= REMEMBERED / 5);
        if self.told.len() >= MOST_REMEMBERED && rested {
            self.told.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
            self.cleared = Some(now);
        }
        if self.told.len() < MOST_REMEMBERED {
            self.told.insert(pid, (what, now));
        }
    }

    fn of(&self, pid: u32, now: Instant) -> Option<T> {
        let (what, at) = self.told.get(&pid)?;
        (now.duration_since(*at) < REMEMBERED).then_some(*what)
    }
}

/// Why a page is dropped.
#[derive(Debug, Clone, Copy)]
enum Drop {
    Unwitnessed,
    Damaged,
    Forged,
    Unknown,
    Stale,
    TooMany,
}

impl Drop {
    fn count(self, counters: &mut Counters) {
        let counter = match self {
            Self::Unwitnessed => &mut counters.dropped_unwitnessed,
            Self::Damaged => &mut counters.dropped_damaged,
            Self::Forged => &mut counters.dropped_forged,
            Self::Unknown => &mut counters.dropped_unknown,
            Self::Stale => &mut counters.dropped_stale,
            Self::TooMany => &mut counters.dropped_too_many,
        };
        *counter += 1;
    }
}

impl Daemon {
    /// Whether a process runs the trial of that name.
    pub(crate) fn is_running(&self, token: &str) -> bool {
        self.watched.watches.values().any(|watch| watch.token.as_deref() == Some(token))
    }

    /// Every page that stands: after our start, or when the kernel could not tell us all.
    pub(crate) fn look_at_all_pages(&mut self) {
        for page in self.folders.all() {
            self.page_written(page);
        }
    }

    /// Takes up what an earlier life of ours had seen.
    pub(crate) fn resume_witnesses(&mut self) {
        let witnesses = self.store.witnesses().unwrap_or_else(|error| {
            self.store_refused(&error);
            vec![]
        });
        for witness in witnesses {
            self.folders.welcome(witness.uid);
            let page = PageName { uid: witness.uid, name: witness.page.clone().into() };
            let standing = self.folders.has(&page) && witness.boot_id == self.boot_id;
            if !standing || self.book.get(witness.program).is_none() {
                let _ = self.store.forget_witness(witness.uid, &witness.page); // found again at the next start
                continue;
            }
            let token = token_of(&page).map(str::to_owned);
            // The offer is gone when the trial's sample was stored while its process lived.
            if let Some(known) = self.book.get_mut(witness.program)
                && known.offer.as_ref().is_some_and(|offer| Some(&offer.token) == token.as_ref())
            {
                known.taken = true;
            }
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
        let of_user = self.considered().filter(|theirs| theirs.uid == page.uid).count();
        if of_user >= self.config.most_pages_of_user || self.considered().count() >= self.config.most_pages {
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
    fn considered(&self) -> impl Iterator<Item = &PageName> {
        self.watched.watches.keys().chain(self.doubtful.iter().map(|doubt| &doubt.page))
    }

    fn is_considered(&self, page: &PageName) -> bool {
        let in_doubt = self.doubtful.iter().any(|doubt| doubt.page == *page);
        in_doubt || self.watched.watches.contains_key(page) || self.spent.contains(page)
    }

    /// Whose pages are believed without a witness: root's, in a user's own tree that user's.
    fn own_uid(&self) -> u32 {
        if self.options.user { rustix::process::geteuid().as_raw() } else { 0 }
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
            self.page_written(page.clone());
            if !self.is_considered(&page) && self.folders.has(&page) {
                self.drop_page(&page, Drop::Damaged);
            }
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
                    self.void(token.as_deref(), page.uid);
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
        if let Some(id) = token.as_deref().and_then(|token| self.book.offering(token)).map(|k| k.program.id)
            && let Some(known) = self.book.get_mut(id)
        {
            known.taken = true;
            self.dirty = true;
        }
        let image = self.image_of(program);
        self.watch(page, witness, token, image);
    }

    /// The program that the process behind the page really is, by what the kernel says.
    fn program_behind(
        &mut self,
        page: &PageName,
        content: &Page,
        token: Option<&str>,
    ) -> Result<RowId, Drop> {
        let identity = Identity { pid: content.pid, start_ticks: content.process_start_ticks };
        let domain = self.domain_of(page.uid);
        let seen = sight::look(identity).or_else(|| self.glimpses.remove(&identity));
        let Some(sight) = seen else {
            if sight::life(content.pid).is_some_and(|life| life.identity != identity) {
                return Err(Drop::Forged); // the id is another's
            }
            return self.of_the_dead(page, content, token, domain);
        };
        if sight.uid != page.uid {
            return Err(Drop::Forged);
        }
        let offered = token.and_then(|token| self.book.trial(token));
        let (program, candidate) = match offered {
            Some((known, offer)) => {
                let same = known.executable == Some(sight.executable) && sight.leads_to(&known.detail);
                if !same {
                    return Err(Drop::Forged);
                }
                (known.program.clone(), Some(offer.candidate.clone()))
            }
            None => {
                let known = self.book.placed(&sight, &content.trial_id, domain).ok_or(Drop::Forged)?;
                (known.program.clone(), None)
            }
        };
        if candidate.is_some_and(|candidate| candidate != content.candidate)
            || !self.offers(&content.candidate)
        {
            return Err(Drop::Forged);
        }
        self.in_domain(&program, domain)
    }

    /// A process that was gone before we could look. Only the owner of the store is believed then, root where we serve the machine, for
    /// it could write the store itself, and a service that dies at once must not be tried for ever; and only if the kernel told of the
    /// process's end. Where the kernel tells of none, a crash is believed all the same: it does no more than take a candidate away.
    fn of_the_dead(
        &self,
        page: &PageName,
        content: &Page,
        token: Option<&str>,
        domain: Domain,
    ) -> Result<RowId, Drop> {
        let told = self.departed.signals.of(content.pid, Instant::now()).is_some();
        let credible = told || (!self.hears_the_kernel() && content.to_sample().ended.is_crash());
        if page.uid != self.own_uid() || !credible || !self.offers(&content.candidate) {
            return Err(Drop::Unwitnessed);
        }
        let trial = token.and_then(|token| self.book.trial(token));
        if trial.is_some_and(|(_, offer)| offer.candidate != content.candidate) {
            return Err(Drop::Forged);
        }
        let known = match token {
            Some(_) => trial.map(|(known, _)| known),
            None => self.book.numbered(&content.trial_id, domain),
        };
        known.map(|known| known.program.id).ok_or(Drop::Unwitnessed)
    }

    /// What a user's process shows of a program that is everybody's is the user's own sample.
    fn in_domain(&mut self, program: &imas_store::samples::Program, domain: Domain) -> Result<RowId, Drop> {
        if program.domain == domain {
            return Ok(program.id);
        }
        let own = self.store.program_in(domain, &program.path, &program.detail);
        let own = own.map_err(|error| {
            self.store_refused(&error);
            Drop::TooMany
        })?;
        let id = own.id;
        if self.book.get(id).is_none() {
            self.book.put(crate::book::Known::new(own));
            self.judge(id);
        }
        Ok(id)
    }

    fn offers(&self, candidate: &str) -> bool {
        self.installation.as_ref().is_some_and(|installation| installation.table.id_of(candidate).is_some())
    }

    fn watch(&mut self, page: PageName, witness: Witness, token: Option<String>, image: Image) {
        let since = Instant::now();
        let signal = self.departed.signals.of(witness.pid, since);
        let exec_ns = self.departed.execs.of(witness.pid, since);
        let watch = Watch { witness, image, token, signal, exec_ns, since, sampled: false, ended: false };
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

    /// The process behind the page has ended. How, the kernel tells a moment later, where it tells.
    pub(crate) fn process_ended(&mut self, page: &PageName) {
        if !self.hears_the_kernel() || self.is_told(page) {
            return self.page_ended(page);
        }
        self.wakeup.remove_process(page);
        self.untold.push(Doubt::new(page.clone()));
    }

    /// Whether the kernel has told how the process behind the page ended, or nobody waits for that any more.
    fn is_told(&self, page: &PageName) -> bool {
        self.watched.watches.get(page).is_none_or(|watch| watch.signal.is_some())
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
        self.departed.signals.told.remove(&pid);
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

    /// The process behind the page has ended: what the page says goes into the store, then the page goes.
    pub(crate) fn page_ended(&mut self, page: &PageName) {
        self.wakeup.remove_process(page);
        let Some(watch) = self.watched.watches.get_mut(page) else { return };
        watch.ended = true;
        let watch = watch.clone();
        let (witness, token) = (&watch.witness, &watch.token);
        if self.book.get(witness.program).is_none() {
            return self.drop_page(page, Drop::Unknown); // the operator, or a new store, has forgotten its program
        }
        let content = match self.read(page) {
            Ok(content) if is_same(&content, witness) => content,
            other => {
                let why = if other.is_ok() { Drop::Forged } else { Drop::Damaged };
                self.drop_page(page, why);
                return self.void(token.as_deref(), page.uid);
            }
        };
        // What ended was another image, that has no page or one of its own.
        let signal = watch.signal.filter(|_| !watch.has_exec_after(&content));
        let record = self.record(&content, &watch, signal);
        let new = match self.store.settle(witness, &record, token.as_deref()) {
            Ok(new) => new,
            Err(error) => return self.store_refused(&error),
        };
        self.watched.remove(page);
        if token.is_some() {
            self.spent.push(page.clone());
            self.dirty = true;
        } else {
            self.folders.remove(page);
        }
        if new {
            self.count(&record);
        }
        self.end_offer(token.as_deref().unwrap_or_default(), witness.program);
        if new && record.sample.ended.is_crash() && record.sample.pass_reason.is_none() {
            self.note_crash(&record, &watch);
        }
    }

    /// The index that was just published offers none of these trials any more. Until then their names were taken: whoever could have
    /// made such a page again would have run the same trial once more, and crashed as the first one did, perhaps.
    pub(crate) fn remove_spent(&mut self) {
        for page in std::mem::take(&mut self.spent) {
            self.folders.remove(&page);
        }
    }

    /// The trial of that name is stored, as one of `program`; both are judged anew. A user's trial of a program that is everybody's
    /// leaves everybody's trial still to be made.
    pub(crate) fn end_offer(&mut self, token: &str, program: RowId) {
        let offered_to = self.book.offering(token).map(|known| known.program.id);
        if let Some(known) = offered_to.and_then(|id| self.book.get_mut(id)) {
            (known.offer, known.taken, known.void_offers) = (None, false, 0);
        }
        self.judge(program);
        if let Some(id) = offered_to.filter(|id| *id != program) {
            self.judge(id);
        }
    }

    pub(crate) fn record(&self, content: &Page, watch: &Watch, signal: Option<u32>) -> TrialRecord {
        let (witness, token) = (&watch.witness, watch.token.as_deref());
        let mut sample = content.to_sample();
        // Names of our own making: a page must not be able to pass for another.
        let ended = ended(sample.ended, signal, self.hears_the_kernel());
        sample.trial_id = match token {
            // Of a trial whose sample was stored while its process lived, a crash is still news.
            Some(token) if ended.is_crash() => format!("{token}-{}-crash", witness.uid),
            Some(token) => format!("{token}-{}", witness.uid),
            None => {
                let Witness { uid, pid, start_ticks, boot_id, .. } = witness;
                let boot = boot_id.get(..8).unwrap_or_default();
                format!("{boot}-{uid}-{pid}-{start_ticks}-{:.0}", content.made_unix_s * 1e3)
            }
        };
        sample.candidate.clone_from(&witness.candidate);
        sample.machine = imas_linux::host::machine_state();
        sample.ended = ended;
        let offer = token.and_then(|token| self.book.trial(token)).map(|(_, offer)| offer);
        let version = self.installation.as_ref();
        TrialRecord {
            allocator_version: version
                .map_or_else(String::new, |it| it.version_served(&sample.candidate, &sample.served)),
            build_id: watch.image.build_id.clone(),
            retest_s: offer.map(|offer| offer.retest_s),
            sample,
        }
    }

    fn count(&mut self, record: &TrialRecord) {
        match record.sample.kind {
            PageKind::Trial => self.counters.trials_stored += 1,
            PageKind::Flight => self.counters.flights_stored += 1,
        }
    }

    fn note_crash(&mut self, record: &TrialRecord, watch: &Watch) {
        self.counters.crashes += 1;
        let (sample, witness) = (&record.sample, &watch.witness);
        let Some(known) = self.book.get(witness.program) else { return };
        tracing::warn!(
            PROGRAM = %known.program,
            CANDIDATE = sample.candidate,
            UID = witness.uid,
            "the program crashed under it: {:?}",
            sample.ended
        );
        let domain = known.program.domain;
        // A program that crashes as often untouched fails by its own doing.
        let view = known.profile.as_ref().and_then(|profile| profile.candidate(&sample.candidate));
        let never_entered = sample.ended == Ended::NeverEntered;
        let blamed = never_entered || view.is_none_or(|view| view.quarantine.is_some());
        self.take_culprits_out_of_use();
        if matches!(domain, Domain::Everybody) {
            self.publish_soon(); // the next start must not crash in the same way
        }
        let placed = sample.candidate != imas_core::SYSTEM;
        // The clock may have been set since.
        let is_young =
            now_unix_s() - sample.made_unix_s < START_S && watch.since.elapsed().as_secs_f64() < START_S;
        if placed && blamed && (never_entered || is_young) && self.failures.add(domain, Instant::now()) {
            self.stop_everything("five starts under other allocators failed within a minute");
        }
    }

    fn drop_page(&mut self, page: &PageName, why: Drop) {
        why.count(&mut self.counters);
        self.wakeup.remove_process(page);
        self.watched.remove(page);
        self.folders.remove(page);
        let _ = self.store.forget_witness(page.uid, &page.name.to_string_lossy()); // found again at the next start
        if page.uid == self.own_uid() {
            tracing::info!(PAGE = %page.name.display(), "a page was dropped: {why:?}");
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

    /// A page of the offered trial came to nothing. What one user leaves in a folder must not take back everybody's offer, unless a
    /// process of the program has really taken it.
    fn void(&mut self, token: Option<&str>, uid: u32) {
        let Some(known) = token.and_then(|token| self.book.offering(token)) else { return };
        if known.taken || known.program.domain == self.domain_of(uid) {
            self.void_offer(known.program.id);
        }
    }
}

fn is_alive(content: &Page) -> bool {
    sight::is_running(Identity { pid: content.pid, start_ticks: content.process_start_ticks })
}

/// The offer that a page is named after: sixteen hexadecimal digits.
fn token_of(page: &PageName) -> Option<&str> {
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

/// How it ended: what the page says, corrected by what the kernel told, if it `tells` at all.
fn ended(said: Ended, signal: Option<u32>, tells: bool) -> Ended {
    match (said, signal) {
        (Ended::Signal { .. }, _) => said,
        // After a clean end too: a child of vfork notes its own on its parent's page.
        (_, Some(signal)) if is_crash_signal(signal) => Ended::Signal { signal },
        // Killed by somebody in its first moments.
        (Ended::NeverEntered, Some(signal)) if signal != 0 && !FAULTS.contains(&signal) => Ended::Unknown,
        // The word was lost, or came while we were away: that may have been so too.
        (Ended::NeverEntered, None) if tells => Ended::Unknown,
        _ => said,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_corrects_what_the_page_could_not_say() {
        let killed = Ended::Signal { signal: 11 };
        let told = |said, signal| ended(said, signal, true);
        assert_eq!(told(Ended::Unknown, Some(11)), killed);
        assert_eq!(told(Ended::NeverEntered, Some(11)), killed);
        for asked in [1, 2, 3, 9, 10, 13, 14, 15, 24] {
            assert_eq!(told(Ended::NeverEntered, Some(asked)), Ended::Unknown, "{asked}");
        }
        for own in [0, 5, 8] {
            assert_eq!(told(Ended::NeverEntered, Some(own)), Ended::NeverEntered, "{own}");
        }
        assert_eq!(told(Ended::NeverEntered, None), Ended::Unknown, "its word was lost");
        assert_eq!(ended(Ended::NeverEntered, None, false), Ended::NeverEntered, "it tells of nobody");
        let clean = Ended::Clean { status: Some(0) };
        assert_eq!(told(clean, Some(0)), clean);
        assert_eq!(told(clean, Some(11)), killed, "what was clean was a child's end");
        assert_eq!(told(Ended::Signal { signal: 6 }, Some(11)), Ended::Signal { signal: 6 });
    }

    #[test]
    fn what_the_kernel_told_is_remembered_for_a_while() {
        let mut recent = Recent::default();
        let now = Instant::now();
        recent.note(7, 11_u32, now);
        assert_eq!((recent.of(7, now), recent.of(8, now)), (Some(11), None));
        assert_eq!(recent.of(7, now + REMEMBERED), None, "the id may be another's by then");
        (0..100_000).for_each(|pid| recent.note(pid, 0, now));
        assert!(recent.told.len() <= MOST_REMEMBERED);
        recent.note(8, 6, now + REMEMBERED);
        assert_eq!(recent.of(8, now + REMEMBERED), Some(6), "there is room again");
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
