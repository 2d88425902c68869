// SPDX-License-Identifier: Apache-2.0
//! Where memory is short, on the machine or in the control group of a service, running processes are asked to give
//! their free pages back. Nothing is done as long as it is not.
//!
//! - [`mod@self`]: when a round begins, and what came of it
//! - `round`: one round, in a thread of its own: who could return most, and their answers

mod round;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use imas_core::Conditions;
use imas_core::adaptive::{Objective, weight};
use imas_engine::daemon_status::DaemonCounters;
use imas_linux::control_group::{self, NearLimit};

use round::{Outcome, Place};

/// Time between two looks at control groups, and between two rounds. A round that returned little doubles its pause.
const BETWEEN_GROUPS: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_secs(60);
const LONGEST: Duration = Duration::from_secs(3600);
/// Fewer bytes are little.
const LITTLE: u64 = 8 << 20;
/// Time between two looks whether a round has ended.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

/// When memory is short.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ShortageSettings {
    /// Whether processes are asked at all.
    pub(crate) asks: bool,
    /// Pressure on memory from which it is short, as the policy weighs it: from 0 to 1.
    pub(crate) at: f64,
}

/// Rounds of questions to running processes.
#[derive(Debug)]
pub(crate) struct Shortage {
    settings: ShortageSettings,
    /// Run folder of a user's own tree of processes; None where everybody is served.
    tree: Option<PathBuf>,
    running: Option<Receiver<Outcome>>,
    groups_at: Instant,
    next_round: Instant,
    pause: Duration,
    counts: DaemonCounters,
}

impl Shortage {
    pub(crate) fn new(settings: ShortageSettings, tree: Option<PathBuf>) -> Self {
        let now = Instant::now();
        Self {
            settings,
            tree,
            running: None,
            groups_at: now,
            next_round: now,
            pause: SHORTEST,
            counts: DaemonCounters::default(),
        }
    }

    pub(crate) fn set(&mut self, settings: ShortageSettings) {
        self.settings = settings;
    }

    pub(crate) fn counts(&self) -> DaemonCounters {
        self.counts
    }

    /// Begins a round where memory is short.
    pub(crate) fn look(&mut self, conditions: &Conditions, now: Instant) {
        if !self.settings.asks || self.running.is_some() || now < self.next_round {
            return;
        }
        if self.is_short(conditions) {
            self.begin(Place::Machine);
        } else if now >= self.groups_at {
            self.groups_at = now + BETWEEN_GROUPS;
            let group = control_group::services_near_limits();
            let fullest = group.into_iter().max_by(|a, b| a.used.total_cmp(&b.used));
            if let Some(NearLimit { folder, .. }) = fullest.filter(|group| self.is_group_short(group)) {
                self.begin(Place::Group(folder));
            }
        }
    }

    /// Takes the outcome of a round in.
    pub(crate) fn turn(&mut self, now: Instant) {
        let Some(outcome) = self.running.as_ref().map(Receiver::try_recv) else { return };
        match outcome {
            Ok(outcome) => self.ended(&outcome, now),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => self.ended(&Outcome::default(), now),
        }
    }

    /// Time to take a turn if nothing happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.running.as_ref().map(|_| Instant::now() + BETWEEN_LOOKS)
    }

    fn is_short(&self, conditions: &Conditions) -> bool {
        weight(conditions, Objective::Auto).memory >= self.settings.at
    }

    fn is_group_short(&self, group: &NearLimit) -> bool {
        self.is_short(&Conditions { group_memory_used: Some(group.used), ..Conditions::default() })
    }

    fn begin(&mut self, place: Place) {
        let (sender, receiver) = channel();
        let tree = self.tree.clone();
        let work = move || {
            let _ = sender.send(round::ask(&place, tree.as_deref())); // unless imasd is ending
        };
        match std::thread::Builder::new().name("shortage".to_owned()).spawn(work) {
            Ok(_) => self.running = Some(receiver),
            Err(error) => tracing::debug!("memory is short, and nobody can be asked: {error}"),
        }
    }

    fn ended(&mut self, outcome: &Outcome, now: Instant) {
        self.running = None;
        self.counts.trims_asked += outcome.asked;
        self.counts.trims_answered += outcome.answers.len() as u64;
        let bytes = outcome.bytes();
        self.counts.trimmed_mib += bytes >> 20;
        for answer in &outcome.answers {
            tracing::info!("{}: {}", outcome.place, answer.words());
        }
        self.pause = if bytes >= LITTLE { SHORTEST } else { LONGEST.min(self.pause * 2) };
        self.next_round = now + self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::round::Answer;
    use super::*;

    const SETTINGS: ShortageSettings = ShortageSettings { asks: true, at: 1.0 };

    fn enough() -> Conditions {
        Conditions { mem_available_bytes: 8 << 30, mem_total_bytes: Some(16 << 30), ..Conditions::default() }
    }

    #[test]
    fn memory_is_short_where_the_policy_says_so() {
        let shortage = Shortage::new(SETTINGS, None);
        assert!(!shortage.is_short(&enough()));
        assert!(shortage.is_short(&Conditions { memory_some_pct: Some(10.0), ..enough() }));
        assert!(shortage.is_short(&Conditions { memory_full_pct: Some(5.0), ..enough() }));
        assert!(shortage.is_short(&Conditions { mem_available_bytes: 1 << 28, ..enough() }));
        let group = |used| NearLimit { folder: "/x".into(), used };
        assert_eq!(
            (shortage.is_group_short(&group(0.96)), shortage.is_group_short(&group(0.9))),
            (true, false)
        );
    }

    #[test]
    fn nothing_begins_unless_memory_is_short_and_the_pause_is_over() {
        let now = Instant::now();
        let short = Conditions { memory_some_pct: Some(50.0), ..enough() };
        let mut off = Shortage::new(ShortageSettings { asks: false, ..SETTINGS }, None);
        off.look(&short, now);
        let mut enough_left = Shortage::new(SETTINGS, None);
        enough_left.groups_at = now + SHORTEST;
        enough_left.look(&enough(), now);
        let mut waits = Shortage::new(SETTINGS, None);
        waits.next_round = now + SHORTEST;
        waits.look(&short, now);
        assert!(off.running.is_none() && enough_left.running.is_none() && waits.running.is_none());
    }

    #[test]
    fn a_round_that_returns_little_is_followed_by_a_longer_pause() {
        let now = Instant::now();
        let mut shortage = Shortage::new(SETTINGS, None);
        let answer = |bytes| Answer { pid: 1, name: "x".into(), bytes: Some(bytes), took_ns: 1 };
        let outcome = |bytes| Outcome { asked: 2, answers: vec![answer(bytes)], ..Outcome::default() };
        shortage.ended(&outcome(1), now);
        assert_eq!(shortage.next_round, now + 2 * SHORTEST);
        for _ in 0..9 {
            shortage.ended(&Outcome::default(), now);
        }
        assert_eq!(shortage.next_round, now + LONGEST);
        shortage.ended(&outcome(LITTLE), now);
        assert_eq!(shortage.next_round, now + SHORTEST);
        let counts = shortage.counts();
        assert_eq!((counts.trims_asked, counts.trims_answered, counts.trimmed_mib), (4, 2, 8));
    }
}
