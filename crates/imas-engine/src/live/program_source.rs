// SPDX-License-Identifier: Apache-2.0
//! One store with its programs, kept up to date at a limited cost, and what IMAS has decided about each of them.
//! Then a store that another process writes, opened for reading, and what was worked out of its programs.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use imas_core::sample::PageKind;
use imas_core::{Reason, SYSTEM};
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::index::{ServiceUnit, detail_of_unit};
use imas_linux::interpreter_target::name_of_detail;
use imas_store::decisions::{Decided, ProgramRevision};
use imas_store::samples::{Domain, StoredProgram};
use imas_store::{RowId, Store, StoreError};

use crate::context::Context;
use crate::flags::RulesArgs;
use crate::inspect;
use crate::live::snapshot::{ProcessState, StoreKind};
use crate::live::tracked::Identity;
use crate::pending::PendingView;
use crate::program_view::{ProgramView, Restart, state_where};
use crate::runtime_command::unfit_reason;

/// A store is read again at the earliest after this multiple of the time that it took.
const REST: u32 = 300;
/// A store rests at least this long between two readings.
const LEAST_REST: Duration = Duration::from_secs(2);

/// One store.
#[derive(Debug)]
pub(crate) struct ProgramSource {
    pub(crate) kind: StoreKind,
    context: Context,
    reader: StoreReader,
    by_name: HashMap<(String, String), Vec<StoredProgram>>,
    facts: ProgramCache<KeptFacts>,
    /// Whether a candidate can be used here: to find out takes a process each.
    usable: RefCell<HashMap<String, bool>>,
    look_again: Instant,
    pub(crate) problems: Vec<String>,
}

#[derive(Debug)]
struct KeptFacts {
    /// The candidates whose gain was worked out.
    on: Vec<String>,
    facts: ProgramFacts,
}

#[derive(Debug)]
enum StoreReader {
    /// The user's own store, copied together with the pages that wait; the files by which a change is known.
    Own(Option<Store>, Vec<(u64, i64, i64)>),
    /// imasd's store.
    System(FollowedStore),
}

impl StoreReader {
    fn store(&self) -> Option<&Store> {
        match self {
            Self::Own(copy, _) => copy.as_ref(),
            Self::System(followed) => followed.store(),
        }
    }
}

impl ProgramSource {
    /// The store of that installation.
    pub(crate) fn new(kind: StoreKind, context: Context) -> Self {
        let reader = match kind {
            StoreKind::Own => StoreReader::Own(None, vec![]),
            StoreKind::System => StoreReader::System(FollowedStore::new(context.store_path.clone())),
        };
        Self {
            kind,
            context,
            reader,
            by_name: HashMap::new(),
            facts: ProgramCache::default(),
            usable: RefCell::default(),
            look_again: Instant::now(),
            problems: vec![],
        }
    }

    /// Reads the store again where it has changed and the last reading is long enough ago.
    pub(crate) fn refresh(&mut self) {
        let begun = Instant::now();
        if begun < self.look_again {
            return;
        }
        if self.look()
            && let Err(error) = self.read_programs()
        {
            self.problems.push(format!("{error:#}"));
        }
        self.look_again = Instant::now() + (begun.elapsed() * REST).max(LEAST_REST);
    }

    /// Whether the store or a page has changed since the last look.
    fn look(&mut self) -> bool {
        match &mut self.reader {
            StoreReader::System(followed) => {
                let is_other = followed.look();
                let problem = followed.problem();
                if is_other || problem.is_some() {
                    self.problems = problem.map(|error| format!("{error:#}")).into_iter().collect();
                }
                is_other
            }
            StoreReader::Own(copy, files) => {
                let now = files_of(&self.context);
                if *files == now {
                    return false;
                }
                *files = now;
                match PendingView::read(&self.context) {
                    Ok(view) => (*copy, self.problems) = (Some(view.store), view.damaged),
                    Err(error) => self.problems = vec![format!("{error:#}")],
                }
                true
            }
        }
    }

    fn read_programs(&mut self) -> Result<()> {
        let Some(store) = self.reader.store() else { return Ok(()) };
        let programs = store.programs()?;
        let before: HashMap<RowId, StoredProgram> = self
            .by_name
            .drain()
            .flat_map(|(_, programs)| programs)
            .map(|program| (program.id, program))
            .collect();
        let is_same = |program: &StoredProgram| before.get(&program.id) == Some(program);
        // The numbers of programs that are only in pages hold in one copy alone.
        let same: HashSet<RowId> = programs.iter().filter(|one| is_same(one)).map(|one| one.id).collect();
        self.facts.keep(|program| same.contains(&program));
        for program in programs {
            let name = (program.path.clone(), program.detail.clone());
            self.by_name.entry(name).or_default().push(program);
        }
        Ok(())
    }

