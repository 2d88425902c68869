// SPDX-License-Identifier: Apache-2.0
//! Keeps what is known up to date, in a thread of its own: a request reads what is ready.
//!
//! The store is opened for reading alone. Only programs whose revision has changed are computed anew, and all
//! of them every few minutes, because trials grow old and the machine's load changes what is decided.
//!
//! The running processes, looked at when somebody asks for them, and not more often than every two seconds.
//!
//! The state that pages and metrics show: of the store, its programs, imasd and the machine at one moment.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use imas_core::decision::Conditions;
use imas_engine::context::Context;
use imas_engine::daemon_status::{self, DaemonStatus};
use imas_engine::flags::Places;
use imas_engine::live::ProcessObserver;
use imas_engine::live::program_source::{self, FollowedStore, ProgramCache};
use imas_engine::live::snapshot::LiveSnapshot;
use imas_engine::program_view::ProgramView;
use imas_linux::catalogue::CatalogueCandidate;
use imas_linux::host::now_unix_s;
use imas_report::html::ProgramSection;
use imas_store::daemon::Disabled;
use imas_store::samples::StoredProgram;
use imas_store::{RowId, Store};
use serde::Serialize;
use tokio::sync::{Semaphore, watch};

use crate::line::ProgramLine;

/// How often it is looked whether anything has changed.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is looked which candidates can be used here: it takes processes for each, and on a busy
/// machine half a minute.
const USABLE: Duration = Duration::from_secs(3600);

/// Which candidates can be used here, by name.
pub(crate) type Usable = Arc<HashMap<String, bool>>;

/// Where the newest state is.
#[derive(Debug)]
pub(crate) struct Keeper {
    known: watch::Receiver<Option<Arc<ServedState>>>,
    usable: watch::Receiver<Usable>,
}

impl Keeper {
    /// Begins to keep the state.
    ///
    /// `checking` is the same installation, for the thread that finds out which candidates can be used.
    pub(crate) fn start(context: Context, checking: Context, run_dir: &Path) -> anyhow::Result<Self> {
        let (sender, known) = watch::channel(None);
        let usable = check_usable(checking)?;
        let of_reader = usable.clone();
        let run_dir = run_dir.to_owned();
        let work = move || {
            let mut reader = Reader::new(context, run_dir, of_reader);
            while !sender.is_closed() {
                if let Some(known) = reader.look() {
                    sender.send_replace(Some(Arc::new(known)));
                }
                std::thread::sleep(LOOK);
            }
        };
        std::thread::Builder::new().name("keeper".to_owned()).spawn(work)?;
        Ok(Self { known, usable })
    }

    /// The newest state; the first one is waited for.
    pub(crate) async fn known(&self) -> Option<Arc<ServedState>> {
        self.known.clone().wait_for(Option::is_some).await.ok()?.clone()
    }

    /// A receiver that is notified of every new state.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<ServedState>>> {
        self.known.clone()
    }

    /// Which candidates can be used here, as far as it is known.
    pub(crate) fn usable(&self) -> Usable {
        Arc::clone(&self.usable.borrow())
    }
}

/// Finds out again and again which candidates can be used. Until the first answer, those that were built
/// count as usable.
fn check_usable(context: Context) -> anyhow::Result<watch::Receiver<Usable>> {
    let built = |candidate: &CatalogueCandidate| {
        let is_there = candidate.library.as_ref().is_none_or(|library| library.is_file());
        (candidate.name.clone(), is_there && imas_linux::catalogue::withheld(candidate).is_none())
    };
    let (sender, receiver) = watch::channel(Arc::new(context.catalogue.all().map(built).collect()));
    let work = move || {
        while !sender.is_closed() {
            let store = Store::open_read_only(&context.store_path).ok();
            let of = |candidate: &CatalogueCandidate| {
                (candidate.name.clone(), context.obstacle(candidate, store.as_ref()).is_none())
            };
            let usable: HashMap<String, bool> = context.catalogue.all().map(of).collect();
            sender.send_if_modified(|before| {
                let is_other = **before != usable;
                *before = Arc::new(usable);
                is_other
            });
            std::thread::sleep(USABLE);
        }
    };
    std::thread::Builder::new().name("usable".to_owned()).spawn(work)?;
    Ok(receiver)
}

