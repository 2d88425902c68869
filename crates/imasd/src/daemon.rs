// SPDX-License-Identifier: Apache-2.0
//! The daemon: its parts, and the loop that gives each its turn.
//!
//! ```text
//! ProcessWatcher --process events--> Pipeline: PageTracker --page events--> Learner --learner events--> Publisher
//! ```
//! Each part owns its state. [`Pipeline`] passes the events on; the loop here waits for what wakes it.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use imas_engine::config::Exclusions;
use imas_engine::daemon_status::{ACCOUNTED, DaemonCounters, DaemonStatus, FleetState};
use imas_store::fleet::FleetMember;

use crate::config::{Config, Installation, Options, Settings};
use crate::fleet;
use crate::folders::ServedUsers;
use crate::harm::Emergency;
use crate::kept_store::KeptStore;
use crate::kernel_events::ExitAccounts;
use crate::learner::fleet::Membership;
use crate::learner::{Learner, LearnerParts};
use crate::lives::LifeTracker;
use crate::mailbox::Mailbox;
use crate::near_limits::NearLimits;
use crate::notify::{self, Reported, StatusFile};
use crate::pages::{PageTracker, Surroundings};
use crate::pipeline::{Pipeline, conditions};
use crate::process_info::{self, Identity};
use crate::process_watcher::{ProcessWatcher, Wakeup, Woken, Worth};
use crate::publish::Publisher;
use crate::trims::Trims;

/// How often conditions, the operator's overrides and ends of waits are checked.
const LOOK_AROUND: Duration = Duration::from_secs(5);

/// The parts.
#[derive(Debug)]
pub(crate) struct Daemon {
    options: Options,
    /// Keeps other daemons out of the folder.
    _lock: Option<File>,
    wakeup: Wakeup,
    processes: ProcessWatcher,
    /// Accounts of processes that end, or why there are none.
    accounts: Result<ExitAccounts, String>,
    users: Rc<ServedUsers>,
    pipeline: Pipeline,
    status: StatusFile,
    /// Mailbox of the fleet, where the host takes part in one.
    fleet: Option<Mailbox>,
    /// Reason why the host takes no part in a fleet, though it should.
    fleet_trouble: Option<String>,
    times: Times,
}

/// Times when the loop last did its periodic work.
#[derive(Debug)]
struct Times {
    looked: Instant,
    alive: Instant,
}

impl Daemon {
    /// Opens everything. Nothing is changed yet, except that folders are made.
    pub(crate) fn new(options: Options) -> Result<Self> {
        let now = Instant::now();
        let state = options.run_dir.join("state");
        make_folders(&options, &state)?;
        let lock = lock(&state)?;
        let wakeup = Wakeup::new()?;
        let config = Config::read(&options.config, !options.user)?;
        let store = KeptStore::open(&options.store)?;
        let processes = ProcessWatcher::new(worth(&config.own), options.poll || options.once, &wakeup)?;
        let lives = LifeTracker::new(config.own.sample_after_s).context("threads")?;
        let boot_id = imas_linux::host::boot_id_of_programs(&options.run_dir).context("/proc")?;
        let users = Rc::new(match options.user {
            true => ServedUsers::own_tree(&options.run_dir),
            false => ServedUsers::everybody(),
        });
        let owners = Rc::clone(&users);
        imas_linux::foreign_process::set_owners(move |uid| owners.number_of(uid));
        let reports_exits = processes.reports_exits();
        let accounts = accounts(reports_exits);
        let surroundings = Surroundings { users: Rc::clone(&users), reports_exits };
        let pages = PageTracker::new(&state, boot_id.clone(), config.own.clone(), surroundings)?;
        wakeup.add_folders(pages.written())?;
        wakeup.add_exits(pages.exits())?;
        let tree = options.user.then(|| options.run_dir.clone());
        let trims = Trims::new(config.own.trim.clone(), config.own.short_at, tree);
        let near_limits = NearLimits::new(config.own.note_near_limits, &state);
        let parts = LearnerParts {
            store,
            config,
            retest_s: options.retest,
            users: Rc::clone(&users),
            exclusions: Exclusions::read()?,
            conditions: conditions(None).context("the machine's load and memory")?,
        };
        let mut daemon = Self {
            status: StatusFile::new(&state),
            pipeline: Pipeline {
                emergency: Emergency::read(&state),
                learner: Learner::new(parts)?,
                lives,
                publisher: Publisher::new(&state, boot_id),
                pages,
                state,
                trims,
                near_limits,
            },
            times: Times { looked: now, alive: now },
            options,
            _lock: lock,
            wakeup,
            processes,
            accounts,
            users,
            fleet: None,
            fleet_trouble: None,
        };
        daemon.join_fleet();
        Ok(daemon)
    }

