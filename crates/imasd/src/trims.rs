// SPDX-License-Identifier: Apache-2.0
//! Running processes give free pages back by themselves, where root has turned it on (`[trim]`). The rule is
//! [`imas_core::trimming`]; what takes time is done in a thread, by a reader of its own.
//!
//! One round: how all processes are, and the turns of those that the rule has chosen. Each is done in a thread.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use imas_core::adaptive::{Objective, weight};
use imas_core::trimming::{TrimEnd, TrimHistory, TrimRule, TrimTurn, Trimmable};
use imas_core::{Conditions, printable};
use imas_engine::amounts::{duration, size};
use imas_engine::daemon_status::{DaemonCounters, LeftAloneProcess};
use imas_linux::control_group::{self, NearLimit};
use imas_linux::foreign_process::{self, ForeignFile, ForeignReader, owner_of_uid};
use imas_linux::process;
use imas_linux::process_trim::{self, TurnTaken};
use serde::Deserialize;

/// Time between two looks whether a round has ended, and longest time between two rounds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
const LONGEST_BETWEEN: Duration = Duration::from_secs(120);
/// Time between two looks at control groups that are near their limits.
const BETWEEN_GROUPS: Duration = Duration::from_secs(30);
/// Most processes that the status names.
const MOST_NAMED: usize = 32;

/// Trims by themselves.
#[derive(Debug)]
pub(crate) struct Trims {
    settings: TrimSettings,
    /// Pressure on memory from which it is short, as the policy weighs it: from 0 to 1.
    short_at: f64,
    /// Run folder of a user's own tree of processes; None where everybody is served.
    tree: Option<PathBuf>,
    history: TrimHistory,
    /// The rule's clock begins here.
    begun: Instant,
    next_round: Instant,
    groups_at: Instant,
    /// Processes that may be trimmed in this round; the others are only looked at.
    may_trim: MayTrim,
    running: Option<Step>,
}

/// Events that a round waits for.
#[derive(Debug)]
enum Step {
    /// How all processes are. This thread knows who answers for them.
    List(Receiver<Vec<Listed>>),
    Turns(Receiver<Vec<TurnTaken>>),
}

