// SPDX-License-Identifier: Apache-2.0
//! The main loop, and all that it turns around.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};
use imas_linux::clock::now_unix_s;
use imas_store::Store;
use imas_store::daemon::Disabled;

use crate::backlog::{BETWEEN_TURNS, Backlog};
use crate::book::Book;
use crate::census::{Census, Worth};
use crate::cli::Options;
use crate::config::Config;
use crate::connector::{Connector, Deed};
use crate::counters::{Counters, Status};
use crate::departed::Departed;
use crate::doubt::Doubt;
use crate::emergency::EMERGENCY;
use crate::exclusions::Exclusions;
use crate::folders::{Folders, PageName};
use crate::harm::Failures;
use crate::ineligible::Ineligible;
use crate::installation::Installation;
use crate::notify;
use crate::owners::Owners;
use crate::publish::Publisher;
use crate::sight::{Identity, Sight};
use crate::trouble::open_store;
use crate::wakeup::{Wakeup, Woken};
use crate::watched::Watched;

/// Two publications are at least so far apart.
const BETWEEN_PUBLICATIONS: Duration = Duration::from_secs(1);
/// Conditions, the operator's wishes and waits that end are looked at so often.
const LOOK_AROUND: Duration = Duration::from_secs(5);
/// New processes are searched for so often where the kernel does not tell.
const SEARCH: Duration = Duration::from_secs(2);
/// Process events are read at most so often.
const READ_DEEDS: Duration = Duration::from_millis(250);
/// What the store refused is tried again after this time.
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// A processor load that differs by less, in hundredths, decides nothing anew.
const LOAD_STEP: f64 = 10.0;
/// The same for the weight of CPU against memory.
const WEIGHT_STEP: f64 = 0.05;
/// The same for available memory, as a fraction.
const MEMORY_STEP: f64 = 0.1;

/// The daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) options: Options,
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) installation: Option<Installation>,
    pub(crate) exclusions: Exclusions,
    pub(crate) owners: Owners,
    pub(crate) book: Book,
    pub(crate) folders: Folders,
    pub(crate) watched: Watched,
    pub(crate) departed: Departed,
    /// Pages whose process could not be seen yet.
    pub(crate) doubtful: Vec<Doubt>,
    /// Pages whose process has ended, as long as the kernel has not told how.
    pub(crate) untold: Vec<Doubt>,
    /// Pages of trials that are stored, and that the index may still offer.
    pub(crate) spent: Vec<PageName>,
    /// Pages that were written and are not worked on yet.
    pub(crate) backlog: Backlog,
    /// How many of them wait with a process that was seen.
    pub(crate) glimpsed: usize,
    /// The process that was seen behind the page that is worked on.
    pub(crate) glimpses: HashMap<Identity, Sight>,
    pub(crate) wakeup: Wakeup,
    pub(crate) counters: Counters,
    pub(crate) ineligible: Ineligible,
    pub(crate) disabled: Vec<Disabled>,
    /// Until when what an allocator did is forgiven, Unix time.
    pub(crate) forgiven: BTreeMap<String, f64>,
    pub(crate) failures: Failures,
    pub(crate) conditions: Conditions,
    pub(crate) boot_id: String,
    /// The kernel's events came faster than they were read: everything is to be looked for.
    events_lost: bool,
    /// Something was decided that the index does not say yet.
    pub(crate) dirty: bool,
    pub(crate) state: PathBuf,
    /// Keeps others like us out.
    _lock: Option<File>,
    census: Census,
    connector: Option<Connector>,
    publisher: Publisher,
    pub(crate) emergency: Option<String>,
    /// Its file stands, so that its absence says that root has ended it.
    pub(crate) emergency_told: bool,
    /// Something is to be tried again.
    pub(crate) store_trouble: bool,
    /// That was said: it is said once, however often it is tried.
    pub(crate) trouble_told: bool,
    store_changes: i64,
    told: Option<Counters>,
    pub(crate) times: Times,
}