    /// Works until a signal ends it.
    pub(crate) fn run(mut self) -> Result<()> {
        self.read_installation();
        self.pipeline.resume(self.options.once)?;
        self.processes.search(Instant::now());
        self.fleet_turn(Instant::now(), false);
        self.pipeline.pass_on_events();
        self.pipeline.publish();
        self.write_status();
        notify::ready();
        tracing::info!(
            EVENTS = self.events(),
            "serving {} programs below {}",
            self.pipeline.learner.programs().len(),
            self.options.run_dir.display()
        );
        while !self.options.once {
            let woken = self.wakeup.wait(self.next())?;
            self.turn(&woken);
            if woken.stop {
                break;
            }
        }
        notify::stopping();
        self.pipeline.publish();
        self.write_status();
        tracing::info!("ended");
        Ok(())
    }

    /// One turn of the loop. Exit events of the kernel come first, because reading a page needs them.
    fn turn(&mut self, woken: &Woken) {
        let now = Instant::now();
        let exits = if woken.exits { self.pipeline.pages.take_exits() } else { vec![] };
        self.read_process_events(now, woken.process_events);
        // Read before the folders: a process asks for its account before it ends.
        let ended = self.accounts.as_mut().map(ExitAccounts::read).unwrap_or_default();
        self.pipeline.work_on_pages(exits, now);
        self.pipeline.pages.account(&ended);
        self.subscribe_if_asked();
        if woken.reload {
            self.reload();
        }
        self.take_in_ripe(now);
        self.periodic(now);
        self.pipeline.look_at_lives(now);
        self.pipeline.trims.turn(now);
        self.fleet_turn(now, woken.inbox);
        self.pipeline.pass_on_events();
        self.pipeline.publish_if_due(now);
        if self.status.is_due(&self.reported(), now) {
            self.write_status();
        }
    }

    /// Has the kernel send accounts as soon as somebody has asked for one.
    fn subscribe_if_asked(&mut self) {
        let Ok(accounts) = &mut self.accounts else { return };
        if !self.pipeline.pages.awaits_accounts() {
            return;
        }
        match accounts.subscribe() {
            Ok(()) => self.pipeline.pages.accounts_begin(),
            Err(error) => self.accounts = Err(error.to_string()),
        }
    }

    /// Time to wake if nothing happens.
    fn next(&self) -> Instant {
        let others = [
            self.processes.next(),
            self.pipeline.next(),
            self.status.next(&self.reported()),
            self.fleet.as_ref().and_then(Mailbox::next),
            notify::watchdog_interval().map(|interval| self.times.alive + interval),
        ];
        others.into_iter().flatten().fold(self.times.looked + LOOK_AROUND, Instant::min)
    }

    fn read_process_events(&mut self, now: Instant, woken: bool) {
        for event in self.processes.read(now, woken, &self.wakeup) {
            self.pipeline.process_event(event);
        }
    }

    /// Processes that have lived or worked long enough.
    fn take_in_ripe(&mut self, now: Instant) {
        for life in self.processes.ripe(now) {
            if !self.take_in(life.identity) {
                self.processes.name_again(&life, now);
            }
        }
    }

    /// Takes the program of the process in; whether the process could be seen: during an exec it
    /// cannot.
    fn take_in(&mut self, identity: Identity) -> bool {
        let Some(process) = process_info::look_by_helper(identity) else { return false };
        // Measurements of a container's process would decide for everybody.
        if self.users.serves(identity) && !self.users.is_foreign(&process) {
            self.pipeline.take_in(&process);
        }
        true
    }