impl Trims {
    pub(crate) fn new(settings: TrimSettings, short_at: f64, tree: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            settings,
            short_at,
            tree,
            history: TrimHistory::default(),
            begun: now,
            next_round: now,
            groups_at: now,
            may_trim: MayTrim::None,
            running: None,
        }
    }

    /// Takes new settings. What is known of processes stays.
    pub(crate) fn set(&mut self, settings: TrimSettings, short_at: f64) {
        (self.settings, self.short_at) = (settings, short_at);
        self.next_round = Instant::now();
    }

    /// Begins a round where one is due.
    pub(crate) fn look(&mut self, conditions: &Conditions, now: Instant) {
        let Ok(rule) = self.settings.rule() else { return };
        if !self.settings.is_on() || self.running.is_some() || now < self.next_round {
            return;
        }
        self.may_trim = self.may_trim_now(conditions, now);
        if self.may_trim != MayTrim::None || self.history.awaits_look(&rule, now - self.begun) {
            self.next_round = now + rule.every.min(LONGEST_BETWEEN);
            let (settings, may_trim) = (self.settings.clone(), self.may_trim.clone());
            self.running = in_a_thread(move || processes(&settings, &may_trim)).map(Step::List);
        }
    }

    fn may_trim_now(&mut self, conditions: &Conditions, now: Instant) -> MayTrim {
        if self.settings.when.is_none() || self.is_short(conditions) {
            return MayTrim::All;
        }
        if now < self.groups_at {
            return MayTrim::None;
        }
        self.groups_at = now + BETWEEN_GROUPS;
        self.short_groups(control_group::services_near_limits())
    }

    fn short_groups(&self, groups: Vec<NearLimit>) -> MayTrim {
        let is_short = |group: &NearLimit| {
            self.is_short(&Conditions { group_memory_used: Some(group.used), ..Conditions::default() })
        };
        let short: Vec<PathBuf> = groups.into_iter().filter(is_short).map(|group| group.folder).collect();
        if short.is_empty() { MayTrim::None } else { MayTrim::Groups(short) }
    }

    fn is_short(&self, conditions: &Conditions) -> bool {
        weight(conditions, Objective::Auto).memory >= self.short_at
    }

    /// Takes in what a round has found, and goes on with it.
    pub(crate) fn turn(&mut self, now: Instant) {
        match self.running.take() {
            None => {}
            Some(Step::List(list)) => match list.try_recv() {
                Ok(listed) => self.go_on(&listed, now),
                Err(TryRecvError::Empty) => self.running = Some(Step::List(list)),
                Err(TryRecvError::Disconnected) => {}
            },
            Some(Step::Turns(turns)) => match turns.try_recv() {
                Ok(taken) => self.ended(&taken, now),
                Err(TryRecvError::Empty) => self.running = Some(Step::Turns(turns)),
                Err(TryRecvError::Disconnected) => {}
            },
        }
    }

    /// Time to take a turn if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map(|_| Instant::now() + BETWEEN_LOOKS)
    }

    fn go_on(&mut self, listed: &[Listed], now: Instant) {
        let Ok(rule) = self.settings.rule() else { return };
        let all: Vec<_> = listed.iter().map(|one| one.trimmable(owner_of_uid(one.uid))).collect();
        self.history.look(&rule, &all, now - self.begun);
        let may: Vec<_> =
            all.iter().zip(listed).filter(|(_, one)| one.may_be_trimmed).map(|(one, _)| *one).collect();
        let due = self.history.due(&rule, &may, now - self.begun);
        if !due.is_empty() {
            let tree = self.tree.clone();
            self.running = in_a_thread(move || take_turns(&rule, &due, tree.as_deref())).map(Step::Turns);
        }
    }

    fn ended(&mut self, taken: &[TurnTaken], now: Instant) {
        let Ok(rule) = self.settings.rule() else { return };
        for turn in taken {
            self.history.ended(&rule, turn.identity, turn.end, turn.took, now - self.begun);
            if turn.is_news {
                tracing::info!("trim: {} {}", name_of(turn.identity.pid), turn.words);
            }
        }
    }

    pub(crate) fn counts(&self) -> DaemonCounters {
        let sums = self.history.sums();
        DaemonCounters {
            trims_outside: sums.trims,
            trims_returned_mib: sums.returned >> 20,
            trims_came_back_mib: sums.came_back >> 20,
            trims_spent_ms: u64::try_from(sums.spent.as_millis()).unwrap_or(u64::MAX),
            ..DaemonCounters::default()
        }
    }

    /// Processes that took their pages back and are left alone.
    pub(crate) fn left_alone(&self) -> Vec<LeftAloneProcess> {
        let pauses = self.history.pauses(self.begun.elapsed()).into_iter().take(MOST_NAMED);
        let process = |pause: imas_core::trimming::TrimPause| LeftAloneProcess {
            pid: pause.identity.pid,
            returned_mib: pause.returned >> 20,
            came_back_mib: pause.came_back >> 20,
            pause_s: pause.pause.as_secs(),
        };
        pauses.map(process).collect()
    }
}

/// The turns of one round take so long at most. Who was not reached has the first turns of the next one.
const LONGEST: Duration = Duration::from_secs(60);

/// Processes that may be trimmed in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
enum MayTrim {
    None,
    /// Processes of services near their limits of memory, by the folders of their control groups.
    Groups(Vec<PathBuf>),
    All,
}

/// A process, before it is known who answers for it.
#[derive(Debug, Clone, Copy)]
struct Listed {
    process: Trimmable,
    uid: u32,
    may_be_trimmed: bool,
}

impl Listed {
    fn trimmable(&self, owner: u64) -> Trimmable {
        Trimmable { owner, ..self.process }
    }
}

/// All processes that the settings mean, but this one.
fn processes(settings: &TrimSettings, may_trim: &MayTrim) -> Vec<Listed> {
    let of_groups: Option<BTreeSet<u32>> = match may_trim {
        MayTrim::All => None,
        MayTrim::None => Some(BTreeSet::new()),
        MayTrim::Groups(folders) => {
            Some(folders.iter().flat_map(|folder| control_group::processes(folder)).collect())
        }
    };
    let may_be_trimmed = |pid| of_groups.as_ref().is_none_or(|pids| pids.contains(&pid));
    let others = process::pids().unwrap_or_default().into_iter().filter(|pid| *pid != std::process::id());
    let meant = others.filter(|pid| {
        settings.means(|| std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default())
    });
    meant.filter_map(|pid| listed(pid, may_be_trimmed(pid))).collect()
}

fn listed(pid: u32, may_be_trimmed: bool) -> Option<Listed> {
    let process = process_trim::trimmable(pid, 0)?;
    Some(Listed { process, uid: foreign_process::real_uid(pid)?, may_be_trimmed })
}

/// Takes the turns in this order. `tree`: only processes that read the index below this folder.
fn take_turns(rule: &TrimRule, turns: &[TrimTurn], tree: Option<&Path>) -> Vec<TurnTaken> {
    let (mut reader, until) = (ForeignReader::default(), Instant::now() + LONGEST);
    let in_time = turns.iter().take_while(|_| Instant::now() < until);
    in_time.map(|turn| taken(&mut reader, rule, turn, tree)).collect()
}