/// What happened last when.
#[derive(Debug)]
pub(crate) struct Times {
    published: Option<Instant>,
    looked: Instant,
    searched: Instant,
    deeds: Instant,
    pub(crate) tried: Instant,
    alive: Instant,
    told: Instant,
}

impl Daemon {
    /// Opens everything; nothing is changed yet but folders made.
    pub(crate) fn new(options: Options) -> Result<Self> {
        let now = Instant::now();
        let state = options.run_dir.join("state");
        make_folders(&options, &state)?;
        let lock = lock(&state)?;
        let wakeup = Wakeup::new()?;
        let config = Config::read(&options.config)?;
        let store = open_store(&options)?;
        // Before anything else is read of it: what others write from here on is a change.
        let store_changes = store.foreign_changes()?;
        let folders =
            Folders::open(&state, !options.user).with_context(|| state.join("u").display().to_string())?;
        wakeup.add_folders(folders.events())?;
        let connector = if options.poll || options.once { None } else { connector() };
        if let Some(connector) = &connector {
            wakeup.add_connector(connector)?;
        }
        let boot_id = imas_linux::boot::of_programs(&options.run_dir).context("/proc")?;
        let emergency = std::fs::read_to_string(state.join(EMERGENCY)).ok();
        if let Some(why) = &emergency {
            tracing::error!("everything stands aside since an emergency: {why}; undo: imas system enable");
        }
        Ok(Self {
            census: Census::new(worth(&config)),
            installation: None,
            exclusions: Exclusions::read()?,
            owners: Owners::read(Path::new("/etc")),
            book: Book::default(),
            watched: Watched::default(),
            departed: Departed::default(),
            doubtful: Vec::new(),
            untold: Vec::new(),
            spent: Vec::new(),
            backlog: Backlog::default(),
            glimpsed: 0,
            glimpses: HashMap::new(),
            counters: Counters::default(),
            ineligible: Ineligible::default(),
            disabled: store.disabled()?,
            forgiven: store.forgiven()?,
            failures: Failures::default(),
            conditions: conditions(None).context("the machine's load and memory")?,
            events_lost: false,
            dirty: true,
            publisher: Publisher::new(&state, boot_id.clone()),
            store_trouble: false,
            trouble_told: false,
            store_changes,
            told: None,
            times: Times {
                published: None,
                looked: now,
                searched: now.checked_sub(SEARCH).unwrap_or(now),
                deeds: now,
                tried: now,
                alive: now,
                told: now,
            },
            options,
            config,
            store,
            folders,
            wakeup,
            boot_id,
            state,
            _lock: lock,
            connector,
            emergency_told: emergency.is_some(),
            emergency,
        })
    }

    /// Works until it is told to end.
    pub(crate) fn run(mut self) -> Result<()> {
        self.read_installation();
        self.shorten_names();
        self.load_book()?;
        self.resume_witnesses();
        self.judge_all();
        self.look_at_all_pages();
        self.census.search(Instant::now());
        self.publish();
        self.tell_status();
        notify::ready();
        tracing::info!(
            EVENTS = self.events(),
            "serving {} programs below {}",
            self.book.len(),
            self.options.run_dir.display()
        );
        while !self.options.once {
            let woken = self.wakeup.wait(Some(self.next()))?;
            self.turn(&woken);
            if woken.stop {
                break;
            }
        }
        notify::stopping();
        self.publish();
        self.tell_status();
        tracing::info!("ended");
        Ok(())
    }