/// Reads what has changed, and keeps what was read before.
struct Reader {
    context: Context,
    run_dir: PathBuf,
    store: FollowedStore,
    usable: watch::Receiver<Usable>,
    cache: ProgramCache<Arc<ServedProgram>>,
    /// Programs in the order in which they became known.
    programs: Vec<Arc<ServedProgram>>,
    store_facts: StoreFacts,
    daemon: Option<DaemonFacts>,
    computed: Option<Instant>,
    generation: u64,
}

impl Reader {
    fn new(context: Context, run_dir: PathBuf, usable: watch::Receiver<Usable>) -> Self {
        Self {
            store: FollowedStore::new(context.store_path.clone()),
            context,
            run_dir,
            usable,
            cache: ProgramCache::default(),
            programs: vec![],
            store_facts: StoreFacts::default(),
            daemon: None,
            computed: None,
            generation: 0,
        }
    }

    /// The state, if it is another one than the last time.
    fn look(&mut self) -> Option<ServedState> {
        let daemon = daemon(&self.run_dir);
        let daemon_changed = self.daemon.as_ref().is_none_or(|before| is_other(before, &daemon));
        self.daemon = Some(daemon.clone());
        let is_due = self.computed.is_none_or(|at| at.elapsed() > program_source::LASTS)
            || self.usable.has_changed().unwrap_or(false);
        let store_changed = self.store.look();
        if !(is_due || store_changed || daemon_changed) {
            return None;
        }
        // imasd decides by the machine alone, whatever group we are in.
        let conditions = match self.context.of_the_system {
            true => imas_linux::host::conditions().unwrap_or_default(),
            false => imas_engine::decide::conditions().unwrap_or_default(),
        };
        if is_due || store_changed {
            self.read(&conditions, is_due);
        }
        self.generation += 1;
        Some(ServedState {
            generation: self.generation,
            made_unix_s: now_unix_s(),
            programs: self.programs.clone(),
            store: self.store_facts.clone(),
            daemon,
            conditions,
        })
    }

    /// Computes what is due.
    fn read(&mut self, conditions: &Conditions, everything: bool) {
        if everything {
            self.computed = Some(Instant::now());
            self.cache.expire();
        }
        self.store_facts = store_facts(&self.context, self.store.store());
        if let Err(error) = self.read_programs(conditions) {
            self.store_facts.obstacle = Some(format!("{error:#}"));
        }
    }

    fn read_programs(&mut self, conditions: &Conditions) -> anyhow::Result<()> {
        // Also without a store, or every look would count as due.
        let usable = Arc::clone(&self.usable.borrow_and_update());
        let Some(store) = self.store.store() else {
            self.programs.clear();
            return Ok(());
        };
        let programs: BTreeMap<RowId, StoredProgram> =
            store.programs()?.into_iter().map(|program| (program.id, program)).collect();
        // A program that cannot be read hides no other.
        let mut read = Ok(());
        for (id, program) in &programs {
            if self.cache.is_stale(store, *id) {
                let make = |state, _: Option<&_>| served(store, state, conditions);
                let can_be_used = |one: &CatalogueCandidate| is_usable(&usable, one);
                let done = self.cache.work_out((&self.context, store), program, &can_be_used, make);
                if read.is_ok() {
                    read = done.with_context(|| program.to_string());
                }
            }
        }
        self.cache.keep(|id| programs.contains_key(&id));
        self.programs = programs.keys().filter_map(|id| self.cache.get(*id).cloned()).collect();
        read
    }
}

/// Whether the candidate can be used here.
pub(crate) fn is_usable(usable: &HashMap<String, bool>, candidate: &CatalogueCandidate) -> bool {
    usable.get(&candidate.name).copied().unwrap_or(false)
}

