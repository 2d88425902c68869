// SPDX-License-Identifier: Apache-2.0
//! How processes of services live on, looked at from outside: memory over hours, CPU time, work done.
//!
//! The sample of a trial comes after ten minutes. What people change allocators for shows later: whether
//! memory levels off. So processes on trial are looked at for as long as they live, in windows that double
//! with age ([`imas_core::service_life`]). Replicas that run untouched are looked at as well: they show how
//! much processes under one and the same allocator differ.
//!
//! Looks at processes in a thread of its own: a look takes six seconds for each terabyte that a process has mapped, and
//! the loop serves others meanwhile.
//!
//! Places for processes that are looked at, and the owners that get them. Owners take turns, so the processes of one
//! leave the others theirs.

mod watched_life;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use imas_core::service_life::{LifeWindow, MemoryLook};
use imas_engine::daemon_status::WorkTrouble;
use imas_linux::foreign_process::{ForeignFile, ForeignReader, anonymous_bytes};
use imas_linux::process::stat;
use imas_linux::running::copies;
use imas_linux::standstill::age_s;
use imas_store::RowId;
use imas_store::lives::LivingProcess;
use procfs::process::Stat;

use crate::folders::PageName;
use crate::process_info::{Identity, is_running};
use watched_life::{Closed, CounterAnswer, CounterReader, WatchedLife};

/// Number of processes that are looked at, of all owners together.
const MOST: usize = 256;
/// Number of looks in one turn of the loop.
const MOST_LOOKS: usize = 16;

/// A process that is to be looked at.
#[derive(Debug, Clone)]
pub(crate) struct ObservedProcess {
    pub(crate) identity: Identity,
    /// Owner who answers for the process ([`crate::folders::ServedUsers::number_of`]).
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
    /// Age at which the first window ends, and a trial's sample is taken, seconds.
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

/// Counts of a process's page; zeros without a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PageCounts {
    pub(super) live_bytes: u64,
    pub(super) calls: u64,
}

/// Figures that were seen of a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    pub(super) memory: MemoryLook,
    /// CPU time since the process's start, seconds.
    pub(super) cpu_s: f64,
    /// malloc calls since the process's start; 0 where they are not known.
    pub(super) calls: u64,
}

/// Reason why there is no look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unseen {
    /// The process has ended.
    Gone,
    /// The process is too large or too slow to be looked at, or its owner's processes have taken too much
    /// time.
    TooSlow,
}

/// A look at a process and its copies takes no longer than this; a read that has begun is ended by the reader.
const LONGEST: Duration = Duration::from_secs(1);

/// Looks at the process. `owner` answers for it, and for the time that the reads of all copies take together.
pub(super) fn look(
    reader: &mut ForeignReader,
    (identity, owner): (Identity, u64),
    counts: PageCounts,
) -> Result<Look, Unseen> {
    let family = copies(identity.pid).ok_or(Unseen::TooSlow)?;
    // A page counts its own process alone.
    let counts = if family.len() > 1 { PageCounts::default() } else { counts };
    let mut resident = |pid: u32| match reader.read(pid, ForeignFile::SmapsRollup, || Some(owner)) {
        Ok(text) => anonymous_bytes(&text).ok_or(Unseen::Gone),
        Err(error) if error.kind() == ErrorKind::TimedOut => Err(Unseen::TooSlow),
        Err(_) => Err(Unseen::Gone),
    };
    let begin = Instant::now();
    let mut sum = || {
        let mut bytes = resident(identity.pid)?;
        for child in family.iter().skip(1) {
            match resident(*child) {
                _ if begin.elapsed() > LONGEST => return Err(Unseen::TooSlow),
                Ok(of_child) => bytes += of_child,
                Err(Unseen::Gone) => {} // it has ended meanwhile
                Err(slow) => return Err(slow),
            }
        }
        Ok(bytes)
    };
    let bytes = sum();
    if family.len() > 1 {
        reader.charge(owner, begin.elapsed());
    }
    let bytes = bytes?;
    let (age_s, cpu_s) = age_s(identity.start_ticks).zip(cpu_of(&family)).ok_or(Unseen::Gone)?;
    let memory = MemoryLook { age_s, bytes, live_bytes: counts.live_bytes };
    is_running(identity).then_some(Look { memory, cpu_s, calls: counts.calls }).ok_or(Unseen::Gone)
}

/// CPU time of the process and the children that it forked, seconds; `None` when it is gone.
pub(super) fn cpu_s(pid: u32) -> Option<f64> {
    cpu_of(&copies(pid)?)
}