    /// The program that the process runs: the program of its service, else of its executable.
    pub(crate) fn program_of(&self, identity: &Identity) -> Option<&StoredProgram> {
        let path = identity.program.path.to_string_lossy();
        let unit = identity.unit.as_ref().and_then(ServiceUnit::system_name).map(detail_of_unit);
        let detail = identity.program.detail.clone();
        // imasd knows it by its file alone.
        let by_file = name_of_detail(&detail).map(|_| String::new());
        let details = unit.into_iter().chain([detail]).chain(by_file);
        let mut found = details.filter_map(|detail| self.by_name.get(&(path.clone().into_owned(), detail)));
        let domains = found.next()?;
        let in_domain = |domain| domains.iter().find(|program| program.domain == domain);
        match self.kind {
            StoreKind::Own => domains.first(),
            StoreKind::System => {
                in_domain(Domain::User(identity.uid)).or_else(|| in_domain(Domain::Everybody))
            }
        }
    }

    /// Facts that are kept of the program, whether they are up to date or not.
    pub(crate) fn facts(&self, program: RowId) -> Option<&ProgramFacts> {
        self.facts.get(program).map(|kept| &kept.facts)
    }

    /// The newest decisions about the program, newest first; none where they cannot be read.
    pub(crate) fn decisions(&self, program: RowId, most: u32) -> Vec<Decided> {
        let read = |store: &Store| store.decisions(program, most).ok();
        self.reader.store().and_then(read).unwrap_or_default()
    }

    /// Whether the program has to be worked out for processes that are on that candidate.
    pub(crate) fn is_stale(&self, program: RowId, on: Option<&str>) -> bool {
        let lacks = |kept: &KeptFacts| on.is_some_and(|on| !kept.on.iter().any(|known| known == on));
        let Some(store) = self.reader.store() else { return false };
        self.facts.get(program).is_some_and(lacks) || self.facts.is_stale(store, program)
    }

    /// Works the program out.
    pub(crate) fn work_out(&mut self, program: &StoredProgram, on: Option<&str>) -> Result<()> {
        let Some(store) = self.reader.store() else { return Ok(()) };
        let find_out = |one: &CatalogueCandidate| self.context.obstacle(one, Some(store)).is_none();
        let is_usable = |one: &CatalogueCandidate| {
            let mut usable = self.usable.borrow_mut();
            *usable.entry(one.name.clone()).or_insert_with(|| find_out(one))
        };
        let make = |state: ProgramView, before: Option<&KeptFacts>| {
            let mut names = before.map(|kept| kept.on.clone()).unwrap_or_default();
            names.extend(on.map(str::to_owned).filter(|on| !names.contains(on)));
            let on: Vec<&str> = names.iter().map(String::as_str).collect();
            Ok(KeptFacts { facts: ProgramFacts::of(store, &state, &on)?, on: names })
        };
        self.facts.work_out((&self.context, store), program, &is_usable, make)
    }
}

/// Length and time of the last change of the store's files and of the folders of pages.
fn files_of(context: &Context) -> Vec<(u64, i64, i64)> {
    let mut wal = context.store_path.clone().into_os_string();
    wal.push("-wal");
    [&context.store_path, &PathBuf::from(wal), &context.page_place()].map(|path| changed(path)).into()
}

/// Length and time of the last change; zeros where there is no such file.
fn changed(path: &Path) -> (u64, i64, i64) {
    std::fs::metadata(path).map_or((0, 0, 0), |about| (about.len(), about.mtime(), about.mtime_nsec()))
}

// Decisions of IMAS about one program, in the form in which they are shown with each of its processes.

/// Decisions looked through for the first one of the present answer.
const DECISIONS: u32 = 100;

/// One program.
#[derive(Debug)]
pub(crate) struct ProgramFacts {
    /// State of each process that is no trial.
    pub(crate) state: ProcessState,
    /// The candidate of the next starts, where one is settled.
    pub(crate) pick: Option<String>,
    pub(crate) quarantined: Vec<String>,
    /// Number of the next trial and the most trials there are, by candidate.
    trials: BTreeMap<String, (u32, u32)>,
    /// Gain of a restart, by the candidate that a process is on.
    gains: BTreeMap<String, Restart>,
}

impl ProgramFacts {
    /// Collects the facts from the state of the program; `on` are the candidates of its processes.
    pub(crate) fn of(store: &Store, state: &ProgramView, on: &[&str]) -> Result<Self> {
        let pick = state.settled().map(str::to_owned);
        let gain = |on: &&str| Some(((*on).to_owned(), Restart::of(state, on, pick.as_deref()?)));
        let is_other = |on: &&&str| pick.as_deref().is_some_and(|pick| pick != **on);
        let views = &state.profile.candidates;
        Ok(Self {
            state: process_state(state, since(store, state)?),
            quarantined: views
                .iter()
                .filter(|view| view.quarantine.is_some())
                .map(|view| view.name.clone())
                .collect(),
            trials: views.iter().map(|view| (view.name.clone(), trials(state, &view.name))).collect(),
            gains: on.iter().filter(is_other).filter_map(gain).collect(),
            pick,
        })
    }

