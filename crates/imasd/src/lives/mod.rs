// SPDX-License-Identifier: Apache-2.0
//! How processes of services live on, looked at from outside: memory over hours, CPU time, work done.
//!
//! The sample of a trial comes after ten minutes. What people change allocators for shows later: whether
//! memory levels off. So processes on trial are looked at for as long as they live, in windows that double
//! with age ([`imas_core::service_life`]). Replicas that run untouched are looked at as well: they show how
//! much processes under one and the same allocator differ.

mod counter_reader;
mod look;
mod looker;
mod places;
mod watched_life;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use imas_core::service_life::LifeWindow;
use imas_engine::daemon_status::WorkTrouble;
use imas_store::lives::LivingProcess;

use crate::folders::PageName;
use crate::process_info::Identity;
use counter_reader::{CounterAnswer, CounterReader};
use look::{Look, Unseen};
use looker::Looker;
use places::share_out;
use watched_life::{Closed, WatchedLife};

pub(crate) use look::PageCounts;

/// Number of processes that are looked at, of all owners together ([`places`]).
const MOST: usize = 256;
/// Number of looks in one turn of the loop.
const MOST_LOOKS: usize = 16;

/// A process that is to be looked at.
#[derive(Debug, Clone)]
pub(crate) struct ObservedProcess {
    pub(crate) identity: Identity,
    /// Owner who answers for the process ([`crate::served_users::ServedUsers::number_of`]).
    pub(crate) owner: u64,
    pub(crate) process: LivingProcess,
    /// Page of the process, where it is on trial.
    pub(crate) page: Option<PageName>,
    /// Setting of how its work is counted.
    pub(crate) work: Option<WorkSetting>,
}

#[cfg(test)]
impl ObservedProcess {
    pub(crate) fn of_test(owner: u64, identity: Identity) -> Self {
        let process = LivingProcess {
            program: 1,
            name: "t".into(),
            is_trial: true,
            build_id: String::new(),
            machine: String::new(),
            begun_s: 0.0,
        };
        Self { identity, owner, process, page: None, work: None }
    }
}

/// The key `work` of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkSetting {
    /// The program, as the settings name it.
    pub(crate) name: String,
    pub(crate) command: String,
}

/// A window that is over.
#[derive(Debug)]
pub(crate) struct ClosedWindow {
    pub(crate) process: LivingProcess,
    pub(crate) window: LifeWindow,
}

/// The processes that are looked at.
#[derive(Debug)]
pub(crate) struct LifeTracker {
    /// Age at which the first window ends: that of a trial's sample, seconds.
    first_s: f64,
    lives: HashMap<Identity, WatchedLife>,
    looker: Looker,
    counters: CounterReader,
    /// Reason why a program's work could not be counted the last time. The keys are the programs as the
    /// settings name them.
    troubles: BTreeMap<String, String>,
    closed: Vec<ClosedWindow>,
    /// Time to see which processes there are.
    sync_at: Instant,
}

impl LifeTracker {
    pub(crate) fn new(first_s: f64) -> std::io::Result<Self> {
        Ok(Self {
            first_s,
            lives: HashMap::new(),
            looker: Looker::start()?,
            counters: CounterReader::new(),
            troubles: BTreeMap::new(),
            closed: vec![],
            sync_at: Instant::now(),
        })
    }

    /// Goes by this age from now on. Windows that are open are given up.
    pub(crate) fn set_first(&mut self, first_s: f64) {
        if self.first_s != first_s {
            self.first_s = first_s;
            self.lives.clear();
        }
        self.troubles.clear();
        self.sync_at = Instant::now();
    }

    /// Whether it is time for [`Self::sync`].
    pub(crate) fn is_sync_due(&self, now: Instant) -> bool {
        now >= self.sync_at
    }