fn taken(reader: &mut ForeignReader, rule: &TrimRule, turn: &TrimTurn, tree: Option<&Path>) -> TurnTaken {
    let TrimTurn { identity, owner, .. } = *turn;
    match tree.is_none_or(|tree| is_of_tree(reader, (identity.pid, owner), tree)) {
        true => process_trim::take_turns(reader, rule, turn),
        false => TurnTaken {
            identity,
            end: TrimEnd::LeftAlone,
            took: (Duration::ZERO, Duration::ZERO),
            words: String::new(),
            is_news: false,
        },
    }
}

/// Whether the process, for which that owner answers, reads the index below this folder.
fn is_of_tree(reader: &mut ForeignReader, (pid, owner): (u32, u64), tree: &Path) -> bool {
    let environment = reader.read(pid, ForeignFile::Environment, || Some(owner)).unwrap_or_default();
    let run = |entry: &[u8]| {
        let value = entry.strip_prefix(imas_abi::env::RUN.as_bytes())?.strip_prefix(b"=")?;
        Some(value == tree.as_os_str().as_bytes())
    };
    environment.split(|byte| *byte == 0).find_map(run) == Some(true)
}

/// Does the work in a thread; None where none can be had.
fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<Receiver<T>> {
    let (sender, receiver) = channel();
    let work = move || {
        let _ = sender.send(work()); // unless imasd is ending
    };
    match std::thread::Builder::new().name("trims".to_owned()).spawn(work) {
        Ok(_) => Some(receiver),
        Err(error) => {
            tracing::debug!("running processes cannot be trimmed: {error}");
            None
        }
    }
}

/// Name of a process for the log.
fn name_of(pid: u32) -> String {
    let comm = process::stat(pid).map_or_else(String::new, |stat| stat.comm);
    format!("process {pid} ({})", printable::name(&comm))
}

/// Time between two trims of a process where the section names none.
const USUAL: &str = "10m";
/// More often than once in this time would take pages away that are about to be used.
const SHORTEST: Duration = Duration::from_secs(60);

/// When running processes are trimmed by themselves, and which.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct TrimSettings {
    /// `pressure`: while memory is short; without it, always.
    pub(super) when: Option<TrimWhen>,
    /// Shortest time between two trims of a process.
    pub(super) every: Option<String>,
    /// Fewest free bytes for which a thread is disturbed.
    pub(super) at_least: String,
    /// All processes, or the processes of the listed services.
    pub(super) of: TrimOf,
    /// Services of the system.
    pub(super) units: BTreeSet<String>,
    /// Keys that the section does not have.
    #[serde(flatten)]
    pub(super) unknown: toml::Table,
}

/// Condition of a trim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TrimWhen {
    Pressure,
}

/// Processes that are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TrimOf {
    #[default]
    All,
    Listed,
}

impl Default for TrimSettings {
    fn default() -> Self {
        Self {
            when: None,
            every: None,
            at_least: "32M".to_owned(),
            of: TrimOf::All,
            units: BTreeSet::new(),
            unknown: toml::Table::new(),
        }
    }
}