    fn periodic(&mut self, now: Instant) {
        if self.processes.search_if_due(now) {
            self.pipeline.end_moved_on();
        }
        if now.duration_since(self.times.looked) >= LOOK_AROUND {
            self.times.looked = now;
            self.look_around();
            self.write_status();
        }
        self.pipeline.retry_if_due(now);
        if let Some(interval) = notify::watchdog_interval()
            && now.duration_since(self.times.alive) >= interval
        {
            self.times.alive = now;
            notify::alive();
        }
    }

    /// Looks at what changes by itself: the machine's load and memory, waits that end, the operator's
    /// overrides, what root approved.
    fn look_around(&mut self) {
        self.pipeline.learner.look_at_overrides();
        if self.pipeline.learner.is_installation_outdated(&self.options.run_dir) {
            self.read_installation();
            self.pipeline.learner.judge_all();
        }
        if self.pipeline.emergency.look() {
            self.pipeline.publisher.changed();
        }
        self.users.refresh();
        self.pipeline.look_around();
        if self.pipeline.learner.renew_environment() {
            self.pipeline.learner.judge_all();
        }
        if self.fleet_trouble.is_some() {
            self.join_fleet(); // a disk was full, perhaps
        }
        if let Some(fleet) = &mut self.fleet {
            fleet.look_around(&mut self.pipeline.learner);
        }
    }

    fn read_installation(&mut self) {
        self.read_boot_id();
        let options = &self.options;
        let own = options.user.then_some(options.lib_dir.as_deref()).flatten();
        if let Some(Err(error)) = own.map(|lib_dir| Installation::write_own(&options.run_dir, lib_dir)) {
            tracing::warn!("the catalogue of this tree could not be written: {error:#}");
        }
        self.pipeline
            .learner
            .set_installation(Installation::read(&options.run_dir, options.lib_dir.as_deref()));
    }

    /// Root may have written it down after our start.
    fn read_boot_id(&mut self) {
        let Ok(boot_id) = imas_linux::host::boot_id_of_programs(&self.options.run_dir) else { return };
        let before = self.pipeline.publisher.boot_id();
        if boot_id != before {
            tracing::info!("programs see boot {boot_id}, not {before}: the index goes by theirs");
            self.pipeline.set_boot_id(&boot_id);
        }
    }

    fn reload(&mut self) {
        notify::reloading();
        match Config::read(&self.options.config, !self.options.user)
            .and_then(|config| Ok((config, Exclusions::read()?)))
        {
            Ok((config, exclusions)) => {
                self.processes.set_worth(worth(&config.own));
                self.pipeline.set_config(config, exclusions);
                self.join_fleet();
                tracing::info!("configuration and exclusions were read again");
            }
            Err(error) => tracing::error!("the configuration stays as it was: {error:#}"),
        }
        self.pipeline.learner.forget_ineligible();
        self.read_installation();
        self.pipeline.learner.read_overrides();
        self.processes.search(Instant::now());
        self.pipeline.publisher.forget();
        self.pipeline.pass_on_events();
        notify::ready();
    }

    /// Takes part in a fleet, or no longer, as the configuration says. Without a fleet everything else works.
    fn join_fleet(&mut self) {
        self.fleet = None;
        let before = self.fleet_trouble.take();
        match self.try_to_join_fleet() {
            Ok(()) if before.is_none() => {}
            Ok(()) => tracing::info!("imasd takes part in the fleet now"),
            Err(error) => {
                let trouble = format!("imasd takes no part in the fleet: {error:#}");
                if before.is_none() {
                    tracing::error!("{trouble}; it tries again");
                }
                self.fleet_trouble = Some(trouble);
            }
        }
    }

    fn try_to_join_fleet(&mut self) -> Result<()> {
        let settings = self.pipeline.learner.fleet_settings().clone();
        if !settings.enabled {
            return self.pipeline.learner.join_fleet(None);
        }
        let host = fleet::host_name(&self.options.store)?;
        let mailbox = Mailbox::new(&settings, &host).context("inotify")?;
        self.wakeup.add_inbox(mailbox.events())?;
        let member = FleetMember { host, share: settings.share, turn_s: settings.turn_s };
        let cpus = self.pipeline.learner.conditions().cpus;
        let boot_id = self.pipeline.publisher.boot_id().to_owned();
        self.pipeline.learner.join_fleet(Some(Membership::new(member, boot_id, cpus)))?;
        self.fleet = Some(mailbox);
        Ok(())
    }