    /// Takes these processes as those to look at.
    pub(crate) fn sync(&mut self, observed: Vec<ObservedProcess>, now: Instant) {
        let interval = Duration::try_from_secs_f64(self.first_s / 32.0).unwrap_or(Duration::MAX);
        self.sync_at = now + interval.clamp(Duration::from_millis(250), Duration::from_secs(5));
        let mut before = std::mem::take(&mut self.lives);
        let has_place = |one: &ObservedProcess| before.contains_key(&one.identity);
        for one in share_out(observed, MOST, has_place) {
            let life = match before.remove(&one.identity) {
                Some(known) if known.is_of(&one) => known,
                _ => self.begin(one, now),
            };
            self.lives.insert(life.identity(), life);
        }
    }

    fn begin(&mut self, one: ObservedProcess, now: Instant) -> WatchedLife {
        if let Some(work) = &one.work {
            self.counters.ask(one.identity, &work.command); // the first reading: later ones count from it
        }
        WatchedLife::new(one, self.first_s, now)
    }

    /// Processes that are to be looked at now, with their pages.
    pub(crate) fn due(&self, now: Instant) -> Vec<(Identity, Option<PageName>)> {
        let lives = self.lives.values().filter(|life| !self.looker.is_asked(life.identity()));
        let due = lives.filter(|life| life.next_at() <= now);
        due.take(MOST_LOOKS).map(|life| (life.identity(), life.page().cloned())).collect()
    }

    /// Asks for a look at one of the processes. `counts` is what its page has counted.
    pub(crate) fn ask(&mut self, identity: Identity, counts: PageCounts) {
        if let Some(life) = self.lives.get(&identity) {
            self.looker.ask((identity, life.owner()), counts);
        }
    }

    /// Takes up what was seen.
    pub(crate) fn take_looks(&mut self, now: Instant) {
        for (identity, looked) in self.looker.answers() {
            self.take_look(identity, looked, now);
        }
    }

    fn take_look(&mut self, identity: Identity, looked: Result<Look, Unseen>, now: Instant) {
        let Some(life) = self.lives.get_mut(&identity) else { return };
        let closed = match looked {
            Ok(look) => life.add(look, self.first_s, now),
            Err(Unseen::TooSlow) => return life.look_later(now),
            Err(Unseen::Gone) => {
                self.lives.remove(&identity);
                return;
            }
        };
        match closed {
            Closed::No => {}
            Closed::Waits(command) => self.counters.ask(identity, &command),
            Closed::Window(window) => self.closed.push(*window),
        }
    }

    /// Takes the answers of counters, and starts the next command.
    pub(crate) fn read_counters(&mut self) {
        for CounterAnswer { identity, reading } in self.counters.turn() {
            let Some(life) = self.lives.get_mut(&identity) else { continue };
            if let Some(name) = life.work_name() {
                note_trouble(&mut self.troubles, name, reading.as_ref().err());
            }
            self.closed.extend(life.counted(reading.ok()));
        }
    }

    /// Windows that are over, since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<ClosedWindow> {
        std::mem::take(&mut self.closed)
    }

    /// Programs whose work could not be counted.
    pub(crate) fn troubles(&self) -> Vec<WorkTrouble> {
        let of =
            |(program, why): (&String, &String)| WorkTrouble { program: program.clone(), why: why.clone() };
        self.troubles.iter().map(of).collect()
    }

    /// Time when there is work if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let lives = self.lives.values().filter(|life| !self.looker.is_asked(life.identity()));
        let looks = lives.map(WatchedLife::next_at).min();
        // Nothing is to be seen of programs that come and go meanwhile: whatever makes them known wakes the
        // loop.
        [looks.map(|at| at.min(self.sync_at)), self.looker.next(), self.counters.next()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Said once in the log, and in the status for as long as it lasts.
fn note_trouble(troubles: &mut BTreeMap<String, String>, name: &str, why: Option<&String>) {
    let Some(why) = why else {
        troubles.remove(name);
        return;
    };
    if troubles.get(name) != Some(why) {
        tracing::warn!(PROGRAM = name, "its work cannot be counted, so samples count without: {why}");
        troubles.insert(name.to_owned(), why.clone());
    }
}