    /// One turn of the loop. The kernel's word on how processes ended comes first, so that pages are read in its light.
    fn turn(&mut self, woken: &Woken) {
        let now = Instant::now();
        self.read_deeds(now, woken.deeds);
        self.read_news();
        self.look_again(now);
        for page in &woken.ended {
            self.process_ended(page);
        }
        if woken.reload {
            self.reload();
        }
        for life in self.census.ripe(now) {
            if !self.take_in(life.identity) {
                self.census.note_again(&life, now);
            }
        }
        self.periodic(now);
        if self.dirty && self.times.published.is_none_or(|at| now.duration_since(at) >= BETWEEN_PUBLICATIONS)
        {
            self.publish();
        }
        if self.has_news() && now.duration_since(self.times.told) >= BETWEEN_PUBLICATIONS {
            self.tell_status();
        }
    }

    fn has_news(&self) -> bool {
        self.told.as_ref() != Some(&self.counters)
    }

    fn read_deeds(&mut self, now: Instant, woken: bool) {
        let Some(connector) = &mut self.connector else { return };
        let rested = now.duration_since(self.times.deeds) >= READ_DEEDS;
        let read = connector.read();
        if woken || rested {
            // Let them gather for a while before they wake us again.
            self.wakeup.listen_to_connector(&*connector, !woken);
            self.times.deeds = now;
        }
        for deed in read.deeds {
            match deed {
                Deed::Exec { pid, at_ns } => {
                    self.census.note(pid, now);
                    self.note_exec(pid, at_ns);
                }
                Deed::Exit { pid, signal } => self.note_signal(pid, signal),
            }
        }
        if read.lost {
            self.counters.events_lost += 1;
            self.events_lost = true;
        }
    }

    fn periodic(&mut self, now: Instant) {
        let must_search = self.connector.is_none() || self.events_lost;
        if must_search && now.duration_since(self.times.searched) >= SEARCH {
            (self.times.searched, self.events_lost) = (now, false);
            self.census.search(now);
            self.look_for_execs();
        }
        if now.duration_since(self.times.looked) >= LOOK_AROUND {
            self.times.looked = now;
            self.look_around();
            self.tell_status();
        }
        if self.store_trouble && now.duration_since(self.times.tried) >= TRY_AGAIN {
            self.times.tried = now;
            self.try_again();
        }
        if let Some(interval) = notify::watchdog_interval()
            && now.duration_since(self.times.alive) >= interval
        {
            self.times.alive = now;
            notify::alive();
        }
    }

    /// When to wake if nothing happens.
    fn next(&self) -> Instant {
        let mut next = self.times.looked + LOOK_AROUND;
        let mut sooner = |at: Option<Instant>| next = at.map_or(next, |at| next.min(at));
        sooner(self.census.next());
        sooner(self.doubtful.iter().chain(&self.untold).map(|doubt| doubt.next).min());
        let must_search = self.connector.is_none() || self.events_lost;
        sooner(must_search.then(|| self.times.searched + SEARCH));
        sooner((!self.backlog.is_empty()).then(|| Instant::now() + BETWEEN_TURNS));
        sooner(
            self.connector.is_some().then(|| self.times.deeds + READ_DEEDS).filter(|at| *at > Instant::now()),
        );
        let published = self.times.published;
        sooner(published.filter(|_| self.dirty).map(|at| at + BETWEEN_PUBLICATIONS));
        sooner(self.has_news().then(|| self.times.told + BETWEEN_PUBLICATIONS));
        sooner(self.store_trouble.then(|| self.times.tried + TRY_AGAIN));
        sooner(notify::watchdog_interval().map(|interval| self.times.alive + interval));
        next
    }

    /// What changes by itself: the machine's load and memory, waits that end, what the operator wishes, what root approved.
    fn look_around(&mut self) {
        match self.store.foreign_changes() {
            Ok(changes) if changes != self.store_changes => {
                self.store_changes = changes;
                self.read_wishes();
            }
            Ok(_) => {}
            Err(error) => self.store_refused(&error),
        }
        let outdated = self.installation.as_ref().is_none_or(|it| it.is_outdated(&self.options.run_dir));
        if outdated {
            self.read_installation();
            self.judge_all();
        }
        self.look_at_emergency();
        self.owners.refresh();
        self.sweep();
        self.close_spans(Instant::now());
        self.look_at_the_standing();
        let now_s = now_unix_s();
        let due = self.book.all().filter(|known| known.look_again_s.is_some_and(|at_s| at_s <= now_s));
        let due: Vec<_> = due.map(|known| known.program.id).collect();
        due.into_iter().for_each(|id| self.judge(id));
        if let Ok(conditions) = conditions(Some(&self.conditions))
            && differ(&self.conditions, &conditions)
        {
            self.conditions = conditions;
            self.decide_all();
        }
    }