    /// The state of a process that is a trial of the candidate.
    pub(crate) fn trial(&self, candidate: &str) -> ProcessState {
        let (number, of) = self.trials.get(candidate).copied().unwrap_or((1, 1));
        ProcessState::Trial { candidate: candidate.to_owned(), number, of }
    }

    /// The change from candidate `on` to the pick, and the pick. None on the pick itself, and where none is
    /// settled.
    pub(crate) fn gain(&self, on: &str) -> Option<(&Restart, &str)> {
        Some((self.gains.get(on)?, self.pick.as_deref()?))
    }
}

/// The next trial's number, and the most there are of a candidate.
fn trials(state: &ProgramView, candidate: &str) -> (u32, u32) {
    let done = state.profile.candidate(candidate).map_or(0, |view| view.summary.count);
    let most = state.profile.policy.most_trials(&state.profile.limits);
    (done + 1, most.max(done + 1))
}

/// When the present answer was first given, by the decisions that are kept.
fn since(store: &Store, state: &ProgramView) -> Result<Option<f64>> {
    let decisions = store.decisions(state.known.program.id, DECISIONS)?;
    let starts = decisions.iter().filter(|decided| !decided.trial);
    let same = starts.take_while(|decided| decided.candidate == state.decision.candidate);
    Ok(same.last().map(|decided| decided.at_s))
}

/// State of a program's next starts. `since_unix_s`: when the present answer was first given, where that is known.
#[must_use]
pub fn process_state(state: &ProgramView, since_unix_s: Option<f64>) -> ProcessState {
    let decision = &state.decision;
    let candidate = decision.candidate.clone();
    let because =
        || decision.evidence.first().map_or_else(|| decision.reason.sentence(), |one| one.value.as_str());
    match decision.reason {
        Reason::Excluded => ProcessState::Excluded,
        _ if state.is_left_alone() => ProcessState::LeftAlone { why: because().to_owned() },
        Reason::Pinned | Reason::PinnedUnavailable => {
            ProcessState::Pinned { candidate: state.profile.pinned.clone().unwrap_or(candidate) }
        }
        Reason::PinnedQuarantined | Reason::Quarantined => {
            ProcessState::Quarantined { candidate: quarantined(state), instead: candidate }
        }
        Reason::NoCandidate => ProcessState::LeftAlone { why: because().to_owned() },
        Reason::OwnMalloc
        | Reason::AllocatorInterface
        | Reason::Sanitizer
        | Reason::OwnFilter
        | Reason::StoodAside => ProcessState::LeftAlone { why: decision.reason.sentence().to_owned() },
        _ if state.settled().is_some() => ProcessState::Settled { candidate, since_unix_s },
        Reason::NoData if state.next.trial().is_none() && state.under_way.is_none() => ProcessState::Unknown,
        _ => ProcessState::Testing { trials: trials_made(state), next: candidate },
    }
}

/// Stored trials; other starts, in which nothing was counted, are none.
fn trials_made(state: &ProgramView) -> usize {
    state.known.records.iter().filter(|record| record.sample.kind == PageKind::Trial).count()
}

/// The pinned candidate, else the first that is quarantined.
fn quarantined(state: &ProgramView) -> String {
    let first = state.profile.candidates.iter().find(|view| view.quarantine.is_some());
    let pinned = state.profile.pinned.clone();
    pinned.or_else(|| first.map(|view| view.name.clone())).unwrap_or_else(|| SYSTEM.to_owned())
}

// Executables that IMAS cannot serve, among the ones that no store knows.

/// Files that are remembered: a path has up to 4 KiB, and anybody may execute ever new ones.
const MOST: usize = 4096;

/// Why nothing may be preloaded into a file, by its path; None for a file that can be served.
#[derive(Debug, Default)]
pub(crate) struct UnfitFiles(HashMap<PathBuf, Option<String>>);

impl UnfitFiles {
    /// Whether the file was not read yet.
    pub(crate) fn lacks(&self, path: &Path) -> bool {
        !self.0.contains_key(path)
    }

    /// Reads the file, which a process of the user runs. What is replaced later is not read again: its processes go on
    /// with the old file.
    pub(crate) fn read(&mut self, path: &Path, uid: u32) {
        let why = inspect::of_user(path, uid).ok().and_then(|facts| unfit_reason(&facts));
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(path.to_owned(), why);
    }