impl TrimSettings {
    /// Checks the section. The error is what is wrong with it, with the name of the key.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(key) = self.unknown.keys().next() {
            return Err(format!("[trim] unknown key `{key}`"));
        }
        self.rule()?;
        match (self.of, self.units.is_empty()) {
            (TrimOf::Listed, true) => {
                Err("[trim] of = \"listed\": units = [\"NAME.service\", ...] lists them".to_owned())
            }
            (TrimOf::All, false) => {
                Err("[trim] units: of = \"listed\" goes with it, or all are trimmed".to_owned())
            }
            _ => match self.units.iter().find(|unit| !unit.ends_with(".service")) {
                Some(unit) => Err(format!("[trim] units: {unit} is no service: its name ends with .service")),
                None => Ok(()),
            },
        }
    }

    /// Whether anything is trimmed.
    fn is_on(&self) -> bool {
        self.when.is_some() || self.every.is_some()
    }

    /// The rule of these settings.
    fn rule(&self) -> Result<TrimRule, String> {
        let every = duration(self.every.as_deref().unwrap_or(USUAL));
        let every = every.map_err(|why| format!("[trim] every: {why}"))?;
        if every < SHORTEST {
            return Err("[trim] every: less than a minute: what is free now is often wanted again".to_owned());
        }
        let at_least = size(&self.at_least).map_err(|why| format!("[trim] at_least: {why}"))?;
        Ok(TrimRule { every, at_least })
    }

    /// Whether the process with this text in its `/proc/PID/cgroup` is meant.
    fn means(&self, cgroup: impl FnOnce() -> String) -> bool {
        match self.of {
            TrimOf::All => true,
            TrimOf::Listed => {
                imas_linux::index::unit_of_cgroup(&cgroup()).is_some_and(|unit| self.units.contains(unit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trims(settings: TrimSettings) -> Trims {
        Trims::new(settings, 1.0, None)
    }

    fn begins(mut trims: Trims, conditions: &Conditions) -> bool {
        trims.look(conditions, Instant::now());
        trims.running.is_some()
    }

    #[test]
    fn a_round_begins_where_it_is_asked_for_and_its_time_has_come() {
        let enough = Conditions {
            mem_available_bytes: 8 << 30,
            mem_total_bytes: Some(16 << 30),
            ..Conditions::default()
        };
        let short = Conditions { memory_some_pct: Some(50.0), ..enough };
        let each = TrimSettings { every: Some("10m".into()), ..TrimSettings::default() };
        let pressure = TrimSettings { when: Some(TrimWhen::Pressure), ..TrimSettings::default() };
        assert!(!begins(trims(TrimSettings::default()), &short));
        assert!(begins(trims(each.clone()), &enough));
        assert!(!begins(trims(pressure.clone()), &enough));
        assert!(begins(trims(pressure), &short));
        let mut waits = trims(each);
        waits.next_round = Instant::now() + LONGEST_BETWEEN;
        assert!(!begins(waits, &enough));
    }

    #[test]
    fn services_near_their_limits_are_trimmed_where_the_machine_has_enough() {
        let pressure = TrimSettings { when: Some(TrimWhen::Pressure), ..TrimSettings::default() };
        let trims = trims(pressure);
        let near = |folder: &str, used| NearLimit { folder: folder.into(), used };
        let groups = vec![near("/b", 0.96), near("/a", 0.99), near("/c", 0.9)];
        assert_eq!(trims.short_groups(groups), MayTrim::Groups(vec!["/b".into(), "/a".into()]));
        assert_eq!(trims.short_groups(vec![near("/c", 0.9)]), MayTrim::None);
    }

    #[test]
    fn memory_is_short_where_the_policy_says_so() {
        let trims = trims(TrimSettings::default());
        let enough = Conditions {
            mem_available_bytes: 8 << 30,
            mem_total_bytes: Some(16 << 30),
            ..Conditions::default()
        };
        assert!(!trims.is_short(&enough));
        assert!(trims.is_short(&Conditions { memory_some_pct: Some(10.0), ..enough }));
        assert!(trims.is_short(&Conditions { memory_full_pct: Some(5.0), ..enough }));
        assert!(trims.is_short(&Conditions { mem_available_bytes: 1 << 28, ..enough }));
    }

    fn read(text: &str) -> Result<TrimSettings, String> {
        let settings: TrimSettings = toml::from_str(text).map_err(|error| error.to_string())?;
        settings.check().map(|()| settings)
    }

    #[test]
    fn nothing_is_trimmed_unless_it_is_asked_for() {
        assert!(!read("").unwrap().is_on() && !read("at_least = '64M'").unwrap().is_on());
        for text in ["when = 'pressure'", "every = '10m'"] {
            assert!(read(text).unwrap().is_on());
        }
        let rule = read("every = '2m'\nat_least = '64M'").unwrap().rule().unwrap();
        assert_eq!(rule, TrimRule { every: Duration::from_secs(120), at_least: 64 << 20 });
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, part) in [
            ("every = '10'", "less than a minute"),
            ("every = 'soon'", "[trim] every: "),
            ("at_least = '0'", "[trim] at_least: "),
            ("ever = '10m'", "[trim] unknown key `ever`"),
            ("when = 'always'", "pressure"),
            ("of = 'listed'", "units = ["),
            ("units = ['a.service']", "of = \"listed\""),
            ("of = 'listed'\nunits = ['nginx']", "nginx is no service"),
        ] {
            let why = read(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn services_of_the_system_are_known_by_their_group_and_no_user_has_one() {
        let settings = read("of = 'listed'\nunits = ['db.service']").unwrap();
        let means = |group: &str| settings.means(|| format!("0::{group}\n"));
        assert!(means("/system.slice/db.service") && means("/system.slice/db.service/worker"));
        assert!(!means("/system.slice/web.service") && !means("/"));
        assert!(!means("/user.slice/user-1000.slice/user@1000.service/app.slice/db.service"));
        assert!(read("").unwrap().means(String::new));
    }
}