    fn decide_all(&mut self) {
        for id in self.book.ids() {
            if let Err(error) = self.decide(id) {
                tracing::warn!(PROGRAM_ID = id, "no decision could be stored: {error:#}");
            }
        }
    }

    fn read_wishes(&mut self) {
        let read = self.store.disabled().and_then(|disabled| Ok((disabled, self.store.forgiven()?)));
        match read {
            Ok((disabled, forgiven)) => (self.disabled, self.forgiven) = (disabled, forgiven),
            Err(error) => self.store_refused(&error),
        }
        if let Err(error) = self.load_book() {
            tracing::warn!("the store could not be read again: {error:#}");
        }
    }

    fn read_installation(&mut self) {
        self.read_boot_id();
        let options = &self.options;
        let own = options.user.then_some(options.lib_dir.as_deref()).flatten();
        if let Some(Err(error)) = own.map(|lib_dir| Installation::write_own(&options.run_dir, lib_dir)) {
            tracing::warn!("the catalogue of this tree could not be written: {error:#}");
        }
        match Installation::read(&options.run_dir, options.lib_dir.as_deref()) {
            Ok(installation) => {
                self.installation = Some(installation);
                self.dirty = true;
            }
            Err(error) if self.installation.is_none() => {
                tracing::debug!("nothing is published until root has approved a catalogue: {error:#}");
            }
            Err(error) => {
                tracing::warn!("the approved catalogue cannot be read; the last one stays: {error:#}")
            }
        }
    }

    /// Root may have written it down after our start.
    fn read_boot_id(&mut self) {
        let Ok(boot_id) = imas_linux::boot::of_programs(&self.options.run_dir) else { return };
        if boot_id != self.boot_id {
            tracing::info!("programs see boot {boot_id}, not {}: the index goes by theirs", self.boot_id);
            self.publisher.of_boot(&boot_id);
            self.boot_id = boot_id;
            self.dirty = true;
        }
    }

    fn reload(&mut self) {
        notify::reloading();
        match Config::read(&self.options.config).and_then(|config| Ok((config, Exclusions::read()?))) {
            Ok((config, exclusions)) => {
                self.census.set_worth(worth(&config));
                (self.config, self.exclusions) = (config, exclusions);
                tracing::info!("configuration and exclusions were read again");
            }
            Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        }
        self.ineligible.clear();
        self.read_installation();
        self.read_wishes();
        self.census.search(Instant::now());
        self.publisher.forget();
        self.dirty = true;
        notify::ready();
    }

    pub(crate) fn publish(&mut self) {
        let Some(installation) = &self.installation else { return };
        let disabled = self.emergency.is_some();
        self.times.published = Some(Instant::now());
        match self.publisher.publish(&self.state, &self.book, &installation.table, disabled) {
            Ok(changed) => {
                self.counters.published += u64::from(changed);
                self.dirty = false;
                self.remove_spent();
            }
            // It stays to be done; the last good index stays too.
            Err(error) => self.trouble(&format!("{error:#}")),
        }
    }

    /// This turn's publication does not wait for the one before to grow old.
    pub(crate) fn publish_soon(&mut self) {
        self.times.published = None;
    }

    /// Whether it tells us of ends of processes.
    pub(crate) fn hears_the_kernel(&self) -> bool {
        self.connector.is_some()
    }