    /// The state of a process of that file.
    pub(crate) fn state(&self, path: &Path) -> ProcessState {
        match self.0.get(path).cloned().flatten() {
            Some(why) => ProcessState::LeftAlone { why },
            None => ProcessState::Unknown,
        }
    }
}

/// A store that is followed. It is opened again where its file is another one.
#[derive(Debug)]
pub struct FollowedStore {
    path: PathBuf,
    store: Option<Store>,
    /// Number by which SQLite counts changes of others, and the identity of the file.
    seen: Option<(i64, u64)>,
    problem: Option<StoreError>,
}

impl FollowedStore {
    /// The store in that file, which is not opened yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, store: None, seen: None, problem: None }
    }

    /// The store as the last look found it; None where it could not be read.
    #[must_use]
    pub fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// Why the last look could not read the store.
    #[must_use]
    pub fn problem(&self) -> Option<&StoreError> {
        self.problem.as_ref()
    }

    /// Whether another process has written to the store since the last look, or the file is another one. A store
    /// that cannot be read is opened again at the next look.
    pub fn look(&mut self) -> bool {
        let (seen, problem) = match self.changes() {
            Ok(seen) => (Some(seen), None),
            Err(error) => (None, Some(error)),
        };
        if problem.is_some() {
            self.store = None;
        }
        self.problem = problem;
        std::mem::replace(&mut self.seen, seen) != seen
    }

    fn changes(&mut self) -> Result<(i64, u64), StoreError> {
        let inode = std::fs::metadata(&self.path).map_or(0, |about| about.ino());
        let is_other = self.seen.is_some_and(|(_, before)| before != inode);
        let store = match self.store.take().filter(|_| !is_other) {
            Some(store) => store,
            None => Store::open_read_only(&self.path)?,
        };
        Ok((self.store.insert(store).foreign_changes()?, inode))
    }
}

// Results about programs, kept until something about a program is stored.

/// A program is worked out anew after this time although nothing was stored: trials grow old, and the machine's
/// pressure changes what is decided.
pub const LASTS: Duration = Duration::from_secs(300);

/// Values that were worked out, one for each program.
#[derive(Debug)]
pub struct ProgramCache<T>(HashMap<RowId, Kept<T>>);

#[derive(Debug)]
struct Kept<T> {
    revision: ProgramRevision,
    /// When the value was worked out; None where it is to be worked out anew.
    made: Option<Instant>,
    value: T,
}

impl<T> Default for ProgramCache<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T> ProgramCache<T> {
    /// The value of the program, whether it is up to date or not.
    #[must_use]
    pub fn get(&self, program: RowId) -> Option<&T> {
        self.0.get(&program).map(|kept| &kept.value)
    }

    /// Whether the program has to be worked out.
    #[must_use]
    pub fn is_stale(&self, store: &Store, program: RowId) -> bool {
        self.0.get(&program).is_none_or(|kept| {
            kept.made.is_none_or(|made| made.elapsed() > LASTS)
                || store.revision(program).map_or(true, |now| now != kept.revision)
        })
    }

    /// Works the program out: `make` turns its state into the value, given what was kept before.
    ///
    /// # Errors
    /// When the store or /proc cannot be read.
    pub fn work_out(
        &mut self,
        (context, store): (&Context, &Store),
        program: &StoredProgram,
        is_usable: &dyn Fn(&CatalogueCandidate) -> bool,
        make: impl FnOnce(ProgramView, Option<&T>) -> Result<T>,
    ) -> Result<()> {
        // Before the state is read: what is stored meanwhile is seen at the next look.
        let revision = store.revision(program.id)?;
        let state = state_where((context, store), program.clone(), &RulesArgs::of_environment(), is_usable)?;
        let value = make(state, self.get(program.id))?;
        self.0.insert(program.id, Kept { revision, made: Some(Instant::now()), value });
        Ok(())
    }

    /// Has every program worked out anew. Until then its value stays.
    pub fn expire(&mut self) {
        self.0.values_mut().for_each(|kept| kept.made = None);
    }

    /// Keeps what is known of these programs alone.
    pub fn keep(&mut self, is_kept: impl Fn(RowId) -> bool) {
        self.0.retain(|program, _| is_kept(*program));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_another_file_and_a_missing_one_are_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("imas.db");
        let mut followed = FollowedStore::new(path.clone());
        assert!(!followed.look() && followed.problem().is_some());
        let other = Store::open(&path).unwrap();
        assert!(followed.look() && followed.problem().is_none() && !followed.look());
        other.program("/bin/x", "").unwrap();
        assert!(followed.look() && !followed.look());
        drop(other);
        std::fs::remove_file(&path).unwrap();
        assert!(followed.look() && followed.store().is_none());
        Store::open(&path).unwrap();
        assert!(followed.look() && followed.store().is_some());
    }
}