/// A program as it is kept: without the histograms of its trials.
fn served(
    store: &Store,
    mut state: ProgramView,
    conditions: &Conditions,
) -> anyhow::Result<Arc<ServedProgram>> {
    let decided_unix_s = store.latest(state.known.program.id)?.map(|decided| decided.at_s);
    let line = ProgramLine::of(&state, conditions, decided_unix_s);
    for record in &mut state.known.records {
        let sample = &mut record.sample;
        for operation in [&mut sample.malloc, &mut sample.realloc, &mut sample.memalign, &mut sample.free] {
            operation.histogram_ticks = vec![];
        }
        sample.size_histogram = vec![];
    }
    Ok(Arc::new(ServedProgram { line, state }))
}

fn store_facts(context: &Context, store: Option<&Store>) -> StoreFacts {
    let path = &context.store_path;
    let with = |ending: &str| {
        let mut name = path.clone().into_os_string();
        name.push(ending);
        std::fs::metadata(name).map_or(0, |about| about.len())
    };
    let pages = imas_linux::page::list(&context.page_place()).map_or(0, |pages| pages.len());
    let offers = store.and_then(|store| store.offers().ok()).map_or(0, |offers| offers.len());
    let witnesses = store.and_then(|store| store.witnesses().ok()).map_or(0, |witnesses| witnesses.len());
    let obstacle = store.is_none().then(|| match path.exists() {
        true => "it cannot be read: another user's, or of another version".to_owned(),
        false => {
            "there is none yet: start a program with 'imas run -- PROGRAM', or enable the machine".to_owned()
        }
    });
    StoreFacts {
        path: path.display().to_string(),
        bytes: with("") + with("-wal"),
        obstacle,
        disabled: store.and_then(|store| store.disabled().ok()).unwrap_or_default(),
        queue: [offers, witnesses, pages],
    }
}

fn daemon(run_dir: &Path) -> DaemonFacts {
    let status = DaemonStatus::read(run_dir);
    let cost = status.as_ref().and_then(cost);
    DaemonFacts {
        ineffective: daemon_status::ineffective(run_dir),
        cpu_s: cost.map(|(cpu_s, _)| cpu_s),
        resident_bytes: cost.map(|(_, bytes)| bytes),
        status,
    }
}

/// CPU seconds that imasd has used until now, and its resident memory in bytes.
pub(crate) fn cost(status: &DaemonStatus) -> Option<(f64, u64)> {
    let stat = imas_linux::process::stat(status.pid)?;
    let seconds = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Some((seconds, stat.rss * procfs::page_size()))
}

/// Whether anything but the daemon's own cost has changed.
fn is_other(before: &DaemonFacts, now: &DaemonFacts) -> bool {
    let without_looks = |facts: &DaemonFacts| {
        let mut status = facts.status.clone();
        if let Some(status) = &mut status {
            status.counters.looks = 0;
        }
        (status, facts.ineffective.clone())
    };
    without_looks(before) != without_looks(now)
}

/// Time to wait for the first state: a large store takes its time.
const FIRST_STATE_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of pages that may listen for changes.
const LISTENERS: usize = 32;

/// State that all requests share.
pub(super) struct Shared {
    pub(super) keeper: Keeper,
    /// The installation, for what a request computes itself.
    pub(super) context: Mutex<Context>,
    pub(super) live: Live,
    pub(super) suite: Suite,
    pub(super) listeners: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(keeper: Keeper, context: Context, live: Live, suite: Suite) -> Self {
        Self {
            keeper,
            context: Mutex::new(context),
            live,
            suite,
            listeners: Arc::new(Semaphore::new(LISTENERS)),
        }
    }

    /// The newest state; None if the first one takes too long.
    pub(super) async fn known(&self) -> Option<Arc<ServedState>> {
        tokio::time::timeout(FIRST_STATE_TIMEOUT, self.keeper.known()).await.ok().flatten()
    }
}

/// A look that is younger is shown again.
const YOUNG: Duration = Duration::from_secs(2);

/// Looks at the processes.
pub(super) struct Live(Mutex<Looks>);

struct Looks {
    observer: ProcessObserver,
    last: Option<(Instant, Arc<LiveSnapshot>)>,
}

impl Live {
    /// Live data at which nobody has looked yet.
    pub(super) fn new(places: &Places, run_dir: &Path) -> anyhow::Result<Self> {
        let observer = ProcessObserver::beside(places, run_dir)?;
        Ok(Self(Mutex::new(Looks { observer, last: None })))
    }