    fn events(&self) -> &'static str {
        if self.hears_the_kernel() { "kernel" } else { "polling" }
    }

    /// Writes the file that `imas status` reads, if it would say anything new.
    fn tell_status(&mut self) {
        self.counters.processes_overlooked = self.census.overlooked;
        if !self.has_news() {
            return;
        }
        self.times.told = Instant::now();
        let trials = self.watched.trials();
        let me = std::process::id();
        let config = std::path::absolute(&self.options.config).unwrap_or_default();
        let status = Status {
            schema: 1,
            pid: me,
            start_ticks: imas_linux::process::start_ticks(me).unwrap_or(0),
            version: env!("CARGO_PKG_VERSION"),
            store: &self.options.store.to_string_lossy(),
            config: &config.to_string_lossy(),
            retest_s: self.options.retest,
            events: self.events(),
            programs: self.book.len(),
            trials_offered: self
                .book
                .all()
                .filter(|known| known.offer.is_some() && known.taken_by.is_none())
                .count(),
            trials_running: trials,
            flights_watched: self.watched.watches.len() - trials,
            emergency: self.emergency.as_deref(),
            ineligible: self.ineligible.len(),
            counters: &self.counters,
        };
        let path = self.state.join("status.json");
        let beside = self.state.join("status.json.new");
        let written = serde_json::to_vec(&status).map_err(std::io::Error::from);
        let written = written.and_then(|text| std::fs::write(&beside, text));
        if written.and_then(|()| std::fs::rename(&beside, &path)).is_ok() {
            self.told = Some(self.counters.clone());
        }
        if let Err(error) = self.ineligible.write(&self.state) {
            tracing::debug!("what is left alone could not be written down: {error}"); // the count was
        }
    }
}

fn worth(config: &Config) -> Worth {
    Worth { cpu_s: config.worth_cpu_s, life_s: config.worth_life_s }
}

fn make_folders(options: &Options, state: &Path) -> Result<()> {
    if options.user && options.lib_dir.is_none() {
        bail!("--user needs --lib-dir: nobody else approves a catalogue for this tree");
    }
    std::fs::create_dir_all(state).with_context(|| state.display().to_string())
}

/// Of two that serve one place each would take the other's trials for forged. Where the file system has no locks, there is none.
fn lock(state: &Path) -> Result<Option<File>> {
    let folder = File::open(state).with_context(|| state.display().to_string())?;
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => bail!("{}: another imasd serves here", state.display()),
        Err(TryLockError::Error(error)) => {
            tracing::warn!("{}: no lock, so another imasd may serve here too: {error}", state.display());
            Ok(None)
        }
    }
}

fn connector() -> Option<Connector> {
    let opened = Connector::open();
    match opened {
        Ok(mut connector) => connector.is_confirmed().then_some(connector),
        Err(error) => {
            tracing::info!("the kernel does not tell of new processes ({error}); /proc is searched instead");
            None
        }
    }
}

/// The machine's state, with the weight that was in force.
fn conditions(before: Option<&Conditions>) -> Result<Conditions> {
    let weight_before = before.map(|before| weight(before, Objective::Auto).w);
    Ok(Conditions { weight_before, ..imas_linux::conditions::now()? })
}

/// Whether conditions differ enough to decide anew.
fn differ(before: &Conditions, now: &Conditions) -> bool {
    let load = |conditions: &Conditions| conditions.load5 * 100.0 / f64::from(conditions.cpus.max(1));
    let memory = |conditions: &Conditions| conditions.mem_available_bytes as f64;
    let moved = (memory(now) - memory(before)).abs() / memory(before).max(1.0);
    let leaned = (weight(now, Objective::Auto).w - weight(before, Objective::Auto).w).abs();
    leaned >= WEIGHT_STEP
        || (load(now) - load(before)).abs() >= LOAD_STEP
        || moved >= MEMORY_STEP
        || now.cpus != before.cpus
}
