// SPDX-License-Identifier: Apache-2.0
//! Running processes give free pages back by themselves, where root has turned it on (`[trim]`). The rule is
//! [`imas_core::trimming`]; what takes time is done in a thread, by a reader of its own.

mod round;
mod settings;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use imas_core::Conditions;
use imas_core::trimming::TrimHistory;
use imas_engine::daemon_status::{DaemonCounters, LeftAloneProcess};
use imas_linux::foreign_process::owner_of_uid;
use imas_linux::trim_turns::TurnTaken;

use crate::shortage::{ShortageSettings, in_a_thread, is_short};
use round::Listed;
pub(crate) use settings::TrimSettings;
#[cfg(test)]
pub(crate) use settings::{TrimOf, TrimWhen};

/// Time between two looks whether a round has ended, and longest time between two rounds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
const LONGEST_BETWEEN: Duration = Duration::from_secs(120);
/// Most processes that the status names.
const MOST_NAMED: usize = 32;

/// Trims by themselves.
#[derive(Debug)]
pub(crate) struct Trims {
    settings: TrimSettings,
    shortage: ShortageSettings,
    /// Run folder of a user's own tree of processes; None where everybody is served.
    tree: Option<PathBuf>,
    history: TrimHistory,
    /// The rule's clock begins here.
    begun: Instant,
    next_round: Instant,
    /// Whether processes may be trimmed now, and not only looked at.
    may_trim: bool,
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
    pub(crate) fn new(settings: TrimSettings, shortage: ShortageSettings, tree: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            settings,
            shortage,
            tree,
            history: TrimHistory::default(),
            begun: now,
            next_round: now,
            may_trim: false,
            running: None,
        }
    }

    /// Takes new settings. What is known of processes stays.
    pub(crate) fn set(&mut self, settings: TrimSettings, shortage: ShortageSettings) {
        (self.settings, self.shortage) = (settings, shortage);
        self.next_round = Instant::now();
    }

    /// Begins a round where one is due.
    pub(crate) fn look(&mut self, conditions: &Conditions, now: Instant) {
        let Ok(rule) = self.settings.rule() else { return };
        if !self.settings.is_on() || self.running.is_some() || now < self.next_round {
            return;
        }
        self.may_trim = self.settings.when.is_none() || is_short(&self.shortage, conditions);
        if self.may_trim || self.history.awaits_look(&rule, now - self.begun) {
            self.next_round = now + rule.every.min(LONGEST_BETWEEN);
            let settings = self.settings.clone();
            self.running = in_a_thread(move || round::list(&settings)).map(Step::List);
        }
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
        let due = self.history.due(&rule, &all, now - self.begun);
        if self.may_trim && !due.is_empty() {
            let tree = self.tree.clone();
            self.running = in_a_thread(move || round::take(&rule, &due, tree.as_deref())).map(Step::Turns);
        }
    }

    fn ended(&mut self, taken: &[TurnTaken], now: Instant) {
        let Ok(rule) = self.settings.rule() else { return };
        for turn in taken {
            self.history.ended(&rule, turn.identity, turn.end, turn.took, now - self.begun);
            if let Some(words) = &turn.words {
                tracing::info!("trim: {} {words}", round::name(turn.identity.pid));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn trims(settings: TrimSettings) -> Trims {
        Trims::new(settings, ShortageSettings { asks: false, at: 1.0 }, None)
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
}