    /// The processes as they are now, or were two seconds ago.
    pub(super) fn now(&self) -> anyhow::Result<Arc<LiveSnapshot>> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, last)) = &looks.last
            && at.elapsed() < YOUNG
        {
            return Ok(Arc::clone(last));
        }
        let look = Arc::new(looks.observer.look()?);
        looks.last = Some((Instant::now(), Arc::clone(&look)));
        Ok(look)
    }
}

/// Where the runs are installed, below the folder of the libraries.
const PLACE: &str = "results/suite.jsonl.gz";

/// The runs, read when they are first asked for.
#[derive(Debug)]
pub(super) struct Suite {
    file: Option<PathBuf>,
    programs: OnceLock<Result<BTreeMap<String, ProgramSection>, String>>,
}

impl Suite {
    /// The suite of the file that was named, else of the installed file.
    pub(super) fn new(named: Option<PathBuf>, lib_dir: &Path) -> Self {
        let installed = || Some(lib_dir.join(PLACE)).filter(|file| file.is_file());
        Self { file: named.or_else(installed), programs: OnceLock::new() }
    }

    /// Whether there is anything to show.
    pub(super) fn is_there(&self) -> bool {
        self.file.is_some()
    }

    /// The programs by name, or why they cannot be read; None without a file.
    pub(super) fn programs(&self) -> Option<Result<&BTreeMap<String, ProgramSection>, &str>> {
        let file = self.file.as_ref()?;
        let read = self.programs.get_or_init(|| read(file).map_err(|error| format!("{error:#}")));
        Some(read.as_ref().map_err(String::as_str))
    }
}

fn read(file: &Path) -> anyhow::Result<BTreeMap<String, ProgramSection>> {
    let data = imas_runs::journal::read_data(&[file.to_owned()])?;
    let mut names: Vec<&str> = data.runs.iter().map(|run| run.program.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    Ok(names
        .into_iter()
        .map(|name| (name.to_owned(), imas_engine::section::runs_section(&data, name)))
        .collect())
}

/// The whole state. It is never changed: the next look makes another one.
#[derive(Debug)]
pub(super) struct ServedState {
    /// Number of the state. It grows when anything that is shown has changed.
    pub(super) generation: u64,
    /// When this state was made, Unix time in seconds.
    pub(super) made_unix_s: f64,
    /// Programs in the order in which they became known.
    pub(super) programs: Vec<Arc<ServedProgram>>,
    pub(super) store: StoreFacts,
    pub(super) daemon: DaemonFacts,
    pub(super) conditions: Conditions,
}

/// A program.
#[derive(Debug)]
pub(super) struct ServedProgram {
    pub(super) line: ProgramLine,
    /// State of the program, without the histograms of its trials.
    pub(super) state: ProgramView,
}

/// The store.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct StoreFacts {
    pub(super) path: String,
    /// Size of the store's files in bytes.
    pub(super) bytes: u64,
    /// Why the store cannot be read.
    pub(super) obstacle: Option<String>,
    /// Allocators that are given to nobody.
    pub(super) disabled: Vec<Disabled>,
    /// Trials on offer, processes whose pages are not processed, pages that wait to be collected.
    pub(super) queue: [usize; 3],
}

/// imasd.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct DaemonFacts {
    /// Status of imasd; None if imasd does not run.
    pub(super) status: Option<DaemonStatus>,
    /// Why no program goes by what imasd has published.
    pub(super) ineffective: Option<String>,
    /// CPU seconds that imasd has used.
    pub(super) cpu_s: Option<f64>,
    /// Resident memory of imasd in bytes.
    pub(super) resident_bytes: Option<u64>,
}

impl ServedState {
    /// The program of that number.
    pub(super) fn program(&self, id: RowId) -> Option<&Arc<ServedProgram>> {
        self.programs.iter().find(|program| program.line.id == id)
    }

    /// Programs to which the policy has given another allocator than `system`.
    pub(super) fn served(&self) -> impl Iterator<Item = &ProgramLine> {
        self.lines().filter(|line| line.candidate != imas_core::SYSTEM)
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &ProgramLine> {
        self.programs.iter().map(|program| &program.line)
    }
}