    fn fleet_turn(&mut self, now: Instant, is_woken: bool) {
        if let Some(fleet) = &mut self.fleet {
            fleet.turn(now, is_woken, &mut self.pipeline.learner);
        }
    }

    fn events(&self) -> &'static str {
        if self.processes.reports_exits() { "kernel" } else { "polling" }
    }

    /// Counters of all parts together.
    fn counters(&self) -> DaemonCounters {
        let own = DaemonCounters {
            events_lost: self.processes.events_lost,
            processes_overlooked: self.processes.overlooked(),
            ..DaemonCounters::default()
        };
        let fleet = self.fleet.as_ref().map(Mailbox::counts).unwrap_or_default();
        own + fleet + self.pipeline.counters()
    }

    fn reported(&self) -> Reported {
        let outside =
            |trouble: &String| FleetState { trouble: Some(trouble.clone()), ..FleetState::default() };
        let fleet = self.fleet.as_ref().map(|fleet| fleet.state().clone());
        let fleet = fleet.or_else(|| self.fleet_trouble.as_ref().map(outside));
        (self.counters(), fleet, self.pipeline.lives.troubles(), self.pipeline.trims.left_alone())
    }

    /// Writes the files that `imas status` reads, if they would say anything new.
    fn write_status(&mut self) {
        let reported = self.reported();
        if !self.status.is_new(&reported) {
            return;
        }
        let (counters, fleet, work_troubles, trims_left_alone) = reported;
        let me = std::process::id();
        let config = std::path::absolute(&self.options.config).unwrap_or_default();
        let programs = self.pipeline.learner.programs();
        let (trials_running, flights_watched) = self.pipeline.pages.watched_counts();
        let status = DaemonStatus {
            schema: 1,
            pid: me,
            start_ticks: imas_linux::process::start_ticks(me).unwrap_or(0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: self.options.store.to_string_lossy().into_owned(),
            config: config.to_string_lossy().into_owned(),
            retest_s: self.options.retest,
            events: self.events().to_owned(),
            accounts: self.accounts.as_ref().map_or_else(String::clone, |_| ACCOUNTED.to_owned()),
            programs: programs.len(),
            trials_offered: programs.all().map(|known| known.trial.untaken().len()).sum(),
            trials_running,
            flights_watched,
            emergency: self.pipeline.emergency.reason().map(str::to_owned),
            ineligible: self.pipeline.learner.ineligible().len(),
            work_troubles,
            trims_left_alone,
            counters,
            fleet,
        };
        self.status.write(&status, self.pipeline.learner.ineligible());
    }
}

/// Outside the first network namespace the kernel confirms the subscription and sends no records. It sends no process
/// events either, and these say so.
fn accounts(reports_exits: bool) -> Result<ExitAccounts, String> {
    if !reports_exits {
        return Err("the kernel reports no process events".to_owned());
    }
    ExitAccounts::open().map_err(|error| error.to_string())
}

fn worth(settings: &Settings) -> Worth {
    Worth { cpu_s: settings.worth_cpu_s, life_s: settings.worth_life_s }
}

fn make_folders(options: &Options, state: &Path) -> Result<()> {
    if options.user && options.lib_dir.is_none() {
        bail!("--user needs --lib-dir: nobody else approves a catalogue for this tree");
    }
    std::fs::create_dir_all(state).with_context(|| state.display().to_string())
}

/// Two daemons on one folder would take each other's trials for forged. Where the file system
/// has no locks, there is none.
///
/// Whoever can open a file can lock it, and everybody can open `state`: so the lock is on a file of its own that
/// nobody else can open.
fn lock(state: &Path) -> Result<Option<File>> {
    let folder = state.join("lock");
    let file = open_lock(&folder).with_context(|| folder.display().to_string())?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => bail!("{}: another imasd serves here", state.display()),
        Err(TryLockError::Error(error)) => {
            tracing::warn!("{}: no lock, so another imasd may serve here too: {error}", state.display());
            Ok(None)
        }
    }
}

fn open_lock(folder: &Path) -> std::io::Result<File> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    std::fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW);
    options.open(folder.join("imasd"))
}