/// CPU time of the processes and of the children that these have waited for, seconds.
fn cpu_of(family: &[u32]) -> Option<f64> {
    let first = stat(*family.first()?)?;
    let others = family.iter().skip(1).filter_map(|pid| stat(*pid));
    let ticks: f64 = std::iter::once(first).chain(others).map(|stat| ticks(&stat)).sum();
    Some(ticks / procfs::ticks_per_second() as f64)
}

fn ticks(stat: &Stat) -> f64 {
    let waited_for = stat.cutime.max(0) + stat.cstime.max(0);
    (stat.utime + stat.stime) as f64 + waited_for as f64
}

/// Time between two looks whether there are answers.
const BETWEEN: Duration = Duration::from_millis(50);

/// A process, who answers for it, and what its page has counted.
type Question = (Identity, u64, PageCounts);
type Answer = (Identity, std::result::Result<Look, Unseen>);

/// Looks at the processes that it is asked about, one after the other.
#[derive(Debug)]
struct Looker {
    questions: Sender<Question>,
    answers: Receiver<Answer>,
    /// Processes that were asked about.
    asked: HashSet<Identity>,
}

impl Looker {
    /// Starts the thread. It ends with this value.
    fn start() -> io::Result<Self> {
        let (questions, asked) = channel::<Question>();
        let (sender, answers) = channel();
        let work = move || {
            let mut reader = ForeignReader::default();
            for (identity, owner, counts) in asked {
                let looked = look(&mut reader, (identity, owner), counts);
                if sender.send((identity, looked)).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("lives".to_owned()).spawn(work)?;
        Ok(Self { questions, answers, asked: HashSet::new() })
    }

    /// Whether the process is being looked at.
    fn is_asked(&self, identity: Identity) -> bool {
        self.asked.contains(&identity)
    }

    fn ask(&mut self, (identity, owner): (Identity, u64), counts: PageCounts) {
        if self.questions.send((identity, owner, counts)).is_ok() {
            self.asked.insert(identity);
        } else if let Ok(anew) = Self::start() {
            *self = anew; // the thread panicked; what it was asked is asked again
        }
    }

    /// Answers since the last call.
    fn answers(&mut self) -> Vec<Answer> {
        let answers: Vec<_> = self.answers.try_iter().collect();
        for (identity, _) in &answers {
            self.asked.remove(identity);
        }
        answers
    }

    /// Time to ask for answers if nothing happens.
    fn next(&self) -> Option<Instant> {
        (!self.asked.is_empty()).then(|| Instant::now() + BETWEEN)
    }
}

/// Processes that get a place, as many as there are places for. Of each owner's processes those that have a
/// place already come first.
fn share_out(
    observed: Vec<ObservedProcess>,
    most: usize,
    has_place: impl Fn(&ObservedProcess) -> bool,
) -> Vec<ObservedProcess> {
    if observed.len() <= most {
        return observed;
    }
    let mut by_owner = BTreeMap::<u64, Vec<ObservedProcess>>::new();
    for one in observed {
        by_owner.entry(one.owner).or_default().push(one);
    }
    let mut in_turns = vec![];
    for mut theirs in by_owner.into_values() {
        theirs.sort_by_key(|one| !has_place(one));
        in_turns.extend(theirs.into_iter().enumerate());
    }
    in_turns.sort_by_key(|(turn, _)| *turn);
    in_turns.into_iter().map(|(_, one)| one).take(most).collect()
}

/// A process on trial.
#[derive(Debug)]
pub(super) struct LivingTrial {
    pub(super) identity: Identity,
    pub(super) page: PageName,
    pub(super) program: RowId,
    /// Id of the trial, as its sample is stored.
    pub(super) trial_id: String,
    pub(super) build_id: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_info::Identity;

    #[test]
    fn the_processes_of_one_owner_leave_others_their_places() {
        let process =
            |owner: u64, pid: u32| ObservedProcess::of_test(owner, Identity { pid, start_ticks: 1 });
        let mallorys = (0..1000).map(|pid| process(2001, pid));
        let alices = (2000..2003).map(|pid| process(2002, pid));
        let observed: Vec<_> = mallorys.chain(alices).collect();
        let places = share_out(observed, 256, |one| one.identity.pid == 999);
        let count = |owner| places.iter().filter(|one| one.owner == owner).count();
        assert_eq!((count(2001), count(2002)), (253, 3));
        assert!(places.iter().any(|one| one.identity.pid == 999), "it had a place");
    }
}
